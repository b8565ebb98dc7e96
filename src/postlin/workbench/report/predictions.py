"""Figures of predictions: comparison, reliability, thresholds and confusion, with captions."""

import numpy as np
from matplotlib.axes import Axes
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_curve

from postlin._typing import Array
from postlin.plotting import ReliabilityDisplay
from postlin.plotting.common import COLOURS, INK
from postlin.workbench.evaluation.comparison import Conclusion, Interval
from postlin.workbench.evaluation.methods import BASELINES
from postlin.workbench.report.drawing import (
    MOST,
    apart,
    count,
    handles,
    line,
    listing,
    number,
    shades,
    sheet,
    short,
)
from postlin.workbench.report.page import Figure
from postlin.workbench.report.words import confusions, names_of

_BLUE = COLOURS[1]
#: Bins of the reliability diagram before narrow ones are joined, and the rows that each then holds.
_BINS, _HELD = 10, 10
#: A confusion matrix has numbers for up to this many classes and names for up to this many, each with
#: at most this many letters; inches of a letter, and of the names across and the longest down.
_NUMBERED, _NAMED, _LONGEST, _LETTER, _ROOM = 12, 40, 14, 0.068, 3.8
#: Letters of the name of a curve beside its score.
_BESIDE = 28
#: A method so many times farther from the best than all other intervals reach is not drawn.
_FAR = 4

#: For each name, whether an event occurred in each row (0 or 1), and its predicted probability.
Curves = dict[str, tuple[Array, Array]]


def comparison(excess: dict[str, Interval], best: str) -> Figure:
    """Return by how much the log-loss of each method exceeds the best one's, with intervals."""
    reach = {name: max(-interval.low, interval.high) for name, interval in excess.items()}
    far = [
        name
        for name, interval in excess.items()
        if len(excess) > 2
        and interval.mean > _FAR * max(reach[other] for other in excess if other != name)
    ]
    shown = {name: interval for name, interval in excess.items() if name not in far}
    with sheet(0.75 + 0.26 * max(len(shown), 1)) as drawn:
        axes = drawn.axes()
        axes.grid(False, axis="y")
        axes.axvline(0, color=INK, linewidth=1, linestyle="--", alpha=0.6)
        rows = np.arange(len(shown))
        for k, interval in enumerate(shown.values()):
            axes.plot([interval.low, interval.high], [k, k], color=_BLUE, linewidth=1.4)
            axes.plot(interval.mean, k, "o", color=_BLUE, markersize=5)
        axes.set_yticks(rows, apart([*shown], 28))
        axes.set(ylim=(len(shown) - 0.5, -0.5), xlabel=short(f"log-loss above that of {best}"))
        axes.tick_params(axis="y", length=0)
    left_out = f" Left out, because it is far away: {listing(far)}." if far else ""
    caption = (
        f"Log-loss of the other methods minus that of {best} on the same folds, with 95 % intervals; "
        f"an interval that reaches the dashed line leaves open which is better.{left_out}"
    )
    parts = [
        f"{name} {one.mean:+.3f} ({one.low:.3f} to {one.high:.3f})" for name, one in excess.items()
    ]
    return Figure(drawn.svg, f"Log-loss above {best}: {listing(parts) or 'no other method'}.", caption)


def edges_that_hold(p: Array, bins: int = _BINS, least: int = _HELD) -> Array:
    """Return the edges of bins of equal width, joined to neighbours until each holds enough rows.

    >>> p = np.repeat([0.05, 0.45, 0.55, 0.95], [30, 5, 5, 30])
    >>> [round(float(edge), 1) for edge in edges_that_hold(p)]
    [0.0, 0.1, 0.9, 1.0]
    """
    least = max(1, min(least, len(p) // 4))
    edges = [float(edge) for edge in np.linspace(0.0, 1.0, bins + 1)]
    rows = [int(n) for n in np.histogram(p, edges)[0]]
    while len(rows) > 1 and min(rows) < least:
        k = rows.index(min(rows))
        left = k > 0 and (k == len(rows) - 1 or rows[k - 1] <= rows[k + 1])
        edge = k if left else k + 1  # the smallest bin joins the smaller of its neighbours
        rows[edge - 1 : edge + 1] = [rows[edge - 1] + rows[edge]]
        del edges[edge]
    return np.array(edges)


def reliability(outcome: Array, p: Array, name: str, event: str, probability: str = "") -> Figure:
    """Return how often an event occurs by its predicted probability, in bins that hold enough rows.

    ``event`` completes "share of rows …", and ``probability``, or else ``event``, "probability …".
    """
    display = ReliabilityDisplay(outcome, p, edges_that_hold(p), event)
    with sheet(4.3) as drawn:
        top, bottom = drawn.canvas.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        display.plot(top, histogram_ax=bottom, **line(1, linestyle="-", linewidth=1.2))
        bottom.clear()
        bottom.hist(p, np.linspace(0, 1, 2 * _BINS + 1), color=_BLUE, alpha=0.6)
        bottom.grid(False)
        top.set(xlabel="", ylabel=short(f"share of rows {event}"))
        bottom.set(xlabel=short(f"predicted probability {probability or event}"), ylabel="rows")
        if len(p) == 0:
            drawn.say_empty()
        drawn.legend([], [])
    bins = count(len(display.edges) - 1, "bin")
    caption = (
        f"Reliability of {name}: the share of rows {event} against its predicted probability. "
        f"A point should lie on the diagonal, and does so as far as can be told where its bar, a 95 % "
        f"interval, reaches it. There are {bins}, each with at least {int(display.count.min())} rows; "
        "below, how often each probability is predicted."
    )
    if len(p) == 0:
        return Figure(drawn.svg, f"Reliability diagram of {name}. No rows.", caption)
    alt = (
        f"Reliability diagram of {name}: {count(len(p), 'row')}, expected calibration error "
        f"{display.calibration_error:.3f}, share of rows {event} {np.mean(outcome):.3f}."
    )
    return Figure(drawn.svg, alt, caption)


def roc(curves: Curves, found: str, mistaken: str) -> Figure:
    """Return ROC curves with the area under each.

    The share of ``found`` that is recognised is drawn against the share of ``mistaken`` taken for it.
    """
    rates = {name: roc_curve(*c)[:2] for name, c in curves.items() if len(np.unique(c[0])) == 2}
    areas = {
        name: f"AUC {auc(*rates[name]):.3f}" if name in rates else "AUC undefined" for name in curves
    }
    with sheet(3.7) as drawn:
        axes = drawn.axes()
        for k, name in enumerate(curves):
            if name in rates:
                axes.plot(*rates[name], alpha=0.9, **(line(k) | {"marker": ""}))
        axes.plot([0, 1], [0, 1], "--", color=INK, linewidth=1, alpha=0.6, zorder=1)
        axes.set(xlabel=short(f"share of {mistaken} taken for it"), xlim=(-0.03, 1.03))
        axes.set(ylabel=short(f"share of {found} found"), ylim=(-0.04, 1.04))
        if not rates:
            drawn.say_empty("no curve: it needs rows of both classes")
        drawn.legend(handles(len(curves)), _scored(areas))
    parts = [f"{name} has {area}" for name, area in areas.items()]
    caption = (
        f"ROC curves: the share of {found} found against the share of {mistaken} taken for it, over "
        "all thresholds. AUC is the area under the curve; the diagonal is guessing."
    )
    return Figure(drawn.svg, f"ROC curves. {listing(parts) or 'No data'}.", caption)


def precision_recall(curves: Curves, found: str) -> Figure:
    """Return precision against recall of the rows of ``found``, with the average precision of each."""
    drawable = {name: c for name, c in curves.items() if np.any(c[0]) and len(c[0])}
    average = {name: float(average_precision_score(*c)) for name, c in drawable.items()}
    scores = {name: f"AP {average[name]:.3f}" if name in average else "AP undefined" for name in curves}
    share = max((float(np.mean(c[0])) for c in drawable.values()), default=0.0)
    with sheet(3.7) as drawn:
        axes = drawn.axes()
        for k, name in enumerate(curves):
            if name in drawable:
                precision, recall, _ = precision_recall_curve(*drawable[name])
                style = line(k) | {"marker": "", "drawstyle": "steps-post"}
                axes.plot(recall, precision, alpha=0.9, **style)
        axes.axhline(share, color=INK, linestyle="--", linewidth=1, alpha=0.6, zorder=1)
        axes.set(xlabel=short(f"share of {found} found (recall)"), xlim=(-0.03, 1.03))
        axes.set(ylabel="precision", ylim=(-0.04, 1.04))
        if not drawable:
            drawn.say_empty("no curve: it needs rows of the class")
        drawn.legend(handles(len(curves)), _scored(scores))
    caption = (
        f"Precision and recall: of the rows taken for {found}, the share that is right, against the "
        f"share of {found} found, over all thresholds. AP is the average precision; the dashed line, "
        f"{number(share)}, is guessing."
    )
    parts = [f"{name} has {score}" for name, score in scores.items()]
    return Figure(drawn.svg, f"Precision and recall. {listing(parts) or 'No data'}.", caption)


def _scored(scores: dict[str, str]) -> list[str]:
    """Return the names of curves, cut so that their scores fit behind them in a legend."""
    names = apart([*scores], _BESIDE)
    return [f"{name} ({score})" for name, score in zip(names, scores.values(), strict=True)]


def confusion_matrix(counts: np.ndarray, classes: tuple[str, ...], title: str) -> Figure:
    """Return the numbers of rows by their class, down, and by the predicted class, across.

    A cell is the darker the larger its share of its class.
    """
    with sheet(min(1.5 + 0.45 * len(counts), 3.3)) as drawn:
        axes = drawn.axes(grid=False)
        if counts.sum():
            _draw_counts(axes, counts)
        else:
            drawn.say_empty()
        _name_classes(axes, apart(classes, _LONGEST))
        axes.set(xlabel="predicted", ylabel="class", title=short(title))
    caption = (
        f"{title}: rows by their class and by the class predicted, shaded by the share of the class. "
        f"{int(np.trace(counts)):,} of {count(int(counts.sum()), 'row')} are on the diagonal."
    )
    if worst := confusions(counts, classes):
        caption += f" Off it, most often, {worst}."
    return Figure(drawn.svg, f"Confusion matrix. {caption}", caption)


def _draw_counts(axes: Axes, counts: np.ndarray) -> None:
    n = len(counts)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # as vectors: a browser would blur an image of so few points
    edges = np.arange(n + 1) - 0.5
    axes.pcolormesh(edges, edges, share, cmap=shades(_BLUE, 0.0, 0.6), vmin=0, vmax=1)
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


def drawn_class(codes: np.ndarray) -> int:
    """Return which of two classes the figures are about: the rarer one, or else the second."""
    first, second = np.bincount(codes, minlength=2)
    return int(second <= first)


def curves_of(conclusion: Conclusion, k: int = 1) -> Curves:
    """Return outcomes and probabilities of class ``k`` for the methods worth a curve, by their names.

    Methods with practically the same predictions are one; class frequencies have no curve.
    """
    names = names_of(conclusion.ranking)
    groups = [cells for cells in conclusion.alike if cells[0].method != "majority"]
    ours = [cells for cells in groups if cells[0].method not in BASELINES]
    baselines = [cells for cells in groups if cells[0].method in BASELINES]
    shown = ours[: MOST - len(baselines)] + baselines
    curves = {}
    for cells in shown:
        _, y, p = conclusion.predictions[cells[0]]
        curves[", ".join(names[cell] for cell in cells)] = (y == k).astype(float), p[:, k]
    return curves


def drawn_as_one(conclusion: Conclusion) -> str:
    """Return a sentence for each group of methods that are drawn as one, after a space."""
    same = [cells for cells in conclusion.alike if len(cells) > 1]
    names = names_of(conclusion.ranking)
    return "".join(
        f" {listing([names[cell] for cell in cells])} give the same probabilities to within 0.02, and "
        "are drawn as one."
        for cells in same
    )
