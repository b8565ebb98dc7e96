"""What a fit says about its data: which rows the others do not explain, and which features matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from postlin._typing import Array
from postlin.plotting import common
from postlin.plotting.common import COLOURS, INK, Display, Fitted, Style, look, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Row numbers are at least this fraction of the axis apart.
_APART = 0.055
#: Up to this many classes have their legend below the sorted curve; more have it above the axes.
_FEW = 4


@dataclass(eq=False, repr=False)
class LeaveOneOutDisplay(Display):
    """The probability of each training row's label if the row is left out, in ascending order.

    The rest of the data contradicts the rows at the left: they may be mislabelled, or the only ones of
    their kind. The hardest rows carry their row numbers.

    Parameters
    ----------
    probability : array, the leave-one-out probability of each row's own label
    codes : array, the class of each row as an index of ``classes``
    classes : the labels
    rows : array, the number of each row in the data as passed to ``fit``

    """

    probability: Array
    codes: np.ndarray
    classes: np.ndarray
    rows: np.ndarray

    def __post_init__(self) -> None:
        self.probability, self.codes = np.asarray(self.probability, float), np.asarray(self.codes)
        self.order = np.argsort(self.probability, kind="stable")

    @classmethod
    def from_estimator(
        cls, estimator: Fitted, *, n_annotated: int = 5, ax: Axes | None = None, **kwargs: object
    ) -> Self:
        """Draw the training rows of a fitted ``GPClassifier``, or of a pipeline that ends in one."""
        model = common.classifier_of(estimator)
        codes = model._codes
        own = model.loo_predict_proba_[np.arange(len(codes)), codes]
        display = cls(own, codes, model.classes_, model._kept)
        return display.plot(ax, n_annotated=n_annotated, **kwargs)

    def plot(self, ax: Axes | None = None, *, n_annotated: int = 5, **kwargs: object) -> Self:
        """Draw, with the numbers of the hardest rows; further arguments go to the points."""
        names = [*map(readable, self.classes), "chance, 0.00"]
        few = len(self.classes) <= _FEW
        ax = self._axes(ax, 5.8, 3.8 if few else 4.0 + common.legend_height(names))
        rank = np.empty(len(self.order), int)
        rank[self.order] = np.arange(1, len(rank) + 1)
        self.points_ = []
        for k, label in enumerate(self.classes):
            mine = self.codes == k
            colour, marker, size, _ = look(k)
            style: Style = {"color": colour, "marker": marker, "s": 20 * size, "linewidths": 0}
            style |= {"alpha": 0.85, "label": readable(label)} | kwargs
            self.points_.append(ax.scatter(rank[mine], self.probability[mine], **style))
        chance = 1 / len(self.classes)
        ax.axhline(chance, color=INK, linestyle="--", linewidth=1, label=f"chance, {chance:.2g}")
        ax.set(xlabel="training rows, the hardest first", ylim=(-0.03, 1.03))
        ax.set_ylabel("leave-one-out probability\nof the row's own label")
        self._annotate(ax, n_annotated)
        if few:
            ax.legend(frameon=False, loc="lower right")
        else:
            common.legend_above(ax)
        return self

    def _annotate(self, ax: Axes, n: int) -> None:
        """Write row numbers to the right of their points, below the curve where there is room."""
        hardest = self.order[: max(n, 0)]
        p = self.probability[hardest]
        heights = _spread(p)
        above = np.sum(self.probability < np.max(heights, initial=0.0) + _APART)
        x = max(0.09 * len(self.order) + len(hardest), above + 0.05 * len(self.order))
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkA": 1}
        text: Style = {"va": "center", "fontsize": "small", "color": INK, "arrowprops": line}
        text["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}
        self.annotations_ = [
            ax.annotate(f"row {self.rows[i]}", (place, p[place - 1]), (x, heights[place - 1]), **text)
            for place, i in enumerate(hardest, start=1)
        ]


def _spread(p: Array) -> Array:
    """Return heights for labels of sorted values: near them, in order, apart, and not below zero."""
    heights = _pushed_up(p)
    lower = p - np.max(heights - p, initial=0.0) / 2
    return _pushed_up(np.maximum(lower, 0.0))


def _pushed_up(values: Array) -> Array:
    steps = _APART * np.arange(len(values))
    return np.asarray(np.maximum.accumulate(values - steps) + steps)


@dataclass(eq=False, repr=False)
class RelevanceDisplay(Display):
    """Features by relevance, the most relevant at the top.

    Relevance is the standard deviation of a feature in units of its length scale, so that it does not
    depend on the feature's own unit.

    Parameters
    ----------
    names : the names of the features, the most relevant first
    values : array, their relevance

    """

    names: Sequence[str]
    values: Array

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        *,
        feature_names: Sequence[str] | None = None,
        max_features: int | None = None,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw the features of a fit whose kernel has a length scale for every feature.

        ``feature_names`` are in the order of the columns; the names of a data frame are known.
        ``max_features`` is the number of features to draw, the most relevant ones.
        """
        found = common.classifier_of(estimator).relevance_
        names = found.names
        if feature_names is not None:
            if len(feature_names) != len(names):
                raise ValueError(
                    f"feature_names must hold {len(names)} names, one for every feature, "
                    f"got {len(feature_names)}."
                )
            names = [str(feature_names[k]) for k in found.features]
        return cls(names[:max_features], found.values[:max_features]).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw; further arguments go to the bars."""
        n = len(self.names)
        ax = self._axes(ax, 5.2, 1.1 + 0.28 * n)
        ax.grid(False, axis="y")
        style: Style = {"color": COLOURS[1], "height": 0.7} | kwargs
        self.bars_ = ax.barh(np.arange(n), self.values, **style)
        ax.bar_label(self.bars_, fmt="%.2g", padding=3, fontsize="small")
        ax.set_yticks(np.arange(n), [readable(name) for name in self.names])
        ax.tick_params(axis="y", length=0)
        ax.set(ylim=(n - 0.4, -0.6), xlabel="relevance (standard deviation ÷ length scale)")
        ax.margins(x=0.12)
        return self
