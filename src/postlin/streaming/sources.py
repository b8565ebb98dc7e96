"""Where labelled rows come from: arrays, and streams that can be opened again."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from postlin.streaming.chunks import CHUNK, Block, checked, grouped, joined
from postlin.streaming.engines import Readable


class Source(Readable[Block]):
    """Labelled rows that can be read any number of times, in the same order every time.

    ``classes`` are the labels that may occur; None stands for those that the first pass finds.
    """

    classes: np.ndarray | None = None


def known_classes(classes: ArrayLike | None) -> np.ndarray | None:
    """The labels that a user allows, sorted; None if any may occur."""
    return None if classes is None else np.unique(np.asarray(classes))


@dataclass(frozen=True, eq=False)
class ArrayLoad:
    """Loads a slice of arrays: converts it to double precision and checks it."""

    X: "np.ndarray | MappedSlice"
    y: np.ndarray
    weight: np.ndarray | None
    first: int
    number: int

    def __call__(self) -> Block:
        """The rows, checked."""
        return checked(self.X, self.y, self.weight, self.first, self.number)


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """Rows of arrays of any numeric type, in memory or memory-mapped; never copied as a whole."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None

    def loads(self) -> Iterator[ArrayLoad]:
        """One pass over slices of the arrays."""
        for number, first in enumerate(range(0, len(self.X), CHUNK)):
            rows = slice(first, first + CHUNK)
            weight = None if self.weight is None else self.weight[rows]
            yield ArrayLoad(self.X[rows], self.y[rows], weight, first, number)

    def loads_anywhere(self) -> list[ArrayLoad] | None:
        """If X is memory-mapped, loads that name its file and carry their labels; else None."""
        if not isinstance(self.X, np.memmap):
            return None
        return [replace(load, X=MappedSlice.of(load.X)) for load in self.loads()]


@dataclass(frozen=True)
class MappedSlice:
    """A slice of a memory-mapped file, named by its path; ``np.asarray`` reads it."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, array: "np.ndarray | MappedSlice") -> "MappedSlice":
        """The name of a memory map, or of a slice of one."""
        assert isinstance(array, np.memmap)
        root = array
        while isinstance(root.base, np.memmap):
            root = root.base
        offset = root.offset + array.ctypes.data - root.ctypes.data
        return cls(str(root.filename), array.dtype.str, array.shape, array.strides, int(offset))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """A copy of the rows in the file."""
        content = np.memmap(self.path, dtype=np.uint8, mode="r")
        mapped: np.ndarray = np.ndarray(
            self.shape, self.dtype, content, offset=self.offset, strides=self.strides
        )
        return np.array(mapped, dtype=dtype)


#: Opens a stream: returns chunks (X, y) or (X, y, weight).
OpenChunks = Callable[[], Iterable[Sequence[object]]]


@dataclass(frozen=True, eq=False)
class StreamSource(Source):
    """Chunks from a function that opens them anew for every pass."""

    open_chunks: OpenChunks
    classes: np.ndarray | None = None

    def loads(self) -> Iterator[Callable[[], Block]]:
        """One pass over the stream, read in turn; small chunks are joined."""
        for blocks in grouped(self._blocks(), lambda block: len(block.y), CHUNK // 2):
            yield partial(joined, blocks)

    def _blocks(self) -> Iterator[Block]:
        first, before = 0, None
        for number, chunk in enumerate(self._opened()):
            if not isinstance(chunk, tuple | list) or len(chunk) not in (2, 3):
                raise ValueError(
                    f"chunk {number} of the stream must be (X, y) or (X, y, weight), got "
                    f"{type(chunk).__name__}."
                )
            X, y, weight = (*chunk, None)[:3]
            block = checked(X, y, weight, first, number)
            check_alike(block, before or block)
            before = block.part(0, 0)
            first += len(block.y)
            if len(block.y):
                yield block

    def _opened(self) -> Iterable[object]:
        opened = self.open_chunks()
        if not isinstance(opened, Iterable):
            raise TypeError(
                f"the function that opens the stream must return an iterable of chunks, got "
                f"{type(opened).__name__}."
            )
        return opened


def check_width(block: Block, width: int) -> None:
    """Raise ``ValueError`` if a chunk does not have ``width`` features as the chunks before it."""
    if block.X.shape[1] != width:
        raise ValueError(
            f"chunk {block.number} of X has {block.X.shape[1]} features, and those before it have "
            f"{width}."
        )


def check_alike(block: Block, before: Block) -> None:
    """Raise ``ValueError`` if two chunks differ in the number or in the names of their features."""
    check_width(block, before.X.shape[1])
    if block.names != before.names:
        raise ValueError(
            f"chunk {block.number} of X has other feature names than those before it: "
            f"{_shown(block.names)}, not {_shown(before.names)}."
        )


def _shown(names: tuple[str, ...] | None) -> str:
    return "none" if names is None else ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


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
    return StreamSource(open_chunks, known_classes(classes))
