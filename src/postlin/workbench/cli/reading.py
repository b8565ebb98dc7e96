"""Tables in files: CSV in any dialect, compressed or not, and Parquet."""

import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from postlin.tables import cells
from postlin.tables.columns import mostly_numbers
from postlin.workbench.cli.dialects import (
    Dialect,
    Unmarked,
    dialect,
    opened,
    too_long,
    ungrouped,
    unmarked,
)
from postlin.workbench.cli.inputs import BadInputError, shortened

#: Cells that are missing as pandas looks for them: in lower case, in upper case, and as names.
_MISSING = ["NaN", *{form for text in cells.MISSING for form in (text, text.upper(), text.title())}]
#: Those of them that are no class: a class may be called none, - or ?.
_UNLABELLED = [text for text in _MISSING if text.casefold() not in ("none", "-", "?", ".")]
_PARQUET = b"PAR1"
#: What pandas says of a line that is too long.
_TOO_LONG = re.compile(r".*Expected (\d+) fields in line (\d+), saw (\d+)\s*", re.DOTALL)


class Spelling(NamedTuple):
    """What a person says about a file; None for what is to be found out."""

    sep: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def named(self) -> list[str]:
        """The names of the options that are set."""
        return [f"--{name}" for name, value in self._asdict().items() if value is not None]


#: Nothing is said: all is found out.
FOUND_OUT = Spelling()


class Kinds(NamedTuple):
    """Columns whose kind is known: those that are read as texts, and those that hold numbers."""

    texts: Collection[str] = ()
    numbers: Collection[str] = ()


#: The kind of no column is known.
UNKNOWN = Kinds()


class Table(NamedTuple):
    """A table, and what is worth saying about how it was read."""

    frame: pd.DataFrame
    remarks: list[str]


def read_table(
    path: Path,
    spelling: Spelling = FOUND_OUT,
    *,
    target: str | None = None,
    kinds: Kinds = UNKNOWN,
    hint: str = "",
) -> Table:
    """The table in a CSV or Parquet file; ``hint`` is added if there is no such file.

    ``target`` is the column of classes, by default the last; ``kinds`` are those of other columns.
    """
    _check_file(path, hint)
    try:
        frame, remarks = _read(path, spelling, target, kinds)
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


def _read(path: Path, spelling: Spelling, target: str | None, kinds: Kinds) -> Table:
    with path.open("rb") as file:  # pyarrow takes square brackets in a path for a pattern
        if file.read(4) == _PARQUET or path.suffix.lower() in (".parquet", ".pq"):
            if told := spelling.named():
                raise ValueError(f"{told[0]} is for text files, and {str(path)!r} is in Parquet.")
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
    unnamed = [name for name, told in zip(names, how.names, strict=True) if not told.strip()]
    if target is None:
        target = next((name for name in reversed(names) if name not in unnamed), names[-1])
    frame = _parsed(path, how, names, target, kinds.texts)
    # Separators at the ends of lines make columns without a name and a value.
    frame = frame.drop(columns=[name for name in unnamed if frame[name].isna().all()])
    return Table(frame, remarks + _read_numbers(frame, target, kinds, how.decimal))


def _read_numbers(frame: pd.DataFrame, target: str, kinds: Kinds, decimal: str) -> list[str]:
    """Make numbers of columns of texts that are some, and say which had a sign."""
    signs = []
    for name in frame:
        if name not in (*kinds.texts, target) and not _is_plain(frame[name]):
            frame[name], sign = _numbers(frame[name], decimal, name in kinds.numbers)
            signs += [f"{shortened(name)!r} ({sign})"] if sign else []
    return [f"columns of numbers with a sign, read without it: {', '.join(signs)}"] if signs else []


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
                na_values={
                    name: _UNLABELLED if name == target else _MISSING
                    for name in names
                    if name not in texts
                },
                skipinitialspace=True,
                low_memory=False,
                **options,
            )
        except pd.errors.ParserError as error:
            if told := _TOO_LONG.fullmatch(str(error)):
                expected, line, saw = map(int, told.groups())
                raise too_long(path, line, saw, expected) from None
            raise


def _is_plain(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _numbers(column: pd.Series, decimal: str, is_known: bool) -> tuple[pd.Series, str]:
    """A column of texts as numbers without their sign, and that sign; else as it is.

    All texts must be numbers, in whatever notation, and have the same sign or none. If it ``is_known``
    that the column holds numbers, or most are some, these are texts as programs write them.
    """
    found = cells.levels(column)
    bare = [unmarked(v) if isinstance(v, str) else Unmarked("", "") for v in found.values]
    plain = [ungrouped(text, decimal) for text, _ in bare]
    signs = {sign for (_, sign), text in zip(bare, plain, strict=True) if text is not None}
    if len(signs) != 1 or not (
        is_known or None not in plain or mostly_numbers(found, [text is not None for text in plain])
    ):
        return column, ""
    known: list[Any] = [
        value if text is None else text for value, text in zip(found.values, plain, strict=True)
    ]
    if None not in plain:
        known = [*map(float, known)]
    return pd.Series([*known, np.nan]).iloc[found.codes].set_axis(column.index), signs.pop()
