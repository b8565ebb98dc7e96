"""Two classes of a source's many, as rows that inference can read."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from postlin._typing import Array
from postlin.streaming.chunks import CHUNK, Block, Chunk, Rows
from postlin.streaming.engines import Engine, pairwise_sum
from postlin.streaming.sources import Source, check_width
from postlin.streaming.survey import Survey, encode

S = TypeVar("S")

logger = logging.getLogger("postlin")

#: What shares are for, in the words of the log.
_PURPOSES = {
    "Sweep": "sites",
    "Cautious": "sites, in small steps",
    "EvidencePass": "evidence",
    "AdjointPass": "adjoint",
    "GradientPass": "gradient",
    "Draw": "a sample",
    "OfChunk": "single rows",
}


@dataclass(frozen=True, eq=False)
class View:
    """How labels of many kinds become −1 and +1; rows of other classes and of no weight are dropped."""

    survey: Survey
    sign: Array  # of each class: −1, +1, or 0 for those that have no part
    factor: Array | None  # the weight of each class

    @property
    def n(self) -> int:
        """How many rows have a part."""
        return int(self.survey.used[self.sign != 0].sum())

    def __call__(self, block: Block) -> tuple[np.ndarray, Chunk]:
        """The rows that have a part, with their indices in the data."""
        check_width(block, self.survey.n_features)
        codes, used = encode(block, self.survey.classes)
        y, weight = self.sign[codes], self._weight(block, codes)
        used &= y != 0
        kept: Any = slice(None) if used.all() else used  # nothing is copied where nothing is dropped
        chunk = Chunk(block.X[kept], y[kept], None if weight is None else weight[kept], block.first)
        return block.first + np.flatnonzero(used), chunk

    def _weight(self, block: Block, codes: np.ndarray) -> Array | None:
        """None in all chunks where all rows have weight one."""
        if not self.survey.weighted and self.factor is None:
            return None
        weight = np.ones(len(codes)) if block.weight is None else block.weight
        return weight if self.factor is None else weight * self.factor[codes]


class Counted(NamedTuple):
    """What some rows contribute, and how many they were."""

    n: int
    share: Any


def _in_pieces(block: Block, share: Callable[[Block], Any]) -> Counted:
    pieces = (block.part(i, i + CHUNK) for i in range(0, len(block.y), CHUNK))
    return Counted(len(block.y), pairwise_sum(map(share, pieces)))


@dataclass(frozen=True, eq=False)
class Work:
    """A share of rows as the source has them."""

    view: View
    share: Callable[[Chunk], Any]

    def __call__(self, block: Block) -> Counted:
        """In pieces, where a chunk is very large."""
        return _in_pieces(block, self._piece)

    def _piece(self, block: Block) -> Any:
        _, chunk = self.view(block)
        return self.share(chunk) if len(chunk.y) else None


@dataclass(frozen=True, eq=False)
class Gathered:
    """Arrays with an entry for each of some rows; those of the rows that follow are appended."""

    parts: Any  # of any depth

    def __add__(self, other: "Gathered") -> "Gathered":
        return Gathered(_joined(self.parts, other.parts))


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        parts = [_joined(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return np.concatenate([one, other])


@dataclass(frozen=True, eq=False)
class Gather:
    """A share: what a function makes of a chunk, row by row, with the rows' indices."""

    view: View
    of_chunk: Callable[[Chunk], tuple[Any, ...]]

    def __call__(self, block: Block) -> Counted:
        """In pieces, where a chunk is very large."""
        return _in_pieces(block, self._piece)

    def _piece(self, block: Block) -> Gathered | None:
        rows, chunk = self.view(block)
        return Gathered((rows, *self.of_chunk(chunk))) if len(rows) else None


class SourceRows(Rows):
    """Rows of two classes of a source; every pass checks that the source is what it was."""

    def __init__(self, source: Source, engine: Engine, view: View) -> None:
        self.n = view.n
        self.n_features = view.survey.n_features
        self._source = source
        self.engine = engine
        self._view = view

    def total(self, share: Callable[[Chunk], S]) -> S:
        """One pass over the source."""
        total: S = self._passed(Work(self._view, share), share)
        return total

    def gather(self, of_chunk: Callable[[Chunk], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The rows' indices in the data, and what a function makes of each of them."""
        gathered: Gathered = self._passed(Gather(self._view, of_chunk), of_chunk)
        parts: tuple[Any, ...] = gathered.parts
        return parts

    def _passed(self, work: Callable[[Any], Counted], share: object) -> Any:
        began = time.perf_counter()
        counted = self.engine.total(self._source, work)
        expected = self._view.survey.n
        if counted is None:
            raise ValueError(
                f"the stream gave {expected:,} rows when it was first read and none now: it can be "
                "read only once; pass a function that opens it anew."
            )
        if counted.n != expected:
            raise ValueError(
                f"the stream gave {expected:,} rows when it was first read and {counted.n:,} now: "
                "every pass must give the same rows."
            )
        seconds = time.perf_counter() - began
        name = type(share).__name__
        purpose = _PURPOSES.get(name, name)
        logger.debug("pass over %s rows in %.2f s: %s", f"{self.n:,}", seconds, purpose)
        return counted.share
