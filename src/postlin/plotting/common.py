"""What all displays share: axes, colours, and the classifier inside whatever was passed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from postlin.estimator.classifier import GPClassifier

#: Told apart by people with any kind of colour vision (Okabe and Ito); the first two are far apart.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5C5C5C")
#: Classes differ by more than their colour. With the area that makes all look equally large.
MARKERS = {"o": 1.0, "s": 0.8, "D": 0.7, "^": 1.1, "v": 1.1, "P": 1.2, "*": 1.9}
INK = "#333333"
#: Inches for a legend above axes, and the letters of the longest name in it.
_ROOM, _LONGEST = 4.0, 30


class Display(ABC):
    """A picture that keeps its data; ``ax_`` and ``figure_`` once it is drawn."""

    ax_: Any
    figure_: Any

    @abstractmethod
    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw, into the axes given or into new ones."""


class Look(NamedTuple):
    """How one of several classes is drawn."""

    colour: str
    marker: str
    size: float  # of the marker, so that all look equally large


def look(k: int) -> Look:
    """The look of the class of this index; after seven, colours come again with other markers."""
    turn = k // len(COLOURS)
    return Look(COLOURS[k % len(COLOURS)], *list(MARKERS.items())[(k + turn) % len(MARKERS)])


def pyplot() -> Any:
    """matplotlib.pyplot, which is no part of a plain installation."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'postlin[plot]'") from None
    return plt


def new_axes(ax: Any, width: float, height: float) -> Any:
    """The axes given, or those of a new figure of this size in inches."""
    plt = pyplot()
    if ax is not None:
        return ax
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def legend_columns(labels: Sequence[str]) -> int:
    """As many as fit above axes of common width, four at most."""
    width = 0.45 + 0.085 * min(max(map(len, labels)), _LONGEST)
    return max(1, min(len(labels), 4, int(_ROOM / width)))


def legend_height(labels: Sequence[str]) -> float:
    """Inches that a legend above takes beyond its first line."""
    return 0.22 * (-(-len(labels) // legend_columns(labels)) - 1)


def legend_above(ax: Any) -> None:
    """A legend above the axes, where it hides nothing; long names are cut."""
    handles, labels = ax.get_legend_handles_labels()
    names = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in labels]
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
    style = {"frameon": False, "handletextpad": 0.2, "columnspacing": 1.2}
    ax.legend(handles, names, ncols=legend_columns(names), **style, **place)


def bare(ax: Any) -> None:
    """Only the lines that carry a scale, and a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color=INK, alpha=0.12, linewidth=0.6)
    ax.set_axisbelow(True)


def classifier_of(estimator: Any) -> GPClassifier:
    """The fitted ``GPClassifier`` that this is, or that this pipeline ends in."""
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not isinstance(last, GPClassifier):
        raise TypeError(
            f"estimator must be a GPClassifier or a pipeline that ends in one, got {last!r}."
        )
    check_is_fitted(last)
    return last


def training_labels(model: GPClassifier) -> np.ndarray:
    """The labels of the rows that were learned from."""
    return np.asarray(model.classes_[model._codes])


def readable(name: Any) -> str:
    """A name as words: without underscores, and with dollar signs that are no mathematics."""
    return str(name).replace("_", " ").replace("$", r"\$")
