"""What the terminal shows: tables and a progress bar."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table

from postlin.workbench.evaluation.runner import Progress
from postlin.workbench.report.sections import spoken

#: Tables wide enough for their figures even where the output is not a terminal.
_WIDTH = 160

#: What a person reads; results that a program may want go to files.
console = Console(width=None if sys.stdout.isatty() else _WIDTH)
notes = Console(stderr=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[Progress], None]]:
    """A live bar with the time left, on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=notes, transient=not notes.is_terminal) as bar:
        handle = bar.add_task(what, total=None)

        def report(state: Progress) -> None:
            label = f"{state.task.data} {spoken(state.task)}" if state.task else what
            bar.update(handle, completed=state.done, total=state.total, description=label)

        yield report


def print_table(title: str, header: list[str], rows: list[list[str]], text_columns: int = 2) -> None:
    """A table in the terminal."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for k, name in enumerate(header):
        table.add_column(
            name, justify="left" if k < text_columns else "right", no_wrap=k < text_columns
        )
    for row in rows:
        table.add_row(*row)
    console.print(table)
