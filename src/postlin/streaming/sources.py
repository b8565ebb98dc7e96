"""Where labelled rows come from: arrays, and streams that can be opened again."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from postlin.streaming.chunks import CHUNK, Block, check_finite, checked, joined


class Source(ABC):
    """Labelled rows that can be read any number of times, in the same order every time.

    ``classes`` are the labels that may occur, None for whatever the first pass finds.
    """

    classes: np.ndarray | None = None
    #: Whether Dask must do the passes, because it has the rows.
    is_on_dask: ClassVar[bool] = False

    @abstractmethod
    def loads(self) -> Iterable[Any]:
        """One pass: what gives a ``Block`` each, in order, when it is called."""

    def loads_anywhere(self) -> list[Any] | None:
        """The same, if they can be called in other processes without taking data there; else None."""
        return None


@dataclass(frozen=True, eq=False)
class ArrayLoad:
    """Some rows of arrays, converted when they are asked for."""

    X: Any
    y: Any
    weight: Any
    first: int
    number: int

    def __call__(self) -> Block:
        """The rows, checked."""
        return check_finite(checked(self.X, self.y, self.weight, self.first, self.number))


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """Rows of arrays in memory or mapped to it, of any numeric type; never copied as a whole."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None

    def loads(self) -> Iterator[ArrayLoad]:
        """Slices."""
        for number, first in enumerate(range(0, len(self.X), CHUNK)):
            rows = slice(first, first + CHUNK)
            weight = None if self.weight is None else self.weight[rows]
            yield ArrayLoad(self.X[rows], self.y[rows], weight, first, number)

    def loads_anywhere(self) -> list[ArrayLoad] | None:
        """Slices that name the file which X is mapped from; labels travel with them."""
        if not isinstance(self.X, np.memmap):
            return None
        return [replace(load, X=MappedSlice.of(load.X)) for load in self.loads()]


@dataclass(frozen=True)
class MappedSlice:
    """A piece of a memory-mapped file, by name; NumPy reads it where it is wanted."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, array: np.memmap[Any, Any]) -> "MappedSlice":
        """Of an array that is mapped from a file, or a slice of one."""
        root: Any = array
        while isinstance(root.base, np.memmap):
            root = root.base
        offset = root.offset + array.ctypes.data - root.ctypes.data
        return cls(str(root.filename), array.dtype.str, array.shape, array.strides, int(offset))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The rows, as NumPy asks for them."""
        content = np.memmap(self.path, dtype=np.uint8, mode="r")
        mapped: np.ndarray = np.ndarray(
            self.shape, self.dtype, content, offset=self.offset, strides=self.strides
        )
        return np.array(mapped, dtype=dtype)


#: Opens a stream: (X, y) or (X, y, weight) at a time.
OpenChunks = Callable[[], Iterable[Sequence[Any]]]


@dataclass(frozen=True, eq=False)
class StreamSource(Source):
    """Chunks from a function that opens them anew for every pass."""

    open_chunks: OpenChunks
    classes: np.ndarray | None = None

    def loads(self) -> Iterator[Callable[[], Block]]:
        """Read in turn, here; small chunks are put together."""
        held: list[Block] = []
        for block in self._blocks():
            held.append(block)
            if sum(len(b.y) for b in held) >= CHUNK // 2:
                yield partial(joined, held)
                held = []
        if held:
            yield partial(joined, held)

    def _blocks(self) -> Iterator[Block]:
        first, before = 0, None
        for number, chunk in enumerate(self._opened()):
            if not isinstance(chunk, tuple | list) or len(chunk) not in (2, 3):
                raise ValueError(
                    f"chunk {number} of the stream must be (X, y) or (X, y, weight), got "
                    f"{type(chunk).__name__}."
                )
            X, y, weight = (*chunk, None)[:3]
            block = check_finite(checked(X, y, weight, first, number))
            check_alike(block, before or block)
            before = block.part(0, 0)
            first += len(block.y)
            if len(block.y):
                yield block

    def _opened(self) -> Iterable[Any]:
        opened = self.open_chunks()
        if not isinstance(opened, Iterable):
            raise TypeError(
                f"the function that opens the stream must return an iterable of chunks, got "
                f"{type(opened).__name__}."
            )
        return opened


def check_width(block: Block, width: int) -> None:
    """Raise ``ValueError`` where a chunk has another number of features than the first."""
    if block.X.shape[1] != width:
        raise ValueError(
            f"chunk {block.number} of X has {block.X.shape[1]} features, and those before it have "
            f"{width}."
        )


def check_alike(block: Block, before: Block) -> None:
    """Raise ``ValueError`` where a chunk has other features than one before it."""
    check_width(block, before.X.shape[1])
    if block.names != before.names:
        raise ValueError(
            f"chunk {block.number} of X has other feature names than those before it: "
            f"{_shown(block.names)}, not {_shown(before.names)}."
        )


def _shown(names: tuple[str, ...] | None) -> str:
    return "none" if names is None else ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def stream(open_chunks: OpenChunks, *, classes: Any = None) -> Source:
    """Labelled rows that do not fit the memory, for ``GPClassifier(inducing=...).fit``.

    Parameters
    ----------
    open_chunks : callable
        Called without arguments at the begin of every pass; returns an iterable of chunks
        ``(X, y)`` or ``(X, y, weight)``, the same ones every time.
    classes : array-like or None
        The labels that may occur. None: those that the first pass finds.

    """
    if not callable(open_chunks):
        raise TypeError(
            "stream needs a function that opens the chunks anew for every pass, such as "
            f"lambda: read_chunks(path), and got {type(open_chunks).__name__}, which can be read only "
            "once."
        )
    return StreamSource(open_chunks, None if classes is None else np.unique(classes))
