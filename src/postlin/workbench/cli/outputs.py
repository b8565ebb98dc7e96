"""What the command line gives a person: tables and a progress bar in the terminal, and files."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from rich import box
from rich import progress as bars
from rich.console import Console
from rich.table import Table

from postlin._files import write_atomically
from postlin.workbench.cli.inputs import BadInputError
from postlin.workbench.evaluation.folds import Report, Task
from postlin.workbench.evaluation.scores import COLUMNS, Cell, Summary
from postlin.workbench.report.sections import spoken

#: Tables go to standard output, remarks to standard error; results for programs go to files. Where the
#: output is not a terminal, tables are wide enough for their numbers.
console = Console(width=None if sys.stdout.isatty() else 160)
notes = Console(stderr=True)


@contextmanager
def progress(what: str) -> Iterator[Report]:
    """Show a bar with the remaining time on standard error; call the result to move it."""
    times = bars.TimeElapsedColumn(), "left", bars.TimeRemainingColumn()
    columns = "{task.description}", bars.BarColumn(), bars.MofNCompleteColumn(), *times
    with bars.Progress(*columns, console=notes, transient=not notes.is_terminal) as bar:
        handle = bar.add_task(what, total=None)

        def report(done: int, total: int, task: Task | None) -> None:
            label = f"{task.data} {spoken(task)}" if task else what
            bar.update(handle, completed=done, total=total, description=label)

        yield report


def print_table(title: str, header: list[str], rows: list[list[str]], text_columns: int = 2) -> None:
    """Print a table; the first columns hold text and are aligned to the left."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for k, name in enumerate(header):
        text = k < text_columns
        table.add_column(name, justify="left" if text else "right", no_wrap=text)
    for row in rows:
        table.add_row(*row)
    console.print(table)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write a file into bad input."""
    try:
        yield
    except OSError as error:
        raise BadInputError(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file and the folders that lead to it; the file appears whole or not at all."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(text.encode()))


def write_results(folder: Path, summaries: dict[Cell, Summary]) -> None:
    """Write ``results.json`` and ``results.csv``, which hold every score with its standard error."""
    records = []
    for cell, summary in summaries.items():
        record: dict[str, object] = {k: v for k, v in cell._asdict().items() if v is not None}
        for name in COLUMNS:
            score = getattr(summary, name)
            record |= {name: score.mean, f"{name}_se": score.error}
        records.append(record | {"converged": summary.converged, "folds": summary.folds})
    write_text(folder / "results.json", json.dumps(records, indent=1) + "\n")
    write_text(folder / "results.csv", pd.DataFrame(records).to_csv(index=False, lineterminator="\n"))
