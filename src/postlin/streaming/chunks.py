"""A chunk as it comes from a source, checked: whatever is wrong with it is said with row and chunk."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _get_feature_names

from postlin._typing import Array
from postlin.streaming.engines import Draw, Engine, Threads

S = TypeVar("S")

#: Rows worked on at a time: enough for BLAS, and few enough for several threads' memory.
CHUNK = 8192


class Chunk(NamedTuple):
    """Consecutive rows with labels −1 and +1; ``first`` is the index of the first of them."""

    X: Array
    y: Array
    weight: Array | None
    first: int


class Rows(ABC):
    """Rows of two classes."""

    n: int
    n_features: int
    engine: Engine

    @abstractmethod
    def total(self, share: Callable[[Chunk], S]) -> S:
        """Σ over chunks of what each contributes: tuples of arrays and numbers, added part by part."""

    def sample(self, n: int, seed: int) -> "ArrayRows":
        """At most so many rows, drawn at random without replacement and in their order."""
        drawn = self.total(Draw(n, seed))
        return ArrayRows(drawn.X, drawn.y, drawn.weight, engine=self.engine.here())


class ArrayRows(Rows):
    """Rows in memory, labels −1 and +1."""

    def __init__(
        self,
        X: Array,
        y: Array,
        weight: Array | None = None,
        chunk: int = CHUNK,
        engine: Engine | None = None,
    ) -> None:
        self.n, self.n_features = X.shape
        self.X, self.y, self.weight, self.chunk = X, y, weight, chunk
        self.engine = engine or Threads(1)

    def loads(self) -> Iterator[Callable[[], Chunk]]:
        """Slices."""
        for first in range(0, self.n, self.chunk):
            yield partial(self._slice, first)

    def _slice(self, first: int) -> Chunk:
        rows = slice(first, first + self.chunk)
        weight = None if self.weight is None else self.weight[rows]
        return Chunk(self.X[rows], self.y[rows], weight, first)

    def total(self, share: Callable[[Chunk], S]) -> S:
        """One pass."""
        total = self.engine.total(self, share)
        assert total is not None
        return total


class Block(NamedTuple):
    """Consecutive rows with their labels, of any kind; chunks and rows are counted from zero."""

    X: Array
    y: np.ndarray
    weight: Array | None
    first: int
    number: int
    names: tuple[str, ...] | None = None
    further: tuple[tuple[int, int], ...] = ()  # first row and number of chunks joined to this one

    def number_of(self, row: int) -> int:
        """The chunk that a row of the data is in."""
        return [self.number, *(number for first, number in self.further if first <= row)][-1]

    def part(self, first: int, last: int) -> "Block":
        """Some of its rows."""
        rows = slice(first, last)
        weight = None if self.weight is None else self.weight[rows]
        return self._replace(X=self.X[rows], y=self.y[rows], weight=weight, first=self.first + first)


def checked(X: Any, y: Any, weight: Any, first: int, number: int) -> Block:
    """Rows of finite numbers with a label each, and weights that are not negative."""
    names = _get_feature_names(X)
    numbers = _numbers(X, number)
    labels = _labels(y, len(numbers), first, number)
    if weight is not None:
        weight = _weights(weight, len(numbers), first, number)
    return Block(
        numbers, labels, weight, first, number, None if names is None else tuple(map(str, names))
    )


def joined(blocks: list[Block]) -> Block:
    """Several that follow each other as one."""
    if len(blocks) == 1:
        return blocks[0]
    if len({block.y.dtype.kind in "US" for block in blocks if block.y.dtype.kind != "O"}) > 1:
        raise TypeError(  # or numbers would become strings
            "y holds labels of different types, which have no order: use one."
        )
    weight = None
    if any(block.weight is not None for block in blocks):
        weight = np.concatenate([np.ones(len(b.y)) if b.weight is None else b.weight for b in blocks])
    return blocks[0]._replace(
        X=np.concatenate([block.X for block in blocks]),
        y=np.concatenate([block.y for block in blocks]),
        weight=weight,
        further=tuple((block.first, block.number) for block in blocks[1:]),
    )


def _numbers(X: Any, number: int) -> Array:
    if scipy.sparse.issparse(X):
        raise TypeError(
            f"chunk {number} of X is a sparse matrix, and a dense one is needed: use toarray()."
        )
    try:
        array = np.asarray(X)
        if array.dtype.kind not in "biufO":
            raise TypeError
        numbers = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"chunk {number} of X holds values that are no numbers: encode or drop such columns."
        ) from None
    if numbers.ndim != 2 or numbers.shape[1] == 0:
        raise ValueError(
            f"chunk {number} of X must be an array (rows, features), got shape {numbers.shape}."
        )
    return numbers


def check_finite(block: Block) -> Block:
    """The block, if no number in it is NaN or infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        fine = np.isfinite(block.X.sum())  # one sweep without a copy; only its failures are looked at
    if fine:
        return block
    for i, j in np.argwhere(~np.isfinite(block.X))[:1]:
        kind = "NaN" if np.isnan(block.X[i, j]) else "infinity"
        raise ValueError(
            f"row {block.first + i} of X holds {kind} (chunk {block.number}, feature {j}): "
            "drop or impute such rows."
        )
    return block


def _labels(y: Any, n: int, first: int, number: int) -> np.ndarray:
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n,):
        raise ValueError(
            f"chunk {number} has {n} rows of X and labels of shape {labels.shape}: one label for "
            "every row is needed."
        )
    missing = np.flatnonzero(_missing(labels))
    if len(missing):
        raise ValueError(
            f"row {first + missing[0]} has no label (chunk {number}): y holds NaN or None there; "
            "drop such rows."
        )
    if labels.dtype.kind == "f" and n:
        check_classification_targets(labels)
    return labels


def _missing(labels: np.ndarray) -> Any:
    if labels.dtype.kind == "O":
        return [label is None or is_scalar_nan(label) or is_pandas_na(label) for label in labels]
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), bool)


def _weights(weight: Any, n: int, first: int, number: int) -> Array:
    try:
        weights = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the weights of chunk {number} must be numbers.") from None
    if weights.shape != (n,):
        raise ValueError(
            f"chunk {number} has {n} rows and weights of shape {weights.shape}: one for every row "
            "is needed."
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise ValueError(
            f"weights must be finite and not negative, but that of row {first + bad[0]} is "
            f"{weights[bad[0]]:g} (chunk {number})."
        )
    return weights
