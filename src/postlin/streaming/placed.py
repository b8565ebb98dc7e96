"""Rows on a device: kept there from the first pass on where they fit, else moved chunk by chunk."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from postlin._typing import Array, override
from postlin.linalg.arrays import Place
from postlin.linalg.functions import functions
from postlin.streaming.chunks import CHUNK, Chunk, Kept, grouped
from postlin.streaming.engines import pairwise_sum
from postlin.streaming.views import ArrayRows, Rows

S = TypeVar("S")

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
