"""What figures are made with: one style, SVG in the colour of the page, and words for numbers."""

import io
import math
import re
import sys
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from postlin.plotting.common import INK, Style, look

#: The most curves in a figure.
MOST = 6
#: Inches. All figures have one width, so that text has one size on the page.
_WIDTH = 4.4
_LEGEND_LINE = 0.18
#: A legend has two columns if its labels have at most this many letters.
_HALF_LINE = 24
_STYLE: Style = {
    "svg.fonttype": "none",
    "svg.hashsalt": "postlin",
    "text.parse_math": False,  # names may hold dollar signs
    **dict.fromkeys(("font.size", "axes.labelsize"), 9),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8.5),
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "grid.color"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.7),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.alpha": 0.13,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
}
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_ROOT_STYLE = f"font-family: {_FONTS}; stroke-linejoin: round; stroke-linecap: butt"
#: Characters that neither XML nor UTF-8 can hold.
_IMPOSSIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Sheet:
    """A figure being drawn; ``svg`` is the drawing once its ``sheet`` context has ended."""

    def __init__(self, height: float) -> None:
        self.canvas = Canvas(figsize=(_WIDTH, height), layout="constrained")
        self.svg = ""

    def axes(self, *, grid: bool = True) -> Axes:
        """Return axes that fill the figure."""
        axes: Axes = self.canvas.subplots()
        axes.grid(grid)
        return axes

    def say_empty(self, words: str = "no data") -> None:
        """Write in the middle of the first axes why there is nothing to see."""
        axes = self.canvas.axes[0]
        axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", style="italic")

    def legend(self, handles: Sequence[Artist], labels: Sequence[str]) -> None:
        """Put one legend below the axes in place of their own; the figure grows by its lines."""
        for axes in self.canvas.axes:
            if own := axes.get_legend():
                own.remove()
        if not handles:
            return
        labels = apart(labels)
        columns = 2 if len(labels) > 1 and max(map(len, labels)) <= _HALF_LINE else 1
        lines = -(-len(labels) // columns)
        self.canvas.set_figheight(self.canvas.get_figheight() + _LEGEND_LINE * lines + 0.08)
        place: Style = {"loc": "outside lower center", "ncols": columns, "handlelength": 2.6}
        self.canvas.legend(list(handles), labels, **place)


@contextmanager
def sheet(height: float) -> Iterator[Sheet]:
    """Draw a figure of this height in inches in the report's style, whatever the user's settings."""
    drawn = Sheet(height)
    with matplotlib.style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        # The browser chooses the fonts, and a contour may have no points.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="No contour levels were found")
        yield drawn
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # the same SVG at every run
        drawn.canvas.savefig(buffer, format="svg", metadata=nothing)
    drawn.svg = _clean(buffer.getvalue())


def shades(colour: str, low: float, high: float) -> LinearSegmentedColormap:
    """Return a colour of rising opacity, which suits a light and a dark page."""
    return LinearSegmentedColormap.from_list("shades", [to_rgba(colour, low), to_rgba(colour, high)])


def line(k: int, **more: object) -> Style:
    """Return how the curve of index ``k`` is drawn."""
    colour, marker, _, dashes = look(k)
    return {"color": colour, "linestyle": dashes, "marker": marker} | more


def handles(n: int, *, markers: bool = False) -> list[Line2D]:
    """Return what stands for ``n`` curves in a legend."""
    return [Line2D([], [], **line(k, markersize=4.5 if markers else 0)) for k in range(n)]


def embed(text: str, prefix: str, alt: str) -> str:
    """Return the drawing as a named image whose ids start with ``prefix``, unique on the page."""
    root = _parse(text)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, prefix + value)
            elif key == "href" and value.startswith("#"):
                element.set(key, f"#{prefix}{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{prefix}"))
    root.set("role", "img")
    root.set("aria-label", plain(alt))
    return _write(root)


def standalone(text: str, alt: str) -> str:
    """Return the drawing as an SVG file: dark on white, in every viewer."""
    ground = "; background: #ffffff; color: #1d2024"
    return embed(text.replace(_ROOT_STYLE, _ROOT_STYLE + ground, 1), "", alt) + "\n"


def _clean(text: str) -> str:
    """Return matplotlib's SVG in the colour and fonts of the page, without what is not drawn.

    Matplotlib's style sheet would apply to the whole page, and its metadata name other hosts.
    """
    root = _parse(re.sub(r">\s+<", "><", text))
    root.set("style", _ROOT_STYLE)
    for element in root.iter():
        for child in [c for c in element if c.tag in ("metadata", "style")]:
            element.remove(child)
        if "style" in element.attrib and element is not root:
            inked = re.sub(rf"\b(fill|stroke): {INK}", r"\1: currentColor", element.attrib["style"])
            element.set("style", re.sub(r"font-family: [^;]*;? ?", "", inked))
        if "d" in element.attrib:  # paths on one line, in hundredths of a point
            path = re.sub(r"-?\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", element.attrib["d"])
            element.set("d", " ".join(path.split()))
    values = [v for e in root.iter() for k, v in e.attrib.items() if k != "id"]
    used = {name for v in values for name in re.findall(r"#([\w.-]+)", v)}
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
    return _write(root)


def _parse(text: str) -> ET.Element:
    """Return the tree without namespaces, which HTML does not need."""
    root = ET.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        if _XLINK_HREF in element.attrib:
            element.set("href", element.attrib.pop(_XLINK_HREF))
    return root


def _write(root: ET.Element) -> str:
    root.set("xmlns", "http://www.w3.org/2000/svg")  # needed if the drawing is saved as a file
    return ET.tostring(root, encoding="unicode")


def plain(text: str) -> str:
    """Return the text without characters that no document can hold."""
    return _IMPOSSIBLE.sub("", text)


def short(text: str, longest: int = 44) -> str:
    """Return the text on one line, cut to ``longest`` letters; 44 fit into a legend."""
    line = " ".join(plain(text).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def apart(names: Sequence[str], longest: int = 44) -> list[str]:
    """Return the names as ``short`` does, but none like another.

    Names that begin alike are cut in the middle as well, before the word in which they differ, and
    numbered if they still look alike.

    >>> apart(["area", "length of the left wing", "length of the right wing"], 15)
    ['area', 'lengt…left wing', 'lengt…right wi…']
    """
    lines = [short(name, sys.maxsize) for name in names]
    shown = [short(line, longest) for line in lines]
    for alike in _alike(shown):
        first, *_, last = sorted(lines[k] for k in alike)  # no others have less in common
        pairs = enumerate(zip(first, last, strict=False))
        common = next((k for k, (a, b) in pairs if a != b), len(first))
        head = longest // 3
        start = max(len(re.sub(r"[^\W_]*$", "", first[:common])), common - head)
        for k in alike:
            shown[k] = f"{lines[k][:head].rstrip()}…{short(lines[k][start:], longest - head - 1)}"
    for alike in _alike(shown):
        for k in alike:
            shown[k] = short(f"{k + 1}: {lines[k]}", longest)
    return shown


def _alike(texts: list[str]) -> list[list[int]]:
    """Return the places of equal texts, for each text that occurs more than once."""
    places: dict[str, list[int]] = {}
    for k, text in enumerate(texts):
        places.setdefault(text, []).append(k)
    return [alike for alike in places.values() if len(alike) > 1]


def number(value: float, digits: int = 3) -> str:
    """Return the value to a few significant digits, with a true minus sign.

    >>> number(-1234.5678), number(0.25), number(3e50), number(1e-8)
    ('−1235', '0.25', '3×10⁵⁰', '10⁻⁸')
    """
    if value != 0 and math.isfinite(value) and not 1e-4 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        text = f"{mantissa}×{power_of_ten(int(exponent))}".removeprefix("1×").replace("-1×", "-")
    else:
        text = f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
    return text.replace("-", "−").replace("inf", "∞")


def power_of_ten(exponent: int) -> str:
    """Return a power of ten without markup.

    >>> power_of_ten(-3)
    '10⁻³'
    """
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def count(n: int, noun: str) -> str:
    """Return the number with its noun.

    >>> count(1, "iteration"), count(2000, "iteration")
    ('1 iteration', '2,000 iterations')
    """
    return f"{n} {noun}" if n == 1 else f"{n:,} {noun}s"


def listing(parts: list[str]) -> str:
    """Return the parts as a list within a sentence.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)
