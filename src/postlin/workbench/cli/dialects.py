"""How a text file writes a table: its encoding, separator and decimal mark, found or given."""

import codecs
import csv
import gzip
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from postlin.tables.cells import NUMBER

#: The most bytes of a line, and how much of a file is looked at for separators and decimal marks.
_LONGEST_LINE, _SAMPLE, _SAMPLED_ROWS = 2**24, 2**19, 1000
_BLOCK = 2**20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GZIP, _ZIP, _OLE = b"\x1f\x8b", b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_SEPARATORS = ",;\t|"
#: What --sep may say in words.
WORDS = {"tab": "\t", "comma": ",", "semicolon": ";", "space": r"\s+", "bar": "|"}
SPOKEN = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", r"\s+": "spaces"}
#: Excel names the separator in a line of its own.
_NAMED = re.compile(r"sep=(.)\s*")
_WITH_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}([.\s'’]\d{3})+)?,\d+([eE][+-]?\d+)?")
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
#: Thousands in groups, by decimal mark: 1,234.5 or 1.234,5, or with spaces or apostrophes.
_GROUPED = {
    ".": re.compile(r"[+-]?[1-9]\d{0,2}([,\s'’])\d{3}(\1\d{3})*(\.\d+)?"),
    ",": re.compile(r"[+-]?[1-9]\d{0,2}([.\s'’])\d{3}(\1\d{3})*(,\d+)?"),
}


@dataclass(frozen=True)
class Dialect:
    """Encoding, separator and decimal mark, the lines before the header, and the names in it."""

    encoding: str
    sep: str
    decimal: str
    skipped: int
    names: tuple[str, ...]

    def remark(self) -> str | None:
        """What is not as in most files, in a line; None if nothing is."""
        parts = []
        if self.encoding not in ("utf-8", "utf-8-sig"):
            parts.append(f"encoding {self.encoding}")
        if self.sep != ",":
            parts.append(f"columns separated by {SPOKEN.get(self.sep, repr(self.sep))}")
        if self.decimal != ".":
            parts.append("decimal commas")
        return f"read with {', '.join(parts)}" if parts else None


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, uncompressed."""
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return gzip.open(path) if packed else path.open("rb")  # type: ignore[return-value]


def dialect(
    path: Path, sep: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> Dialect:
    """How a file writes a table; ``ValueError`` if it is no table, or not in the given encoding."""
    sep = None if sep is None else WORDS.get(sep, sep)
    if sep is not None and len(sep) != 1 and sep not in WORDS.values():
        raise ValueError(f"--sep must be one character, or one of {', '.join(WORDS)}, got {sep!r}.")
    if decimal not in (None, ".", ","):
        raise ValueError(f"--decimal must be . or , got {decimal!r}.")
    encoding = _encoding(path, encoding)
    with io.TextIOWrapper(opened(path), encoding=encoding, errors="replace", newline="") as file:
        sample = file.read(_SAMPLE) + file.readline()  # whole lines
    skipped = 0
    if named := _NAMED.fullmatch(sample.split("\n", 1)[0]):
        sep, skipped = sep or named.group(1), 1
        sample = sample.split("\n", 1)[1]
    sep = sep or _separator(sample)
    lines = _lines(sample, sep)
    if not lines:
        raise ValueError(f"{str(path)!r} is empty.")
    names = _names(path, lines, skipped)
    return Dialect(encoding, sep, decimal or _decimal(_cells(lines[1:]), sep), skipped, names)


def too_long(path: Path, line: int, cells: int, names: int) -> ValueError:
    """What is wrong with a file in which a line has more cells than the header has names."""
    several = f"{names} name{'s' * (names != 1)}"
    return ValueError(
        f"{str(path)!r} has {cells} cells in line {line}, and its header has {several}: correct the "
        "line, or remove the lines above the header."
    )


def _names(path: Path, lines: list["Line"], skipped: int) -> tuple[str, ...]:
    """The names in the header, with empty ones for the empty cells that end longer lines."""
    names = lines[0].cells
    for number, cells in lines[1:]:
        if any(cells[len(names) :]):
            raise too_long(path, number + skipped, len(cells), len(names))
    longest = max(len(line.cells) for line in lines)
    return (*names, *[""] * (longest - len(names)))


def _encoding(path: Path, given: str | None) -> str:
    """The encoding of a file, whose lines must not be so long that they would fill the memory."""
    with opened(path) as file:
        start = file.read(4)
    if start in (_ZIP, _OLE):
        raise ValueError(f"{str(path)!r} is a workbook or an archive: save it as CSV or Parquet first.")
    marked = next((name for mark, name in _MARKS if start.startswith(mark)), None)
    found = given or marked or _without_mark(path)
    try:
        "".encode(found)  # which encodings of bytes to bytes refuse
        decoder = codecs.getincrementaldecoder(found)("strict")
    except (LookupError, ValueError):
        raise ValueError(f"--encoding {found!r} is none that Python knows.") from None
    try:
        for block in _blocks(path):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeError:
        if given is None and found in ("utf-8", "cp1252"):
            return "cp1252" if found == "utf-8" and _is_cp1252(path) else "latin-1"
        raise ValueError(f"{str(path)!r} is not in the encoding {found}: use --encoding.") from None
    return found


def _without_mark(path: Path) -> str:
    """UTF-8, or UTF-16 if every other byte of the beginning is zero, as in the Latin alphabet."""
    with opened(path) as file:
        start = file.read(400)
    zeros = [start[k::2].count(0) / max(len(start) / 2, 1) for k in (0, 1)]
    if max(zeros) > 0.7 and min(zeros) < 0.1:
        return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    return "utf-8"


def _is_cp1252(path: Path) -> bool:
    try:
        for block in _blocks(path):
            block.decode("cp1252")
    except UnicodeError:
        return False
    return True


def _blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in blocks; ``ValueError`` if a line is very long."""
    number, length = 1, 0
    with opened(path) as file:
        while block := file.read(_BLOCK):
            first, *others = block.split(b"\n")
            length += len(first)
            if length > _LONGEST_LINE:
                raise ValueError(
                    f"line {number} of {str(path)!r} is longer than {_LONGEST_LINE // 2**20} MiB: this "
                    "is no table in CSV."
                )
            number += len(others)
            length = len(others[-1]) if others else length
            yield block


class Line(NamedTuple):
    """The cells of a row, and the line in which it ends."""

    number: int
    cells: list[str]


def _lines(sample: str, sep: str) -> list[Line]:
    """The first rows that are not empty."""
    if sep == r"\s+":
        lines = (Line(k, line.split()) for k, line in enumerate(sample.splitlines(), 1))
    else:
        reader = csv.reader(io.StringIO(sample, newline=""), delimiter=sep, skipinitialspace=True)
        lines = (Line(reader.line_num, cells) for cells in reader)
    usual = csv.field_size_limit(_LONGEST_LINE)
    try:
        return [line for line in islice(lines, _SAMPLED_ROWS) if any(line.cells)]
    finally:
        csv.field_size_limit(usual)


def _cells(lines: list[Line]) -> list[str]:
    """All cells, without the spaces around them."""
    return [cell.strip() for line in lines for cell in line.cells]


def _separator(sample: str) -> str:
    """The separator with which most rows have as many cells as the header, more than one."""
    best = max((*_SEPARATORS, r"\s+"), key=lambda sep: _agreement(sample, sep))
    return best if _agreement(sample, best) > (0.0, 0) else ","


def _agreement(sample: str, sep: str) -> tuple[float, int]:
    """The share of rows that are as long as the header, in tenths, and its length."""
    try:
        widths = [len(line.cells) for line in _lines(sample, sep)]
    except csv.Error:
        return 0.0, 0
    if not widths or widths[0] < 2:
        return 0.0, 0
    share = Counter(widths)[widths[0]] / len(widths)
    if sep == r"\s+" and share < 1.0:  # prose has spaces, too
        return 0.0, 0
    return round(share, 1), widths[0] if sep != r"\s+" else 0


def _decimal(cells: list[str], sep: str) -> str:
    """The decimal mark: a comma if numbers have one, and none has a point for it."""
    bare = [unmarked(cell).text for cell in cells]
    commas = [text for text in bare if _WITH_COMMA.fullmatch(text)]
    points = [t for t in bare if _WITH_POINT.fullmatch(t) and not _GROUPED[","].fullmatch(t)]
    if not commas or points:
        return "."
    # Where commas separate columns, 1,234 in quotes is a number in thousands.
    thousands = all(_GROUPED["."].fullmatch(text) for text in commas)
    return "." if thousands and sep == "," else ","


class Unmarked(NamedTuple):
    """A text without the sign of a currency or of per cent at one of its ends, and that sign."""

    text: str
    sign: str


def unmarked(text: str) -> Unmarked:
    """A text without such a sign; -€5 is -5."""
    minus, rest = ("-", text[1:].lstrip()) if text.startswith("-") else ("", text)
    for sign, other in ((rest[:1], rest[1:].lstrip()), (rest[-1:], rest[:-1].rstrip())):
        if sign and other and (sign in "%‰" or unicodedata.category(sign) == "Sc"):
            return Unmarked(minus + other, sign)
    return Unmarked(text, "")


def ungrouped(text: str, decimal: str) -> str | None:
    """A number in another notation as programs write it; None if the text is none."""
    if grouped := _GROUPED[decimal].fullmatch(text):
        text = text.replace(grouped[1], "")
    text = text.replace(",", ".") if decimal == "," else text
    return text if NUMBER.fullmatch(text) else None
