"""Figures over a plane: the evidence over kernel parameters, a posterior over two latent values."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from postlin._typing import Array
from postlin.workbench.report.drawing import (
    BLUE,
    ORANGE,
    RED,
    add_legend,
    new_figure,
    say_empty,
    style,
    to_svg,
)
from postlin.workbench.report.parts import Figure
from postlin.workbench.report.svg import INK
from postlin.workbench.report.text import count, number, short

#: Contours of the evidence are this far below its maximum.
_DROPS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
#: Contours of a density, in parts of its maximum; the steps of a likelihood make it fall fast.
_PARTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
#: Contour lines; solid also where values are negative.
_THIN: dict[str, Any] = {"linewidths": 0.5, "linestyles": "solid"}


def evidence_surface(
    log_variance: Array, log_length: Array, values: Array, path: Array, title: str
) -> Figure:
    """Contours of ``values[i, j]``, the log evidence at (log_variance[i], log_length[j]).

    ``path`` has a row an iterate of the optimiser: log variance, log length scale. The length
    scale is on the horizontal axis.
    """
    values, path = np.asarray(values, float), np.reshape(np.asarray(path, float), (-1, 2))
    finite = np.isfinite(values)
    with style():
        figure = new_figure(3.6)
        axes = figure.subplots()
        axes.grid(False)
        if finite.any():
            _evidence_contours(figure, axes, log_variance, log_length, values)
        else:
            say_empty(axes)
        handles, labels = _draw_optimiser(axes, path)
        axes.set(xlabel="log length scale", ylabel="log variance", title=short(title))
        axes.set(xlim=_span(log_length), ylim=_span(log_variance))
        add_legend(figure, handles, labels)
        svg = to_svg(figure)
    caption = f"{title}: log evidence below its maximum on the grid"
    caption += f", {number(values[finite].max(), 4)}" if finite.any() else ""
    caption += ", and the path of the optimiser." if len(path) else "."
    return Figure(svg, _describe_surface(log_variance, log_length, values, path, title), caption)


def _span(values: Array) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _evidence_contours(canvas: Canvas, axes: Axes, rows: Array, columns: Array, values: Array) -> None:
    masked = np.ma.masked_invalid(values)
    depth = masked.max() - masked.min()
    drops = [d for i, d in enumerate(_DROPS) if i < 3 or _DROPS[i - 1] < depth]
    levels = [float(masked.max()) - d for d in reversed(drops)]
    # Rounding must not leave a hole at the very top.
    levels[-1] += 1e-9 * (1 + abs(levels[-1]))
    if masked.shape[0] < 2 or masked.shape[1] < 2:
        say_empty(axes, "grid too small for contours")
        return
    filled = _fill(axes, columns, rows, masked, levels)
    bar = canvas.colorbar(filled, ax=axes, spacing="uniform", ticks=levels, pad=0.03, aspect=28)
    bar.ax.set_yticklabels([f"−{d:g}" if d else "max" for d in reversed(drops)])
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(length=2)


def _fill(axes: Axes, x: Array, y: Array, values: Array, levels: list[float]) -> ContourSet:
    """Bands that are the more opaque the higher, so that they suit a light and a dark page."""
    shades = [(*to_rgb(BLUE), float(a)) for a in np.linspace(0.05, 0.8, len(levels) - 1)]
    filled = axes.contourf(x, y, values, levels=levels, colors=shades)
    # Lines hide the seams between transparent bands.
    axes.contour(x, y, values, levels=levels[:-1], colors=[INK], alpha=0.45, **_THIN)
    return filled


def _draw_optimiser(axes: Axes, path: Array) -> tuple[list[Line2D], list[str]]:
    if len(path) == 0:
        return [], []
    x, y = path[:, 1], path[:, 0]
    axes.plot(x, y, "-", color=INK, linewidth=1.2)
    axes.plot(x[1:-1], y[1:-1], "o", color=ORANGE, markersize=3.5, mec=INK, mew=0.6)
    ends: dict[str, Any] = {"markeredgecolor": INK, "markeredgewidth": 0.9, "linestyle": "none"}
    start = Line2D(x[:1], y[:1], marker="o", color=ORANGE, markersize=6.5, zorder=4, **ends)
    end = Line2D(x[-1:], y[-1:], marker="*", color=ORANGE, markersize=12, zorder=5, **ends)
    axes.add_line(start)
    axes.add_line(end)
    return [start, end], ["start", f"end, after {count(len(path) - 1, 'step')}"]


def _describe_surface(rows: Array, columns: Array, values: Array, path: Array, title: str) -> str:
    parts = [f"Contours of the log evidence, {title}"]
    if np.isfinite(values).any():
        i, j = np.unravel_index(np.argmax(np.where(np.isfinite(values), values, -np.inf)), values.shape)
        parts.append(
            f"maximum {number(values[i, j], 4)} at log variance {number(rows[i])}, "
            f"log length scale {number(columns[j])}"
        )
    if len(path):
        start, end = (f"({number(v)}, {number(s)})" for v, s in path[[0, -1]])
        parts.append(f"the optimiser goes from {start} to {end} in {count(len(path) - 1, 'step')}")
    return "; ".join(parts) + "."


def synthetic(
    axis1: Array, axis2: Array, density: Array, mean: Array, covariance: Array, path: Array
) -> Figure:
    """A density over two latent values, its Gaussian approximation, and the way to it.

    ``density[i, j]`` is at (axis1[i], axis2[j]); ``path`` has a row an iteration.
    """
    path = np.reshape(np.asarray(path, float), (-1, 2))
    with style():
        figure = new_figure(4.1)
        axes = figure.subplots()
        axes.grid(False)
        _density_contours(axes, axis1, axis2, np.asarray(density, float))
        ellipse = axes.plot(*_ellipse(mean, covariance), color=RED, linewidth=1.5)[0]
        steps = axes.plot(*path.T, "x-", color=BLUE, linewidth=0.8, markersize=5, mew=1.3)[0]
        cross = axes.plot(mean[0], mean[1], "x", color=RED, markersize=9, mew=2.2)[0]
        axes.set_aspect("equal")
        axes.set_xlabel("f₁")
        axes.set_ylabel("f₂", rotation=0, va="center")
        handles = [Patch(facecolor=INK, alpha=0.25), steps, cross, ellipse]
        add_legend(
            figure, handles, ["posterior density", "parallel means", "PL mean", "PL, 3σ ellipse"]
        )
        svg = to_svg(figure)
    caption = (
        "The posterior of two latent values (contours at falling parts of its maximum, down to a "
        "thousandth), the mean and 3σ ellipse of posterior linearisation, and the means of its "
        "parallel iterations."
    )
    return Figure(svg, _describe_synthetic(mean, covariance, path), caption)


def _density_contours(axes: Axes, axis1: Array, axis2: Array, density: Array) -> None:
    levels = [part * float(density.max()) for part in _PARTS]
    if not levels[0] > 0:
        return
    levels[-1] *= 1 + 1e-9
    shades = [(*to_rgb(INK), float(a)) for a in np.linspace(0.05, 0.34, len(levels) - 1)]
    axes.contourf(axis1, axis2, density.T, levels=levels, colors=shades)
    axes.contour(axis1, axis2, density.T, levels=levels[:-1], colors=[INK], alpha=0.4, **_THIN)


def _ellipse(mean: Array, covariance: Array) -> Array:
    """The curve three standard deviations from the mean, two rows."""
    variances, axes = np.linalg.eigh(np.asarray(covariance, float))
    angle = np.linspace(0, 2 * np.pi, 181)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    radii = 3 * np.sqrt(np.maximum(variances, 0))
    curve: Array = np.asarray(mean, float)[:, None] + axes @ (radii[:, None] * circle)
    return curve


def _describe_synthetic(mean: Array, covariance: Array, path: Array) -> str:
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0))
    return (
        "Contours of a posterior density over two latent values. Posterior linearisation has mean "
        f"({number(mean[0])}, {number(mean[1])}) and standard deviations {number(deviations[0])} and "
        f"{number(deviations[1])}, reached in {count(len(path), 'iteration')}."
    )
