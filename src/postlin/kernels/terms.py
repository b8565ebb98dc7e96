"""What a kernel bound to data is: blocks of a covariance matrix, and their pull-backs.

A ``Term`` keeps what depends on the data alone, so that distances are computed once a fit. Matrices
are made and contracted block by block, the lower triangle only: beside K itself, and distances
where a kernel is isotropic, nothing of its size is held.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.triangles import diagonal_of, lower_panels, mirror_panels

#: Contracts a block of K̄ to the kernel's free log-parameters.
PullBack = Callable[[Array], list[float]]


class Gram(NamedTuple):
    """A covariance matrix (or a scalar that stands for a constant one) and its pull-back."""

    K: Array
    pull_back: PullBack


#: Rows and columns of a covariance matrix, which begin at the same index, to that block of it.
Blocks = Callable[[slice, slice], Gram]


class Points:
    """The training data, and what several kernels want to know about them."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.n = len(X)

    @cached_property
    def centred(self) -> Array:
        """The rows less their mean."""
        X = np.asarray(self.X, float)
        centred: Array = X - X.mean(axis=0)
        return centred

    @cached_property
    def squared_distances(self) -> Array:
        """Between all rows: the lower triangle."""
        squared = np.empty((self.n, self.n), order="F")
        for rows, columns in lower_panels(self.n):
            squared[rows, columns] = cdist(self.centred[rows], self.centred[columns], "sqeuclidean")
        return squared


class Term(ABC):
    """A kernel bound to training data."""

    def __init__(self, kernel: Kernel, points: Points) -> None:
        self.points = points

    @classmethod
    def suits(cls, kernel: Kernel) -> bool:
        """Whether the kernel, which is of the type registered, can be treated here."""
        return True

    @classmethod
    def needs_distances(cls, kernel: Kernel) -> bool:
        """Whether distances between all points are kept for it."""
        return False

    @abstractmethod
    def blocks(self, kernel: Kernel) -> Blocks:
        """Blocks of K at the parameters of ``kernel``, which has the structure of this term's."""

    def gram(self, kernel: Kernel) -> Gram:
        """K at the parameters of ``kernel``, symmetric and whole."""
        blocks, n = self.blocks(kernel), self.points.n
        if len(list(lower_panels(n))) == 1:
            whole = blocks(slice(0, n), slice(0, n))
            return Gram(np.asarray(whole.K), whole.pull_back)
        return Gram(_assemble(blocks, n), lambda K_bar: _contract(blocks, K_bar))


def _assemble(blocks: Blocks, n: int) -> Array:
    K = np.empty((n, n), order="F")
    for rows, columns in lower_panels(n):
        block = blocks(rows, columns).K
        if np.ndim(block) == 0:
            return np.array(block)
        K[rows, columns] = block
    return mirror_panels(K).T


def _contract(blocks: Blocks, K_bar: Array) -> list[float]:
    """K̄ is symmetric: what stands below the diagonal counts twice."""
    total: Any = 0.0
    for rows, columns in lower_panels(len(K_bar)):
        part = 2.0 * K_bar[rows, columns]
        corner = part[: part.shape[1]]
        corner[:] = np.tril(corner)
        diagonal_of(corner)[:] *= 0.5
        total = total + np.array(blocks(rows, columns).pull_back(part))
    return [float(t) for t in total]


class _Fallback(Term):
    """Any other kernel, whole, and by its own gradient."""

    def gram(self, kernel: Kernel) -> Gram:
        def pull_back(K_bar: Array) -> list[float]:
            return [float(g) for g in np.einsum("ij,ijp->p", K_bar, self._gradient(kernel))]

        return Gram(kernel(self.points.X), pull_back)

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


def bind(kernel: Kernel, X: Any) -> Term:
    """The term for a kernel on data."""
    points = X if isinstance(X, Points) else Points(X)
    return _kind(kernel)(kernel, points)


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


def full_gram(gram: Gram, n: int) -> Gram:
    """``gram`` with its covariance as a full matrix, stored row by row."""
    K = np.full((n, n), float(gram.K)) if np.ndim(gram.K) == 0 else np.ascontiguousarray(gram.K)
    return gram._replace(K=K)


def no_parameters(K_bar: Array) -> list[float]:
    """The pull-back of a kernel without free parameters."""
    return []
