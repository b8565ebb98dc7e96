"""How a fit was found: the residuals of inference, and the evidence that the optimiser climbs."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from postlin._typing import Array
from postlin.estimator.classifier import GPClassifier
from postlin.exceptions import ConvergenceWarning, NotPositiveDefiniteError
from postlin.plotting.common import COLOURS, INK, Display, Fitted, Style, classifier_of, look, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
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


#: Contours are drawn at these distances below the maximum.
_DROPS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
#: How far the grid reaches beyond the optimiser's path, and at least and at most from the optimum.
_BEYOND, _NEAREST, _FARTHEST = 0.5, 2.0, 7.0

Progress = Callable[[int, int], object]


@dataclass(eq=False, repr=False)
class EvidenceDisplay(Display):
    """Contours of the log evidence over two hyperparameters, with the optimiser's path.

    All other parameters have their learned values; the path shows the two parameters at each
    evaluation, whatever the others were there. With more than two classes, a fit has a single evidence
    with ``multi_class="joint"``, and the mean over its problems is shown with ``shared_kernel=True``.

    Parameters
    ----------
    axis0, axis1 : arrays, logarithms of the two parameters
    log_evidence : array (len(axis1), len(axis0)); NaN where there is no posterior
    converged : boolean array of the same shape, whether inference converged
    path : array (evaluations, 2), logarithms of the two parameters at the optimiser's evaluations
    optimum : array (2,), logarithms of the learned parameters
    best : float, the log evidence at the optimum
    names : the names of the two parameters
    quantity : the name of what the contours show

    """

    axis0: Array
    axis1: Array
    log_evidence: Array
    converged: np.ndarray
    path: Array
    optimum: Array
    best: float
    names: Sequence[str]
    quantity: str = "log evidence"

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        parameters: tuple[int | str, int | str] = (0, 1),
        *,
        grid_resolution: int = 20,
        limits: Sequence[tuple[float, float]] | None = None,
        progress: Progress | None = None,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw the evidence of a fit that has a single one; it is computed ``grid_resolution``² times.

        ``parameters`` are two indices or names, for example "length_scale". ``limits`` are the ranges
        of the two parameters (not of their logarithms); by default the path fits in. ``progress`` is
        called with the number of evaluations made so far and with their total number.
        """
        model = classifier_of(estimator)
        several = len(model._estimators) > 1
        if several and not model.shared_kernel:
            raise ValueError(
                f"EvidenceDisplay shows one evidence, and with {model.n_classes_} classes every "
                "problem has its own: fit with shared_kernel=True or multi_class='joint'."
            )
        first = model._estimators[0]
        hyperparameters = first.hyperparameters
        chosen = [_index(name, hyperparameters.names) for name in parameters]
        if len(chosen) != 2 or chosen[0] == chosen[1]:
            raise ValueError(f"parameters must be two different ones, got {parameters!r}.")
        optimum = hyperparameters.theta[chosen]
        path = np.array([theta[chosen] for theta, _ in first.evidence_path_]).reshape(-1, 2)
        ranges = _ranges(path, optimum) if limits is None else np.log(np.asarray(limits, float))
        axis0, axis1 = (np.linspace(low, high, grid_resolution) for low, high in ranges)
        values, converged = _surface(model, chosen, axis0, axis1, progress)
        names = [hyperparameters.names[k] for k in chosen]
        best = model.log_marginal_likelihood_value_
        quantity = "mean log evidence" if several else "log evidence"
        display = cls(axis0, axis1, values, converged, path, optimum, best, names, quantity)
        return display.plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw; further arguments go to the filled contours."""
        ax = self._axes(ax, 5.4, 4.2, grid=False)
        x, y = np.exp(self.axis0), np.exp(self.axis1)
        self._contours(ax, x, y, kwargs)
        ax.set(xscale="log", yscale="log")
        if len(x) > 1 and len(y) > 1:
            ax.set(xlim=x[[0, -1]], ylim=y[[0, -1]])
        ax.set(xlabel=_short(self.names, 0), ylabel=_short(self.names, 1))
        for axis, ends in ((ax.xaxis, self.axis0), (ax.yaxis, self.axis1)):
            _ticks(axis, float(ends[-1] - ends[0]))
        self._path(ax)
        return self

    def _contours(self, ax: Axes, x: Array, y: Array, kwargs: Style) -> None:
        """Draw contours below the maximum, which is the optimum or a better point of the grid."""
        from matplotlib.colors import BoundaryNorm

        masked = np.ma.masked_invalid(self.log_evidence)
        if min(masked.shape) < 2 or masked.count() == 0:
            place: Style = {"ha": "center", "va": "center", "transform": ax.transAxes}
            ax.text(0.5, 0.5, "no contours: the grid has too few values", **place)
            return
        best = max(self.best, float(masked.max()))
        depth = best - float(masked.min())
        drops = [d for i, d in enumerate(_DROPS) if i < 3 or _DROPS[i - 1] < depth]
        levels = [best - d for d in reversed(drops)]
        levels[-1] += 1e-9 * (1 + abs(best))  # else rounding may leave a hole at the top
        style: Style = {"levels": levels, "cmap": "Blues", "extend": "min"} | kwargs
        own = style["levels"] is levels
        if own:
            style.setdefault("norm", BoundaryNorm(levels, 256, extend="min"))
        self.surface_ = ax.contourf(x, y, masked, **style)
        thin: Style = {"colors": [INK], "alpha": 0.4, "linewidths": 0.5, "linestyles": "solid"}
        ax.contour(x, y, masked, levels=style["levels"][:-1] if own else style["levels"], **thin)
        bar = ax.figure.colorbar(self.surface_, ax=ax, spacing="uniform", pad=0.02, aspect=28)
        if own:
            bar.set_label(f"{self.quantity} below its maximum, {best:.1f}".replace("-", "−"))
            bar.set_ticks(levels, labels=[f"−{d:g}" if d else "0" for d in reversed(drops)])
        else:
            bar.set_label(self.quantity)

    def _path(self, ax: Axes) -> None:
        """Draw the optimiser's evaluations in order, its start, and the optimum."""
        edge: Style = {"markeredgecolor": "white", "markeredgewidth": 0.8}
        colour = COLOURS[0]
        if not self.converged.all():
            row, column = np.nonzero(~self.converged)
            points = np.exp(self.axis0)[column], np.exp(self.axis1)[row]
            ax.plot(*points, "x", color=INK, markersize=4, label="inference not converged")
        if len(self.path):
            steps = np.exp(self.path).T
            label = f"{len(self.path)} evaluations"
            (self.path_,) = ax.plot(*steps, "o-", color=colour, markersize=5, label=label, **edge)
            ax.plot(*steps[:, :1], "s", color=colour, markersize=7.5, label="start", **edge)
        ends = np.exp(self.optimum)[:, None]
        ax.plot(*ends, "*", color="#E69F00", markersize=15, label="optimum", zorder=4, **edge)
        ax.legend(loc="best", framealpha=0.9, fontsize="small")


def _index(name: int | str, names: list[str]) -> int:
    """Return the index of a parameter given by its index, its name, or a unique end of its name."""
    if isinstance(name, str):
        found = [k for k, known in enumerate(names) if known == name]
        found = found or [k for k, known in enumerate(names) if known.endswith(f"__{name}")]
        if len(found) == 1:
            return found[0]
    elif -len(names) <= name < len(names):
        return int(name) % len(names)
    known = ", ".join(f"{k}: {n}" for k, n in enumerate(names)) or "none"
    raise ValueError(f"{name!r} names no single free hyperparameter, they are ({known}).")


def _short(names: Sequence[str], k: int) -> str:
    """Return the last part of name ``k``, after its kernel; the whole name if both end alike."""
    ends = [re.sub(r"(^|: )\w*__", r"\1", name) for name in names]
    return readable(ends[k] if ends[0] != ends[1] else names[k])


def _ticks(axis: Axis, span: float) -> None:
    """Label the axis with plain numbers, also between powers of ten where there are few of them."""
    from matplotlib.ticker import LogLocator, NullFormatter

    few = span < 3 * np.log(10)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def _ranges(path: Array, optimum: Array) -> Array:
    """Return the ranges of the path, without steps of the optimiser that went far astray."""
    points = np.vstack([path, optimum])
    low = np.minimum(points.min(axis=0) - _BEYOND, optimum - _NEAREST)
    high = np.maximum(points.max(axis=0) + _BEYOND, optimum + _NEAREST)
    near = optimum[:, None]
    return np.asarray(np.clip(np.stack([low, high], axis=1), near - _FARTHEST, near + _FARTHEST))


def _surface(
    model: GPClassifier, chosen: list[int], axis0: Array, axis1: Array, progress: Progress | None
) -> tuple[Array, np.ndarray]:
    """Return the log evidence on the grid, and whether inference converged."""
    theta = model._estimators[0].hyperparameters.theta
    values = np.full((len(axis1), len(axis0)), np.nan)
    converged = np.ones(values.shape, bool)
    for done, (i, j) in enumerate(np.ndindex(values.shape), start=1):
        theta[chosen] = axis0[j], axis1[i]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                values[i, j] = model.log_marginal_likelihood(theta)
            except NotPositiveDefiniteError:
                converged[i, j] = False
        converged[i, j] &= not any(issubclass(w.category, ConvergenceWarning) for w in caught)
        if progress is not None:
            progress(done, values.size)
    return values, converged
