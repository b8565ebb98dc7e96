"""How a computation went: log evidence by evaluation, residuals by iteration."""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from postlin._typing import Array
from postlin.workbench.report.drawing import (
    Look,
    add_legend,
    look,
    new_figure,
    say_empty,
    style,
    to_svg,
)
from postlin.workbench.report.parts import Figure
from postlin.workbench.report.svg import INK
from postlin.workbench.report.text import count, number, power_of_ten, short

#: Residuals further above the first one than this are not drawn, nor those further below tol.
_HEADROOM, _FOOTROOM = 1e4, 1e-6
#: Nor those above this, wherever they begin.
_CEILING = 1e20
#: Evidence further below the best than so many times the distance of the lower quartile is not
#: drawn, if that makes the axis shorter by this factor or more.
_FENCE, _SAVING = 6, 2.5


def evidence_traces(traces: dict[str, list[float]]) -> Figure:
    """The best log evidence so far, as lines, and that of every evaluation, as dots."""
    curves = {name: np.asarray(values, float) for name, values in traces.items()}
    finite = np.concatenate([np.empty(0), *(v[np.isfinite(v)] for v in curves.values())])
    floor = _floor(finite)
    with style():
        figure = new_figure(3.1)
        axes = figure.subplots()
        for index, values in enumerate(curves.values()):
            _draw_trace(axes, values, look(index))
        axes.set(xlabel="evaluation", ylabel="log evidence")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(finite) == 0:
            say_empty(axes)
        elif floor > finite.min():
            axes.set_ylim(floor, finite.max() + 0.05 * (finite.max() - floor))
        add_legend(figure, _lines(len(curves)), list(curves))
        svg = to_svg(figure)
    caption = (
        "Log evidence by evaluation of the optimiser: dots are evaluations, lines the best so far."
    )
    if len(finite) and floor > finite.min():
        caption += (
            f" Values below {number(floor)} are not shown (the lowest is {number(finite.min())})."
        )
    parts = [f"{name}: {_describe_trace(values)}" for name, values in curves.items()]
    return Figure(svg, f"Log evidence by evaluation. {'; '.join(parts) or 'No data'}.", caption)


def _floor(values: Array) -> float:
    """Where to cut the axis: a line search may try parameters that are very bad indeed."""
    if len(values) == 0:
        return -math.inf
    best, middle = values.max(), np.quantile(values, 0.25)
    fence = best - _FENCE * max(best - middle, 1e-3 * (1 + abs(best)))
    worst = values.min()
    return float(fence if best - worst > _SAVING * (best - fence) else worst)


def _draw_trace(axes: Axes, values: Array, how: Look) -> None:
    x = np.arange(1, len(values) + 1)
    best = np.maximum.accumulate(np.where(np.isfinite(values), values, -np.inf))
    best = np.where(np.isfinite(best), best, np.nan)
    seen = np.where(np.isfinite(values), values, np.nan)
    axes.plot(x, seen, how.marker, color=how.colour, markersize=4, alpha=0.6, markeredgewidth=0)
    axes.plot(x, best, color=how.colour, linestyle=how.dashes, drawstyle="steps-post")


def _describe_trace(values: Array) -> str:
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return "no evaluations"
    evaluations = count(len(values), "evaluation")
    return f"from {number(finite[0], 4)} to {number(finite.max(), 4)} in {evaluations}"


def convergence(panels: dict[str, dict[str, list[float]]], tol: float) -> Figure:
    """Residual against iteration, a panel a method, a curve a solver, and a line at ``tol``."""
    residuals = {k: {n: _drawable(v) for n, v in curves.items()} for k, curves in panels.items()}
    names = list(dict.fromkeys(name for curves in residuals.values() for name in curves))
    everything = [v for curves in residuals.values() for v in curves.values()]
    bottom, top = _limits(everything, tol)
    with style():
        figure = new_figure(0.5 + 1.9 * max(len(residuals), 1))
        grid = figure.subplots(max(len(residuals), 1), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, curves) in zip(grid, residuals.items(), strict=False):
            axes.set_title(short(title))
            for name, values in curves.items():
                _draw_residuals(axes, values, look(names.index(name)), top)
        for axes in grid:
            _residual_axes(axes, bottom, top, tol)
        grid[-1].set_xlabel("iteration")
        grid[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        if not any(len(values) for values in everything):
            say_empty(grid[0])
        add_legend(
            figure, [*_lines(len(names)), _tolerance_line()], [*names, f"tolerance {number(tol)}"]
        )
        svg = to_svg(figure)
    return Figure(svg, _describe_residuals(residuals, tol), _residual_caption(everything, top))


def _drawable(values: list[float]) -> Array:
    """Residuals with infinities in place of what is not a number."""
    residuals = np.asarray(values, float)
    return np.where(np.isnan(residuals), np.inf, residuals)


def _limits(curves: list[Array], tol: float) -> tuple[float, float]:
    """Powers of ten between which to draw."""
    starts = [values[0] for values in curves if len(values) and 0 < values[0] < np.inf]
    values = np.concatenate([np.array([tol]), *curves])
    values = values[(values > 0) & (values < np.inf)]
    ceiling = min(values.max(), max([1.0, *starts]) * _HEADROOM, _CEILING)
    floor = max(values.min(), tol * _FOOTROOM)
    return 10.0 ** (math.floor(math.log10(floor)) - 1), 10.0 ** (math.ceil(math.log10(ceiling)) + 0.5)


def _draw_residuals(axes: Axes, values: Array, how: Look, top: float) -> None:
    x = np.arange(1, len(values) + 1)
    # Beyond the top lines leave the axes; a finite height suffices for their direction.
    heights = np.clip(values, 1e-300, top * 1e3)
    axes.plot(x, heights, color=how.colour, linestyle=how.dashes)
    if len(values) == 0:
        return
    above = np.flatnonzero(values > top)
    if len(above):
        axes.plot(x[above[0]], top, "^", color=how.colour, markersize=7, clip_on=False)
    if values[-1] <= top:
        axes.plot(x[-1], heights[-1], how.marker, color=how.colour, markersize=5)


def _residual_axes(axes: Axes, bottom: float, top: float, tol: float) -> None:
    axes.set_yscale("log")
    axes.set(ylabel="residual", ylim=(bottom, top))
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_decade))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.axhline(tol, **_TOLERANCE)


def _decade(value: float, _: Any) -> str:
    return power_of_ten(round(math.log10(value)))


def _residual_caption(curves: list[Array], top: float) -> str:
    caption = "Scaled residual against iteration; a point marks where a solver stopped."
    largest = max((float(values.max()) for values in curves if len(values)), default=0.0)
    if largest > top:
        caption += (
            f" The axis is cut at {_decade(top / 10**0.5, None)}: triangles mark curves that leave it "
            f"there (the largest residual is {number(largest, 2)})."
        )
    return caption


def _describe_residuals(panels: dict[str, dict[str, Array]], tol: float) -> str:
    parts = [
        f"{title}, {name}: {_fate(values, tol)}"
        for title, curves in panels.items()
        for name, values in curves.items()
    ]
    return f"Residuals by iteration, tolerance {number(tol)}. {'; '.join(parts) or 'No data'}."


def _fate(values: Array, tol: float) -> str:
    if len(values) == 0:
        return "no iterations"
    verb = "reaches" if values[-1] <= tol else "is at"
    return f"{verb} {number(float(values[-1]), 2)} after {count(len(values), 'iteration')}"


#: How the tolerance is drawn.
_TOLERANCE: dict[str, Any] = {"color": INK, "alpha": 0.6, "linewidth": 0.9, "linestyle": (0, (1, 2))}


def _tolerance_line() -> Line2D:
    return Line2D([], [], **_TOLERANCE)


def _lines(n: int) -> list[Line2D]:
    return [
        Line2D([], [], color=h.colour, linestyle=h.dashes, marker=h.marker, markersize=4)
        for h in map(look, range(n))
    ]
