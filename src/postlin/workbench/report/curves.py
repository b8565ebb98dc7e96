"""How good probabilities are: reliability diagrams and ROC curves."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

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
from postlin.workbench.report.text import count, listing

_BINS = 10


class _Bins(NamedTuple):
    """Equal-width bins of p: how many fell into each, their mean p and the share of ones."""

    counts: Array
    forecast: Array
    observed: Array

    @property
    def error(self) -> float:
        """The expected calibration error."""
        gaps = np.abs(self.forecast - self.observed)
        return float(np.sum(gaps * self.counts) / np.sum(self.counts))


def reliability(curves: dict[str, tuple[Array, Array]], ones: str = "ones") -> Figure:
    """Share of ones against predicted probability, with the histogram of the predictions.

    ``curves`` has for each name the labels, 0 or 1, and the probabilities of 1; ``ones`` is what the
    page calls them.
    """
    bins = {name: _bin(*curve) for name, curve in curves.items()}
    with style():
        figure = new_figure(4.3)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        for index, one in enumerate(bins.values()):
            _draw_reliability(top, one, look(index))
            _draw_histogram(bottom, one, look(index))
        _unit_square(top)
        top.set_ylabel(f"share of {ones}")
        bottom.set(xlabel="predicted probability", ylabel="count")
        if not any(one.counts.sum() for one in bins.values()):
            say_empty(top)
        add_legend(figure, _handles(len(bins), markers=True), list(bins))
        svg = to_svg(figure)
    caption = (
        f"Reliability: share of {ones} among cases of similar predicted probability "
        f"({_BINS} bins of equal width; larger points hold more cases), against the diagonal of "
        "perfect calibration. Below, the histogram of the predictions."
    )
    return Figure(svg, _describe_reliability(bins, ones), caption)


def _bin(y: Array, p: Array) -> _Bins:
    ones, p = np.ravel(np.asarray(y, float)) > 0, np.ravel(np.asarray(p, float))
    index = np.clip((p * _BINS).astype(int), 0, _BINS - 1)
    counts = np.bincount(index, minlength=_BINS).astype(float)
    n = np.maximum(counts, 1)
    forecast = np.bincount(index, weights=p, minlength=_BINS) / n
    return _Bins(counts, forecast, np.bincount(index, weights=ones, minlength=_BINS) / n)


def _draw_reliability(axes: Axes, bins: _Bins, how: Look) -> None:
    some = bins.counts > 0
    x, y = bins.forecast[some], bins.observed[some]
    sizes = 10 + 90 * bins.counts[some] / max(bins.counts.max(), 1)
    axes.plot(x, y, color=how.colour, linestyle=how.dashes, linewidth=1.2)
    # Half-transparent: curves that agree lie on top of each other.
    axes.scatter(x, y, sizes, marker=how.marker, color=how.colour, alpha=0.65, linewidths=0)


def _draw_histogram(axes: Axes, bins: _Bins, how: Look) -> None:
    edges = np.linspace(0, 1, _BINS + 1)
    axes.stairs(bins.counts, edges, color=how.colour, linestyle=how.dashes, linewidth=1.3)


def _describe_reliability(bins: dict[str, _Bins], ones: str) -> str:
    parts = [
        f"{name}: {count(int(one.counts.sum()), 'case')}, expected calibration error "
        f"{one.error:.3f}, share of {ones} {_share(one):.3f}"
        if one.counts.sum()
        else f"{name}: no cases"
        for name, one in bins.items()
    ]
    return f"Reliability diagram. {'; '.join(parts) or 'No data'}."


def _share(bins: _Bins) -> float:
    return float(np.sum(bins.observed * bins.counts) / np.sum(bins.counts))


def roc(
    curves: dict[str, tuple[Array, Array]],
    axes_mean: str = "the share of ones found against the share of zeros mistaken for ones",
) -> Figure:
    """ROC curves with the area under each; labels and probabilities as for ``reliability``."""
    rates = {name: _rates(*curve) for name, curve in curves.items()}
    areas = {name: None if xy is None else _area(*xy) for name, xy in rates.items()}
    labels = [f"{name} ({_auc(area)})" for name, area in areas.items()]
    with style():
        figure = new_figure(3.7)
        axes = figure.subplots()
        for index, xy in enumerate(rates.values()):
            how = look(index)
            if xy is not None:
                axes.plot(*xy, color=how.colour, linestyle=how.dashes, alpha=0.9)
        _unit_square(axes)
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        if not any(xy is not None for xy in rates.values()):
            say_empty(axes, "no curve: it needs cases of both classes")
        add_legend(figure, _handles(len(rates), markers=False), labels)
        svg = to_svg(figure)
    parts = [f"{name} has {_auc(area)}" for name, area in areas.items()]
    caption = (
        f"ROC curves: {axes_mean}, over "
        "all thresholds. AUC is the area under the curve; the diagonal is guessing."
    )
    return Figure(svg, f"ROC curves. {listing(parts) or 'No data'}.", caption)


def _rates(y: Array, p: Array) -> tuple[Array, Array] | None:
    """False and true positive rates over all thresholds; None where a class is missing."""
    ones, p = np.ravel(np.asarray(y, float)) > 0, np.ravel(np.asarray(p, float))
    order = np.argsort(-p, kind="stable")
    ones, p = ones[order], p[order]
    if len(ones) == 0 or ones.all() or not ones.any():
        return None
    last_of_ties = np.append(np.diff(p) != 0, True)
    true, false = np.cumsum(ones)[last_of_ties], np.cumsum(~ones)[last_of_ties]
    return np.append(0.0, false / false[-1]), np.append(0.0, true / true[-1])


def _area(x: Array, y: Array) -> float:
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1])) / 2)


def _auc(area: float | None) -> str:
    return "AUC undefined" if area is None else f"AUC {area:.3f}"


def _unit_square(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], color=INK, alpha=0.45, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.04, 1.04))


def _handles(n: int, *, markers: bool) -> list[Line2D]:
    looks = [look(index) for index in range(n)]
    return [
        Line2D([], [], color=h.colour, linestyle=h.dashes, marker=h.marker if markers else "", ms=5)
        for h in looks
    ]
