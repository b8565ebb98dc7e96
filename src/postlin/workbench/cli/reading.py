"""Tables in files: CSV in any dialect, compressed or not, and Parquet."""

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from postlin.tables import cells
from postlin.workbench.cli.dialects import Dialect, dialect, opened, ungrouped
from postlin.workbench.cli.inputs import BadInputError, shortened

#: Cells that are missing as pandas looks for them: in lower case, in upper case, and as names.
_MISSING = ["NaN", *{form for text in cells.MISSING for form in (text, text.upper(), text.title())}]
#: Those of them that are no class: a class may be called - or ?.
_UNLABELLED = [text for text in _MISSING if text not in ("-", "?")]
_PARQUET = b"PAR1"


class Spelling(NamedTuple):
    """What a person says about a file; None for what is to be found out."""

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None


#: Nothing is said: all is found out.
FOUND_OUT = Spelling()


class Table(NamedTuple):
    """A table, and what is worth saying about how it was read."""

    frame: pd.DataFrame
    remarks: list[str]


def read_table(
    path: Path,
    spelling: Spelling = FOUND_OUT,
    *,
    target: str | None = None,
    texts: Collection[str] = (),
    hint: str = "",
) -> Table:
    """The table in a CSV or Parquet file; ``hint`` is added if there is no such file.

    ``target`` is the column of classes, by default the last; the columns ``texts`` are read as texts.
    """
    _check_file(path, hint)
    try:
        frame, remarks = _read(path, spelling, target, texts)
    except ImportError:
        raise BadInputError("reading Parquet files needs pyarrow: pip install pyarrow.") from None
    except pd.errors.EmptyDataError:
        raise BadInputError(f"{str(path)!r} is empty.") from None
    except ValueError as error:
        if type(error) is ValueError:  # one of ours, or as good
            raise BadInputError(str(error).split("\n")[0]) from None
        raise _unreadable(path, error) from None
    except Exception as error:
        raise _unreadable(path, error) from None
    if len(frame) == 0:
        raise BadInputError(f"{str(path)!r} has a header but no rows.")
    return Table(frame, remarks)


def _unreadable(path: Path, error: Exception) -> BadInputError:
    reason = shortened(str(error).split("\n")[0])
    return BadInputError(f"{str(path)!r} cannot be read as a table: {reason}")


def _check_file(path: Path, hint: str) -> None:
    """Raise ``BadInputError`` unless there is an ordinary file."""
    try:
        exists, is_folder, is_file = path.exists(), path.is_dir(), path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        exists = is_folder = is_file = False
    if not exists:
        raise BadInputError(
            f"there is no file {shortened(str(path))!r}" + (f" ({hint})." if hint else ".")
        )
    if is_folder:
        raise BadInputError(f"{str(path)!r} is a folder, not a CSV or Parquet file.")
    if not is_file:
        raise BadInputError(
            f"{str(path)!r} is a pipe or a device: write the table to an ordinary file first."
        )


def _read(path: Path, spelling: Spelling, target: str | None, texts: Collection[str]) -> Table:
    with path.open("rb") as file:  # pyarrow takes square brackets in a path for a pattern
        if file.read(4) == _PARQUET or path.suffix.lower() in (".parquet", ".pq"):
            file.seek(0)
            frame = pd.read_parquet(file)
            frame.columns, remarks = _unique([str(name) for name in frame.columns])
            return Table(frame, remarks)
    how = dialect(path, *spelling)
    names, remarks = _unique([*how.names])
    if said := how.remark():
        remarks = [said, *remarks]
    if len(names) > 1 and all(cells.NUMBER.fullmatch(name) for name in how.names):
        remarks.append("the first line holds numbers, and is taken for the names of the columns")
    target = names[-1] if target is None else target
    frame = _parsed(path, how, names, target, texts)
    for name in frame:
        if name not in texts and name != target and not _is_plain(frame[name]):
            frame[name] = _numbers(frame[name], how.decimal)
    return Table(frame, remarks)


def _unique(names: list[str]) -> tuple[list[str], list[str]]:
    """Names without the spaces around them, all different; and what was changed."""
    found: list[str] = []
    twice = []
    for number, name in enumerate(map(str.strip, names)):
        new, k = name or f"Unnamed: {number}", 1
        while new in found:
            k += 1
            new = f"{name} ({k})"
        if k > 1:
            twice.append(f"{shortened(name)!r}")
        found.append(new)
    remark = f"names that several columns have, numbered: {', '.join(dict.fromkeys(twice))}"
    return found, [remark] if twice else []


def _parsed(
    path: Path, how: Dialect, names: list[str], target: str, texts: Collection[str]
) -> pd.DataFrame:
    """The table as pandas reads it, with numbers where all cells of a column are."""
    with opened(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "Length of header or names")
        options: dict[str, Any] = {"dtype": {name: str for name in texts if name in names}}
        try:
            return pd.read_csv(
                file,
                sep=how.sep,
                decimal=how.decimal,
                encoding=how.encoding,
                skiprows=how.skipped,
                header=0,
                names=names,
                index_col=False,
                keep_default_na=False,
                na_values={name: _UNLABELLED if name == target else _MISSING for name in names},
                skipinitialspace=True,
                low_memory=False,
                **options,
            )
        except pd.errors.ParserWarning:
            raise ValueError(
                f"{str(path)!r} has rows with more cells than its header has names ({len(names)})."
            ) from None


def _is_plain(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _numbers(column: pd.Series, decimal: str) -> pd.Series:
    """A column of texts as numbers, if all of them are, in whatever notation; else as it is."""
    codes, values = cells.levels(column)
    plain = [ungrouped(value, decimal) if isinstance(value, str) else None for value in values]
    if None in plain or not values:
        return column
    known = pd.Series([*map(float, filter(None, plain)), float("nan")])
    return known.iloc[codes].set_axis(column.index)
