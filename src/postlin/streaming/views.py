"""Rows of two classes, as inference reads them: in memory, or a view of a source with many classes."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, TypeVarTuple

import numpy as np

from postlin._typing import Array
from postlin.streaming.chunks import CHUNK, Chunk, Draw
from postlin.streaming.engines import Engine, Threads, pairwise_sum, part_by_part
from postlin.streaming.sources import Source, check_alike
from postlin.streaming.survey import Survey, encode

S = TypeVar("S")
Ts = TypeVarTuple("Ts")

logger = logging.getLogger("postlin")


class Rows(ABC):
    """Rows of two classes, which inference reads in passes."""

    n: int
    engine: Engine
    times: float = 1.0  # how many rows each of them stands for

    @property
    def stands_for(self) -> float:
        """How many rows they stand for in all."""
        return self.times * self.n

    @abstractmethod
    def total(self, share: Callable[[Chunk], S]) -> S:
        """Σ share(chunk) over all chunks; tuples of arrays and numbers are added part by part."""

    def sample(self, n: int, seed: int) -> "ArrayRows":
        """At most n rows, drawn at random without replacement, in their order."""
        rows = self.total(Draw(n, seed)).rows
        return ArrayRows(rows.X, rows.y, rows.weight, engine=self.engine.here())


@dataclass(eq=False, repr=False)
class ArrayRows(Rows, Source):
    """Rows in memory with labels −1 and +1; without ``weight`` every row has weight one."""

    X: Array
    y: Array
    weight: Array | None = None
    chunk: int = CHUNK
    engine: Engine = field(default=Threads(1))
    times: float = 1.0

    def __post_init__(self) -> None:
        self.n = len(self.X)
        self._all = Chunk(self.X, self.y, np.ones(self.n) if self.weight is None else self.weight, 0)

    def where(self, chosen: np.ndarray) -> "ArrayRows":
        """The rows that a mask or an array of indices selects."""
        rows = self._all.where(chosen)
        return replace(self, X=rows.X, y=rows.y, weight=rows.weight)

    def standing_for(self, n: int) -> "ArrayRows":
        """The same rows, with the weights of n rows of which they are a sample."""
        times = n / self.n
        return replace(self, weight=times * self._all.weight, times=times)

    def loads(self) -> Iterator[Callable[[], Chunk]]:
        """One pass: functions that return slices of the arrays."""
        return (partial(self._all.part, i, i + self.chunk) for i in range(0, self.n, self.chunk))

    def total(self, share: Callable[[Chunk], S]) -> S:
        """Σ share(chunk) over the slices."""
        total = self.engine.total(self, share)
        assert total is not None  # there are rows
        return total


@dataclass(frozen=True, eq=False)
class View:
    """Turns labels of many kinds into −1 and +1 and drops rows of other classes or without weight."""

    survey: Survey
    sign: Array  # −1 or +1 for each class, 0 for a class that is dropped
    factor: Array | None  # the weight of each class; None if all are one

    def __call__(self, chunk: Chunk) -> tuple[np.ndarray, Chunk]:
        """The indices in the data of the rows that are kept, and the rows themselves."""
        check_alike(chunk, self.survey.n_features, self.survey.names)
        codes, used = encode(chunk, self.survey.classes)
        y = self.sign[codes]
        weight = chunk.weight if self.factor is None else chunk.weight * self.factor[codes]
        used &= y != 0
        kept = slice(None) if used.all() else used  # nothing is copied if nothing is dropped
        rows = chunk.first + np.flatnonzero(used)
        return rows, chunk._replace(y=y, weight=weight).where(kept)


def _counted(view: View, share: Callable[[np.ndarray, Chunk], S], chunk: Chunk) -> tuple[int, S | None]:
    """The number of rows of a chunk, and the share, in pieces, of those that a view keeps, if any."""
    kept = (view(chunk.part(i, i + CHUNK)) for i in range(0, len(chunk.y), CHUNK))
    shares = (share(rows, part) for rows, part in kept if len(rows))
    return len(chunk.y), pairwise_sum(shares)


def _concatenated(*parts: S) -> S:
    """Arrays end to end, or tuples of them part by part."""
    concatenate: Callable[..., S] = np.concatenate
    return part_by_part(_concatenated, *parts) if isinstance(parts[0], tuple) else concatenate(parts)


class SourceRows(Rows):
    """Rows of two classes of a source; every pass checks that the source still has as many rows."""

    def __init__(self, source: Source, engine: Engine, view: View) -> None:
        self.n, self.engine = int(view.survey.used[view.sign != 0].sum()), engine
        self._source, self._view = source, view

    def total(self, share: Callable[[Chunk], S]) -> S:
        """Σ share(chunk) over one pass of the source, logged with the ``purpose`` of the share."""
        purpose = getattr(share, "purpose", type(share).__name__)
        return self._passed(lambda rows, chunk: share(chunk), purpose)

    def gather(self, of_chunk: Callable[[Chunk], tuple[*Ts]]) -> tuple[np.ndarray, *Ts]:
        """The rows' indices in the data, and the arrays that a function makes of each chunk, joined."""
        listed = self._passed(lambda rows, chunk: [(rows, *of_chunk(chunk))], "single rows")
        return _concatenated(*listed)

    def _passed(self, share: Callable[[np.ndarray, Chunk], S], purpose: str) -> S:
        """The sum of one pass, which is logged with its purpose."""
        began = time.perf_counter()
        work = partial(_counted, self._view, share)
        n, total = self.engine.total(self._source, work) or (0, None)
        if n != self._view.survey.n:
            again = "it can be read only once; pass a function that opens it anew."
            now, remedy = (f"{n:,}", "every pass must give the same rows.") if n else ("none", again)
            raise ValueError(
                f"the stream gave {self._view.survey.n:,} rows when it was first read and {now} now: "
                f"{remedy}"
            )
        assert total is not None
        seconds = time.perf_counter() - began
        logger.debug("pass over %s rows in %.2f s: %s", f"{self.n:,}", seconds, purpose)
        return total
