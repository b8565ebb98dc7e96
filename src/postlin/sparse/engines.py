"""How a sum over chunks is made: in turn, or in threads."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from postlin._threads import blas_threads
from postlin.sparse.sums import pairwise_sum

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
