"""What is taken for what: a confusion matrix."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb

from postlin.workbench.report.drawing import BLUE, WIDTH, new_figure, say_empty, style, to_svg
from postlin.workbench.report.parts import Figure
from postlin.workbench.report.svg import INK
from postlin.workbench.report.text import count, listing, short

#: Numbers and names are written for so many classes; of more there is no room for all of them.
_NUMBERED, _NAMED = 12, 40
#: The longest name beside the matrix, and the width of a letter in inches.
_LONGEST, _LETTER = 14, 0.068
#: How many confusions the caption names.
_WORST = 3


def confusion_matrix(counts: np.ndarray, classes: tuple[str, ...], title: str) -> Figure:
    """Counts of rows by their class, down, and by the class predicted, across.

    A cell is the darker the larger its share of its row.
    """
    with style():
        n = len(classes)
        names = _names(classes)
        figure = new_figure(3.3)
        axes = figure.subplots()
        axes.grid(False)
        if counts.sum():
            _draw(axes, counts)
        else:
            say_empty(axes)
        _label(axes, names if n <= _NAMED else None)
        axes.set(xlabel="predicted", ylabel="class", title=short(title))
        svg = to_svg(figure)
    right = int(np.trace(counts))
    worst = _worst(counts, classes)
    caption = (
        f"{title}: rows by their class and by the class predicted, shaded by the share of the class. "
        f"{right} of {count(int(counts.sum()), 'row')} are on the diagonal."
    )
    caption += f" Off it, most often, {listing(worst)}." if worst else ""
    if names[0] == "1" != classes[0]:
        caption += " Classes are numbered in their order."
    return Figure(svg, f"Confusion matrix, {caption[0].lower()}{caption[1:]}", caption)


def _names(classes: tuple[str, ...]) -> list[str]:
    """Names short enough, or numbers where that would make some of them equal."""
    lines = [short(name) for name in classes]
    cut = [line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…" for line in lines]
    return cut if len(set(cut)) == len(cut) else [str(k) for k in range(1, len(cut) + 1)]


def _draw(axes: Axes, counts: np.ndarray) -> None:
    """Transparent colour over the page, so that it suits a light and a dark one."""
    n = len(counts)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shades = LinearSegmentedColormap.from_list("share", [(*to_rgb(BLUE), 0.0), (*to_rgb(BLUE), 0.6)])
    # as vectors: a browser would blur an image of so few points
    edges = np.arange(n + 1) - 0.5
    axes.pcolormesh(edges, edges, share, cmap=shades, vmin=0, vmax=1)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    if n > _NUMBERED:
        return
    for i, j in np.argwhere(counts):
        axes.text(j, i, f"{counts[i, j]}", ha="center", va="center", fontsize=8.5 if n < 9 else 7.5)


def _label(axes: Axes, names: list[str] | None) -> None:
    if names is None:
        axes.set(xticks=[], yticks=[])
        return
    places = range(len(names))
    longest = max(map(len, names))
    room = (WIDTH - 0.6 - longest * _LETTER) / len(names)
    crowded = longest * _LETTER > room
    size = 8.5 if len(names) <= _NUMBERED else 6.5
    axes.set_xticks(places, names, rotation=90 if crowded else 0, fontsize=size)
    axes.set_yticks(places, names, fontsize=size)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK, alpha=0.4)


def _worst(counts: np.ndarray, classes: tuple[str, ...]) -> list[str]:
    off = counts - np.diag(np.diag(counts))
    order = np.argsort(-off, axis=None, kind="stable")[:_WORST]
    pairs = [(int(i), int(j)) for i, j in zip(*np.unravel_index(order, off.shape), strict=True)]
    return [f"{off[i, j]} of {classes[i]!r} taken for {classes[j]!r}" for i, j in pairs if off[i, j]]
