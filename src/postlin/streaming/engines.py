"""Sums over chunks, in an order that depends on the chunks alone and not on the threads."""

import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from postlin._typing import override
from postlin.linalg.threads import blas_threads, threads
from postlin.streaming.chunks import Chunk
from postlin.streaming.sources import Source

S = TypeVar("S")


def added(one: S | None, other: S | None) -> S | None:
    """The sum of two shares: tuples are added part by part, and None counts as zero."""
    if one is None or other is None:
        return one if other is None else other
    total: S = part_by_part(added, one, other) if isinstance(one, tuple) else operator.add(one, other)
    return total


def part_by_part(function: Callable[..., object], *shares: S) -> S:
    """The tuple of ``function(*parts)`` over the parts that tuples of one type have in common."""
    kind: Callable[..., S] = type(shares[0])
    parts = [function(*each) for each in zip(*shares, strict=True)]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def pairwise_sum(shares: Iterable[S | None]) -> S | None:
    """The sum of any number of shares, by a balanced tree over their order."""
    partial: list[tuple[int, S | None]] = []  # sums of 2^level shares, at falling levels
    for share in shares:
        level, total = 0, share
        while partial and partial[-1][0] == level:
            total = added(partial.pop()[1], total)
            level += 1
        partial.append((level, total))
    total = None
    for _, left in reversed(partial):
        total = added(left, total)
    return total


class Engine(ABC):
    """Computes sums over chunks."""

    @abstractmethod
    def total(self, source: Source, work: Callable[[Chunk], S]) -> S | None:
        """Σ work(load()) over the loads of one pass; None if there are no loads."""

    def here(self) -> "Threads":
        """The engine for rows in the memory of this process; by default as many threads as of BLAS."""
        return Threads(threads())


@dataclass(frozen=True)
class Threads(Engine):
    """Works on n chunks at a time in threads of this process, each with one BLAS thread."""

    n: int

    def total(self, source: Source, work: Callable[[Chunk], S]) -> S | None:
        """The sum of one pass; streams are read by the calling thread, all else by the workers."""
        loads = source.loads()
        with blas_threads(1):
            if self.n == 1:
                return pairwise_sum(work(load()) for load in loads)
            with ThreadPoolExecutor(self.n) as pool:
                return pairwise_sum(self._in_order(pool, loads, work))

    @override
    def here(self) -> "Threads":
        return self

    def _in_order(
        self, pool: ThreadPoolExecutor, loads: Iterable[Callable[[], Chunk]], work: Callable[[Chunk], S]
    ) -> Iterator[S]:
        """Yield the shares in the order of the chunks, with a bounded number of chunks in memory."""
        waiting: deque[Future[S]] = deque()
        try:
            for load in loads:
                waiting.append(pool.submit(lambda load: work(load()), load))
                if len(waiting) > 2 * self.n:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
