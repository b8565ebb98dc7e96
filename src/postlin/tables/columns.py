"""What the columns of a table hold: numbers, categories, dates, or nothing to learn from."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from postlin._typing import Array
from postlin.tables import cells

#: Names of columns that identify rows, where all their values differ.
_ID_NAME = re.compile(
    r"(.*[\W_])?(id|ids|uuid|guid|index|idx|key|row|rownames|nr|no|number|serial)|unnamed: \d+",
    re.IGNORECASE,
)
_CAMEL = re.compile(r".*[a-z0-9]I[dD]")
#: Texts of which more than this share differ, in at least so many rows, are names or free text.
_DIFFERENT, _FEW_ROWS = 0.9, 10
#: Whole numbers in sequence count rows if there are at least so many.
_COUNTED = 20
#: A column of texts of which more than half are numbers, with more than this many different ones, is a
#: column of numbers with mistakes in it.
_NUMBERS = 10
#: Levels with a column each; further ones share a column, as do levels that occur once.
MOST_LEVELS = 30
#: The most names in a message, and the most characters of one.
_MOST_NAMES, _LONGEST = 8, 40


@dataclass(frozen=True)
class Columns:
    """The columns to learn from, by kind; a date has the format of its texts."""

    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    dates: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of all of them."""
        return [*self.numbers, *self.categories, *(name for name, _ in self.dates)]


def declared(kinds: Mapping[str, str]) -> Columns:
    """The columns whose kinds were given, ``"number"`` or ``"category"``."""
    known = "number", "category"
    odd = sorted({str(kind) for kind in kinds.values()} - {*known})
    if odd or not kinds:
        raise ValueError(
            "columns must be a data frame, or map the names of columns to number or category, got "
            f"{', '.join(odd) or 'none'}."
        )
    numbers, categories = (tuple(n for n, kind in kinds.items() if kind == k) for k in known)
    return Columns(numbers, categories)


@dataclass
class Findings:
    """The columns of a table, what is worth saying about it, and what must be corrected first."""

    columns: Columns = field(default_factory=Columns)
    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Wishes:
    """What a person says about columns: their kinds, and which to leave out."""

    numbers: Collection[str] = ()
    categories: Collection[str] = ()
    left_out: Collection[str] = ()

    def problems(self, table: pd.DataFrame) -> list[str]:
        """What cannot be done with a table: columns that it lacks, and wishes that contradict."""
        found, said = [], defaultdict(list)
        for how, names in (
            ("left out", self.left_out),
            ("a number", self.numbers),
            ("a category", self.categories),
        ):
            for name in dict.fromkeys(names):
                said[name].append(how)
        if absent := [name for name in said if name not in table.columns]:
            several = "are no columns" if len(absent) > 1 else "is no column"
            found.append(f"there {several} {listed(absent)} (the columns are {listed(table)})")
        for name, ways in said.items():
            if len(ways) > 1 and name in table.columns:
                found.append(f"column {shown(name)} cannot be {' and '.join(ways)} at once")
        return found


def find_columns(table: pd.DataFrame, wishes: Wishes = Wishes()) -> Findings:
    """What the columns of a table hold.

    Columns that identify rows, are constant, empty or repeat another are left out, with a remark.
    """
    found, sorted_out = Findings(), _Sorted()
    if not all(isinstance(name, str) for name in table.columns) or not table.columns.is_unique:
        found.problems.append("the names of the columns must be texts, and all different")
        return found
    found.problems += wishes.problems(table)
    for name in table.columns:
        if name not in wishes.left_out:
            _sort(name, table[name], wishes, sorted_out, found.problems)
    for name, first in _copies(table, sorted_out).items():
        sorted_out.kinds.pop(name)
        sorted_out.missing.pop(name, None)
        found.remarks.append(f"column {shown(name)} repeats {shown(first)}, and is left out")
    kinds = sorted_out.kinds
    dates = tuple((name, form) for name, (kind, form) in kinds.items() if kind == "date")
    found.columns = Columns(
        tuple(name for name, (kind, _) in kinds.items() if kind == "number"),
        tuple(name for name, (kind, _) in kinds.items() if kind == "category"),
        dates,
    )
    found.remarks += _remarks(sorted_out, dates)
    if not kinds and not found.problems:
        found.problems.append("; ".join(["no column is left to learn from", *found.remarks]))
    return found


class _Sorted:
    """The kind of every column that is used, and the names of others by what was noticed."""

    def __init__(self) -> None:
        self.kinds: dict[str, tuple[str, str]] = {}
        self.noticed: dict[str, list[str]] = defaultdict(list)
        self.missing: dict[str, int] = {}

    def use(self, name: str, kind: str, form: str = "") -> None:
        self.kinds[name] = kind, form


def _sort(name: str, column: pd.Series, wishes: Wishes, into: _Sorted, problems: list[str]) -> None:
    """Find the kind of one column."""
    try:
        found = cells.levels(column)
    except TypeError:
        problems.append(f"column {shown(name)} holds lists or other objects")
        return
    values, absent = found.values, int((found.codes < 0).sum())
    if name in wishes.categories:
        into.use(name, "category")
    elif not values:
        into.noticed["empty"].append(name)
        return
    elif len(values) == 1 and not absent:
        into.noticed["constant"].append(name)
        return
    elif _is_number(column) or name in wishes.numbers:
        _sort_numbers(name, column, wishes, into, problems)
    elif column.dtype == bool or isinstance(column.dtype, pd.CategoricalDtype):
        into.use(name, "category")
    else:
        _sort_texts(name, found, len(column) - absent, into, problems)
    if absent and name in into.kinds:
        into.missing[name] = absent


def _is_number(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(column):
        return False
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_timedelta64_dtype(column))


def _sort_numbers(
    name: str, column: pd.Series, wishes: Wishes, into: _Sorted, problems: list[str]
) -> None:
    x, odd = cells.numbers(column)
    if odd:
        problems.append(_not_all_numbers(name, odd))
    elif np.isinf(x).any():
        row = int(np.flatnonzero(np.isinf(x))[0]) + 1
        problems.append(f"column {shown(name)} is infinite in data row {row}")
    elif name not in wishes.numbers and identifies(name, x):
        into.noticed["identifier"].append(name)
    else:
        into.use(name, "number")


def identifies(name: str, x: Array) -> bool:
    """Whether a column of numbers identifies rows: it counts them, or its name says so."""
    if np.isnan(x).any() or (x != np.round(x)).any():
        return False
    if len(x) >= _COUNTED and (np.diff(x) == 1).all():
        return True
    called = _ID_NAME.fullmatch(name) or _CAMEL.fullmatch(name)
    return bool(called) and len(x) >= _FEW_ROWS and len(np.unique(x)) == len(x)


def _sort_texts(name: str, found: cells.Levels, rows: int, into: _Sorted, problems: list[str]) -> None:
    """Find the kind of a column that is not of numbers as it was read."""
    values = found.values
    odd = [value for value in values if not _reads_as_number(value)]
    if not odd:
        x = np.array([*map(cells.as_number, values), np.nan])[found.codes]
        _sort_numbers(name, pd.Series(x), Wishes(), into, problems)
        return
    if dates := cells.date_formats(values):
        _sort_dates(name, values, dates, into, problems)
        return
    if mostly_numbers(found, [_reads_as_number(value) for value in values]):
        problems.append(_not_all_numbers(name, odd))
    elif rows >= _FEW_ROWS and len(values) > _DIFFERENT * rows:
        into.noticed["text"].append(name)
    else:
        into.use(name, "category")
        if len(values) > MOST_LEVELS:
            into.noticed["levels"].append(name)


def mostly_numbers(found: cells.Levels, are_numbers: list[bool]) -> bool:
    """Whether a column is of numbers, with some mistakes; tells from which of its values are some."""
    counts = np.bincount(found.codes[found.codes >= 0], minlength=len(found.values))
    return sum(are_numbers) > _NUMBERS and counts[are_numbers].sum() > counts.sum() / 2


def _reads_as_number(value: Any) -> bool:
    try:
        cells.as_number(value)
    except (ValueError, OverflowError):
        return False
    return not isinstance(value, bool)


def _sort_dates(
    name: str, values: list[Any], dates: dict[str, list[Any]], into: _Sorted, problems: list[str]
) -> None:
    if len(dates) > 1:
        differing = zip(values, *dates.values(), strict=True)
        example = next(value for value, *days in differing if len(set(days)) > 1)
        problems.append(
            f"column {shown(name)} holds dates whose day and month cannot be told apart, such as "
            f"{example!r}: write them as year-month-day, or leave the column out"
        )
    else:
        into.use(name, "date", *dates)


def _not_all_numbers(name: str, odd: list[Any]) -> str:
    """A sentence about the values of a column of numbers that are none."""
    return (
        f"column {shown(name)} holds numbers and {len(odd)} other value{'s' * (len(odd) > 1)} "
        f"({listed(odd)}): correct these, empty them, or declare the column categorical"
    )


def _copies(table: pd.DataFrame, into: _Sorted) -> dict[str, str]:
    """The columns in use that are equal to an earlier one."""
    seen: dict[Any, list[str]] = defaultdict(list)
    copies = {}
    for name in into.kinds:
        column = table[name]
        key = int(pd.util.hash_pandas_object(column, index=False).sum())
        for other in seen[key]:
            if table[other].equals(column):
                copies[name] = other
                break
        else:
            seen[key].append(name)
    return copies


def _remarks(into: _Sorted, dates: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each thing that was noticed."""
    lines = {
        "empty": "without a value, left out: {}",
        "constant": "constant, left out: {}",
        "identifier": "that seem to identify rows, left out: {}",
        "text": "of texts that differ in nearly every row, left out: {}",
        "levels": f"with more than {MOST_LEVELS} levels, of which the rarer share a column: {{}}",
    }
    said = [line.format(listed(into.noticed[key])) for key, line in lines.items() if into.noticed[key]]
    if names := [name for name, _ in dates]:
        said.append(f"of dates, split into day, month, weekday and hour: {listed(names)}")
    if into.missing:
        counts = [f"{shown(name)} ({n})" for name, n in into.missing.items()]
        said.append(f"with missing values: {_some(counts)}")
    return [f"columns {line}" for line in said]


def shown(value: Any) -> str:
    """A name or a value in a message, in quotes and not too long."""
    text = str(value)
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def listed(names: Iterable[Any]) -> str:
    """Names in a message; the first of them, if there are many."""
    return _some([shown(name) for name in names])


def _some(texts: list[str]) -> str:
    rest = len(texts) - _MOST_NAMES
    return ", ".join(texts[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
