"""What a kernel bound to data is: blocks of a covariance matrix, and their pull-backs.

A ``Term`` keeps what depends on the data alone, so that distances are computed once a fit. Matrices
are made and contracted block by block, the lower triangle only: beside K itself, and distances
where a kernel is isotropic, nothing of its size is held unless n is small. They are made where the
``Points`` say.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin._validation import check_covariance
from postlin.linalg.arrays import HOST, Matrix, Place, squared_distances
from postlin.linalg.threads import FEW_ROWS
from postlin.linalg.tiles import mirror, wide_panels
from postlin.linalg.triangles import diagonal_of, lower_panels, mirror_panels

#: Contracts a block of K̄ to the kernel's free log-parameters.
PullBack = Callable[[Matrix], list[float]]


class Gram(NamedTuple):
    """A covariance matrix (or a number that stands for a constant one) and its pull-back."""

    K: Matrix
    pull_back: PullBack


#: Rows and columns of a covariance matrix, which begin at the same index, to that block of it.
Blocks = Callable[[slice, slice], Gram]


class Points:
    """The training data, what several kernels want to know about them, and where it is kept."""

    def __init__(self, X: Any, place: Place | None = None) -> None:
        self.X = X
        self.n = len(X)
        self.place = place or HOST

    @cached_property
    def left(self) -> Matrix:
        """The rows less their mean, of which come the rows of a block."""
        X = np.asarray(self.X, float)
        return self.place.put(X - X.mean(axis=0))

    @property
    def right(self) -> Matrix:
        """Those of which come its columns."""
        return self.left

    @cached_property
    def raw(self) -> tuple[Matrix, Matrix]:
        """Both as they are."""
        X = self.place.put(np.atleast_2d(np.asarray(self.X, float)))
        return X, X

    def panels(self) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of the blocks in which matrices are made here: the lower triangle."""
        n = self.n
        return lower_panels(n) if self.place.is_host else wide_panels(n)

    @cached_property
    def squared_distances(self) -> Matrix:
        """Between all rows: the lower triangle."""
        if self.place.is_host:
            squared: Matrix = np.empty((self.n, self.n), order="F")
        else:
            squared = self.place.zeros(self.n, self.n)
        for rows, columns in self.panels():
            squared[rows, columns] = squared_distances(self.left[rows, :], self.right[columns, :])
        return squared

    def identity(self, rows: slice, columns: slice) -> Matrix:
        """A block of the identity, which has the diagonal in its upper part; in LAPACK's order."""
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if self.place.is_host:
            one = np.zeros((height, width), order="F")
            diagonal_of(one[:width])[:] = 1.0
            return one
        xp = self.place.xp
        return xp.eye(height, width, dtype=xp.float64, device=self.place.device)


class Across(Points):
    """Training data, and new rows that come as columns."""

    def __init__(self, X: Any, new: Any, place: Place) -> None:
        super().__init__(X, place)
        self.new = new

    @cached_property
    def right(self) -> Matrix:
        """The new rows, less the mean of the training data."""
        return self.place.put(np.asarray(self.new, float) - np.asarray(self.X, float).mean(axis=0))

    @cached_property
    def raw(self) -> tuple[Matrix, Matrix]:
        """Both as they are."""
        return self.place.put(self.X), self.place.put(self.new)

    @cached_property
    def squared_distances(self) -> Matrix:
        """Between training data and new rows."""
        return squared_distances(self.left, self.right)

    def identity(self, rows: slice, columns: slice) -> Matrix:
        """Nothing: a new row is no training row."""
        return self.place.zeros(rows.stop - rows.start, columns.stop - columns.start)


class Term(ABC):
    """A kernel bound to training data."""

    def __init__(self, kernel: Kernel, points: Points) -> None:
        self.points = points
        self.free = [not parameter.fixed for parameter in kernel.hyperparameters]

    @classmethod
    def suits(cls, kernel: Kernel) -> bool:
        """Whether the kernel, which is of the type registered, can be treated here."""
        return True

    @classmethod
    def needs_distances(cls, kernel: Kernel) -> bool:
        """Whether distances between all points are kept for it."""
        return False

    @classmethod
    def is_covariance(cls, kernel: Kernel) -> bool:
        """Whether it is known to be one on all data, so that nobody need look."""
        return False

    @abstractmethod
    def blocks(self, kernel: Kernel) -> Blocks:
        """Blocks of K at the parameters of ``kernel``, which has the structure of this term's."""

    def gram(self, kernel: Kernel) -> Gram:
        """K at the parameters of ``kernel``, symmetric and whole."""
        blocks, points = self.blocks(kernel), self.points
        if points.n <= FEW_ROWS:
            blocks = _made_once(blocks)
        return Gram(_assemble(blocks, points), lambda K_bar: _contract(blocks, points, K_bar))


def _made_once(blocks: Blocks) -> Blocks:
    """The same blocks, kept for the pull-back, which then need not evaluate anything again."""
    made: dict[int, Gram] = {}

    def block(rows: slice, columns: slice) -> Gram:
        if columns.start not in made:
            made[columns.start] = blocks(rows, columns)
        return made[columns.start]

    return block


def _assemble(blocks: Blocks, points: Points) -> Matrix:
    n, place = points.n, points.place
    K: Matrix = np.empty((n, n), order="F") if place.is_host else place.zeros(n, n)
    for rows, columns in points.panels():
        block = blocks(rows, columns).K
        if np.ndim(block) == 0:
            return block
        K[rows, columns] = block
    return mirror_panels(K).T if place.is_host else mirror(K)


def _contract(blocks: Blocks, points: Points, K_bar: Matrix) -> list[float]:
    """K̄ is symmetric: what stands below the corners on the diagonal counts twice."""
    total: Any = 0.0
    for rows, columns in points.panels():
        part = 2.0 * K_bar[rows, columns]
        part[: columns.stop - columns.start, :] *= 0.5
        total = total + np.array(blocks(rows, columns).pull_back(part))
    return [float(t) for t in total]


class _Fallback(Term):
    """Any other kernel, whole, and by its own gradient."""

    def gram(self, kernel: Kernel) -> Gram:
        def pull_back(K_bar: Array) -> list[float]:
            return [float(g) for g in np.einsum("ij,ijp->p", K_bar, self._gradient(kernel))]

        return Gram(np.array(kernel(self.points.X)), pull_back)  # which is ours to change

    def _gradient(self, kernel: Kernel) -> Array:
        gradient: Array = kernel(self.points.X, eval_gradient=True)[1]
        return gradient

    def blocks(self, kernel: Kernel) -> Blocks:
        K = kernel(self.points.X)
        gradient = cache(lambda: self._gradient(kernel))

        def block(rows: slice, columns: slice) -> Gram:
            def pull_back(K_bar: Array) -> list[float]:
                part = gradient()[rows, columns]
                return [float(g) for g in np.einsum("ij,ijp->p", K_bar, part)]

            return Gram(K[rows, columns], pull_back)

        return block


#: Terms by the type of kernel; a subclass of a kernel is another kernel.
_TERMS: dict[type[Kernel], type[Term]] = {}


def term_for(*kernels: type[Kernel]) -> Callable[[type[Term]], type[Term]]:
    """Register a term for types of kernels."""

    def register(term: type[Term]) -> type[Term]:
        for kernel in kernels:
            _TERMS[kernel] = term
        return term

    return register


def _kind(kernel: Kernel) -> type[Term]:
    term = _TERMS.get(type(kernel), _Fallback)
    return term if term.suits(kernel) else _Fallback


def bind(kernel: Kernel, X: Any, place: Place | None = None) -> Term:
    """The term for a kernel on data, matrices to be kept at a place."""
    points = X if isinstance(X, Points) else Points(X, place)
    return _kind(kernel)(kernel, points)


def bind_checked(kernel: Kernel, X: Any, n: int, place: Place | None = None) -> Term:
    """The term for a kernel on data; ``ValueError`` where it makes no covariance of them."""
    try:
        term = bind(kernel, X, place)
        K = full_gram(term.gram(kernel), n, place).K
    except (TypeError, ValueError) as error:
        raise ValueError(f"the kernel {kernel} cannot be evaluated on X: {error}") from error
    try:
        check_covariance(K, known=is_covariance(kernel))
    except ValueError as error:
        raise ValueError(f"the kernel {kernel} makes no covariance of X: {error}") from None
    return term


def is_covariance(kernel: Kernel) -> bool:
    """Whether the kernel is known to be one on all data."""
    return _kind(kernel).is_covariance(kernel)


def check_kernel(kernel: Kernel, place: Place) -> None:
    """Only kernels with a term of their own can be evaluated elsewhere than on the CPU."""
    others = [part for part in _leaves(kernel) if _kind(part) is _Fallback]
    if others and not place.is_host:
        names = ", ".join(sorted(kind.__name__ for kind in _TERMS))
        raise ValueError(
            f"the kernel {others[0]} works on the CPU with NumPy only, where scikit-learn evaluates "
            f"it, not with {place}: pass NumPy arrays and device=None, or make it of {names} "
            "(Matern with nu of 0.5, 1.5, 2.5 or infinity)."
        )


def cross_covariance(kernel: Kernel, X: Any, new: Any, place: Place | None) -> Matrix:
    """k(training, new), at a place."""
    if place is None or place.is_host:
        return kernel(X, new)
    blocks = bind(kernel, Across(X, new, place)).blocks(kernel)
    K = blocks(slice(0, len(X)), slice(0, len(new))).K
    return K if np.ndim(K) else place.zeros(len(X), len(new)) + K


def matrices_held(kernel: Kernel) -> int:
    """How many matrices of n² a fit with this kernel holds beside K and what inference needs."""
    parts = list(_leaves(kernel))
    distances = any(_kind(part).needs_distances(part) for part in parts)
    # of other kernels the gradient tensor, and about as much again while it is made
    others = sum(1 + 2 * int(part.n_dims) for part in parts if _kind(part) is _Fallback)
    return int(distances) + others


def _leaves(kernel: Kernel) -> list[Kernel]:
    inner = [getattr(kernel, name) for name in ("k1", "k2", "kernel") if hasattr(kernel, name)]
    if not inner or _kind(kernel) is _Fallback:
        return [kernel]
    return [leaf for part in inner for leaf in _leaves(part)]


def full_gram(gram: Gram, n: int, place: Place | None = None) -> Gram:
    """``gram`` with its covariance as a full matrix, stored row by row."""
    place = place or HOST
    if np.ndim(gram.K) == 0:
        K = place.zeros(n, n)
        K += gram.K
    else:
        K = np.ascontiguousarray(gram.K) if place.is_host else gram.K
    return gram._replace(K=K)


def no_parameters(K_bar: Array) -> list[float]:
    """The pull-back of a kernel without free parameters."""
    return []
