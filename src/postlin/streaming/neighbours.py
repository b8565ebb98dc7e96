"""The rows nearest to a query in a metric with a length scale for each feature.

Exact search returns the same neighbours for any block size, number of threads, kind of search and
partition of the rows: candidates that a fast method finds are ordered by distances that depend on the
two rows alone, and rows at equal distances take turns that depend on their numbers alone. Where
rounding in the fast method might hide a neighbour, more candidates are looked at.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import ClassVar, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin._validation import check_order
from postlin.linalg.arrays import HOST, Matrix, Place, namespace, on_host
from postlin.linalg.stacks import part_of
from postlin.linalg.threads import blas_threads, slices, threads, together, workers
from postlin.streaming.chunks import Chunk
from postlin.streaming.places import BLOCK, Integers, Places, turns
from postlin.streaming.searches import (
    BruteForce,
    InvertedLists,
    OnDevice,
    Points,
    Search,
    Tree,
    has_faiss,
)


@dataclass(frozen=True, eq=False)
class Found:
    """The numbers of the k nearest rows of each query, nearest first, and their distances.

    Where there are fewer than k rows, −1 and infinity fill the places of the others, and columns that
    no query needs are left out. Two results for parts of the rows add up to the result for both.
    """

    indices: Integers
    distances: Array
    k: int

    def __add__(self, other: "Found") -> "Found":
        if self.k != other.k:
            raise ValueError(f"results for {self.k} and for {other.k} neighbours cannot be merged.")
        indices = np.concatenate([self.indices, other.indices], axis=1)
        distances = np.concatenate([self.distances, other.distances], axis=1)
        order = np.lexsort((turns(indices), distances), axis=1)[:, : self.k]
        indices = np.take_along_axis(indices, order, axis=1)
        distances = np.take_along_axis(distances, order, axis=1)
        return Found(indices, distances, self.k).narrow()

    def narrow(self) -> "Found":
        """The result without the columns in which nothing was found."""
        width = int(np.isfinite(self.distances).any(axis=0).sum())
        return replace(self, indices=self.indices[:, :width], distances=self.distances[:, :width])


def merge(parts: list[Found]) -> Found:
    """The k nearest among the neighbours found in several parts of the rows."""
    return reduce(add, parts)


#: Up to so many features a KD-tree is faster than brute force: 80 of 200,000 normal points in 0.03 ms
#: for 4 features, 0.45 for 8 and 2.9 for 12, by brute force in 0.32 to 0.37 ms.
_FEW_FEATURES = 6
#: Up to so many rows brute force is fast enough: on Covertype with 90,000 rows it takes 0.4 ms of one
#: core for a query, faiss 0.03 ms and 2 s to build (benchmarks/neighbours.md).
_FEW_ROWS = 50_000
#: Candidates beside the neighbours that are asked for, and how their number grows if they do not do.
_SPARE, _GROWTH = 16, 8
#: Lists that faiss searches at first; twice as many until the recall among so many rows is this large.
_PROBES, _TUNED_ON, _TARGET = 8, 128, 0.99
#: A recall below this changes predictions.
_LOW = 0.95
#: Squares of larger distances overflow when they are added up.
_FARTHEST = 1e150
#: Queries whose time is measured for an advice.
_TIMED = 16
#: Rows from which the centre of each feature is computed.
_FOR_CENTRE = 10_000


class How(NamedTuple):
    """The settings of a search: exact or not, where, for how many neighbours, seed and threads."""

    exact: bool | None
    place: Place
    k: int
    seed: int
    n_jobs: int | None


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Rows that can be searched for the neighbours of others."""

    rows: np.ndarray
    first: int  # the number of the first row, if these are a part of others
    places: Places
    search: Search
    how: How
    there: Matrix | None  # a copy of the rows, as doubles, on the device where they are searched

    @classmethod
    def of(
        cls,
        rows: np.ndarray,
        lengths: Array,
        *,
        exact: bool | None = None,
        place: Place = HOST,
        first: int = 0,
        k: int = 64,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> "Neighbours":
        """Prepare the search among the rows (n, d), an array or a memory map.

        ``exact=None`` stands for exact search wherever that is fast: at a ``place`` other than the
        memory of NumPy, for few features or few rows, or if faiss is not installed (see ``advice``).
        Approximate search is tuned to k neighbours by a random sample that the seed draws. ``n_jobs``
        threads search; None stands for as many as BLAS uses.
        """
        if rows.ndim != 2 or not rows.size:
            raise ValueError(f"neighbours need an array (rows, features), got shape {rows.shape}.")
        check_order(k, "k")
        for part in slices(len(rows), BLOCK):
            _check_finite(rows[part], first + part.start)
        places, how = Places.of(rows, first), How(exact, place, k, seed, n_jobs)
        there = None if place.is_host or exact is False else place.put(rows)
        return cls._over(rows, first, places, lengths, how, there)

    def rescaled(self, lengths: Array) -> "Neighbours":
        """The same rows with other length scales, without the work that does not depend on these."""
        return self._over(self.rows, self.first, self.places, lengths, self.how, self.there)

    @classmethod
    def _over(
        cls,
        rows: np.ndarray,
        first: int,
        places: Places,
        lengths: Array,
        how: How,
        there: Matrix | None,
    ) -> "Neighbours":
        values = rows if places.distinct else rows[places.firsts]
        sample = np.asarray(values[:: len(values) // _FOR_CENTRE + 1], dtype=np.float64)
        points = Points(values, _checked_lengths(lengths, rows.shape[1]), np.median(sample, axis=0))
        if there is not None:
            copy = there if places.distinct else part_of(there, how.place.give(places.firsts))
            search = OnDevice.of(points, copy)
            if search.reaches_beyond(_FARTHEST):
                _check_near(rows, points, first)
            return cls(rows, first, places, search, how, there)
        for part in slices(len(rows), BLOCK):
            _check_near(rows[part], points, first + part.start)
        exact = how.exact
        if exact is None:
            exact = _is_fast(points) or not has_faiss()
        if exact:
            return cls(rows, first, places, _exactly(points), how, None)
        lists = InvertedLists.of(points, how.seed, _PROBES, how.n_jobs or threads())
        return cls(rows, first, places, lists, how, None)._tuned(lists)

    @property
    def exact(self) -> bool:
        """Whether exactly the nearest rows are found."""
        return self.search.exact

    def query(self, rows: np.ndarray, k: int, *, leave_out: Integers | None = None) -> Found:
        """The k nearest rows of each query, block by block.

        ``leave_out`` has for each query the number of a row that must not be found, such as its own;
        a number that is not among these rows, such as −1, leaves out nothing.
        """
        check_order(k, "k")
        if rows.ndim != 2 or rows.shape[1] != self.rows.shape[1]:
            raise ValueError(
                f"the queries must have {self.rows.shape[1]} features as the rows have, got shape "
                f"{rows.shape}."
            )
        if leave_out is not None and np.shape(leave_out) != (len(rows),):
            raise ValueError(
                f"leave_out must hold {len(rows)} numbers, got shape {np.shape(leave_out)}."
            )
        width = min(k, len(self.rows))
        indices = np.full((len(rows), width), -1)
        distances = np.full((len(rows), width), np.inf)

        def work(part: slice) -> None:
            queries = np.asarray(rows[part], dtype=np.float64)
            _check_finite(queries, part.start)
            _check_near(queries, self.search.points, part.start)
            own = None if leave_out is None else np.asarray(leave_out[part]) - self.first
            indices[part], distances[part] = self._block(queries, width, own, _SPARE)

        self._in_threads(work, slices(len(rows), self.search.block(width + 1 + _SPARE)))
        np.add(indices, self.first, out=indices, where=indices >= 0)
        return Found(indices, distances, k).narrow()

    def _in_threads(self, work: Callable[[slice], None], parts: list[slice]) -> None:
        """Work on the parts side by side, each in one thread."""
        with blas_threads(1):
            together(work, parts, workers(self.how.place, self.how.n_jobs))

    def _block(
        self, queries: Array, k: int, own: Integers | None, spare: int
    ) -> tuple[Integers, Array]:
        """The k nearest rows and their distances, from ``spare`` more candidates or further ones."""
        need = min(k + (own is not None), len(self.places))
        want = min(need + spare, len(self.places))
        found, farthest = self.search.candidates(queries, want)
        xp = namespace(found)
        order = xp.argsort(turns(found + self.first), axis=1)
        found = xp.take_along_axis(found, order, axis=1)
        squares = self.search.squared(queries, found)
        indices, distances = self.places.nearest(found, squares, k, own)
        if self.exact and want < len(self.places):
            farthest, last = on_host(xp.stack([farthest, _largest(squares, need)]))
            unsure = np.flatnonzero(farthest <= last + self._rounding(queries, last))
            for part in slices(len(unsure), self.search.block(want * _GROWTH)):
                again = unsure[part]
                left_out = None if own is None else own[again]
                indices[again], distances[again] = self._block(
                    queries[again], k, left_out, spare * _GROWTH
                )
        return indices, distances

    def _rounding(self, queries: Array, squares: Array) -> Array:
        """How far candidates' squared distances may be off, however they were computed.

        A product of matrices gets |q|² + |x|² − 2q·x to within a multiple of ε(|q|² + |x|²), and
        |x| ≤ |q| + |q − x|.
        """
        scaled = self.search.points.scaled(queries)
        norms = np.einsum("ij,ij->i", scaled, scaled)
        bounds: Array = 16 * (queries.shape[1] + 8) * np.finfo(float).eps * (norms + squares)
        return bounds

    def recall(self, sample: int = 200, k: int | None = None) -> float:
        """The share of the k nearest rows that are found, in a random sample of the rows."""
        rows = np.random.default_rng([self.how.seed, 1]).permutation(len(self.rows))[:sample]
        rows.sort()
        return self.share_found(self.rows[rows], k or self.how.k, rows + self.first)

    def share_found(
        self, queries: np.ndarray, k: int, leave_out: Integers, truth: Found | None = None
    ) -> float:
        """The share of the k rows nearest to each query that are found; ``truth`` holds those rows."""
        if self.exact:
            return 1.0
        truth = truth or self._exact().query(queries, k, leave_out=leave_out)
        found = self.query(queries, k, leave_out=leave_out)
        if not truth.distances.size:
            return 1.0
        return float(np.mean(found.distances <= truth.distances[:, -1:]))

    def _exact(self) -> "Neighbours":
        return replace(self, search=_exactly(self.search.points))

    def _tuned(self, lists: InvertedLists) -> "Neighbours":
        """The same with as many lists as a high recall needs."""
        some = np.sort(np.random.default_rng(self.how.seed).permutation(len(self.rows))[:_TUNED_ON])
        rows, numbers, k = self.rows[some], some + self.first, self.how.k
        truth = self._exact().query(rows, k, leave_out=numbers)
        tuned = replace(self, search=lists)
        while not lists.widest and tuned.share_found(rows, k, numbers, truth) < _TARGET:
            lists = lists.wider()
            tuned = replace(self, search=lists)
        return tuned

    @property
    def advice(self) -> str | None:
        """What to tell the user if exact search is slow because faiss is not installed."""
        points = self.search.points
        if self.how.exact is not None or not self.exact or not self.how.place.is_host:
            return None
        if _is_fast(points):
            return None
        began = time.perf_counter()
        self.query(self.rows[:_TIMED], self.how.k)
        minutes = (time.perf_counter() - began) / 60 * 10_000 / min(_TIMED, len(self.rows))
        return (
            f"the exact search for neighbours among {len(self.rows):,} rows takes about {minutes:.1f} "
            "minutes for 10,000 queries: pip install faiss-cpu for approximate search, "
            "which is many times faster."
        )


def _largest(squares: Matrix, k: int) -> Matrix:
    """The largest of the k smallest entries of each row."""
    if isinstance(squares, np.ndarray):
        return np.partition(squares, k - 1, axis=1)[:, k - 1]
    return namespace(squares).sort(squares, axis=1)[:, k - 1]


def low_recall(recall: float) -> str | None:
    """What to tell the user if approximate search misses many neighbours."""
    if recall >= _LOW:
        return None
    return (
        f"approximate search finds only {recall:.0%} of the nearest rows: standardise the features, "
        "remove outliers that are many length scales away, or search exactly."
    )


@dataclass(frozen=True, eq=False)
class Searching:
    """The share of a chunk of rows in an exact search, for the sum that an engine makes of a pass."""

    queries: Array
    lengths: Array
    k: int
    leave_out: Integers | None = None
    purpose: ClassVar[str] = "the search for neighbours"

    def __call__(self, chunk: Chunk) -> Found:
        """The neighbours among the rows of the chunk, by their numbers in the whole data."""
        part = Neighbours.of(chunk.X, self.lengths, exact=True, first=chunk.first, n_jobs=1)
        return part.query(self.queries, self.k, leave_out=self.leave_out)


def _exactly(points: Points) -> Search:
    """The faster exact search in NumPy's memory."""
    return Tree.of(points) if points.varying <= _FEW_FEATURES else BruteForce.of(points)


def _is_fast(points: Points) -> bool:
    return len(points) <= _FEW_ROWS or points.varying <= _FEW_FEATURES


def _checked_lengths(lengths: object, d: int) -> Array:
    values = np.asarray(lengths, dtype=np.float64)
    if values.shape not in ((), (d,)) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"length scales must be one or {d} positive numbers, got {lengths!r}.")
    return np.broadcast_to(values, (d,)).copy()


def _check_finite(rows: np.ndarray, first: int) -> None:
    for i, j in np.argwhere(~np.isfinite(rows))[:1]:
        kind = "NaN" if np.isnan(rows[i, j]) else "infinity"
        raise ValueError(
            f"row {first + i} holds {kind} (feature {j}) and has no neighbours: drop or impute such "
            "rows."
        )


def _check_near(rows: np.ndarray, points: Points, first: int) -> None:
    with np.errstate(over="ignore"):
        far = ~(np.abs(points.scaled(rows)) <= _FARTHEST)
    for i, j in np.argwhere(far)[:1]:
        raise ValueError(
            f"feature {j} of row {first + i} is {rows[i, j]:g}, more than {_FARTHEST:g} length scales "
            "away from the other rows, and distances overflow: standardise the features."
        )
