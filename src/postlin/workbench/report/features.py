"""Figures of what predictions rest on: importance of features, their effect, and a decision map."""

import numpy as np
from matplotlib.axes import Axes

from postlin._typing import Array
from postlin.plotting import DecisionDisplay, RelevanceDisplay
from postlin.plotting.common import INK, Style
from postlin.workbench.evaluation.explanation import Dependence, Explanation, Plane
from postlin.workbench.report.drawing import apart, handles, line, listing, number, sheet, short
from postlin.workbench.report.page import Figure
from postlin.workbench.report.words import called

#: The most features in the figure of importance, letters of their names, and classes with a curve.
_FEATURES, _LETTERS, _CURVES = 12, 24, 6


def importance(found: Explanation, name: str) -> Figure:
    """Return by how much the log-loss rises where the values of a feature are shuffled."""
    n = min(len(found.features), _FEATURES)
    labels = apart(found.features, _LETTERS)[:n]
    values, spread = found.importance[:n], found.spread[:n]
    with sheet(0.75 + 0.26 * n) as drawn:
        axes = drawn.axes()
        RelevanceDisplay(labels, values).plot(axes)
        axes.set_yticks(np.arange(n), labels)
        for text in list(axes.texts):
            text.remove()  # the numbers are in the description; bars of spread lie where they stood
        style: Style = {"color": INK, "linewidth": 1, "fmt": "none"}
        axes.errorbar(values, np.arange(n), xerr=spread, **style)
        axes.axvline(0, color=INK, linewidth=0.7)
        axes.set(xlabel="rise of the log-loss if shuffled")
    left_out = f" The {n} most important of {len(found.features)} are shown." * (
        n < len(found.features)
    )
    caption = (
        f"Importance of features for {name}: the rise of the log-loss of {found.rows} held-out rows "
        "when the values of the feature are shuffled among them, ± one standard deviation over "
        "shuffles and folds. Features that carry the same information share their importance."
        f"{left_out}"
    )
    parts = [f"{label} {number(value, 2)}" for label, value in zip(labels, values, strict=True)]
    return Figure(drawn.svg, f"Importance of features: {listing(parts)}.", caption)


def dependence(
    found: Explanation, classes: tuple[str, ...], name: str, about: int | None = None
) -> Figure:
    """Return how the mean probabilities depend on features: of one class, or of the first ones."""
    parts, names = found.dependence, called(classes)
    labels = dict(zip(found.features, apart(found.features, _LETTERS), strict=True))
    shown = [*range(min(len(classes), _CURVES))] if about is None else [about]
    across = min(len(parts), 2)
    down = -(-len(parts) // 2)
    with sheet(0.3 + 1.75 * down) as drawn:
        grid = drawn.canvas.subplots(down, across, squeeze=False, sharey=True).ravel()
        for axes in grid[len(parts) :]:
            axes.set_axis_off()
        for axes, part in zip(grid, parts, strict=False):
            for k, c in enumerate(shown):
                _draw_effect(axes, part, part.probability[c], k)
            axes.set(xlabel=labels[part.feature], ylim=(-0.03, 1.03))
        for axes in grid[::across]:
            of = "" if about is None else f" of {apart(classes, 14)[about]}"
            axes.set_ylabel(f"probability{of}")
        if len(shown) > 1:
            drawn.legend(handles(len(shown), markers=True), [classes[c] for c in shown])
    caption = (
        f"Partial dependence of {name}: the mean probability"
        f"{' of each class' if about is None else f' of {names[about]}'} if all rows had the "
        f"same value of a feature, for the {len(parts)} most important ones and the middle 96 % of "
        "their values. The model is that of the first fold."
    )
    if len(shown) < len(classes) and len(shown) > 1:
        caption += f" The first {len(shown)} classes are shown."
    described = [
        f"{labels[part.feature]}: {listing([f'{names[c]} {_change(part, c)}' for c in shown])}"
        for part in parts
    ]
    return Figure(drawn.svg, f"Partial dependence. {'; '.join(described)}.", caption)


def _draw_effect(axes: Axes, part: Dependence, p: Array, k: int) -> None:
    if part.is_number:
        axes.plot(np.asarray(part.values, float), p, **(line(k) | {"marker": ""}))
        return
    axes.plot(np.arange(len(p)), p, **(line(k) | {"linestyle": "none"}))
    labels = apart([str(value) for value in part.values], 10)
    axes.set_xticks(range(len(p)), labels, rotation=90 if len(labels) > 3 else 0)


def _change(part: Dependence, c: int) -> str:
    first, last = (number(float(part.probability[c][end]), 2) for end in (0, -1))
    return f"from {first} to {last}"


def decision_map(
    plane: Plane,
    X: Array,
    codes: np.ndarray,
    classes: tuple[str, ...],
    names: list[str],
    name: str,
    about: int | None = None,
) -> Figure:
    """Return the probability of one of two classes over two features, or the most probable of many.

    The rows ``X`` are drawn with the classes of which ``codes`` holds the indices.
    """
    order = np.arange(len(classes)) if about is None else np.array([1 - about, about])
    response = {"probability": plane.probability[..., order]}
    what = "most probable class" if about is None else f"probability of {called(classes)[about]}"
    with sheet(3.8) as drawn:
        axes = drawn.axes(grid=False)
        DecisionDisplay(plane.axis0, plane.axis1, response, order, X=X, y=codes).plot(axes)
        shown = apart(names)
        axes.set(xlabel=shown[0], ylabel=shown[1])
        if about is not None:
            drawn.canvas.axes[-1].set_ylabel(short(f"probability of {classes[about]}"))
        drawn.legend(axes.get_legend_handles_labels()[0], [classes[k] for k in order])
    caption = (
        f"Decision map of {name}: the {what} over both features, the boundary where classes are "
        "equally probable, and the rows. The model is that of the first fold."
    )
    return Figure(drawn.svg, f"Map of the {what} over {listing(names)}.", caption)
