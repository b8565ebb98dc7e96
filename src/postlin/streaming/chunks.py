"""Chunks of labelled rows: their checks, which name row and chunk, and random samples of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import scipy.sparse
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _get_feature_names

from postlin._typing import Array
from postlin._validation import FARTHEST, HEAVIEST, first_beyond

T = TypeVar("T")

#: Rows in a chunk: enough for BLAS, and few enough for the memory of several threads.
CHUNK = 8192


class Kept:
    """What passes keep of the rows of a chunk: the latest value of each name, and what made it."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[object, Any]] = {}

    def get(self, name: str, of: object, make: Callable[[], T]) -> T:
        """The value of this name that is made of an object; it is kept until another object comes."""
        if self._values.get(name, (None,))[0] is not of:
            self._values.pop(name, None)  # before the next takes as much memory
            self._values[name] = of, make()
        value: T = self._values[name][1]
        return value


class Chunk(NamedTuple):
    """Consecutive rows with labels (for inference −1 and +1); rows and chunks count from zero."""

    X: Array
    y: np.ndarray
    weight: Array
    first: int  # the index of the first row
    number: int = 0
    names: tuple[str, ...] | None = None  # of the features
    further: tuple[tuple[int, int], ...] = ()  # first row and number of chunks joined to this one
    kept: Kept | None = None  # what passes keep of these rows

    def number_of(self, row: int) -> int:
        """The number of the chunk that holds ``row``, an index in the whole data."""
        return [self.number, *(number for first, number in self.further if first <= row)][-1]

    def part(self, first: int, last: int) -> "Chunk":
        """The rows from ``first`` up to ``last``, counted in this chunk."""
        return self.where(slice(first, last))._replace(first=self.first + first)

    def where(self, chosen: slice | np.ndarray) -> "Chunk":
        """The rows that a slice, a mask or an array of indices selects; ``first`` stays as it is."""
        X, y, weight = self.X[chosen], self.y[chosen], self.weight[chosen]
        return self._replace(X=X, y=y, weight=weight, kept=None)

    def moved(self, put: Callable[[np.ndarray], Any]) -> "Chunk":
        """The chunk with its arrays elsewhere."""
        return self._replace(X=put(self.X), y=put(self.y), weight=put(self.weight), kept=None)


def row_keys(first: int, n: int, seed: int) -> np.ndarray:
    """Distinct random numbers of 64 bits for n rows, whatever chunks they are in (SplitMix64)."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is meant
        start = np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        z = start + np.arange(first, first + n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys: np.ndarray = z ^ (z >> np.uint64(31))
    return keys


@dataclass(frozen=True, eq=False)
class Drawn:
    """The rows with the k smallest keys among those seen so far; two samples add up to one."""

    k: int
    keys: np.ndarray
    rows: Chunk

    def __add__(self, other: "Drawn") -> "Drawn":
        keys = np.concatenate([self.keys, other.keys])
        return Drawn(self.k, keys, joined([self.rows, other.rows])).least()

    def least(self) -> "Drawn":
        """The rows with the k smallest keys, in their order."""
        if len(self.keys) <= self.k:
            return self
        return self.where(np.sort(np.argpartition(self.keys, self.k - 1)[: self.k]))

    def where(self, chosen: np.ndarray) -> "Drawn":
        """The rows that a mask or an array of indices selects."""
        return Drawn(self.k, self.keys[chosen], self.rows.where(chosen))


@dataclass(frozen=True)
class Draw:
    """The share of a chunk in a random sample of k rows."""

    k: int
    seed: int
    purpose: ClassVar[str] = "a sample"

    def __call__(self, chunk: Chunk) -> Drawn:
        """The rows of the chunk that may be among the k with the smallest keys."""
        keys = row_keys(chunk.first, len(chunk.X), self.seed)
        return Drawn(self.k, keys, chunk).least()


def grouped(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield lists of neighbours with ``least`` rows or more together; the last list may have fewer."""
    held: list[T] = []
    rows = 0
    for item in items:
        held.append(item)
        rows += size(item)
        if rows >= least:
            yield held
            held, rows = [], 0
    if rows:
        yield held


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """One chunk of several that follow each other."""
    if len(chunks) == 1:
        return chunks[0]
    if len({chunk.y.dtype.kind in "US" for chunk in chunks if chunk.y.dtype.kind != "O"}) > 1:
        raise mixed_labels()  # or else numbers would become strings
    X, y, weight = (np.concatenate(arrays) for arrays in list(zip(*chunks, strict=True))[:3])
    further = tuple((chunk.first, chunk.number) for chunk in chunks[1:])
    return chunks[0]._replace(X=X, y=y, weight=weight, further=further)


def mixed_labels() -> TypeError:
    """The error for labels that cannot be sorted."""
    return TypeError("y holds labels of different types, which cannot be sorted: use one type.")


def checked(X: object, y: object, weight: object, first: int, number: int) -> Chunk:
    """A chunk of finite numbers with a label and a weight for every row; None means weight one."""
    names = _get_feature_names(X)
    names = None if names is None else tuple(map(str, names))
    numbers = _numbers(X, first, number)
    labels = _labels(y, len(numbers), first, number)
    weights = np.ones(len(numbers)) if weight is None else _weights(weight, len(numbers), first, number)
    return Chunk(numbers, labels, weights, first, number, names)


def _numbers(X: object, first: int, number: int) -> Array:
    if scipy.sparse.issparse(X):
        raise TypeError(f"chunk {number} of X is a sparse matrix: make it dense with toarray().")
    try:
        array = np.asarray(X)
        if array.dtype.kind not in "biufO":
            raise TypeError
        numbers: Array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"chunk {number} of X holds values that are not numbers: encode or drop such columns."
        ) from None
    if numbers.ndim != 2 or numbers.shape[1] == 0:
        raise ValueError(
            f"chunk {number} of X must be an array (rows, features), got shape {numbers.shape}."
        )
    beyond = first_beyond(numbers)
    if beyond is not None:
        value, (i, j) = numbers[beyond], beyond
        if np.isfinite(value):
            raise ValueError(
                f"row {first + i} of X has {value:g} in feature {j} (chunk {number}), and the squares "
                f"of numbers beyond {FARTHEST:g} overflow: rescale the feature or drop the row."
            )
        kind = "NaN" if np.isnan(value) else "infinity"
        raise ValueError(
            f"row {first + i} of X holds {kind} (chunk {number}, feature {j}): "
            "drop or impute such rows."
        )
    return numbers


def _labels(y: object, n: int, first: int, number: int) -> np.ndarray:
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    _check_one_a_row("label", labels, n, number)
    missing = np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(n, bool)
    if labels.dtype.kind == "O":
        missing[:] = [label is None or is_scalar_nan(label) or is_pandas_na(label) for label in labels]
    for i in np.flatnonzero(missing)[:1]:
        raise ValueError(
            f"row {first + i} has no label (chunk {number}): y holds NaN or None there; drop such rows."
        )
    if labels.dtype.kind == "f" and n:
        check_classification_targets(labels)
    return labels


def _weights(weight: object, n: int, first: int, number: int) -> Array:
    try:
        weights = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the weights of chunk {number} must be numbers.") from None
    _check_one_a_row("weight", weights, n, number)
    for i in np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[:1]:
        raise ValueError(
            f"weights must be finite and not negative, but that of row {first + i} is {weights[i]:g} "
            f"(chunk {number})."
        )
    for i in np.flatnonzero(weights > HEAVIEST)[:1]:
        raise ValueError(
            f"weights must be at most {HEAVIEST:g}, but that of row {first + i} is {weights[i]:g} "
            f"(chunk {number})."
        )
    return weights


def _check_one_a_row(what: str, values: np.ndarray, n: int, number: int) -> None:
    if values.shape != (n,):
        raise ValueError(
            f"chunk {number} has {n} rows of X and {what}s of shape {values.shape}: every row needs "
            f"one {what}."
        )
