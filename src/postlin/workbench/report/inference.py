"""Figures of inference and of learning: each is drawn, described in words and captioned."""

import math
import warnings
from collections.abc import Callable

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from postlin._typing import Array
from postlin.estimator.parameters import default_kernel
from postlin.inference.infer import infer
from postlin.plotting import ConvergenceDisplay, EvidenceDisplay
from postlin.plotting.common import COLOURS, INK, Style
from postlin.rules.binary import EP, PL, Rule
from postlin.schedules import Parallel
from postlin.workbench.evaluation.folds import Results
from postlin.workbench.evaluation.methods import SMALL_VARIANCE
from postlin.workbench.evaluation.scores import group
from postlin.workbench.report.drawing import (
    MOST,
    count,
    handles,
    line,
    listing,
    number,
    power_of_ten,
    shades,
    sheet,
    short,
)
from postlin.workbench.report.page import Figure
from postlin.workbench.report.words import names_of

ORANGE, BLUE = COLOURS[:2]
#: Traces of the log evidence that are nowhere this far apart are drawn as one.
_SAME = 0.5
#: Iterations of undamped parallel iteration: as in the paper, but more.
_PLAIN_ITERATIONS = 40
#: Evidence below the best by this many times the distance of the lower quartile is not drawn, if the
#: axis becomes shorter by this factor or more.
_FENCE, _SAVING = 6, 2.5
#: Contours of a density as fractions of its maximum; at the steps of a likelihood it falls fast.
_PARTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)


def evidence_traces(traces: dict[str, list[float]]) -> Figure:
    """Return the best log evidence so far as lines, and that of every evaluation as dots."""
    curves = {name: np.asarray(values, float) for name, values in traces.items()}
    finite = np.concatenate([np.empty(0), *(v[np.isfinite(v)] for v in curves.values())])
    floor = _floor(finite)
    cut = len(finite) > 0 and floor > finite.min()
    with sheet(3.1) as drawn:
        axes = drawn.axes()
        for k, values in enumerate(curves.values()):
            x, seen = np.arange(1, len(values) + 1), np.where(np.isfinite(values), values, np.nan)
            style = line(k)
            axes.plot(x, seen, markersize=4, alpha=0.6, mew=0, **(style | {"linestyle": "none"}))
            best = np.fmax.accumulate(seen)
            axes.plot(x, best, drawstyle="steps-post", **(style | {"marker": ""}))
        axes.set(xlabel="evaluation", ylabel="log evidence")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(finite) == 0:
            drawn.say_empty()
        elif cut:
            axes.set_ylim(floor, finite.max() + 0.05 * (finite.max() - floor))
        drawn.legend(handles(len(curves), markers=True), list(curves))
    caption = (
        "Log evidence by evaluation, in the first fold: dots are the optimiser's evaluations, lines "
        "the best so far."
    )
    if cut:
        caption += f" Values below {number(floor)} are cut (the lowest is {number(finite.min())})."
    parts = [f"{name}: {_describe_trace(values)}" for name, values in curves.items()]
    return Figure(drawn.svg, f"Log evidence by evaluation. {'; '.join(parts) or 'No data'}.", caption)


def _floor(values: Array) -> float:
    """Return the lower end of the axis: a line search may try parameters that are very bad."""
    if len(values) == 0:
        return -math.inf
    best, middle, worst = values.max(), np.quantile(values, 0.25), values.min()
    fence = best - _FENCE * max(best - middle, 1e-3 * (1 + abs(best)))
    return float(fence if best - worst > _SAVING * (best - fence) else worst)


def _describe_trace(values: Array) -> str:
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return "no evaluations"
    evaluations = count(len(values), "evaluation")
    return f"from {number(finite[0], 4)} to {number(finite.max(), 4)} in {evaluations}"


def convergence(panels: dict[str, dict[str, list[float]]], tol: float) -> Figure:
    """Return residuals by iteration, with a panel for each method and a curve for each solver."""
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    titles = [f"{title}, {name}" for title, curves in panels.items() for name in curves]
    every = ConvergenceDisplay([v for c in panels.values() for v in c.values()], tol, titles)
    with sheet(0.5 + 1.9 * max(len(panels), 1)) as drawn:
        grid = drawn.canvas.subplots(max(len(panels), 1), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, curves) in zip(grid, (panels or {"": {}}).items(), strict=True):
            display = ConvergenceDisplay([curves.get(name, []) for name in names], tol, names)
            display.limits = every.limits
            display.plot(axes, markevery=[-1])
            axes.yaxis.set(major_locator=LogLocator(numticks=7), minor_locator=NullLocator())
            axes.yaxis.set_major_formatter(lambda y, _: power_of_ten(round(math.log10(y))))
            axes.set(title=short(title), xlabel="", ylabel="residual")
        grid[-1].set_xlabel("iteration")
        if not any(map(len, every.residuals)):
            drawn.say_empty()
        drawn.legend([*display.lines_, display.tolerance_], [*names, f"tolerance {number(tol)}"])
    parts = [f"{n}: {_fate(r, tol)}" for n, r in zip(titles, every.residuals, strict=True)]
    alt = f"Residuals by iteration, tolerance {number(tol)}. {'; '.join(parts) or 'No data'}."
    return Figure(drawn.svg, alt, _residual_caption(every))


def _residual_caption(display: ConvergenceDisplay) -> str:
    caption = "Scaled residual against iteration; a point marks where a solver stopped."
    largest = max((float(np.max(r)) for r in display.residuals if len(r)), default=0.0)
    top = display.limits[1]
    if largest > top:
        caption += (
            f" The axis is cut at {power_of_ten(math.floor(math.log10(top)))}: triangles mark curves "
            f"that leave it there (the largest residual is {number(largest, 2)})."
        )
    return caption


def _fate(residuals: Array, tol: float) -> str:
    if len(residuals) == 0:
        return "no iterations"
    verb = "reaches" if residuals[-1] <= tol else "is at"
    return f"{verb} {number(residuals[-1], 2)} after {count(len(residuals), 'iteration')}"


def evidence_surface(draw: Callable[..., EvidenceDisplay], title: str) -> Figure:
    """Return contours of the log evidence and the optimiser's path.

    ``draw`` draws them into axes: ``plot`` of an ``EvidenceDisplay``, or ``from_estimator``.
    """
    with sheet(3.6) as drawn:
        axes = drawn.axes(grid=False)
        display = draw(ax=axes, cmap=shades(BLUE, 0.05, 0.8))
        axes.set(title=short(title), ylabel=axes.get_ylabel().replace("constant value", "variance"))
        drawn.legend(*axes.get_legend_handles_labels())
        names = axes.get_xlabel(), axes.get_ylabel()
    values, path = np.ma.masked_invalid(display.log_evidence), np.exp(display.path)
    alt = [f"Contours of the log evidence, {title}"]
    caption = f"{title}: log evidence below its maximum"
    if values.count():
        i, j = np.unravel_index(np.argmax(values), values.shape)
        place = (math.exp(display.axis0[j]), math.exp(display.axis1[i]))
        where = listing([f"{name} {number(at)}" for name, at in zip(names, place, strict=True)])
        alt.append(f"maximum {number(values[i, j], 4)} at {where}")
        caption += f" on the grid, {number(values[i, j], 4)}"
    if len(path):
        start, end = (f"({number(x)}, {number(y)})" for x, y in path[[0, -1]])
        alt.append(f"the optimiser goes from {start} to {end} in {count(len(path), 'evaluation')}")
        caption += ", and the path of the optimiser"
    return Figure(drawn.svg, f"{'; '.join(alt)}.", f"{caption}.")


def synthetic(
    axis1: Array, axis2: Array, density: Array, mean: Array, covariance: Array, path: Array
) -> Figure:
    """Return a density over two latent values, its Gaussian approximation, and the path to it.

    ``density[i, j]`` is at (axis1[i], axis2[j]); ``path`` has one row for each iteration.
    """
    with sheet(4.1) as drawn:
        axes = drawn.axes(grid=False)
        levels = np.array(_PARTS) * density.max()
        if levels[0] > 0:
            levels[-1] *= 1 + 1e-9  # else rounding may leave a hole at the top
            thin: Style = {"linewidths": 0.5, "linestyles": "solid", "colors": [INK], "alpha": 0.4}
            axes.contourf(axis1, axis2, density.T, levels, cmap=shades(INK, 0.05, 0.34), norm="log")
            axes.contour(axis1, axis2, density.T, levels[:-1], **thin)
        (ellipse,) = axes.plot(*_ellipse(mean, covariance), color=ORANGE)
        (steps,) = axes.plot(*path.T, "x-", color=BLUE, linewidth=0.8, markersize=5, mew=1.3)
        (cross,) = axes.plot(*mean, "x", color=ORANGE, markersize=9, mew=2.2)
        axes.set(aspect="equal", xlabel="f₁")
        axes.set_ylabel("f₂", rotation=0, va="center")
        shown = [Patch(facecolor=INK, alpha=0.25), steps, cross, ellipse]
        drawn.legend(shown, ["posterior density", "parallel means", "PL mean", "PL, 3σ ellipse"])
    caption = (
        "The posterior of two latent values (contours at falling fractions of its maximum, down to a "
        "thousandth), the mean and 3σ ellipse of posterior linearisation, and the means of its "
        "parallel iterations."
    )
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0))
    alt = (
        "Contours of a posterior density over two latent values. Posterior linearisation has mean "
        f"({number(mean[0])}, {number(mean[1])}) and standard deviations {number(deviations[0])} and "
        f"{number(deviations[1])}, reached in {count(len(path), 'iteration')}."
    )
    return Figure(drawn.svg, alt, caption)


def _ellipse(mean: Array, covariance: Array) -> Array:
    """Return the curve three standard deviations from the mean, in two rows."""
    variances, directions = np.linalg.eigh(covariance)
    angle = np.linspace(0, 2 * np.pi, 181)
    radii = 3 * np.sqrt(np.maximum(variances, 0))[:, None]
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(mean[:, None] + directions @ (radii * circle))


def traces_of(results: Results) -> dict[str, list[float]]:
    """Return the evidence by evaluation of some methods, in their first fold; equal ones are one."""
    first = {cell: next(iter(folds.values())).trace for cell, folds in group(results).items()}
    learned = {cell: trace for cell, trace in first.items() if trace}
    names, alike = names_of(learned), list[tuple[list[str], list[float]]]()
    for cell, trace in learned.items():
        for same, other in alike:
            if len(other) == len(trace) and np.max(np.abs(np.subtract(trace, other))) < _SAME:
                same.append(names[cell])
                break
        else:
            alike.append(([names[cell]], trace))
    return {", ".join(same): trace for same, trace in alike[:MOST]}


def convergence_histories(X: Array, y: Array, theta: Array) -> dict[str, dict[str, list[float]]]:
    """Residuals of PPL and PEP with the noisy threshold, by plain iteration and by our solver."""
    K = default_kernel().clone_with_theta(theta)(X)
    fixed = EP(negative_sites="small_variance", small_variance=SMALL_VARIANCE)
    rules: dict[str, tuple[Rule, Rule]] = {"PPL": (PL(), PL()), "PEP": (fixed, EP())}

    def residuals(rule: Rule, iterations: int | None = None) -> list[float]:
        how = Parallel(iterations=iterations)
        return infer(K, y, likelihood="noisy_threshold", inference=rule, schedule=how).history.residuals

    with warnings.catch_warnings(action="ignore"):
        return {
            name: {"plain iteration": residuals(plain, _PLAIN_ITERATIONS), "postlin": residuals(ours)}
            for name, (plain, ours) in rules.items()
        }
