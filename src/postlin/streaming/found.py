"""What a search for neighbours returns, and how results for parts of the rows are merged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from postlin._typing import Array
from postlin.streaming.places import Integers, turns


@dataclass(frozen=True, eq=False)
class Found:
    """The numbers of the k nearest rows of each query, nearest first, and their distances.

    Where there are fewer than k rows, −1 and infinity fill the places of the others, and columns that
    no query needs are left out. Two results for parts of the rows add up to the result for both.
    """

    indices: Integers
    distances: Array
    k: int

    def __add__(self, other: "Found") -> "Found":
        if self.k != other.k:
            raise ValueError(f"results for {self.k} and for {other.k} neighbours cannot be merged.")
        indices = np.concatenate([self.indices, other.indices], axis=1)
        distances = np.concatenate([self.distances, other.distances], axis=1)
        order = np.lexsort((turns(indices), distances), axis=1)[:, : self.k]
        indices = np.take_along_axis(indices, order, axis=1)
        distances = np.take_along_axis(distances, order, axis=1)
        return Found(indices, distances, self.k).narrow()

    def narrow(self) -> "Found":
        """The result without the columns in which nothing was found."""
        width = int(np.isfinite(self.distances).any(axis=0).sum())
        return replace(self, indices=self.indices[:, :width], distances=self.distances[:, :width])


def merge(parts: Sequence[Found]) -> Found:
    """The k nearest among the neighbours found in several parts of the rows."""
    return reduce(add, parts)
