"""Inducing points among what is learned: their coordinates after the logarithms of the rest."""

from dataclasses import dataclass

import numpy as np

from postlin._typing import Array
from postlin.hyperparameters import Hyperparameters


@dataclass(frozen=True, eq=False)
class WithPoints(Hyperparameters):
    """Hyperparameters with the inducing points, which are searched for within a box.

    In the vector of parameters the coordinates are as they are, row by row, and no logarithms. A
    random start draws the others alone.
    """

    points: Array
    box: Array  # (features, 2)

    @classmethod
    def of(cls, at: Hyperparameters, points: Array, box: Array) -> "WithPoints":
        """Learn the points too."""
        return cls(at.kernel, at.likelihood, points, box)

    @property
    def _rest(self) -> Hyperparameters:
        return Hyperparameters(self.kernel, self.likelihood)

    @property
    def theta(self) -> Array:
        """Logarithms of the parameters, then the coordinates."""
        return np.concatenate([self._rest.theta, self.points.ravel()])

    @property
    def bounds(self) -> Array:
        """Of all of these."""
        return np.concatenate([self._rest.bounds, np.tile(self.box, (len(self.points), 1))])

    @property
    def names(self) -> list[str]:
        """What each is called."""
        rows, columns = self.points.shape
        return self._rest.names + [f"inducing[{i}, {k}]" for i in range(rows) for k in range(columns)]

    def at(self, theta: Array) -> "WithPoints":
        """The same with other parameters and points."""
        n = len(self._rest.theta)
        return self.of(
            self._rest.at(theta[:n]), np.array(theta[n:]).reshape(self.points.shape), self.box
        )

    @property
    def starts(self) -> list[Array]:
        """Where a search should begin."""
        return [np.concatenate([start, self.points.ravel()]) for start in self._rest.starts]

    def drawn(self, rng: np.random.RandomState) -> Array:
        """Random parameters, and the points as they are."""
        return np.concatenate([self._rest.drawn(rng), self.points.ravel()])

    def check_bounds(self, *, finite: bool) -> None:
        """Of the others; the box is made about the points."""
        self._rest.check_bounds(finite=finite)

    def at_bounds(self) -> list[str]:
        """Of the others: a point at the edge of the data is nothing to be told of."""
        return self._rest.at_bounds()
