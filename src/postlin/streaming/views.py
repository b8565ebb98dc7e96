"""Rows of two classes, as inference reads them: in memory, on a device, or a view of a source."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, TypeVarTuple

import numpy as np

from postlin._typing import Array, override
from postlin.linalg.arrays import Place
from postlin.linalg.functions import functions
from postlin.streaming.chunks import CHUNK, Chunk, Draw, Kept, grouped
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


#: The parts of a device's free memory for rows, for what passes keep of them, and for a matrix with a
#: number for each row of a chunk and inducing point, of which the gradient needs about ten.
_FOR_ROWS, _FOR_KEPT, _FOR_CHUNK = 0.25, 0.5, 1 / 64
#: The memory that counts as free where a device has none of its own, 1 GiB.
_FREE = 2.0**30
#: The most rows of a chunk on a device with its own memory: large chunks wait less for the processor.
_ROWS = 2**17


class PlacedRows(Rows):
    """Rows whose passes are computed on a device, with the inducing points Z."""

    def __init__(self, rows: Rows, place: Place, Z: Array) -> None:
        self.n, self.engine, self.times = rows.n, rows.engine, rows.times
        self.rows, self.place = rows, place
        self.m, self.width = Z.shape
        self._chunks: list[Chunk] | None = None

    @classmethod
    def of(cls, rows: Rows, place: Place, Z: Array) -> "PlacedRows":
        """The rows on a device; rows that are there already stay as they are."""
        return rows if isinstance(rows, PlacedRows) else cls(rows, place, Z)

    @override
    def total(self, share: Callable[[Chunk], S]) -> S:
        if self._chunks is None:
            self._chunks = self._load()
        if not self._chunks:
            return self.rows.total(share)  # which moves each chunk by itself
        total = pairwise_sum(share(chunk) for chunk in self._chunks)
        assert total is not None  # there are rows
        return total

    @override
    def sample(self, n: int, seed: int) -> ArrayRows:
        return self.rows.sample(n, seed)

    def forget(self) -> None:
        """Free the device's memory; the next pass reads the rows again."""
        self._chunks = None

    def _load(self) -> list[Chunk]:
        """All rows in large chunks on the device; an empty list where they do not fit."""
        free = self.place.available_memory() if self.place.has_memory else _FREE
        if 8.0 * self.n * (self.width + 2) > _FOR_ROWS * free:
            return []
        parts: list[Chunk] = self.rows.total(lambda chunk: [chunk.moved(self.place.put)])
        fitting = int(_FOR_CHUNK * free / (8.0 * self.m))
        most = max(CHUNK, min(_ROWS, fitting)) if self.place.has_memory else CHUNK
        chunks, room = [], _FOR_KEPT * free
        for group in grouped(parts, lambda chunk: len(chunk.y), most):
            room -= 8.0 * self.m * sum(len(chunk.y) for chunk in group)
            chunks.append(_joined(group)._replace(kept=Kept() if room > 0 else None))
        return chunks


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """One chunk of several on a device."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    concat = functions(first.X).concat
    arrays = ([getattr(chunk, name) for chunk in chunks] for name in ("X", "y", "weight"))
    X, y, weight = map(concat, arrays)
    return first._replace(X=X, y=y, weight=weight)
