"""Whether a kernel can give rows different probabilities that have neighbours.

Where no row has a covariance with another one, new rows are predicted by the prior, whatever the labels
of their neighbours.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.learning.starts import FAINT, NOTHING
from postlin.linalg.arrays import on_host
from postlin.streaming.surroundings import Neighbourhoods, Queries, Surroundings

#: Rows that are looked at, and others with which they are compared beside their neighbours: where many
#: rows are equal, all neighbours of a row may be equal to it.
_ROWS, _OTHERS = 50, 1000


@dataclass(frozen=True)
class Sight:
    """The largest covariance of two rows that differ, and the largest variance."""

    shared: float
    variance: float

    @classmethod
    def at(cls, kernel: Kernel, rows: Surroundings, k: int, seed: int) -> "Sight":
        """What a kernel without white noise has among rows that are searched in its metric."""
        look = _Look(kernel, rows.drawn(_OTHERS, seed + 4).X)
        found = rows.each(look, rows.drawn(_ROWS, seed), k, _ROWS)
        return cls(max(each.shared for each in found), max(each.variance for each in found))

    @property
    def is_none(self) -> bool:
        """Whether no probability can differ by more than a few thousandths."""
        return self.shared <= NOTHING

    @property
    def informs(self) -> bool:
        """Whether the matrix of the kernel is far from diagonal."""
        return self.shared > FAINT * self.variance


@dataclass(frozen=True, eq=False)
class _Look:
    """The sight of a block of queries, which can be sent to where the rows are."""

    kernel: Kernel
    others: Array

    def __call__(self, near: Neighbourhoods, queries: Queries) -> Sight:
        shared = 0.0
        for x, rows in zip(queries.X, np.asarray(on_host(near.X)), strict=True):
            several = np.concatenate([rows, self.others])
            different = several[(several != x).any(axis=1)]
            if len(different):
                shared = max(shared, float(np.abs(self.kernel(x[None], different)).max()))
        return Sight(shared, float(np.abs(self.kernel.diag(queries.X)).max()))
