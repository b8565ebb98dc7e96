"""Ways to find the points nearest to a query: a tree, brute force on the CPU or a device, faiss.

Each works on points that are centred and divided by the length scales, in its own arithmetic, and
returns more candidates than asked for. Distances are then computed in one way for all of them
(``Search.squared``), so that they depend on the two points alone.
"""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from sklearn.neighbors import KDTree, NearestNeighbors
from threadpoolctl import ThreadpoolController

from postlin._typing import Array, override
from postlin.linalg import arrays
from postlin.linalg.arrays import HOST, Matrix, Place
from postlin.linalg.stacks import part_of, shaped
from postlin.linalg.threads import slices
from postlin.streaming.places import BLOCK, Integers

#: Entries of the matrix of distances in another library's memory at a time, 512 MiB; on a device 4 GiB,
#: or this part of what is free, since several threads search and each holds two such matrices.
_ELSEWHERE, _ON_DEVICE, _SHARE = 2**26, 2**29, 1 / 32
#: Entries of the arrays of differences that the CPU holds at a time, 8 MiB.
_ON_HOST = 2**20


@dataclass(frozen=True, eq=False)
class Points:
    """Distinct points (p, d) as they are given, and the metric: |(x − x')/lengths|."""

    values: np.ndarray
    lengths: Array
    centre: Array  # of each feature; far from zero, rounding would blur small differences

    def scaled(self, values: np.ndarray) -> Array:
        """Points in the metric, as doubles."""
        return (np.asarray(values, dtype=np.float64) - self.centre) / self.lengths

    @property
    def varying(self) -> int:
        """The number of features that are not constant."""
        varies = np.zeros(self.values.shape[1], dtype=bool)
        for part in slices(len(self), BLOCK):
            varies |= (self.values[part] != self.values[0]).any(axis=0)
        return int(varies.sum())

    def __len__(self) -> int:
        return len(self.values)


class Search(ABC):
    """Finds candidates among points."""

    #: Whether nothing nearer than the last candidate is missed, up to rounding in double precision.
    exact: ClassVar[bool] = True
    points: Points

    @abstractmethod
    def candidates(self, queries: Array, k: int) -> tuple[Integers, Array]:
        """The numbers of k points near each query, and the square of the distance to the farthest.

        They are where the search takes place, and so are squared distances.
        """

    def squared(self, queries: Array, found: Integers) -> Array:
        """Squared distances to the points found, summed feature by feature."""
        values = np.take(self.points.values, found, axis=0)
        squares: Array = _squared(queries, values, self.points.lengths, HOST)
        return squares

    def block(self, k: int) -> int:
        """The number of queries to search for at a time."""
        return max(1, min(1024, _ON_HOST // (k * len(self.points.lengths))))


def _squared(queries: Array, values: Matrix, lengths: Array, place: Place) -> Matrix:
    """Σⱼ ((qⱼ − xⱼ)/ℓⱼ)², added in the order of the features: the same in any library and block."""
    total = place.zeros(*values.shape[:2])
    if place.is_host:  # feature by feature, in little memory
        for j, length in enumerate(lengths.tolist()):
            part = (values[:, :, j] - queries[:, j][:, None]) / length
            total += part * part
        return total
    parts = (values - place.put(queries)[:, None, :]) / place.put(lengths)
    parts *= parts
    for j in range(len(lengths)):
        total += parts[:, :, j]
    return total


@dataclass(frozen=True, eq=False)
class Tree(Search):
    """scikit-learn's KD-tree, the fastest for few features."""

    points: Points
    tree: KDTree

    @classmethod
    def of(cls, points: Points) -> "Tree":
        """The tree of all points."""
        return cls(points, KDTree(points.scaled(points.values)))

    @override
    def candidates(self, queries: Array, k: int) -> tuple[Integers, Array]:
        distances, found = self.tree.query(self.points.scaled(queries), k)
        return found, distances[:, -1] ** 2


@dataclass(frozen=True, eq=False)
class BruteForce(Search):
    """scikit-learn's brute force, by products of matrices and a heap for each query."""

    points: Points
    all: NearestNeighbors

    @classmethod
    def of(cls, points: Points) -> "BruteForce":
        """A copy of all points in the metric."""
        return cls(points, NearestNeighbors(algorithm="brute").fit(points.scaled(points.values)))

    @override
    def candidates(self, queries: Array, k: int) -> tuple[Integers, Array]:
        # blocks of queries run side by side in threads of ours
        with _openmp().limit(limits=1, user_api="openmp"):
            distances, found = self.all.kneighbors(self.points.scaled(queries), k)
        return found, distances[:, -1] ** 2


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass(frozen=True, eq=False)
class OnDevice(Search):
    """Brute force where matrices of another array library are stored, mainly on a GPU.

    |q − x|² − |q|² is the product of (−2 q, 1) and (x, |x|²).
    """

    points: Points
    place: Place
    values: Matrix  # of the points
    scaled: Matrix  # the points in the metric, centred, and their squared norms in a last column

    @classmethod
    def of(cls, points: Points, values: Matrix) -> "OnDevice":
        """The search among the points, of which ``values`` is a copy on the device."""
        place = arrays.place_of(values)
        at = _scaled(values, points, place)
        norms = place.xp.sum(at * at, axis=1)
        return cls(points, place, values, place.xp.concat([at, norms[:, None]], axis=1))

    def reaches_beyond(self, distance: float) -> bool:
        """Whether a feature of a point is farther from the centre than this many length scales."""
        near = self.place.xp.abs(self.scaled[:, :-1]) <= distance
        return not bool(self.place.xp.all(near))

    @override
    def candidates(self, queries: Array, k: int) -> tuple[Integers, Array]:
        xp, at = self.place.xp, _scaled(self.place.put(queries), self.points, self.place)
        ones = xp.ones_like(at[:, :1])
        found, farthest = arrays.smallest(xp.concat([-2.0 * at, ones], axis=1) @ self.scaled.T, k)
        return found, farthest + xp.sum(at * at, axis=1)

    @override
    def squared(self, queries: Array, found: Integers) -> Array:
        values = part_of(self.values, shaped(found, -1))
        values = shaped(values, *found.shape, self.values.shape[1])
        squares: Array = _squared(queries, values, self.points.lengths, self.place)
        return squares

    @override
    def block(self, k: int) -> int:
        entries: float = _ELSEWHERE
        if self.place.has_memory:
            entries = min(_ON_DEVICE, _SHARE * self.place.available_memory() / 8)
        return max(1, int(entries) // max(len(self.points), k * len(self.points.lengths)))


def _scaled(values: Matrix, points: Points, place: Place) -> Matrix:
    """``Points.scaled`` of an array in another place."""
    return (values - place.give(points.centre)) / place.give(points.lengths)


#: Of faiss: iterations of k-means, and points for each list in it.
_ITERATIONS, _POINTS_PER_LIST = 10, 64
#: Larger numbers, whose squares single precision cannot hold, are cut to this in the lists.
_LARGEST = 1e17


@dataclass(frozen=True, eq=False)
class InvertedLists(Search):
    """faiss' lists of points by the nearest of some hundred centres; ``probes`` lists are searched.

    k-means finds the centres from a random sample. Nothing depends on the number of threads.
    """

    points: Points
    index: Any
    scale: float  # by which points are divided, to have a size that suits single precision
    probes: int
    exact: ClassVar[bool] = False

    @classmethod
    def of(cls, points: Points, seed: int, probes: int, threads: int) -> "InvertedLists":
        """The lists of all points, about 2√p of them, made by so many threads."""
        n, d = points.values.shape
        lists = min(n, 2 ** round(np.log2(2 * np.sqrt(n))))
        some = np.random.default_rng(seed).permutation(n)[: _POINTS_PER_LIST * lists]
        sample = points.scaled(points.values[np.sort(some)])
        scale = float(np.median(np.abs(sample), axis=0).max()) or float(np.abs(sample).mean()) or 1.0
        library = faiss()
        index = library.IndexIVFFlat(library.IndexFlatL2(d), d, lists)
        index.cp.seed, index.cp.niter = seed % 2**31, _ITERATIONS
        index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, _POINTS_PER_LIST
        self = cls(points, index, scale, min(probes, lists))
        with _faiss_threads(threads):
            index.train(self._single(sample))
            for part in slices(n, BLOCK):
                index.add(self._single(points.scaled(points.values[part])))
        return self

    def _single(self, scaled: Array) -> np.ndarray:
        cut: np.ndarray = np.clip(scaled / self.scale, -_LARGEST, _LARGEST).astype(np.float32)
        return cut

    def wider(self) -> "InvertedLists":
        """The same lists, of which twice as many are searched."""
        return replace(self, probes=min(2 * self.probes, self.index.nlist))

    @property
    def widest(self) -> bool:
        """Whether all lists are searched."""
        return bool(self.probes == self.index.nlist)

    @override
    def candidates(self, queries: Array, k: int) -> tuple[Integers, Array]:
        at = self._single(self.points.scaled(queries))
        with _faiss_threads(1):  # blocks of queries run side by side in threads of ours
            settings = faiss().SearchParametersIVF(nprobe=self.probes)
            squares, found = self.index.search(at, k, params=settings)
        farthest = squares[:, -1].astype(np.float64) * self.scale**2
        short = found[:, -1] < 0  # the lists hold fewer than k points
        if short.any():
            found[short], farthest[short] = self.wider().candidates(queries[short], k)
        return found, farthest


@contextmanager
def _faiss_threads(n: int) -> Iterator[None]:
    """A context in which faiss uses n threads when it is called from this one."""
    before = faiss().omp_get_max_threads()
    faiss().omp_set_num_threads(n)
    try:
        yield
    finally:
        faiss().omp_set_num_threads(before)


@cache
def faiss() -> ModuleType:
    """The library for approximate search."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise ImportError(
            "approximate search for neighbours needs faiss, which is not installed: "
            "pip install faiss-cpu, or search exactly."
        ) from None


def has_faiss() -> bool:
    """Whether approximate search is installed."""
    return importlib.util.find_spec("faiss") is not None
