"""A kernel bound to points: its covariances, and their derivatives by θ and by the points.

Each kernel defines one formula, that of a block k(left, right). The square covariance of the training
data is assembled from blocks of its lower triangle, and squared distances are computed once per fit:
besides them and K no matrix of n² entries is held unless n is small. A rectangle k(X, Z) is one block,
for which nothing is kept: each chunk of rows X meets the inducing points Z once per pass.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel, WhiteKernel

from postlin._typing import Array, cached_property
from postlin._validation import check_covariance
from postlin.kernels.tree import can_split, is_covariance, parts, split_white
from postlin.linalg.arrays import HOST, Matrix, Place, as_matrix, namespace, on_host, squared_distances
from postlin.linalg.threads import FEW_ROWS
from postlin.linalg.tiles import mirror, wide_panels
from postlin.linalg.triangles import lower_panels, mirror_panels

#: The step of central differences by a log-parameter: errors of about 1e-10.
_STEP = 1e-5

#: Points as a kernel accepts them; most kernels need an array of numbers.
Inputs = Sequence[object] | np.ndarray

#: Contracts K̄ = ∂ log Z/∂K, or a block of it, with ∂K/∂θ for the free log-parameters θ.
ByTheta = Callable[[Matrix], list[float]]


class Gram(NamedTuple):
    """A square covariance matrix, or the number that all its entries equal, and its pull-back."""

    K: Matrix
    pull_back: ByTheta


class Cross(NamedTuple):
    """A block k(left, right), or the number that all its entries equal, and its derivatives."""

    K: Matrix
    by_theta: ByTheta
    by_right: Callable[[Matrix], Matrix]  # contracts K̄ with ∂K/∂right: an array like right, or 0.0


class Diagonal(NamedTuple):
    """The variance k(x, x) of every row, and the contraction of its derivatives with k̄."""

    k: Matrix  # a vector
    by_theta: ByTheta


#: Maps the slices of the rows and columns of a covariance to that block of it.
Blocks = Callable[[slice, slice], Cross]


class Points:
    """The points of a square covariance or, with ``right``, of the rows and columns of a rectangle.

    ``place`` is where the matrices of these points are kept.
    """

    def __init__(self, X: Inputs, place: Place | None = None, right: Inputs | None = None) -> None:
        self.X = X
        self.right = right
        self.n = len(X)
        self.place = place or HOST

    @cached_property
    def raw(self) -> tuple[Matrix, Matrix]:
        """The points of the rows and of the columns, unchanged."""
        left = as_matrix(self.X, self.place)
        return left, left if self.right is None else as_matrix(self.right, self.place)

    @cached_property
    def centred(self) -> tuple[Matrix, Matrix]:
        """The points of the rows and of the columns less the mean of the latter."""
        left, right = self.raw
        centre = namespace(right).mean(right, axis=0)
        moved = left - centre
        return moved, moved if right is left else right - centre

    @cached_property
    def reach(self) -> Array:
        """The largest distance of a row from that mean, feature by feature."""
        moved = self.centred[0]
        if isinstance(moved, np.ndarray):
            return np.asarray(np.abs(moved.T, order="C").max(axis=1))
        xp = namespace(moved)
        return np.asarray(on_host(xp.max(xp.abs(moved), axis=0)))

    def panels(self) -> Iterator[tuple[slice, slice]]:
        """The rows and columns of the blocks that cover the lower triangle of a square."""
        return lower_panels(self.n) if self.place.is_host else wide_panels(self.n)

    def empty_square(self) -> Matrix:
        """An n × n matrix to be filled panel by panel."""
        n, place = self.n, self.place
        return np.empty((n, n), order="F") if place.is_host else place.zeros(n, n)

    @cached_property
    def squared_distances(self) -> Matrix | None:
        """The lower triangle of the squared distances of a square; None for a rectangle."""
        if self.right is not None:
            return None
        (X, _), squared = self.centred, self.empty_square()
        for rows, columns in self.panels():
            squared[rows, columns] = squared_distances(X[rows, :], X[columns, :])
        return squared


class Term(ABC):
    """A kernel bound to points, to be evaluated at any parameters of kernels of the same structure."""

    def __init__(self, kernel: Kernel, points: Points) -> None:
        self.kernel = kernel
        self.points = points

    @cached_property
    def free(self) -> list[bool]:
        """Whether each parameter of a simple kernel is free, in scikit-learn's order (alphabetical)."""
        given = vars(self.kernel)  # kernel.hyperparameters takes five times as long
        bounds = [given[name] for name in sorted(given) if name.endswith("_bounds")]
        return [not (isinstance(pair, str) and pair == "fixed") for pair in bounds]

    @classmethod
    def suits(cls, kernel: Kernel) -> bool:
        """Whether this term can evaluate the kernel, which has the registered type."""
        return True

    @classmethod
    def needs_distances(cls, kernel: Kernel) -> bool:
        """Whether the squared distances between all training points are kept for this kernel."""
        return False

    @abstractmethod
    def blocks(self, kernel: Kernel) -> Blocks:
        """The function that computes a block of the covariance; rectangles have no white noise.

        In a square, the rows and the columns of a block begin at the same index.
        """

    @abstractmethod
    def diagonal(self, kernel: Kernel) -> Cross:
        """The variances k(x, x) as a vector, or the number that all of them equal; no ``by_right``."""

    def gram(self, kernel: Kernel) -> Gram:
        """The whole square covariance at the parameters of ``kernel``."""
        blocks, points = self.blocks(kernel), self.points

        def made() -> Iterator[_Panel]:
            return ((rows, columns, blocks(rows, columns)) for rows, columns in points.panels())

        kept = list(made()) if points.n <= FEW_ROWS else None  # the pull-back need not make them again
        return Gram(_assemble(kept or made(), points), lambda K_bar: _contract(kept or made(), K_bar))


_Panel = tuple[slice, slice, Cross]


def _assemble(panels: Iterable[_Panel], points: Points) -> Matrix:
    K = points.empty_square()
    for rows, columns, block in panels:
        if np.ndim(block.K) == 0:
            return block.K
        K[rows, columns] = block.K
    return mirror_panels(K).T if points.place.is_host else mirror(K)


def _contract(panels: Iterable[_Panel], K_bar: Matrix) -> list[float]:
    """The derivatives by θ from a symmetric K̄: entries below the diagonal blocks count twice."""
    found = []
    for rows, columns, block in panels:
        part = 2.0 * K_bar[rows, columns]
        part[: columns.stop - columns.start, :] *= 0.5
        found.append(block.by_theta(part))
    return [float(sum(by_parameter)) for by_parameter in zip(*found, strict=True)]


class _Fallback(Term):
    """A kernel without a formula here: scikit-learn's values, and its gradient tensor for squares.

    scikit-learn has no gradients of rectangles and diagonals: these are central differences.
    """

    def gram(self, kernel: Kernel) -> Gram:
        everything = slice(0, self.points.n)
        block = self.blocks(kernel)(everything, everything)
        return Gram(np.array(block.K), block.by_theta)  # a copy: the kernel may own its matrix

    def blocks(self, kernel: Kernel) -> Blocks:
        X, Z = self.points.X, self.points.right
        if Z is not None:
            rectangle = self._differenced(kernel, lambda other: other(X, Z))
            return lambda rows, columns: rectangle
        K, gradient = kernel(X), cache(lambda: kernel(X, eval_gradient=True)[1])

        def block(rows: slice, columns: slice) -> Cross:
            def by_theta(K_bar: Array) -> list[float]:
                return [float(g) for g in np.einsum("ij,ijp->p", K_bar, gradient()[rows, columns])]

            return Cross(K[rows, columns], by_theta, partial(_unknown, kernel))

        return block

    def diagonal(self, kernel: Kernel) -> Cross:
        return self._differenced(kernel, lambda other: other.diag(self.points.X))

    @staticmethod
    def _differenced(kernel: Kernel, values: Callable[[Kernel], Array]) -> Cross:
        def by_theta(K_bar: Array) -> list[float]:
            found = []
            for step in _STEP * np.eye(kernel.n_dims):
                up, down = (values(kernel.clone_with_theta(kernel.theta + h)) for h in (step, -step))
                found.append(float(np.sum(K_bar * (up - down))) / (2.0 * _STEP))
            return found

        return Cross(np.array(values(kernel), np.float64), by_theta, partial(_unknown, kernel))


def _unknown(kernel: Kernel, K_bar: Array) -> Array:
    raise ValueError(f"the derivatives of {kernel} by points are not known: see moves_points.")


#: The term of each type of kernel; a subclass of such a type is another kernel.
_TERMS: dict[type[Kernel], type[Term]] = {}


def term_for(*kernels: type[Kernel]) -> Callable[[type[Term]], type[Term]]:
    """Register the decorated term for types of kernels."""

    def register(term: type[Term]) -> type[Term]:
        _TERMS.update(dict.fromkeys(kernels, term))
        return term

    return register


def _kind(kernel: Kernel) -> type[Term]:
    term = _TERMS.get(type(kernel), _Fallback)
    return term if term.suits(kernel) else _Fallback


def _leaves(kernel: Kernel) -> list[Kernel]:
    """The kernels that a sum, product or power is made of, down to those made of no others."""
    inner = [] if _kind(kernel) is _Fallback else parts(kernel)
    return [leaf for part in inner for leaf in _leaves(part)] or [kernel]


def _others(kernel: Kernel) -> list[Kernel]:
    return [leaf for leaf in _leaves(kernel) if _kind(leaf) is _Fallback]


def bind(kernel: Kernel, X: Inputs | Points, place: Place | None = None) -> Term:
    """The term of a kernel on data, with its matrices kept at ``place``."""
    return _kind(kernel)(kernel, X if isinstance(X, Points) else Points(X, place))


def shown(kernel: Kernel) -> str:
    """The kernel in a message; scikit-learn shows the square root of a constant, negative or not."""
    with np.errstate(invalid="ignore"):
        return str(kernel)


def bind_checked(kernel: Kernel, X: Inputs | Points, n: int, place: Place | None = None) -> Term:
    """The term of a kernel on data; ``ValueError`` if the kernel is not a covariance on them."""
    try:
        term = bind(kernel, X, place)
        K = full_gram(term.gram(kernel), n, place).K
    except (TypeError, ValueError) as error:
        raise ValueError(f"the kernel {shown(kernel)} cannot be evaluated on X: {error}") from error
    try:
        check_covariance(K, known=is_covariance(kernel))
    except ValueError as error:
        raise ValueError(f"the kernel {shown(kernel)} makes no covariance of X: {error}") from None
    return term


def moves_points(kernel: Kernel) -> bool:
    """Whether the derivatives of the kernel by its points are known here."""
    return not _others(kernel)


def can_merge(kernel: Kernel) -> bool:
    """Whether equal rows have equal covariances, but for white noise that can be split from them."""
    smooth = split_white(kernel).smooth if can_split(kernel) else kernel
    return not _others(smooth) and all(type(leaf) is not WhiteKernel for leaf in _leaves(smooth))


def check_kernel(kernel: Kernel, place: Place) -> None:
    """Raise ``ValueError`` where only scikit-learn can evaluate the kernel, and not at ``place``."""
    others = _others(kernel)
    if others and not place.is_host:
        names = ", ".join(sorted(kind.__name__ for kind in _TERMS))
        raise ValueError(
            f"the kernel {others[0]} works on the CPU with NumPy only, where scikit-learn evaluates "
            f"it, not with {place}: pass NumPy arrays and device=None, or make it of {names} "
            "(Matern with nu of 0.5, 1.5, 2.5 or infinity)."
        )


def matrices_held(kernel: Kernel) -> int:
    """The number of n × n matrices that a fit with this kernel holds besides K and inference's own."""
    distances = any(_kind(leaf).needs_distances(leaf) for leaf in _leaves(kernel))
    # other kernels hold the gradient tensor, and about as much again while it is computed
    return int(distances) + sum(1 + 2 * int(other.n_dims) for other in _others(kernel))


def full_gram(gram: Gram, n: int, place: Place | None = None) -> Gram:
    """``gram`` with K as a full matrix, stored row by row."""
    K = _filled(gram.K, (n, n), place or HOST)
    return gram._replace(K=np.ascontiguousarray(K) if isinstance(K, np.ndarray) else K)


def cross(kernel: Kernel, X: Inputs, Z: Inputs, place: Place | None = None) -> Cross:
    """The rectangle k(X, Z), without white noise, and its derivatives by θ and by Z."""
    blocks = bind(kernel, Points(X, place, Z)).blocks(kernel)
    return blocks(slice(0, len(X)), slice(0, len(Z)))


def full_cross(kernel: Kernel, X: Inputs, Z: Inputs, place: Place | None = None) -> Cross:
    """``cross`` with K as a full matrix, which the caller may overwrite."""
    found = cross(kernel, X, Z, place)
    return found._replace(K=_filled(found.K, (len(X), len(Z)), place or HOST))


def cross_covariance(kernel: Kernel, X: Inputs, new: Inputs, place: Place | None) -> Matrix:
    """The covariance k(X, new) of training rows and new rows, at ``place``."""
    on_cpu = place is None or place.is_host
    return kernel(X, new) if on_cpu else full_cross(kernel, X, new, place).K


def diagonal(kernel: Kernel, X: Inputs, place: Place | None = None) -> Diagonal:
    """The variances k(x, x) of the rows of X, white noise included, and their derivatives by θ."""
    found = bind(kernel, X, place).diagonal(kernel)
    return Diagonal(_filled(found.K, (len(X),), place or HOST), found.by_theta)


def _filled(K: Matrix, shape: tuple[int, ...], place: Place) -> Matrix:
    """K as an array of this shape, also where it is the number that all entries equal."""
    if np.ndim(K):
        return K
    matrix = place.zeros(*shape)
    matrix += K
    return matrix


def no_move(K_bar: Matrix) -> float:
    """The derivative by the points of a kernel that does not depend on them: zero."""
    return 0.0
