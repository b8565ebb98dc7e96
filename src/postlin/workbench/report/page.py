"""What a report is made of, and the HTML page that shows it."""

import re
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, TypeAlias

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from postlin.workbench.report.drawing import embed, plain

#: Tables with more columns become a card for each row on narrow screens, and those with more than the
#: second number have narrow columns, whose numbers may take two lines.
_NARROW, _WIDE = 3, 6


@dataclass(frozen=True)
class Figure:
    """A drawing, a description of it for those who cannot see it, and a caption."""

    kind: ClassVar[str] = "figures"

    svg: str
    alt: str
    caption: str

    def embedded(self, name: str) -> Markup:
        """Return the drawing for a page on which this figure has this name."""
        return Markup(embed(self.svg, f"{name}-", self.alt))


@dataclass(frozen=True)
class Table:
    """Rows of text; ``marked`` holds the (row, column) cells to emphasise.

    The first ``text_columns`` columns are text, the others numbers, which are right-aligned.
    """

    kind: ClassVar[str] = "tables"

    header: list[str]
    rows: list[list[str]]
    caption: str
    marked: frozenset[tuple[int, int]] = frozenset()
    text_columns: int = 1

    @property
    def stacked(self) -> bool:
        """Whether each row becomes a card where the screen is narrow."""
        return len(self.header) > _NARROW or not any(self.header)

    @property
    def wide(self) -> bool:
        """Whether the columns must be narrow."""
        return len(self.header) > _WIDE


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a few words, and what is behind it in sentences."""

    kind: ClassVar[str] = "answers"

    question: str
    answer: str
    sentences: list[str]


Item: TypeAlias = Figure | Table | Answer


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs of plain text, and figures, tables and answers in their order."""

    title: str
    paragraphs: list[str]
    items: list[Item]

    @property
    def blocks(self) -> list[tuple[str, list[Item]]]:
        """The items in runs of one kind: figures and answers stand side by side, tables do not."""
        return [(kind, list(run)) for kind, run in groupby(self.items, lambda item: item.kind)]


def render(title: str, lead: str, sections: list[Section], footer: str) -> str:
    """Return the report as one HTML document, in which all text is escaped."""
    loader = PackageLoader("postlin.workbench.report", "")
    pages = Environment(
        loader=loader, autoescape=True, finalize=_possible, trim_blocks=True, lstrip_blocks=True
    )
    page = pages.get_template("page.html.j2")
    return page.render(title=title, lead=lead, sections=sections, footer=footer)


def _possible(value: object) -> object:
    """Return text without characters that no document can hold, and anything else as it is.

    A per cent sign stays with its number.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", plain(value))
