"""What all displays share: axes, colours, legends, and the classifier inside a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from postlin.estimator.classifier import GPClassifier

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What ``from_estimator`` draws.
Fitted: TypeAlias = GPClassifier | Pipeline
#: Matplotlib's keyword arguments, whose types depend on the key.
Style = dict[str, Any]
#: Colours that people with any kind of colour vision can tell apart (Okabe and Ito); pale ones are
#: darkened, so that each has a contrast of 3 or more on white and on a dark page.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#BD8300", "#2F95D0", "#777777")
#: Markers, each with the factor of its area that makes all look equally large.
MARKERS = {"o": 1.0, "s": 0.8, "D": 0.7, "^": 1.1, "v": 1.1, "P": 1.2, "*": 1.9}
#: Lengths of dashes and gaps, in line widths.
_DASHES = ((), (5, 1.5), (2, 1), (6, 1.5, 1.5, 1.5), (1, 1), (3, 3), (8, 1, 1, 1, 1, 1))
INK = "#333333"
#: The width of a legend above axes in inches, and the number of letters of its longest name.
_ROOM, _LONGEST = 4.0, 30


class Display:
    """A picture that keeps its data; ``plot`` leaves axes and figure in ``ax_`` and ``figure_``."""

    def _axes(self, ax: Axes | None, width: float, height: float, *, grid: bool = True) -> Axes:
        """Return ``ax``, or the axes of a new figure of this size in inches if it is None."""
        if ax is None:
            ax = pyplot().subplots(figsize=(width, height), layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        if grid:
            bare(ax)
        return ax


class Look(NamedTuple):
    """How one of several classes or curves is drawn; they differ by more than their colour."""

    colour: str
    marker: str
    size: float  # factor of the marker's area
    dashes: tuple[int, tuple[float, ...] | None]  # offset, and lengths of dashes and gaps


def look(k: int) -> Look:
    """Return the look of index ``k``; after seven, the colours repeat with other markers."""
    turn = k // len(COLOURS)
    marker, size = list(MARKERS.items())[(k + turn) % len(MARKERS)]
    return Look(COLOURS[k % len(COLOURS)], marker, size, (0, _DASHES[k % len(COLOURS)] or None))


def pyplot() -> ModuleType:
    """Import matplotlib.pyplot, which is no part of a plain installation."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install matplotlib") from None
    return plt


def legend_columns(labels: Sequence[str]) -> int:
    """Return how many columns of a legend fit above axes of common width, four at most."""
    width = 0.45 + 0.085 * min(max(map(len, labels)), _LONGEST)
    return max(1, min(len(labels), 4, int(_ROOM / width)))


def legend_height(labels: Sequence[str]) -> float:
    """Return the inches that a legend above the axes needs beyond its first line."""
    return 0.22 * (-(-len(labels) // legend_columns(labels)) - 1)


def legend_above(ax: Axes) -> None:
    """Put a legend above the axes, where it hides nothing; long names are cut."""
    handles, labels = ax.get_legend_handles_labels()
    names = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in labels]
    place: Style = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
    style: Style = {"frameon": False, "handletextpad": 0.2, "columnspacing": 1.2}
    ax.legend(handles, names, ncols=legend_columns(names), **style, **place)


def bare(ax: Axes) -> None:
    """Leave only the spines that carry a scale, and a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color=INK, alpha=0.12, linewidth=0.6)
    ax.set_axisbelow(True)


def classifier_of(estimator: Fitted) -> GPClassifier:
    """Return the fitted ``GPClassifier``: ``estimator`` itself, or the last step of a pipeline."""
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not isinstance(last, GPClassifier):
        raise TypeError(
            f"estimator must be a GPClassifier or a pipeline that ends in one, got {last!r}."
        )
    check_is_fitted(last)
    return last


def training_labels(model: GPClassifier) -> np.ndarray:
    """Return the labels of the rows that the model was fitted to."""
    return np.asarray(model.classes_[model._codes])


def readable(name: object) -> str:
    """Return a name with spaces for underscores, and with dollar signs that are not mathematics."""
    return str(name).replace("_", " ").replace("$", r"\$")
