"""How inference came to its fixed point."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from postlin._typing import Array
from postlin.plotting.common import COLOURS, INK, Display, bare, classifier_of, new_axes, readable

#: So many problems have a line in the legend each; more are drawn alike.
_NAMED = len(COLOURS)
#: What a residual of zero is drawn as.
_LEAST = 1e-17


class ConvergenceDisplay(Display):
    """The residual after every iteration of the last inference, and the tolerance.

    The residual is the largest move that any site is still asked to make, in units of its marginal.
    The last inference of a fit starts from the one before, so that few iterations are left to it; with
    ``optimizer=None`` it starts from the prior.

    Parameters
    ----------
    residuals : list of arrays, one for each problem, or one for all classes
    tol : float, the tolerance
    names : what the problems are called

    """

    def __init__(self, residuals: Sequence[Array], tol: float, names: Sequence[str]) -> None:
        self.residuals = [np.asarray(r, float) for r in residuals]
        self.tol = tol
        self.names = list(names)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """From a fitted ``GPClassifier``, or a pipeline that ends in one."""
        model = classifier_of(estimator)
        fits = model._estimators
        display = cls(
            [np.array(fit.record.history.residuals) for fit in fits],
            fits[0].model.tol,
            [fit.name for fit in fits],
        )
        return display.plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; further arguments go to the lines."""
        ax = self.ax_ = new_axes(ax, 5.2, 3.6)
        self.figure_ = ax.figure
        few = len(self.residuals) <= _NAMED
        self.lines_ = []
        for k, (residuals, name) in enumerate(zip(self.residuals, self.names, strict=True)):
            style = {"marker": "o", "markersize": 4, "linewidth": 1.5, "color": COLOURS[1]}
            if few and len(self.residuals) > 1:
                style |= {"color": COLOURS[k], "label": readable(name)}
            elif not few:
                style |= {"alpha": 0.4, "label": f"{len(self.residuals)} problems" if k == 0 else None}
            iterations = np.arange(1, len(residuals) + 1)
            self.lines_ += ax.plot(iterations, np.maximum(residuals, _LEAST), **(style | kwargs))
        ax.axhline(self.tol, color=INK, linestyle="--", linewidth=1, label=f"tolerance {self.tol:.0e}")
        ax.set_yscale("log")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if max(map(len, self.residuals)) == 1:
            ax.set(xlim=(0.5, 1.5), xticks=[1])
        ax.set(xlabel="iteration", ylabel="residual (in standard deviations)")
        ax.legend(framealpha=0.9, edgecolor="none")
        bare(ax)
        return self
