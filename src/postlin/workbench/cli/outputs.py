"""What the command line gives a person: tables in the terminal, and files."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.pipeline import Pipeline

import postlin
from postlin._files import reason, try_to_write, write_atomically
from postlin.estimator.verification import Verification
from postlin.workbench.cli.inputs import BadInputError, shortened
from postlin.workbench.evaluation.comparison import Conclusion
from postlin.workbench.evaluation.folds import Data
from postlin.workbench.evaluation.scores import COLUMNS, GAPS, Cell, Summary
from postlin.workbench.report import words

#: Tables go to standard output, remarks to standard error; results for programs go to files. Where the
#: output is not a terminal, it has 80 columns.
console = Console(width=None if sys.stdout.isatty() else 80)
notes = Console(stderr=True)

#: The characters with which a text begins that spreadsheets may execute, and the one that marks them.
_EXECUTED = set("=+-@\t\r\n'")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def print_table(title: str, header: list[str], rows: list[list[str]], text_columns: int = 2) -> None:
    """Print a table; the first columns hold text and are aligned to the left."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for k, name in enumerate(header):
        text = k < text_columns
        table.add_column(name, justify="left" if text else "right", no_wrap=not text)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def print_conclusion(
    data: Data, folds: int, conclusion: Conclusion, summaries: dict[Cell, Summary]
) -> None:
    """Print the table of methods and, in sentences, what follows from it."""
    print_table(
        f"{data.name}: {folds}-fold cross-validation, the best method first",
        *words.score_rows(conclusion, summaries),
        text_columns=1,
    )
    if any(summary.probability_gap for summary in summaries.values()):
        print_table("Distance from the exact posterior", *words.gap_rows(summaries), text_columns=1)
    for sentence in words.sentences(data, conclusion):
        console.print(sentence, markup=False, highlight=False)


def note(text: str) -> None:
    """Print a remark in one line, exactly as it is."""
    notes.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write a file into bad input."""
    try:
        yield
    except OSError as error:
        raise BadInputError(f"{shortened(str(path))!r} cannot be written: {reason(error)}.") from None


def check_writable(*paths: Path) -> None:
    """Make the folders that lead to files, and raise ``BadInputError`` if one cannot be written."""
    for path in paths:
        with writing(path):
            if "\0" not in str(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            try_to_write(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file and the folders that lead to it; the file appears whole or not at all."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda file: file.write(text.encode()))


def save_model(model: Pipeline, path: Path) -> Path:
    """Save a model and return where: if not at ``path``, in the folder for temporary files.

    What took long to compute is not lost because a disk became full in the meantime.
    """
    try:
        postlin.save(model, path)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="postlin-")) / "model.postlin"
        with writing(path):
            postlin.save(model, elsewhere)
        note(f"{str(path)!r} cannot be written: {reason(error)}.")
        return elsewhere
    return path


def check_folder(path: Path, what: str, *inputs: Path | str) -> None:
    """Raise ``BadInputError`` unless a file can be written in its folder, and is none of the inputs."""
    for other in map(Path, inputs):
        if os.path.realpath(path) == os.path.realpath(other):
            raise BadInputError(
                f"the {what} would replace {shortened(str(other))!r}, which is read: choose another "
                "name."
            )
    if "\0" not in str(path) and not path.parent.is_dir():
        raise BadInputError(f"there is no folder {str(path.parent)!r} to save the {what} in.")
    check_writable(path)


def as_csv(table: pd.DataFrame, floats: str | None = None) -> str:
    """A table as CSV that a spreadsheet shows and does not execute, with a format for its numbers.

    A text that begins with =, +, -, @, a tab or a line break, and is no number, may be a formula to a
    spreadsheet. It gets an apostrophe in front, as does a text that begins with one: what is read
    without one leading apostrophe is the text as it was.
    """
    texts = table.select_dtypes(exclude=["number", "bool"]).columns
    safe = table.assign(**{name: table[name].map(_inert) for name in texts}).rename(columns=_inert)
    return str(safe.to_csv(index=False, lineterminator="\n", float_format=floats))


def verified_table(found: Verification) -> pd.DataFrame:
    """The exact probabilities of each row, their standard deviations and those of the fit."""
    parts = {"p": found.probabilities, "sd": found.probabilities_sd, "fit": found.fit_probabilities}
    columns = {
        f"{name}({label})": values[:, k]
        for name, values in parts.items()
        if values is not None
        for k, label in enumerate(found.classes)
    }
    return pd.DataFrame(columns)


def _inert(value: object) -> object:
    """A value that no spreadsheet executes."""
    text = str(value)
    return f"'{text}" if text[:1] in _EXECUTED and not _NUMBER.fullmatch(text) else value


def write_results(folder: Path, summaries: dict[Cell, Summary]) -> None:
    """Write ``results.json`` and ``results.csv``, which hold every score with its standard error."""
    records = []
    for cell, summary in summaries.items():
        record: dict[str, object] = {k: v for k, v in cell._asdict().items() if v}
        for name in (*COLUMNS, *GAPS):
            score = getattr(summary, name)
            if score is None:
                continue
            record |= {name: score.mean, f"{name}_se": score.error}
        if summary.converged is not None:
            record["converged"] = summary.converged
        records.append(record | {"folds": summary.folds})
    write_text(folder / "results.json", json.dumps(records, indent=1) + "\n")
    write_text(folder / "results.csv", as_csv(pd.DataFrame(records)))
