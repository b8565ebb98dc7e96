"""One HTML document from a title, sections and a footer."""

from collections.abc import Iterator
from importlib.resources import files
from itertools import groupby

from postlin.workbench.report.parts import Figure, Section, Table
from postlin.workbench.report.svg import embed
from postlin.workbench.report.text import escape

#: Nothing may be fetched from anywhere: the page is what it is.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(title: str, lead: str, sections: list[Section], footer: str) -> str:
    """The report as one HTML document; all text is escaped."""
    page = _Page()
    body = "\n".join(page.section(i, section) for i, section in enumerate(sections, 1))
    style = files("postlin.workbench.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{_paragraph(lead, "lead")}
</header>
<div class="columns">
{_contents(sections)}
<main>
{body}
</main>
</div>
<footer>{_paragraph(footer)}</footer>
</body>
</html>
"""


def _paragraph(text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>" if text.strip() else ""


def _contents(sections: list[Section]) -> str:
    """Links to the sections, where there are several."""
    if len(sections) < 2:
        return ""
    links = "\n".join(
        f'<li><a href="#section-{i}">{escape(section.title)}</a></li>'
        for i, section in enumerate(sections, 1)
    )
    return f'<nav aria-label="Contents">\n<ol>\n{links}\n</ol>\n</nav>'


class _Page:
    """Numbers figures and tables through the document."""

    def __init__(self) -> None:
        self.figures = 0
        self.tables = 0

    def section(self, index: int, section: Section) -> str:
        """A section with its heading."""
        name = f"section-{index}"
        text = "\n".join(_paragraph(paragraph) for paragraph in section.paragraphs)
        items = "\n".join(self._items(section.items))
        return (
            f'<section id="{name}" aria-labelledby="{name}-title">\n'
            f'<h2 id="{name}-title">{escape(section.title)}</h2>\n{text}\n{items}\n</section>'
        )

    def _items(self, items: list[Figure | Table]) -> Iterator[str]:
        """Tables one by one, neighbouring figures side by side."""
        for are_figures, group in groupby(items, lambda item: isinstance(item, Figure)):
            parts = "\n".join(self._item(item) for item in group)
            yield f'<div class="figures">\n{parts}\n</div>' if are_figures else parts

    def _item(self, item: Figure | Table) -> str:
        return self._figure(item) if isinstance(item, Figure) else self._table(item)

    def _figure(self, figure: Figure) -> str:
        self.figures += 1
        name = f"figure-{self.figures}"
        caption = _caption(name, f"Figure {self.figures}", figure.caption)
        drawing = embed(figure.svg, f"{name}-", figure.alt)
        return f'<figure role="figure" aria-labelledby="{name}">\n{drawing}\n{caption}\n</figure>'

    def _table(self, table: Table) -> str:
        self.tables += 1
        name = f"table-{self.tables}"
        header = "".join(
            f'<th scope="col"{_kind(table, j)}>{escape(cell)}</th>'
            for j, cell in enumerate(table.header)
        )
        rows = "\n".join(_row(table, i) for i in range(len(table.rows)))
        # The box takes the focus, so that it can be scrolled from the keyboard.
        return (
            f'<figure class="table" role="figure" aria-labelledby="{name}">\n'
            f"{_caption(name, f'Table {self.tables}', table.caption)}\n"
            f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}">\n'
            f'<table aria-labelledby="{name}">\n<thead><tr>{header}</tr></thead>\n'
            f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>\n</figure>"
        )


def _caption(name: str, label: str, text: str) -> str:
    return f'<figcaption id="{name}"><b>{label}.</b> {escape(text)}</figcaption>'


def _kind(table: Table, column: int) -> str:
    return "" if column < table.text_columns else ' class="number"'


def _row(table: Table, index: int) -> str:
    cells = []
    for column, text in enumerate(table.rows[index]):
        inner = escape(text)
        if (index, column) in table.marked:
            inner = f"<strong>{inner}</strong>"
        if column == 0 and table.text_columns > 0:
            cells.append(f'<th scope="row">{inner}</th>')
        else:
            cells.append(f"<td{_kind(table, column)}>{inner}</td>")
    return f"<tr>{''.join(cells)}</tr>"
