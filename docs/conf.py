"""Sphinx configuration: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from PIL import Image, ImageOps
from sphinx import addnodes

import postlin

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "postlin"
author = "the postlin developers"
project_copyright = author
version = release = postlin.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "katex",
]
html_math_renderer = "katex"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_extensions", "_templates", "gallery", "**/*.ipynb"]
templates_path = ["_templates"]
language = "en-GB"
default_role = "literal"  # single backquotes in docstrings

myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "colon_fence", "dollarmath"]

autosummary_generate = True
napoleon_custom_sections = ["Attributes"]  # the definition lists that _attributes makes
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "plot_gallery": "True",
    "thumbnail_size": (640, 448),
}

WIDE = ("index", "results", "benchmarks", "large_benchmark")  # tables that need room

ICON = "_static/icon.svg"

html_theme = "pydata_sphinx_theme"
html_title = "postlin"
html_static_path = ["_static"]
html_favicon = ICON
html_css_files = ["postlin.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": f"postlin {release}", "image_light": ICON, "image_dark": ICON},
    "icon_links": [
        {
            "name": "Repository",
            "url": "https://github.com/postlin/postlin",
            "icon": "fa-brands fa-github",
        }
    ],
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"]} | {page: [] for page in WIDE},
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {
    "index": [],
    "installation": [],
    "quickstart": [],
    "from_sklearn": [],
    "troubleshooting": [],
    "changelog": [],
}

#: Types as type checkers need them, and the short names that readers see; applied in this order.
_SHORTER = {
    r"ndarray\[tuple\[Any, \.\.\.\], dtype\[float(64|ing)\]\]": "Array",
    r"Callable\[\[?\.\.\.\]?, tuple\[Array, float\]\]": "Optimizer",
    r"Callable\[\[[\w~.]*Evaluation\], object\]": "Callback",
    r"Callable\[\[Array\], Array\]": "Function",
    r"_Buffer \| _SupportsArray[^=]*_NestedSequence\[[a-z |]+\]": "ArrayLike",
}


def _short(text: str | None) -> str | None:
    if text is None:
        return None
    text = re.sub(r"~?\b(?:numpy|typing|collections)(?:\.[a-z_]\w*)*\.(?=\w)", "", text)
    for long, word in _SHORTER.items():
        text = re.sub(long, word, text)
    return text


def _shorten(app: Any, what: str, name: str, obj: Any, options: Any, *signature: str | None) -> Any:
    """Replace the types in a signature by their short names."""
    return tuple(map(_short, signature))


def _comments(cls: type) -> dict[str, str]:
    """The fields of a named tuple or dataclass, with the comments that follow them in the source."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    return dict(re.findall(r"^    (\w+): [^#\n]+  # ([^\n]+)$", source, re.MULTILINE))


def _attributes(lines: list[str]) -> Iterator[str]:
    """Turn an ``Attributes`` section with lines ``name, name : text`` into a definition list."""
    inside = False
    for line in lines:
        if line.startswith("**") or (inside and re.match(r"[A-Z]\w+$", line)):
            inside = False
        if line == "Attributes":
            inside = True
        if inside and " : " in line:
            names, text = line.split(" : ", 1)
            yield ", ".join(f"``{name}``" for name in names.split(", "))
            yield f"    {text}"
        else:
            yield line


def _parted(found: re.Match[str]) -> str:
    return found[1] + (f"\\ {found[2]}" if found[2] else "")


def _tidy(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert the conventions of our docstrings to reStructuredText."""
    if what == "class":
        lines[:] = list(_attributes(lines))
    # inline markup must end at the end of a word, which ``n``² does not
    lines[:] = [re.sub(r"(``[^`]+``)(\w)?", _parted, line) for line in lines]
    if lines and lines[0].startswith("Alias for field number"):
        module, owner, field = name.rsplit(".", 2)
        comment = _comments(getattr(importlib.import_module(module), owner)).get(field, "")
        lines[:] = [comment[:1].upper() + comment[1:] + ("." if comment else ""), ""]


def _shorten_attributes(app: Any, page: nodes.document) -> None:
    """Shorten the types of attributes, which autodoc-process-signature does not see."""
    for annotation in page.findall(addnodes.desc_annotation):
        text = annotation.astext()
        if _short(text) != text:
            annotation.children = [nodes.Text(str(_short(text)))]


def _crop_thumbnails(app: Any) -> None:
    """Make the thumbnails of wide figures from their first plots."""
    folder = Path(app.srcdir) / "auto_gallery" / "images"
    for path in folder.glob("sphx_glr_*_001.png"):
        figure = Image.open(path).convert("RGB")
        if figure.width > 2 * figure.height:
            first = figure.crop((0, 0, _end_of_first_plot(figure), figure.height))
            size = sphinx_gallery_conf["thumbnail_size"]
            ImageOps.pad(first, size, Image.Resampling.LANCZOS, "white").save(
                folder / "thumb" / path.name.replace("_001", "_thumb")
            )


def _end_of_first_plot(figure: Image.Image) -> int:
    """Return the middle of the widest white band near the middle of a figure of two plots."""
    low, high = 2 * figure.width // 5, 3 * figure.width // 5
    inked = np.flatnonzero((np.asarray(figure)[:, low:high] < 250).any(axis=(0, 2)))
    ends = np.array([0, *inked, high - low])
    widest = int(np.argmax(np.diff(ends)))
    return low + int(ends[widest : widest + 2].mean())


def _purpose_first(app: Any, page: nodes.document) -> None:
    """Put what a class or function is for above its signature, which can be long."""
    for described in [*page.findall(addnodes.desc)][: app.env.docname.startswith("generated/")]:
        first = (
            node for node in described.children[-1].children if not node.astext().startswith("Bases:")
        )
        purpose = next(first, None)
        if isinstance(purpose, nodes.paragraph):
            purpose.parent.remove(purpose)
            described.parent.insert(described.parent.index(described), purpose)


def setup(app: Any) -> None:
    """Connect the hooks; priority 400 runs before napoleon, which has 500."""
    app.connect("autodoc-process-docstring", _tidy, priority=400)
    app.connect("autodoc-process-signature", _shorten)
    app.connect("doctree-read", _shorten_attributes)
    app.connect("doctree-read", _purpose_first)
    app.connect("builder-inited", _crop_thumbnails, priority=900)  # after the gallery was made
