"""Whether probabilities are kept: whether of rows said to be 70 % sure, 70 % are right."""

from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from postlin._typing import Array
from postlin.plotting.common import COLOURS, INK, Display, bare, classifier_of, new_axes, readable


class ReliabilityDisplay(Display):
    """Frequency against predicted probability, in bins of it, and how many rows are in each.

    Bars are Wilson's 95 % intervals of the frequency: where they reach the diagonal, the rows do not
    speak against the probabilities. Every row counts once, whatever its weight.

    Parameters
    ----------
    outcome : array, whether what was predicted came: 0 or 1 for each row
    probability : array, with which probability
    edges : array, of the bins
    event : what was predicted
    source : on which rows

    """

    def __init__(
        self, outcome: Array, probability: Array, edges: Array, event: str, source: str = ""
    ) -> None:
        self.outcome = np.asarray(outcome, float)
        self.probability = np.asarray(probability, float)
        self.edges = np.asarray(edges, float)
        self.event = event
        self.source = source
        bins = np.clip(
            np.searchsorted(self.edges, self.probability, "right") - 1, 0, len(self.edges) - 2
        )

        def total(values: Array) -> Array:
            sums: Array = np.bincount(bins, values, len(self.edges) - 1).astype(float)
            return sums

        #: of every bin: rows, mean probability and frequency (NaN where there are none), interval
        self.count = total(np.ones_like(self.probability)).astype(int)
        with np.errstate(invalid="ignore"):
            self.mean_probability = total(self.probability) / self.count
            self.frequency = total(self.outcome) / self.count
        self.low, self.high = wilson(self.frequency, self.count)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        n_bins: int = 10,
        pos_label: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """From labelled rows, or without any from leave-one-out predictions of the training rows.

        The event is that the label is ``pos_label``: the second of two classes if not given, and of
        many that the most probable class is right.
        """
        model = classifier_of(estimator)
        if (X is None) != (y is None):
            raise ValueError("give X and y both, or neither for leave-one-out predictions.")
        if n_bins < 1:
            raise ValueError(f"n_bins must be 1 or more, got {n_bins!r}.")
        if y is None:
            p, labels = model.loo_predict_proba_, model.classes_[model._codes]
        else:
            p, labels = estimator.predict_proba(X), np.asarray(y)
        source = "leave one out" if y is None else "given rows"
        outcome, chosen, event = _event(model.classes_, p, labels, pos_label)
        edges = np.linspace(0.0, 1.0, n_bins + 1)
        return cls(outcome, chosen, edges, event, source).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; further arguments go to the line. The histogram is in ``histogram_ax_``."""
        ax = self.ax_ = new_axes(ax, 4.6, 5.0)
        self.figure_ = ax.figure
        bare(ax)
        ax.plot([0, 1], [0, 1], "--", color=INK, linewidth=1, label="as predicted", zorder=1)
        some = self.count > 0
        p, f = self.mean_probability[some], self.frequency[some]
        style = {"color": COLOURS[1], "marker": "o", "markersize": 4.5, "linewidth": 0.8, "capsize": 2}
        style |= {"label": self._rows, "elinewidth": 1} | kwargs
        # rounding may put a frequency of 0 or 1 outside of its interval
        error = np.maximum([f - self.low[some], self.high[some] - f], 0.0)
        self.line_ = ax.errorbar(p, f, error, **style)
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set_xlabel(f"predicted probability {self.event}")
        ax.set_ylabel("frequency, with 95 % interval")
        self._histogram(ax)
        return self

    @property
    def _rows(self) -> str:
        return f"{len(self.outcome)} rows" + (f", {self.source}" if self.source else "")

    def _histogram(self, ax: Any) -> None:
        """Above the axes and part of them, so that it goes wherever they are put."""
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
    classes: np.ndarray, p: Array, labels: np.ndarray, pos_label: Any
) -> tuple[Array, Array, str]:
    """Whether it came, its probability, and its name in words."""
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
    """Wilson's interval of a frequency from so many trials; unlike Wald's it stays within 0 and 1."""
    z2 = float(ndtri(0.5 + level / 2)) ** 2
    centre = (count * frequency + z2 / 2) / (count + z2)
    half = np.sqrt(z2) * np.sqrt(count * frequency * (1 - frequency) + z2 / 4) / (count + z2)
    return centre - half, centre + half
