"""The covariances of many small sets of points at once, and the metric in which points are near.

A stack (n, P, d) holds n sets of P points. Its covariance is a stack (n, P, P), without white noise.
Distances are computed between points that are centred on the last one of their set, so that nothing is
lost where all of them are far from zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Kernel,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
    WhiteKernel,
)

from postlin._typing import Array
from postlin.kernels.formulas import radial
from postlin.kernels.terms import ByTheta, shown
from postlin.kernels.tree import SMOOTHNESS, parts
from postlin.linalg.arrays import Matrix, namespace, on_host, place_of
from postlin.linalg.stacks import part_of, shaped, transposed, write, zeros

#: Squared distances that are a smaller part of the squared norms than this are computed again from
#: differences: products cancel there, and the root of what is left would be off by 1e-6.
_CANCELS = 1e-10

_STATIONARY = (RBF, Matern, RationalQuadratic)


class Stack(NamedTuple):
    """The covariances of a stack, or the number that all entries equal, and their pull-back to θ."""

    K: Matrix
    by_theta: ByTheta  # contracts K̄, a stack of symmetric matrices


def metric(kernel: Kernel, d: int) -> Array:
    """The length scales of d features in which a kernel measures distance.

    ``ValueError`` where there is no such metric: the kernel must be made of one kernel with length
    scales and of constant, linear and white terms.
    """
    leaves = _leaves(kernel)
    near = [leaf for leaf in leaves if type(leaf) in _STATIONARY]
    others = [leaf for leaf in leaves if type(leaf) not in (*_STATIONARY, ConstantKernel, DotProduct)]
    rough = [leaf for leaf in near if type(leaf) is Matern and leaf.nu not in SMOOTHNESS]
    unfit = others + rough
    if unfit or len(near) != 1:
        has = shown(unfit[0]) if unfit else f"{len(near)} parts with length scales"
        wrong = f"{shown(kernel)} has {has}"
        raise ValueError(
            "neighbours need a kernel with one metric: RBF, Matern (nu of 0.5, 1.5, 2.5 or infinity) "
            "or RationalQuadratic, once, and ConstantKernel, DotProduct and WhiteKernel in sums and "
            f"products with it (white noise in sums only), and {wrong}."
        )
    lengths = np.atleast_1d(np.asarray(near[0].length_scale, dtype=np.float64))
    if len(lengths) not in (1, d):
        raise ValueError(
            f"the kernel {shown(kernel)} has {len(lengths)} length scales for {d} features."
        )
    return np.broadcast_to(lengths, (d,)).copy()


def _leaves(kernel: Kernel) -> list[Kernel]:
    """The simple kernels of a sum or product; white noise that is a term of the sum is left out."""
    if type(kernel) is Sum:
        return [
            leaf for part in parts(kernel) if type(part) is not WhiteKernel for leaf in _leaves(part)
        ]
    return (
        [leaf for part in parts(kernel) for leaf in _leaves(part)]
        if type(kernel) is Product
        else [kernel]
    )


def stack(kernel: Kernel, X: Matrix) -> Stack:
    """The covariances of a stack of points (n, P, d), for a kernel that has a ``metric``."""
    return _STACKS[type(kernel)](kernel, X)


def full_stack(kernel: Kernel, X: Matrix) -> Stack:
    """``stack`` with K as a stack of matrices, which the caller may overwrite."""
    found = stack(kernel, X)
    if np.ndim(found.K):
        return found
    K = zeros(X.shape[0], X.shape[1], X)
    K += found.K
    return found._replace(K=K)


def _free(kernel: Kernel) -> list[bool]:
    return [not parameter.fixed for parameter in kernel.hyperparameters]


def _stationary(kernel: Kernel, X: Matrix) -> Stack:
    lengths = np.atleast_1d(np.asarray(kernel.length_scale, dtype=np.float64))
    scaled = (X - X[:, -1:, :]) / place_of(X).give(lengths)
    s = _squared_distances(scaled)
    K, slope, by_parameters = radial(kernel, s)

    def by_theta(K_bar: Matrix) -> list[float]:
        free = _free(kernel)
        if not any(free):
            return []
        if len(lengths) == 1:
            pairs = zip(by_parameters(), free, strict=True)
            return [_sum(K_bar * by) for by, is_free in pairs if is_free]
        W, xp = K_bar * slope(), namespace(scaled)
        # Σ_ab W_ab (x_a − x_b)² = 2 Σ_a (Σ_b W_ab) x_a² − 2 Σ_a x_a (W x)_a
        sums = xp.sum(W, axis=2)[:, :, None] * scaled - W @ scaled
        return [float(by) for by in 2.0 * on_host(xp.sum(xp.sum(sums * scaled, axis=0), axis=0))]

    return Stack(K, by_theta)


def _squared_distances(X: Matrix) -> Matrix:
    """Squared distances within each set, zero on the diagonals and never negative."""
    xp, (n, size, d) = namespace(X), X.shape
    norms = xp.sum(X * X, axis=2)
    total = norms[:, :, None] + norms[:, None, :]
    s = total - 2.0 * (X @ transposed(X))
    found = xp.nonzero(shaped(s < _CANCELS * total, -1))[0]
    points, left = shaped(X, n * size, d), found // size
    right = left // size * size + found % size
    difference = part_of(points, left) - part_of(points, right)
    write(shaped(s, -1), found, xp.sum(difference * difference, axis=1))
    return s


def _constant(kernel: ConstantKernel, X: Matrix) -> Stack:
    value = float(kernel.constant_value)
    return Stack(value, lambda K_bar: [value * _sum(K_bar)] if any(_free(kernel)) else [])


def _dot_product(kernel: DotProduct, X: Matrix) -> Stack:
    offset = float(kernel.sigma_0) ** 2

    def by_theta(K_bar: Matrix) -> list[float]:
        return [2.0 * offset * _sum(K_bar)] if any(_free(kernel)) else []

    return Stack(X @ transposed(X) + offset, by_theta)


def _added(kernel: Sum, X: Matrix) -> Stack:
    a, b = (stack(part, X) for part in parts(kernel))
    return Stack(a.K + b.K, lambda K_bar: a.by_theta(K_bar) + b.by_theta(K_bar))


def _multiplied(kernel: Product, X: Matrix) -> Stack:
    a, b = (stack(part, X) for part in parts(kernel))
    return Stack(a.K * b.K, lambda K_bar: a.by_theta(K_bar * b.K) + b.by_theta(K_bar * a.K))


def _sum(K_bar: Matrix) -> float:
    return float(namespace(K_bar).sum(K_bar))


_STACKS: dict[type[Kernel], Callable[[Kernel, Matrix], Stack]] = {
    RBF: _stationary,
    Matern: _stationary,
    RationalQuadratic: _stationary,
    ConstantKernel: _constant,
    DotProduct: _dot_product,
    Sum: _added,
    Product: _multiplied,
}
