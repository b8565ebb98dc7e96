"""How inference came to its fixed point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from postlin._typing import Array
from postlin.plotting.common import COLOURS, INK, Display, Fitted, Style, classifier_of, look, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

#: Up to this many problems have a line of their own in the legend; more are drawn alike.
_NAMED = len(COLOURS)
#: Residuals are drawn between these values, so that 0 and infinity have a place.
_LEAST, _MOST = 1e-17, 1e300
#: The axis ends this factor above the largest first residual, this factor below the tolerance, and
#: below this ceiling.
_HEADROOM, _FOOTROOM, _CEILING = 1e4, 1e-6, 1e20


class ConvergenceDisplay(Display):
    """The residual after every iteration of the last inference, and the tolerance.

    The residual is the largest move that any site is still asked to make, in units of its marginal.
    The last inference of a fit starts from the one before, so that it needs few iterations; with
    ``optimizer=None`` it starts from the prior. A triangle marks where a curve leaves the axes.

    Parameters
    ----------
    residuals : list of arrays, one for each problem, or a single one for all classes; NaN counts as ∞
    tol : float, the tolerance
    names : the names of the problems

    """

    def __init__(
        self, residuals: Sequence[Array | list[float]], tol: float, names: Sequence[str]
    ) -> None:
        curves = (np.asarray(r, float) for r in residuals)
        self.residuals = [np.where(np.isnan(r), np.inf, r) for r in curves]
        self.tol, self.names = tol, list(names)
        #: the ends of the residual axis
        self.limits = _limits(self.residuals, tol)

    @classmethod
    def from_estimator(cls, estimator: Fitted, *, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw the residuals of a fitted ``GPClassifier``, or of a pipeline that ends in one."""
        fits = classifier_of(estimator)._estimators
        residuals = [np.array(fit.record.history.residuals) for fit in fits]
        return cls(residuals, fits[0].model.tol, [fit.name for fit in fits]).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw; further arguments go to the lines."""
        ax = self._axes(ax, 5.2, 3.6)
        ax.set_yscale("log")
        ax.set_ylim(*self.limits)
        self.lines_: list[Line2D] = []
        for k, residuals in enumerate(self.residuals):
            self._curve(ax, residuals, self._style(k) | kwargs)
        self.tolerance_ = ax.axhline(
            self.tol, color=INK, linestyle="--", linewidth=1, label=f"tolerance {self.tol:.0e}"
        )
        ax.locator_params(axis="x", integer=True)
        if max(map(len, self.residuals), default=0) == 1:
            ax.set(xlim=(0.5, 1.5), xticks=[1])
        ax.set(xlabel="iteration", ylabel="residual (in standard deviations)")
        ax.legend(framealpha=0.9, edgecolor="none")
        return self

    def _style(self, k: int) -> Style:
        """Return the look of problem ``k``: its own among a few problems, the same among many."""
        n = len(self.residuals)
        style: Style = {"marker": "o", "markersize": 4, "linewidth": 1.5, "color": COLOURS[1]}
        if n > _NAMED:
            return style | {"alpha": 0.4, "label": f"{n} problems" if k == 0 else None}
        if n > 1:
            colour, marker, _, dashes = look(k)
            style |= {"color": colour, "marker": marker, "linestyle": dashes}
            style |= {"label": readable(self.names[k])}
        return style

    def _curve(self, ax: Axes, residuals: Array, style: Style) -> None:
        heights = np.clip(residuals, _LEAST, _MOST)
        self.lines_ += ax.plot(np.arange(1, len(heights) + 1), heights, **style)
        if np.any(above := heights > self.limits[1]):
            mark: Style = {"markersize": 7, "clip_on": False, "transform": ax.get_xaxis_transform()}
            ax.plot(np.argmax(above) + 1, 1.0, "^", color=style["color"], **mark)


def _limits(curves: list[Array], tol: float) -> tuple[float, float]:
    """Return the ends of an axis that leaves out residuals far above the first and below ``tol``."""
    first = [values[0] for values in curves if len(values) and 0 < values[0] < np.inf]
    values = np.concatenate([np.array([tol]), *curves])
    values = values[(values > 0) & (values < np.inf)]
    ceiling = min(values.max(), max([1.0, *first]) * _HEADROOM, _CEILING)
    floor = max(values.min(), tol * _FOOTROOM)
    return 10.0 ** (math.floor(math.log10(floor)) - 1), 10.0 ** (math.ceil(math.log10(ceiling)) + 0.5)
