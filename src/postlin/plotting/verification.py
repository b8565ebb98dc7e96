"""A fit beside the exact posterior: differences of probabilities, and the log evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.pipeline import Pipeline

from postlin._typing import Array
from postlin.estimator.verification import Verification
from postlin.plotting import common
from postlin.plotting.common import COLOURS, INK, Display, Fitted, Style, bare, look, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The layout of a figure takes so many passes, since the upper axes get their size from the lower ones.
_PASSES = 3


@dataclass(eq=False, repr=False)
class VerificationDisplay(Display):
    """The fit's probabilities minus the exact ones, against the exact ones, and the log evidence above.

    Bars are 95 % intervals of the exact values, from the spread between the runs: where one reaches
    zero, the runs cannot tell fit and truth apart. The upper axes show the log evidence of the fit, the
    exact one with its interval, and that of every run. With two classes the probabilities are those of
    the second; with several binary problems the log evidences are means over these.

    Parameters
    ----------
    verification : what ``GPClassifier.verify`` has returned

    """

    verification: Verification

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        X: object = None,
        *,
        n_particles: int = 1000,
        n_runs: int = 3,
        random_state: int | np.random.RandomState | None = None,
        time_limit: float | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Verify a fitted ``GPClassifier``, or a pipeline that ends in one, and draw the result.

        The arguments are those of ``GPClassifier.verify``; further ones go to the points.
        """
        model = common.classifier_of(estimator)
        if X is not None and isinstance(estimator, Pipeline):
            X = estimator[:-1].transform(X)
        found = model.verify(
            X, n_particles=n_particles, n_runs=n_runs, random_state=random_state, time_limit=time_limit
        )
        return cls.from_verification(found, ax=ax, **kwargs)

    @classmethod
    def from_verification(
        cls, verification: Verification, *, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw what ``GPClassifier.verify`` has returned."""
        return cls(verification).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw; further arguments go to the points. The log evidence is in ``evidence_ax_``."""
        found, is_own = self.verification, ax is None
        columns = [1] if len(found.classes) == 2 else range(len(found.classes))
        names = [readable(found.classes[c]) for c in columns]
        ax = self._axes(ax, 5.8, 4.8 + (common.legend_height(names) + 0.25 if len(names) > 1 else 0.0))
        ax.axhline(0.0, color=INK, linewidth=1, alpha=0.6)
        self.points_ = [self._points(ax, c, len(names) > 1, kwargs) for c in columns]
        ax.set_xlim(-0.03, 1.03)
        about = f" of {names[0]}" if len(names) == 1 else ""
        ax.set_xlabel(f"exact probability{about}")
        bars = "" if found.probabilities_sd is None else ",\nwith 95 % interval of the latter"
        ax.set_ylabel(f"fit minus exact probability{bars}")
        if len(names) > 1:
            below: Style = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "frameon": False}
            ax.legend(ncols=common.legend_columns(names), handletextpad=0.2, **below)
        self._evidence(ax)
        figure: Any = ax.figure
        for _ in range(_PASSES if is_own else 0):
            figure.draw_without_rendering()
        return self

    def _points(self, ax: Axes, column: int, several: bool, kwargs: dict[str, Any]) -> Any:
        """Draw the rows' differences in the probability of one class."""
        found = self.verification
        sd = found.probabilities_sd
        error = None if sd is None else 2.0 * sd[:, column]
        style: Style = {"color": COLOURS[1], "marker": "o", "linestyle": "", "markersize": 3.5}
        style |= {"elinewidth": 0.8, "alpha": 0.7}
        if several:
            colour, marker, size, _ = look(column)
            style |= {"color": colour, "marker": marker, "markersize": 3.5 * np.sqrt(size)}
            style |= {"label": readable(found.classes[column])}
        x, y = found.probabilities[:, column], found.probability_differences[:, column]
        return ax.errorbar(x, y, error, **(style | kwargs))

    def _evidence(self, ax: Axes) -> None:
        """Draw the log evidences in inset axes above ``ax``, so that they move with it."""
        found = self.verification
        above = self.evidence_ax_ = ax.inset_axes((0.0, 1.17, 1.0, 0.16))
        bare(above)
        above.grid(False, axis="y")
        runs: Array = np.mean([[r.log_evidence for r in p.runs] for p in found.problems], axis=0)
        dots: Style = {"color": COLOURS[1], "markersize": 3.5, "alpha": 0.45, "linestyle": ""}
        self.runs_ = above.plot(runs, np.zeros(len(runs)), "o", label="runs", **dots)[0]
        error = None if found.log_evidence_sd is None else 2.0 * found.log_evidence_sd
        exact: Style = {"color": COLOURS[1], "markersize": 6, "capsize": 3, "elinewidth": 1.4}
        self.exact_ = above.errorbar(
            [found.log_evidence], [1.0], xerr=error, fmt="o", label="exact", **exact
        )
        mark: Style = {"color": COLOURS[0], "markersize": 6, "linestyle": ""}
        self.fit_ = above.plot([found.fit_log_evidence], [1.0], "D", label="fit", **mark)[0]
        above.set(ylim=(-0.7, 1.7), yticks=[0, 1], yticklabels=["runs", "fit, exact"])
        above.tick_params(axis="y", length=0)
        above.spines["left"].set_visible(False)
        above.margins(x=0.12)
        above.ticklabel_format(axis="x", useOffset=False)
        above.locator_params(axis="x", nbins=7)
        word = "log evidence" if len(found.problems) == 1 else "mean log evidence"
        doubt = "" if found.is_trusted else " – not to be trusted"
        gap = f"{found.log_evidence_difference:+.2f}".replace("-", "−")
        title = f"{word}: {gap}, fit minus exact{doubt}"
        above.set_title(title, loc="left", fontsize="medium")
