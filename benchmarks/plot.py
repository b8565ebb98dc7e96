"""Time against n on log axes, with the exponents in the legend."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from criteria import exponent
from matplotlib.ticker import NullFormatter, ScalarFormatter
from plan import CONTESTANTS
from problems import SYNTHETIC
from store import Store
from tables import evaluation, seconds

#: Exponents are fitted from here on; below, overhead hides the growth.
FROM = 1000
MARKERS = "os^Dv*XPph8<>"
COLOURS = [*mpl.color_sequences["tab10"], "black", "gold", "navy"]


def _panel(axis, title, curves):
    for (contestant, points), marker, colour in zip(curves, MARKERS, COLOURS, strict=True):
        if not points:
            continue
        power = exponent([p for p in points if p[0] >= FROM])
        label = contestant.name + ("" if power is None else f", $n^{{{power:.2f}}}$")
        style = "-" if contestant.ours else "--"
        look = {"marker": marker, "color": colour, "markersize": 5}
        axis.loglog(*zip(*points, strict=True), style, label=label, **look)
    axis.set(title=title, xlabel="n, rows", ylabel="seconds")
    axis.set_xticks(sorted({n for _, points in curves for n, _ in points}))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.grid(alpha=0.3, which="major")
    if axis.lines:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=8, frameon=False)


def draw(store: Store, path: Path) -> None:
    """Fits on the left, single evaluations on the right; postlin solid, peers dashed."""
    panels = {
        "Fit with hyperparameters": lambda name, key: seconds(store, name, key),
        "One evidence with gradient, cold, θ near the optimum": lambda name, key: evaluation(
            store, name, key, "near optimum", "cold"
        ),
    }
    figure, axes = plt.subplots(1, 2, figsize=(11, 6.4))
    for axis, (title, time) in zip(axes, panels.items(), strict=True):
        curves = []
        for contestant in CONTESTANTS:
            times = [(n, time(contestant.name, f"synthetic-{n}")) for n in SYNTHETIC]
            curves.append((contestant, [(n, t) for n, t in times if t is not None]))
        _panel(axis, title, curves)
    figure.subplots_adjust(left=0.07, right=0.98, top=0.94, bottom=0.36, wspace=0.2)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
