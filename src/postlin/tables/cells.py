"""The cells of a column: which are missing, and numbers, texts and dates made of the others."""

import re
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from postlin._typing import Array

#: Texts that stand for a missing value, in lower case.
MISSING = frozenset(
    {"", "?", "-", ".", "na", "n/a", "n.a.", "nan", "none", "null", "<na>", "#n/a", "#na", "nat"}
)
#: A number as programs write it.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
#: What a date in figures looks like, before one of the formats below is tried.
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([T ]\d{1,2}:\d{2}.*)?")
#: The formats of dates that can be told from each other, by separator.
_FORMATS = {
    "-": ("ISO8601", "%d-%m-%Y"),
    ".": ("%d.%m.%Y", "%d.%m.%y", "%Y.%m.%d"),
    "/": ("%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y"),
}
_TIMES = ("", " %H:%M", " %H:%M:%S")
#: What a date with the name of a month looks like, and the formats of such dates.
_NAMED_DATE = re.compile(
    r"(\d{1,2}\.?[- ][A-Za-z]{3,9}[- ]|[A-Za-z]{3,9} \d{1,2},? )\d{2,4}( \d{1,2}:\d{2}.*)?"
)
_NAMED_FORMATS = tuple(
    order.replace("%B", month)
    for month in ("%b", "%B")
    for order in ("%d %B %Y", "%d. %B %Y", "%d-%B-%Y", "%d-%B-%y", "%B %d, %Y", "%B %d %Y")
)
#: The format of columns that hold dates as such, not as texts.
TYPED = "typed"
_LONGEST = 40


class Levels(NamedTuple):
    """The different values of a column, and which of them each row has; −1 where it is missing."""

    codes: np.ndarray
    values: list[Any]


def levels(column: pd.Series) -> Levels:
    """The different values of a column: texts without the spaces around them, others as they are."""
    codes, found = pd.factorize(column)
    values: dict[Any, int] = {}
    place = np.full(len(found) + 1, -1)
    for k, value in enumerate(found.tolist()):
        clean = value.strip() if isinstance(value, str) else value
        if not is_missing(clean):
            place[k] = values.setdefault(_hashable(clean), len(values))
    return Levels(place[codes], list(values))


def is_missing(value: Any) -> bool:
    """Whether a cell stands for a missing value."""
    if isinstance(value, str):
        return value.casefold() in MISSING
    return value is None or value is pd.NA or value is pd.NaT or (value != value) is True


def _hashable(value: Any) -> Any:
    return value if getattr(value, "__hash__", None) else repr(value)


def as_text(value: Any) -> str:
    """A level as text, the same whether a program read it as a number, a truth value or a text."""
    if isinstance(value, str):
        return value.title() if value.casefold() in ("true", "false") else value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def as_number(value: Any) -> float:
    """A cell as a number; ``ValueError`` if it is none."""
    if isinstance(value, str) and not NUMBER.fullmatch(value):
        raise ValueError
    try:
        return float(value)
    except TypeError:
        raise ValueError from None


def numbers(column: pd.Series) -> tuple[Array, list[Any]]:
    """A column as numbers (durations in seconds), NaN where it is missing, and values that are none."""
    if pd.api.types.is_timedelta64_dtype(column):
        return column.dt.total_seconds().to_numpy(), []
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return column.to_numpy(dtype=float, na_value=np.nan), []
    return _made(levels(column), as_number)


def texts(column: pd.Series) -> Array:
    """A column as texts, empty where it is missing."""
    codes, values = levels(column)
    known = np.array([*map(as_text, values), ""], dtype=object)
    return np.asarray(known[codes])


def dates(column: pd.Series, form: str) -> tuple[pd.Series, list[Any]]:
    """A column as dates, NaT where it is missing, and the values that do not have the format."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return column.dt.tz_localize(None) if column.dt.tz is not None else column, []
    codes, values = levels(column)
    form = "ISO8601" if form == TYPED else form
    found = _parsed([str(v) for v in values], form)
    odd = [value for value, day in zip(values, found, strict=True) if day is pd.NaT]
    known = pd.Series([*found, pd.NaT], dtype="datetime64[us]")
    return known.iloc[codes].reset_index(drop=True), odd


def date_formats(values: list[Any]) -> dict[str, list[Any]]:
    """The formats in which all of these values are dates, and these dates; none if they are no dates.

    Formats in which the values are the same dates count once.
    """
    if values and all(isinstance(value, date) for value in values):
        return {TYPED: values}
    found: dict[str, list[Any]] = {}
    if all(isinstance(v, str) and len(v) <= _LONGEST for v in values):
        for form in _possible(values):
            days = _parsed(values, form)
            if pd.NaT not in set(days) and days not in found.values():
                found[form] = days
    return found


def _possible(values: list[str]) -> list[str]:
    """The formats that texts may have, from what they look like."""
    shapes = [_DATE.fullmatch(value) for value in values]
    separators = {shape.group(1) if shape else "" for shape in shapes}
    formats: tuple[str, ...] = ()
    if len(separators) == 1:
        formats = _FORMATS.get(separators.pop(), ())
    if values and all(map(_NAMED_DATE.fullmatch, values)):
        formats = _NAMED_FORMATS
    return [form + t for form in formats for t in (("",) if form == "ISO8601" else _TIMES)]


def _parsed(values: list[str], form: str) -> list[Any]:
    """Dates of texts, NaT where one has not this format."""
    found = pd.to_datetime(pd.Series(values, dtype=object), format=form, errors="coerce", utc=True)
    return list(found.dt.tz_localize(None).astype("datetime64[us]"))


def _made(found: Levels, of: Callable[[Any], float]) -> tuple[Array, list[Any]]:
    """The values of a column turned into numbers, and those that could not be."""
    known, odd = np.full(len(found.values) + 1, np.nan), []
    for k, value in enumerate(found.values):
        try:
            known[k] = of(value)
        except ValueError:
            odd.append(value)
    return known[found.codes], odd
