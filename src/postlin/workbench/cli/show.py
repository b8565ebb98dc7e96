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

from postlin.workbench.evaluation.folds import Task
from postlin.workbench.evaluation.runner import Progress
from postlin.workbench.evaluation.scores import Score
from postlin.workbench.evaluation.summary import COLUMNS, Cell, Summary
from postlin.workbench.paper.table import SETS, Comparison

#: Tables wide enough for their figures even where the output is not a terminal.
_WIDTH = 160

#: What a person reads; results that a program may want go to files.
console = Console(width=None if sys.stdout.isatty() else _WIDTH)
notes = Console(stderr=True)

SHORT = {
    "probit": "probit",
    "logit": "logit",
    "noisy_threshold": "noisy threshold",
    "softmax": "softmax",
    "one_vs_rest": "one vs rest",
    "one_vs_one": "one vs one",
    "joint": "joint",
}


def spoken(about: Cell | Task) -> str:
    """PPL probit, and how many classes are treated."""
    name = f"{about.method} {SHORT[about.likelihood]}"
    return name if about.multi_class is None else f"{name}, {SHORT[about.multi_class]}"


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


def figure(score: Score, digits: int = 3) -> str:
    """0.045 ± 0.012."""
    text = f"{score.mean:.{digits}f}"
    return text if score.error is None else f"{text} ± {score.error:.{digits}f}"


def digits_of(column: str) -> int:
    """Decimals that a column deserves."""
    return 1 if column == "log_evidence" else 2 if column == "seconds" else 3


def summary_rows(summaries: dict[Cell, Summary]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of scores; of many classes with how they are treated."""
    many = any(cell.multi_class for cell in summaries)
    about = ["method", "likelihood", *(["multi-class"] if many else [])]
    rows = []
    for cell, summary in summaries.items():
        names = [cell.method, SHORT[cell.likelihood]]
        names += [SHORT[cell.multi_class]] if cell.multi_class else []
        scores = [figure(getattr(summary, name), digits_of(name)) for name in COLUMNS]
        rows.append([*names, *scores, f"{summary.converged}/{summary.folds}"])
    return [*about, *COLUMNS.values(), "converged"], rows


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


def comparison_rows(
    table: dict[tuple[str, str], list[Comparison | None]], seeds: int
) -> tuple[list[str], list[list[str]]]:
    """Table I: our error, the paper's in brackets, and the difference."""
    header = ["likelihood", "method", *SETS, "average"]
    rows = [
        [SHORT[likelihood], method, *(_compared(cell, seeds) for cell in cells)]
        for (likelihood, method), cells in table.items()
    ]
    return header, rows


def _compared(cell: Comparison | None, seeds: int) -> str:
    if cell is None:
        return "–"
    ours = figure(cell.ours) if seeds > 1 else f"{cell.ours.mean:.3f}"
    if seeds > 1 and cell.in_standard_errors is not None:
        unit = f"{cell.in_standard_errors:+.1f} se"
    elif cell.in_points is not None:
        unit = f"{cell.in_points:+.1f} pt"
    else:
        unit = f"{cell.difference:+.3f}"
    return f"{ours} ({cell.paper:.3f}, {unit})"
