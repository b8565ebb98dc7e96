"""Labelled rows that can be read again and again, a chunk at a time, and sums over them.

All that inference wants of data is a sum over rows. How the sum is made, in turn, in threads or on
other machines, is the business of an engine; its order is fixed by the chunks alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from postlin._typing import Array
from postlin.sparse.draws import Draw
from postlin.sparse.engines import Engine, Threads

S = TypeVar("S")

#: Rows worked on at a time: enough for BLAS, and few enough for several threads' memory.
CHUNK = 8192


class Chunk(NamedTuple):
    """Consecutive rows with labels −1 and +1; ``first`` is the index of the first of them."""

    X: Array
    y: Array
    weight: Array | None
    first: int


class Rows(ABC):
    """Rows of two classes."""

    n: int
    n_features: int
    engine: Engine

    @abstractmethod
    def total(self, share: Callable[[Chunk], S]) -> S:
        """Σ over chunks of what each contributes: tuples of arrays and numbers, added part by part."""

    def sample(self, n: int, seed: int) -> "ArrayRows":
        """At most so many rows, drawn at random without replacement and in their order."""
        drawn = self.total(Draw(n, seed))
        return ArrayRows(drawn.X, drawn.y, drawn.weight, engine=self.engine.here())


class ArrayRows(Rows):
    """Rows in memory, labels −1 and +1."""

    def __init__(
        self,
        X: Array,
        y: Array,
        weight: Array | None = None,
        chunk: int = CHUNK,
        engine: Engine | None = None,
    ) -> None:
        self.n, self.n_features = X.shape
        self.X, self.y, self.weight, self.chunk = X, y, weight, chunk
        self.engine = engine or Threads(1)

    def loads(self) -> Iterator[Callable[[], Chunk]]:
        """Slices."""
        for first in range(0, self.n, self.chunk):
            yield partial(self._slice, first)

    def _slice(self, first: int) -> Chunk:
        rows = slice(first, first + self.chunk)
        weight = None if self.weight is None else self.weight[rows]
        return Chunk(self.X[rows], self.y[rows], weight, first)

    def total(self, share: Callable[[Chunk], S]) -> S:
        """One pass."""
        total = self.engine.total(self, share)
        assert total is not None
        return total
