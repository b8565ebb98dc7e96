"""What a report is made of, and the HTML page that shows it."""

from dataclasses import dataclass
from itertools import groupby

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from postlin.workbench.report.drawing import embed, plain


@dataclass(frozen=True)
class Figure:
    """A drawing, a description of it for those who cannot see it, and a caption."""

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

    @property
    def blocks(self) -> list[tuple[bool, list[Figure | Table]]]:
        """The items in runs of figures (True), which stand side by side, and of tables (False)."""
        runs = groupby(self.items, lambda item: isinstance(item, Figure))
        return [(are_figures, list(run)) for are_figures, run in runs]


def render(title: str, lead: str, sections: list[Section], footer: str) -> str:
    """Return the report as one HTML document, in which all text is escaped."""
    loader = PackageLoader("postlin.workbench.report", "")
    pages = Environment(
        loader=loader, autoescape=True, finalize=_possible, trim_blocks=True, lstrip_blocks=True
    )
    page = pages.get_template("page.html.j2")
    return page.render(title=title, lead=lead, sections=sections, footer=footer)


def _possible(value: object) -> object:
    """Return text without characters that no document can hold, and anything else as it is."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value
