"""Random samples of rows that do not depend on how the rows are cut into chunks."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol, TypeVar

import numpy as np

from postlin._typing import Array
from postlin.linalg.threads import blas_threads


def added(one: Any, other: Any) -> Any:
    """The sum of two shares; None is nothing."""
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, tuple):
        parts = [added(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one + other


def pairwise_sum(shares: Iterable[Any]) -> Any:
    """The sum by a balanced tree over the order of the shares, however many there will be."""
    partial: list[tuple[int, Any]] = []  # sums of 2^level shares, levels falling
    for share in shares:
        level = 0
        while partial and partial[-1][0] == level:
            share = added(partial.pop()[1], share)
            level += 1
        partial.append((level, share))
    return reduce(lambda right, left: added(left, right), (s for _, s in reversed(partial)), None)


S = TypeVar("S")

#: What gives rows when it is called, anew at every pass.
Load = Callable[[], Any]


class Loads(Protocol):
    """What can be read in passes."""

    def loads(self) -> Iterable[Any]:
        """One pass, in order."""


class Engine(ABC):
    """Makes sums over chunks, in an order that the chunks alone decide."""

    @abstractmethod
    def total(self, source: Loads, work: Callable[[Any], S]) -> S | None:
        """Σ work(load()) over the loads of a pass; None where there are none."""

    @abstractmethod
    def here(self) -> "Engine":
        """What does the same to rows in memory, in this process."""


@dataclass(frozen=True)
class Threads(Engine):
    """Chunks side by side in this process, each with one BLAS thread."""

    n: int

    def total(self, source: Loads, work: Callable[[Any], S]) -> S | None:
        """Streams are read here, in turn; all else is loaded in the threads."""
        loads = source.loads()
        with blas_threads(1):
            if self.n == 1:
                return pairwise_sum(work(load()) for load in loads)  # type: ignore[no-any-return]
            with ThreadPoolExecutor(self.n) as pool:
                return pairwise_sum(self._in_order(pool, loads, work))  # type: ignore[no-any-return]

    def here(self) -> "Threads":
        """The same."""
        return self

    def _in_order(
        self, pool: ThreadPoolExecutor, loads: Iterable[Load], work: Callable[[Any], S]
    ) -> Iterator[S]:
        """Results in the order of the chunks, with no more of these in memory than are worked on."""
        waiting: deque[Future[S]] = deque()
        try:
            for load in loads:
                waiting.append(pool.submit(_loaded, load, work))
                if len(waiting) > 2 * self.n:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _loaded(load: Load, work: Callable[[Any], S]) -> S:
    return work(load())


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
