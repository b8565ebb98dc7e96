"""Which features matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from postlin._typing import Array
from postlin.plotting.common import COLOURS, Display, Fitted, Style, classifier_of, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class RelevanceDisplay(Display):
    """Features by relevance, the most relevant at the top.

    Relevance is the standard deviation of a feature in units of its length scale, so that it does not
    depend on the feature's own unit.

    Parameters
    ----------
    names : the names of the features, the most relevant first
    values : array, their relevance

    """

    names: Sequence[str]
    values: Array

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        *,
        feature_names: Sequence[str] | None = None,
        max_features: int | None = None,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw the features of a fit whose kernel has a length scale for every feature.

        ``feature_names`` are in the order of the columns; the names of a data frame are known.
        ``max_features`` is the number of features to draw, the most relevant ones.
        """
        found = classifier_of(estimator).relevance_
        names = found.names
        if feature_names is not None:
            if len(feature_names) != len(names):
                raise ValueError(
                    f"feature_names must hold {len(names)} names, one for every feature, "
                    f"got {len(feature_names)}."
                )
            names = [str(feature_names[k]) for k in found.features]
        return cls(names[:max_features], found.values[:max_features]).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw; further arguments go to the bars."""
        n = len(self.names)
        ax = self._axes(ax, 5.2, 1.1 + 0.28 * n)
        ax.grid(False, axis="y")
        style: Style = {"color": COLOURS[1], "height": 0.7} | kwargs
        self.bars_ = ax.barh(np.arange(n), self.values, **style)
        ax.bar_label(self.bars_, fmt="%.2g", padding=3, fontsize="small")
        ax.set_yticks(np.arange(n), [readable(name) for name in self.names])
        ax.tick_params(axis="y", length=0)
        ax.set(ylim=(n - 0.4, -0.6), xlabel="relevance (standard deviation ÷ length scale)")
        ax.margins(x=0.12)
        return self
