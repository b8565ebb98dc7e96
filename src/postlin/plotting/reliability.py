"""Whether probabilities are calibrated: whether 70 % of the events predicted with 70 % occur."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import ndtri

from postlin._typing import Array
from postlin.plotting import common
from postlin.plotting.common import COLOURS, INK, Display, Fitted, Style, bare, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.lines import Line2D


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(Display):
    """Frequency of an event against its predicted probability, in bins, with the rows in each bin.

    Bars are Wilson's 95 % intervals of the frequency: where they reach the diagonal, the rows do not
    contradict the probabilities. Every row counts once, whatever its weight.

    Parameters
    ----------
    outcome : array, 1 for each row where the event occurred, else 0
    probability : array, the predicted probability of the event for each row
    edges : array, the edges of the bins
    event : the name of the event
    source : where the rows come from

    """

    outcome: Array
    probability: Array
    edges: Array
    event: str
    source: str = ""

    def __post_init__(self) -> None:
        self.outcome, self.probability, self.edges = (
            np.asarray(values, float) for values in (self.outcome, self.probability, self.edges)
        )
        n = len(self.edges) - 1
        bins = np.clip(np.searchsorted(self.edges, self.probability, "right") - 1, 0, n - 1)
        #: for every bin: rows, mean probability and frequency (NaN in empty bins), interval
        self.count = np.bincount(bins, minlength=n)
        with np.errstate(invalid="ignore"):
            self.mean_probability = np.bincount(bins, self.probability, n) / self.count
            self.frequency = np.bincount(bins, self.outcome, n) / self.count
        self.low, self.high = wilson(self.frequency, self.count)
        self._rows = f"{len(self.outcome)} rows" + (f", {self.source}" if self.source else "")

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        X: object = None,
        y: object = None,
        *,
        n_bins: int = 10,
        pos_label: object = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw labelled rows; without ``X`` and ``y``, leave-one-out predictions of the training rows.

        The event is that the label is ``pos_label``. By default this is the second of two classes;
        with more classes the event is that the most probable class is right.
        """
        model = common.classifier_of(estimator)
        if (X is None) != (y is None):
            raise ValueError("give X and y both, or neither for leave-one-out predictions.")
        if n_bins < 1:
            raise ValueError(f"n_bins must be 1 or more, got {n_bins!r}.")
        if y is None:
            p, labels, source = model.loo_predict_proba_, common.training_labels(model), "leave one out"
        else:
            p, labels, source = estimator.predict_proba(X), np.asarray(y), "given rows"
        outcome, chosen, event = _event(model.classes_, p, labels, pos_label)
        edges = np.linspace(0.0, 1.0, n_bins + 1)
        return cls(outcome, chosen, edges, event, source).plot(ax, **kwargs)

    @property
    def calibration_error(self) -> float:
        """The expected calibration error: the mean distance of frequency and probability over rows."""
        gaps = np.abs(self.mean_probability - self.frequency) * self.count
        return float(np.nansum(gaps) / np.sum(self.count))

    def plot(
        self,
        ax: Axes | None = None,
        *,
        intervals: bool = True,
        histogram_ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw; further arguments go to the line. The histogram is in ``histogram_ax_``.

        Several displays may share ``ax``, without ``intervals`` for clarity: the area of a marker then
        shows the number of rows. They may share ``histogram_ax`` too, where they draw outlines.
        """
        ax = self._axes(ax, 4.6, 5.0)
        if not ax.lines:
            line: Style = {"color": INK, "linewidth": 1, "alpha": 0.6, "zorder": 1}
            ax.plot([0, 1], [0, 1], "--", label="as predicted", **line)
        style: Style = {"color": COLOURS[1], "marker": "o", "linestyle": "-", "linewidth": 0.8}
        style |= {"label": self._rows} | kwargs
        self.line_ = self._line(ax, style, intervals)
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set_xlabel(f"predicted probability {self.event}")
        ax.set_ylabel("frequency, with 95 % interval" if intervals else "frequency")
        if histogram_ax is None:
            self._histogram(ax)
        else:
            outline: Style = {"color": style["color"], "linestyle": style["linestyle"]}
            histogram_ax.stairs(self.count, self.edges, **outline)
            self.histogram_ax_ = histogram_ax
        return self

    def _line(self, ax: Axes, style: Style, intervals: bool) -> ErrorbarContainer | Line2D:
        some = self.count > 0
        p, f = self.mean_probability[some], self.frequency[some]
        if intervals:
            # rounding may put a frequency of 0 or 1 outside of its interval
            error = np.maximum([f - self.low[some], self.high[some] - f], 0.0)
            bars: Style = {"markersize": 4.5, "elinewidth": 1, "capsize": 2}
            return ax.errorbar(p, f, error, **(bars | style))
        sizes = 10 + 90 * self.count[some] / self.count.max(initial=1)
        # half-transparent: curves that agree lie on top of each other
        faint: Style = {"color": style["color"], "marker": style["marker"], "alpha": 0.65}
        ax.scatter(p, f, sizes, linewidths=0, **faint)
        return ax.plot(p, f, **(style | {"marker": ""}))[0]

    def _histogram(self, ax: Axes) -> None:
        """Draw the histogram in inset axes above ``ax``, so that it moves with them."""
        above = self.histogram_ax_ = ax.inset_axes((0.0, 1.03, 1.0, 0.2), sharex=ax)
        bare(above)
        above.grid(False)
        widths = np.diff(self.edges)
        bars = above.bar(self.edges[:-1], self.count, 0.94 * widths, align="edge", color="#9DB4C6")
        if len(self.count) <= 12:
            above.bar_label(bars, fmt="%d", fontsize="x-small", padding=1)
        above.tick_params(labelbottom=False, bottom=False)
        above.set_yticks([])
        above.spines["left"].set_visible(False)
        above.set_title(self._rows, loc="left", fontsize="medium")
        above.margins(y=0.2)


def _event(
    classes: np.ndarray, p: Array, labels: np.ndarray, pos_label: object
) -> tuple[Array, Array, str]:
    """Return for each row whether the event occurred and its probability, and the event's name."""
    if pos_label is None and len(classes) > 2:
        outcome = classes[np.argmax(p, axis=1)] == labels
        return outcome.astype(float), np.max(p, axis=1), "of the predicted class"
    if pos_label is None:
        pos_label = classes[1]
    if pos_label not in classes:
        names = ", ".join(map(str, classes))
        raise ValueError(f"pos_label must be one of the classes ({names}), got {pos_label!r}.")
    k = int(np.flatnonzero(classes == pos_label)[0])
    return (labels == pos_label).astype(float), p[:, k], f"of {readable(pos_label)}"


def wilson(frequency: Array, count: np.ndarray, level: float = 0.95) -> tuple[Array, Array]:
    """Return Wilson's interval of a frequency in ``count`` trials, which stays within 0 and 1."""
    z2 = float(ndtri(0.5 + level / 2)) ** 2
    centre = (count * frequency + z2 / 2) / (count + z2)
    half = np.sqrt(z2) * np.sqrt(count * frequency * (1 - frequency) + z2 / 4) / (count + z2)
    return centre - half, centre + half
