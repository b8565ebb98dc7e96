"""Random samples of rows that do not depend on how the rows are cut into chunks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from postlin._typing import Array


def row_keys(first: int, n: int, seed: int) -> np.ndarray:
    """A random number of 64 bits for every row, its own whatever the chunks (SplitMix64).

    No two rows have the same.
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is meant
        start = np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        z = start + np.arange(first, first + n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys: np.ndarray = z ^ (z >> np.uint64(31))
    return keys


@dataclass(frozen=True, eq=False)
class Drawn:
    """The k rows with the smallest keys among those seen; two of these add up to one."""

    k: int
    keys: np.ndarray
    X: Array
    y: Any
    weight: Array | None

    def __add__(self, other: "Drawn") -> "Drawn":
        weight = None
        if self.weight is not None and other.weight is not None:
            weight = np.concatenate([self.weight, other.weight])
        return Drawn(
            self.k,
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.X, other.X]),
            np.concatenate([self.y, other.y]),
            weight,
        ).least()

    def least(self) -> "Drawn":
        """Without those that are too many; rows stay in their order."""
        if len(self.keys) <= self.k:
            return self
        return self.where(np.sort(np.argpartition(self.keys, self.k - 1)[: self.k]))

    def where(self, chosen: Any) -> "Drawn":
        """Some of them."""
        weight = None if self.weight is None else self.weight[chosen]
        return Drawn(self.k, self.keys[chosen], self.X[chosen], self.y[chosen], weight)


@dataclass(frozen=True)
class Draw:
    """A share: rows drawn by their keys."""

    k: int
    seed: int

    def __call__(self, chunk: Any) -> Drawn:
        """Of one chunk, or of anything with its parts."""
        keys = row_keys(chunk.first, len(chunk.X), self.seed)
        return Drawn(self.k, keys, chunk.X, chunk.y, chunk.weight).least()
