"""Formulas that KaTeX typesets in the browser, from ``_static/katex``: no network is needed."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

#: KaTeX 0.19.1 from npm, MIT licence: the script, the style sheet and the fonts that text formulas use.
_FILES = "katex/"


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(f'<span class="formula">{writer.encode(node.astext())}</span>')
    raise nodes.SkipNode


def _display(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{writer.encode(node.astext())}</div>')
    raise nodes.SkipNode


def _add_files(
    app: Sphinx, page: str, template: str, context: Any, tree: nodes.document | None
) -> None:
    """Load KaTeX on pages that have formulas."""
    if tree and any(tree.findall(lambda node: isinstance(node, nodes.math | nodes.math_block))):
        app.add_css_file(_FILES + "katex.min.css")
        app.add_js_file(_FILES + "katex.min.js")
        app.add_js_file(_FILES + "render.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Make ``katex`` a value of ``html_math_renderer``."""
    app.add_html_math_renderer("katex", (_inline, None), (_display, None))
    app.connect("html-page-context", _add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
