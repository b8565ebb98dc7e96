"""Labelled rows and the neighbourhoods of queries among them, block by block.

A query is a new row, or one of the rows itself, which is then left out of its neighbourhood. What is
done with the neighbourhoods of a block of queries is a function, a *look*, so that rows may be in
memory or on a cluster.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, TypeVar

import numpy as np

from postlin._typing import Array, override
from postlin.linalg.arrays import Matrix, place_of
from postlin.linalg.stacks import part_of, shaped
from postlin.linalg.threads import in_order, workers
from postlin.streaming.neighbours import Neighbours
from postlin.streaming.places import Integers

S = TypeVar("S")


class Queries(NamedTuple):
    """Rows (q, d) with the numbers that they have among the labelled rows, −1 for new ones.

    New rows have the code −1, for no class, and weight one.
    """

    X: Array
    number: Integers
    code: np.ndarray
    weight: Array

    @classmethod
    def new(cls, X: Array) -> "Queries":
        """New rows."""
        none = np.full(len(X), -1)
        return cls(X, none, none, np.ones(len(X)))

    def where(self, chosen: slice | np.ndarray) -> "Queries":
        """The queries that a slice, a mask or an array of indices selects."""
        return Queries(self.X[chosen], self.number[chosen], self.code[chosen], self.weight[chosen])

    def __len__(self) -> int:
        return len(self.X)


class Neighbourhoods(NamedTuple):
    """The neighbours (q, k) of queries: their numbers, rows (q, k, d), codes and weights.

    Where a query has fewer neighbours than others, numbers are −1 and weights zero. The rows are on the
    device if they are searched there, and the rest is in NumPy's memory.
    """

    number: Integers
    X: Matrix
    code: np.ndarray
    weight: Array


Look = Callable[[Neighbourhoods, Queries], S]


class Surroundings(ABC):
    """Labelled rows that can be searched for neighbours in the present metric."""

    n: int

    @abstractmethod
    def rescaled(self, lengths: Array) -> Self:
        """The same rows with other length scales."""

    @abstractmethod
    def each(self, look: Look[S], queries: Queries, k: int, width: int) -> list[S]:
        """What the look returns for each block of ``width`` queries and their k neighbours."""

    @abstractmethod
    def drawn(self, count: int, seed: int) -> Queries:
        """At most so many of the rows, drawn at random without replacement, in their order."""

    @property
    @abstractmethod
    def advice(self) -> str | None:
        """What to tell the user about a slow search, if it is slow."""

    @abstractmethod
    def recall(self, k: int) -> float:
        """The share of the k nearest rows that the search finds, in a random sample."""


@dataclass(frozen=True, eq=False)
class ArraySurroundings(Surroundings):
    """Rows (n, d) in memory or in a memory map, with the codes of their classes and weights."""

    X: np.ndarray
    code: np.ndarray
    weight: Array | None  # None if all weights are one
    search: Neighbours

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of rows."""
        return len(self.X)

    @override
    def rescaled(self, lengths: Array) -> "ArraySurroundings":
        return replace(self, search=self.search.rescaled(lengths))

    @override
    def each(self, look: Look[S], queries: Queries, k: int, width: int) -> list[S]:
        found = self.search.query(queries.X, min(k, self.n), leave_out=queries.number)

        def at(part: slice) -> S:
            return look(self._gathered(found.indices[part]), queries.where(part))

        how = self.search.how
        return in_order(at, len(queries), width, workers(how.place, how.n_jobs))

    def _gathered(self, number: Integers) -> Neighbourhoods:
        known, there = number >= 0, self.search.there
        at = np.where(known, number, 0)
        weight = np.ones(at.shape) if self.weight is None else self.weight[at]
        rows: Matrix
        if there is None:
            rows = np.asarray(np.take(self.X, at, axis=0), dtype=np.float64)
        else:
            rows = shaped(part_of(there, place_of(there).give(at.ravel())), *at.shape, there.shape[1])
        return Neighbourhoods(number, rows, self.code[at], np.where(known, weight, 0.0))

    @override
    def drawn(self, count: int, seed: int) -> Queries:
        rows = np.sort(np.random.default_rng(seed).permutation(self.n)[:count])
        weight = np.ones(len(rows)) if self.weight is None else self.weight[rows]
        return Queries(np.asarray(self.X[rows], dtype=np.float64), rows, self.code[rows], weight)

    @property
    @override
    def advice(self) -> str | None:
        return self.search.advice

    @override
    def recall(self, k: int) -> float:
        return self.search.recall(k=k)
