"""Where labelled rows come from: arrays, and streams that can be opened again."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from postlin.streaming.chunks import CHUNK, Chunk, checked, grouped, joined


class Source(ABC):
    """Labelled rows that can be read any number of times, in the same order every time.

    ``classes`` are the labels that may occur, sorted; None stands for those that the first pass finds.
    """

    classes: np.ndarray | None = None
    #: Whether Dask must do the passes, because it has the rows.
    is_on_dask: ClassVar[bool] = False

    @abstractmethod
    def loads(self) -> Iterable[Callable[[], Chunk]]:
        """One pass: functions that return the chunks, in order."""

    def loads_anywhere(self) -> Sequence[object] | None:
        """The loads of a pass (functions or Dask tasks) if other processes can run them; else None."""
        return None


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """Rows of arrays of any numeric type, in memory or memory-mapped; never copied as a whole."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None

    def loads(self) -> Iterator[Callable[[], Chunk]]:
        """One pass: functions that convert and check slices of the arrays."""
        return self._loads(lambda X: X)

    def loads_anywhere(self) -> list[Callable[[], Chunk]] | None:
        """If X is memory-mapped, loads that name its file and carry their labels; else None."""
        return list(self._loads(MappedSlice.of)) if isinstance(self.X, np.memmap) else None

    def _loads(self, sent: Callable[[np.ndarray], object]) -> Iterator[Callable[[], Chunk]]:
        for number, first in enumerate(range(0, len(self.X), CHUNK)):
            rows = slice(first, first + CHUNK)
            weight = None if self.weight is None else self.weight[rows]
            yield partial(checked, sent(self.X[rows]), self.y[rows], weight, first, number)


@dataclass(frozen=True)
class MappedSlice:
    """A slice of a memory-mapped file, named by its path; ``np.asarray`` reads it."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, array: np.ndarray) -> "MappedSlice":
        """The name of a memory map, or of a slice of one."""
        assert isinstance(array, np.memmap)
        root = array
        while isinstance(root.base, np.memmap):
            root = root.base
        offset = root.offset + array.ctypes.data - root.ctypes.data
        return cls(str(root.filename), array.dtype.str, array.shape, array.strides, int(offset))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """A copy of the rows in the file."""
        return np.array(self.mapped(), dtype=dtype)

    def mapped(self) -> np.ndarray:
        """The memory map, opened again."""
        content = np.memmap(self.path, dtype=np.uint8, mode="r")
        return np.ndarray(self.shape, self.dtype, content, self.offset, self.strides)


#: Opens a stream: returns chunks (X, y) or (X, y, weight).
OpenChunks = Callable[[], Iterable[Sequence[object]]]


@dataclass(frozen=True, eq=False)
class StreamSource(Source):
    """Chunks from a function that opens them anew for every pass."""

    open_chunks: OpenChunks
    classes: np.ndarray | None = None

    def loads(self) -> Iterator[Callable[[], Chunk]]:
        """One pass over the stream, read in turn; small chunks are joined."""
        for chunks in grouped(self._chunks(), lambda chunk: len(chunk.y), CHUNK // 2):
            yield partial(joined, chunks)

    def _chunks(self) -> Iterator[Chunk]:
        opened: object = self.open_chunks()
        if not isinstance(opened, Iterable):
            raise TypeError(
                f"the function that opens the stream must return an iterable of chunks, got "
                f"{type(opened).__name__}."
            )
        first, before = 0, None
        for number, parts in enumerate(opened):
            if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
                raise ValueError(
                    f"chunk {number} of the stream must be (X, y) or (X, y, weight), got "
                    f"{type(parts).__name__}."
                )
            X, y, weight = (*parts, None)[:3]
            chunk = checked(X, y, weight, first, number)
            before = before or (chunk.X.shape[1], chunk.names)
            check_alike(chunk, *before)
            first += len(chunk.y)
            if len(chunk.y):
                yield chunk


def check_alike(chunk: Chunk, width: int, names: tuple[str, ...] | None) -> None:
    """Raise ``ValueError`` if a chunk has another number or other names of features than given."""
    if chunk.X.shape[1] != width:
        raise ValueError(
            f"chunk {chunk.number} of X has {chunk.X.shape[1]} features, and those before it have "
            f"{width}."
        )
    if chunk.names != names:
        found, before = (
            "none" if each is None else ", ".join(each[:5]) + (", …" if len(each) > 5 else "")
            for each in (chunk.names, names)
        )
        raise ValueError(
            f"chunk {chunk.number} of X has other feature names than those before it: {found}, not "
            f"{before}."
        )


def stream(open_chunks: OpenChunks, *, classes: ArrayLike | None = None) -> Source:
    """Labelled rows that do not fit into memory, for ``GPClassifier(inducing=...).fit``.

    Parameters
    ----------
    open_chunks : callable
        A function without arguments that is called at the start of every pass and returns an iterable
        of chunks ``(X, y)`` or ``(X, y, weight)``, the same chunks every time.
    classes : array-like or None
        The labels that may occur; None for those that the first pass finds.

    """
    if not callable(open_chunks):
        raise TypeError(
            "stream needs a function that opens the chunks anew for every pass, such as "
            f"lambda: read_chunks(path), and got {type(open_chunks).__name__}, which can be read only "
            "once."
        )
    return StreamSource(open_chunks, None if classes is None else np.unique(classes))
