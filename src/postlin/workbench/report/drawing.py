"""What all figures share: size, type, colours, legends, and the way from matplotlib to SVG."""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from postlin.workbench.report.svg import INK, clean
from postlin.workbench.report.text import short

#: Inches. One width for all, so that text has one size on the page.
WIDTH = 4.4
_LEGEND_LINE = 0.18
#: A legend has two columns where its labels are no longer than this.
_HALF_LINE = 24
#: Of middling lightness: each has a contrast of 3 or more on white and on the dark page.
BLUE, ORANGE, GREEN = "#2f7fd1", "#cf6a12", "#2b9157"
PURPLE, RED, TEAL = "#9a63d0", "#d8404f", "#148c99"


class Look(NamedTuple):
    """How one of several curves is told from the others: by more than its colour."""

    colour: str
    dashes: Any
    marker: str


_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, TEAL)
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)))
_MARKERS = "osD^vP"

_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "postlin",
    "text.parse_math": False,  # names may hold dollar signs
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib as the report wants it, whatever the user's settings, which come back after."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        # Fonts are the browser's business, and a contour may well have no points.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="No contour levels were found")
        yield


def new_figure(height: float) -> Figure:
    """An empty figure; ``height`` in inches, to which a legend adds its lines."""
    return Figure(figsize=(WIDTH, height), layout="constrained")


def to_svg(figure: Figure) -> str:
    """The drawing as SVG, the same at every run."""
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=metadata)
    return clean(buffer.getvalue())


def look(index: int) -> Look:
    """How the curve of this index is drawn."""
    colour = _COLOURS[index % len(_COLOURS)]
    return Look(colour, _DASHES[index % len(_DASHES)], _MARKERS[index % len(_MARKERS)])


def add_legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """A legend below the axes, where it hides nothing; the figure grows by its lines."""
    if not handles:
        return
    labels = [short(label) for label in labels]
    columns = 2 if len(labels) > 1 and max(map(len, labels)) <= _HALF_LINE else 1
    lines = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * lines + 0.08)
    figure.legend(list(handles), labels, loc="outside lower center", ncols=columns, handlelength=2.6)


def say_empty(axes: Axes, words: str = "no data") -> None:
    """Say in the middle of the axes that there is nothing to draw."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", style="italic")
