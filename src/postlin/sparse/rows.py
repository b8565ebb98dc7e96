"""Labelled rows that can be read again and again, a chunk at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from postlin._typing import Array

S = TypeVar("S", bound=tuple[Any, ...])

#: Rows of a chunk.
CHUNK = 8192


class Chunk(NamedTuple):
    """Consecutive rows: features, labels −1 and +1, weights above zero or None, the first's index."""

    X: Array
    y: Array
    weight: Array | None
    first: int


class Rows(ABC):
    """Labelled rows that can be read again and again."""

    n: int
    n_features: int

    @abstractmethod
    def total(self, share: Callable[[Chunk], S]) -> S:
        """The sum of a chunk's share over all chunks, field by field."""

    @abstractmethod
    def sample(self, n: int, seed: int) -> "ArrayRows":
        """So many rows, drawn at random without replacement."""


class ArrayRows(Rows):
    """Rows in memory."""

    def __init__(self, X: Array, y: Array, weight: Array | None = None, chunk: int = CHUNK) -> None:
        self.X, self.y, self.weight, self.chunk = X, y, weight, chunk
        self.n, self.n_features = X.shape

    def chunks(self) -> Iterator[Chunk]:
        """One after the other."""
        for first in range(0, self.n, self.chunk):
            rows = slice(first, first + self.chunk)
            weight = None if self.weight is None else self.weight[rows]
            yield Chunk(self.X[rows], self.y[rows], weight, first)

    def total(self, share: Callable[[Chunk], S]) -> S:
        """One chunk after the other."""
        shares = map(share, self.chunks())
        total = next(shares)
        for other in shares:
            total = type(total)(*(a + b for a, b in zip(total, other, strict=True)))
        return total

    def sample(self, n: int, seed: int) -> "ArrayRows":
        """So many rows."""
        chosen = np.sort(np.random.default_rng(seed).permutation(self.n)[:n])
        weight = None if self.weight is None else self.weight[chosen]
        return ArrayRows(self.X[chosen], self.y[chosen], weight, self.chunk)
