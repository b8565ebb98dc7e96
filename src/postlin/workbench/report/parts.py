"""What a report is made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A drawing, what it says in words for those who cannot see it, and the text beneath it."""

    svg: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Table:
    """Rows of text; ``marked`` holds the (row, column) cells to emphasise.

    The first ``text_columns`` columns are text, the others numbers, which are right-aligned.
    """

    header: list[str]
    rows: list[list[str]]
    caption: str
    marked: frozenset[tuple[int, int]] = frozenset()
    text_columns: int = 1


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs of plain text, and figures and tables in their order."""

    title: str
    paragraphs: list[str]
    items: list[Figure | Table]
