"""The figures of a report: each is drawn, described in words and captioned."""

import math
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from sklearn.metrics import auc, roc_curve

from postlin._typing import Array
from postlin.plotting import ConvergenceDisplay, EvidenceDisplay, ReliabilityDisplay
from postlin.plotting.common import COLOURS, INK, Style, look
from postlin.workbench.report.drawing import count, listing, number, power_of_ten, sheet, short
from postlin.workbench.report.page import Figure

ORANGE, BLUE = COLOURS[:2]
_BINS = 10
#: Evidence below the best by this many times the distance of the lower quartile is not drawn, if the
#: axis becomes shorter by this factor or more.
_FENCE, _SAVING = 6, 2.5
#: Contours of a density as fractions of its maximum; at the steps of a likelihood it falls fast.
_PARTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
#: A confusion matrix has numbers for up to this many classes and names for up to this many, each with
#: at most this many letters; inches of a letter, and of the names across and the longest down.
_NUMBERED, _NAMED, _LONGEST, _LETTER, _ROOM = 12, 40, 14, 0.068, 3.8
#: How many confusions the caption names.
_WORST = 3


def reliability(curves: dict[str, tuple[Array, Array]], ones: str = "ones") -> Figure:
    """Return the share of ones against the predicted probability, and a histogram of the predictions.

    ``curves`` has labels, 0 or 1, and probabilities of 1 for each name; ``ones`` names the rows with
    label 1 on the page.
    """
    edges = np.linspace(0.0, 1.0, _BINS + 1)
    displays = {name: ReliabilityDisplay(y, p, edges, ones) for name, (y, p) in curves.items()}
    alone = len(displays) == 1
    with sheet(4.3) as drawn:
        top, bottom = drawn.canvas.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        for k, display in enumerate(displays.values()):
            display.plot(top, intervals=alone, histogram_ax=bottom, **_line(k, linewidth=1.2))
        top.set(xlabel="", ylabel=short(f"share of {ones}"))
        bottom.set(xlabel="predicted probability", ylabel="count")
        if not any(len(display.outcome) for display in displays.values()):
            drawn.say_empty()
        drawn.legend(_handles(len(displays), markers=True), list(displays))
    shown = "bars are 95 % intervals" if alone else "larger points hold more cases"
    caption = (
        f"Reliability: share of {ones} among cases of similar predicted probability "
        f"({_BINS} bins of equal width; {shown}), against the diagonal of "
        "perfect calibration. Below, the histogram of the predictions."
    )
    parts = [
        f"{name}: {count(len(one.outcome), 'case')}, expected calibration error "
        f"{one.calibration_error:.3f}, share of {ones} {one.outcome.mean():.3f}"
        if len(one.outcome)
        else f"{name}: no cases"
        for name, one in displays.items()
    ]
    return Figure(drawn.svg, f"Reliability diagram. {'; '.join(parts) or 'No data'}.", caption)


def roc(
    curves: dict[str, tuple[Array, Array]],
    axes_mean: str = "the share of ones found against the share of zeros mistaken for ones",
) -> Figure:
    """Return ROC curves with the area under each; labels and probabilities as for ``reliability``."""
    rates = {name: roc_curve(*c)[:2] for name, c in curves.items() if len(np.unique(c[0])) == 2}
    areas = {
        name: f"AUC {auc(*rates[name]):.3f}" if name in rates else "AUC undefined" for name in curves
    }
    with sheet(3.7) as drawn:
        axes = drawn.axes()
        for k, name in enumerate(curves):
            if name in rates:
                axes.plot(*rates[name], alpha=0.9, **(_line(k) | {"marker": ""}))
        axes.plot([0, 1], [0, 1], "--", color=INK, linewidth=1, alpha=0.6, zorder=1)
        axes.set(xlabel="false positive rate", xlim=(-0.03, 1.03))
        axes.set(ylabel="true positive rate", ylim=(-0.04, 1.04))
        if not rates:
            drawn.say_empty("no curve: it needs cases of both classes")
        drawn.legend(_handles(len(curves)), [f"{name} ({area})" for name, area in areas.items()])
    parts = [f"{name} has {area}" for name, area in areas.items()]
    caption = f"ROC curves: {axes_mean}, over all thresholds. AUC is the area under the curve; the "
    caption += "diagonal is guessing."
    return Figure(drawn.svg, f"ROC curves. {listing(parts) or 'No data'}.", caption)


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
            style = _line(k)
            axes.plot(x, seen, markersize=4, alpha=0.6, mew=0, **(style | {"linestyle": "none"}))
            best = np.fmax.accumulate(seen)
            axes.plot(x, best, drawstyle="steps-post", **(style | {"marker": ""}))
        axes.set(xlabel="evaluation", ylabel="log evidence")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(finite) == 0:
            drawn.say_empty()
        elif cut:
            axes.set_ylim(floor, finite.max() + 0.05 * (finite.max() - floor))
        drawn.legend(_handles(len(curves), markers=True), list(curves))
    caption = "Log evidence by evaluation: dots are the optimiser's evaluations, lines the best so far."
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
        display = draw(ax=axes, cmap=_shades(BLUE, 0.05, 0.8))
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
            axes.contourf(axis1, axis2, density.T, levels, cmap=_shades(INK, 0.05, 0.34), norm="log")
            axes.contour(axis1, axis2, density.T, levels[:-1], **thin)
        (ellipse,) = axes.plot(*_ellipse(mean, covariance), color=ORANGE)
        (steps,) = axes.plot(*path.T, "x-", color=BLUE, linewidth=0.8, markersize=5, mew=1.3)
        (cross,) = axes.plot(*mean, "x", color=ORANGE, markersize=9, mew=2.2)
        axes.set(aspect="equal", xlabel="f₁")
        axes.set_ylabel("f₂", rotation=0, va="center")
        handles = [Patch(facecolor=INK, alpha=0.25), steps, cross, ellipse]
        drawn.legend(handles, ["posterior density", "parallel means", "PL mean", "PL, 3σ ellipse"])
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


def confusion_matrix(counts: np.ndarray, classes: tuple[str, ...], title: str) -> Figure:
    """Return the numbers of rows by their class, down, and by the predicted class, across.

    A cell is the darker the larger its share of its class.
    """
    names = [short(name, _LONGEST) for name in classes]
    if len(set(names)) < len(names):
        names = [str(k) for k in range(1, len(names) + 1)]
    with sheet(3.3) as drawn:
        axes = drawn.axes(grid=False)
        if counts.sum():
            _draw_counts(axes, counts)
        else:
            drawn.say_empty()
        _name_classes(axes, names)
        axes.set(xlabel="predicted", ylabel="class", title=short(title))
    caption = (
        f"{title}: rows by their class and by the class predicted, shaded by the share of the class. "
        f"{int(np.trace(counts))} of {count(int(counts.sum()), 'row')} are on the diagonal."
    )
    off = counts - np.diag(np.diag(counts))
    order = np.argsort(-off, axis=None, kind="stable")[:_WORST]
    pairs = [(i, j) for i, j in zip(*np.unravel_index(order, off.shape), strict=True) if off[i, j]]
    worst = [f"{off[i, j]} of {classes[i]!r} taken for {classes[j]!r}" for i, j in pairs]
    caption += f" Off it, most often, {listing(worst)}." if worst else ""
    if names[0] == "1" != classes[0]:
        caption += " Classes are numbered in their order."
    return Figure(drawn.svg, f"Confusion matrix, {caption[0].lower()}{caption[1:]}", caption)


def _draw_counts(axes: Axes, counts: np.ndarray) -> None:
    n = len(counts)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # as vectors: a browser would blur an image of so few points
    edges = np.arange(n + 1) - 0.5
    axes.pcolormesh(edges, edges, share, cmap=_shades(BLUE, 0.0, 0.6), vmin=0, vmax=1)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    if n <= _NUMBERED:
        for i, j in np.argwhere(counts):
            axes.text(j, i, f"{counts[i, j]}", ha="center", va="center", fontsize=8.5 if n < 9 else 7.5)


def _name_classes(axes: Axes, names: list[str]) -> None:
    if len(names) > _NAMED:
        axes.set(xticks=[], yticks=[])
        return
    width = max(map(len, names)) * _LETTER
    crowded = width > (_ROOM - width) / len(names)
    size = 8.5 if len(names) <= _NUMBERED else 6.5
    axes.set_xticks(range(len(names)), names, rotation=90 if crowded else 0, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, alpha=0.4)


def _shades(colour: str, low: float, high: float) -> LinearSegmentedColormap:
    """Return a colour of rising opacity, which suits a light and a dark page."""
    return LinearSegmentedColormap.from_list("shades", [to_rgba(colour, low), to_rgba(colour, high)])


def _line(k: int, **more: object) -> Style:
    colour, marker, _, dashes = look(k)
    return {"color": colour, "linestyle": dashes, "marker": marker} | more


def _handles(n: int, *, markers: bool = False) -> list[Line2D]:
    return [Line2D([], [], **_line(k, markersize=4.5 if markers else 0)) for k in range(n)]
