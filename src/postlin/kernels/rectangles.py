"""Covariances between rows and inducing points: rectangles of a kernel, and their pull-backs.

Where ``terms`` binds a kernel to one set of points, here chunks of rows X meet the same few points
Z again and again, each chunk once a pass: nothing is kept. White noise is no part of a rectangle,
whatever the distances (δ is by index), but of the diagonal k(x, x).

A kernel that has no rectangle of its own is asked for its values; its derivatives by the log-parameters
are central differences of these, for scikit-learn has gradients of square matrices only.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Kernel,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
    WhiteKernel,
)

from postlin._typing import Array
from postlin.kernels.stationary import _MATERN as MATERN

#: The step of central differences by a log-parameter: errors of about 1e-10.
_STEP = 1e-5


class Cross(NamedTuple):
    """k(X, Z), or a scalar that stands for a constant one, and what its derivatives make of K̄."""

    K: Array
    by_theta: Callable[[Array], list[float]]  # by the kernel's free log-parameters
    by_right: Callable[[Array], Any]  # by Z, an array of its shape, or the number zero


class Diagonal(NamedTuple):
    """k(x, x) for every row, and what its derivatives by the free log-parameters make of k̄."""

    k: Array
    by_theta: Callable[[Array], list[float]]


def cross(kernel: Kernel, X: Array, Z: Array) -> Cross:
    """The rectangle of a kernel, without white noise."""
    return _CROSS.get(_kind(kernel), _other)(kernel, X, Z)


def full_cross(kernel: Kernel, X: Array, Z: Array) -> Cross:
    """The same with K as a matrix that can be overwritten, even if all its entries are equal."""
    found = cross(kernel, X, Z)
    return found._replace(K=np.full((len(X), len(Z)), found.K)) if np.ndim(found.K) == 0 else found


def diagonal(kernel: Kernel, X: Array) -> Diagonal:
    """The variances k(x, x), white noise included."""
    kind = _kind(kernel)
    if kind in (Sum, Product):
        a, b = diagonal(kernel.k1, X), diagonal(kernel.k2, X)
        if kind is Sum:
            return Diagonal(a.k + b.k, lambda bar: a.by_theta(bar) + b.by_theta(bar))
        return Diagonal(a.k * b.k, lambda bar: a.by_theta(bar * b.k) + b.by_theta(bar * a.k))
    if kind is Exponentiation:
        base, power = diagonal(kernel.kernel, X), kernel.exponent
        return Diagonal(base.k**power, lambda bar: base.by_theta(bar * (power * base.k ** (power - 1))))
    if kind in _STATIONARY:
        zeros = [0.0] * kernel.n_dims
        return Diagonal(np.ones(len(X)), lambda bar: zeros)
    k = np.asarray(kernel.diag(X), dtype=np.float64)
    if kind in _OFFSET:
        # the parameter is a variance that is added to all of k: by its logarithm, itself
        (parameter,) = kernel.hyperparameters
        offset = _OFFSET[kind](kernel)
        return Diagonal(k, lambda bar: [] if parameter.fixed else [offset * float(bar.sum())])
    return Diagonal(k, partial(_differences, kernel, lambda other: other.diag(X)))


def moves_points(kernel: Kernel) -> bool:
    """Whether derivatives of the kernel by the points themselves are known here."""
    inner = [getattr(kernel, name) for name in ("k1", "k2", "kernel") if hasattr(kernel, name)]
    return _kind(kernel) is not Kernel and all(map(moves_points, inner))


def _kind(kernel: Kernel) -> type[Kernel]:
    """The type whose rectangle this is, ``Kernel`` where none is: a subclass is another kernel."""
    kind = type(kernel)
    known = kind in _CROSS and (kind is not Matern or kernel.nu in MATERN)
    return kind if known else Kernel


def _sum(kernel: Sum, X: Array, Z: Array) -> Cross:
    a, b = cross(kernel.k1, X, Z), cross(kernel.k2, X, Z)
    return Cross(
        _nothing_added(a.K, b.K),
        lambda bar: a.by_theta(bar) + b.by_theta(bar),
        lambda bar: a.by_right(bar) + b.by_right(bar),
    )


def _nothing_added(a: Array, b: Array) -> Array:
    """A + b, without a pass over a matrix where one of them is the number zero."""
    if np.ndim(b) == 0 and b == 0.0:
        return a
    return b if np.ndim(a) == 0 and a == 0.0 else np.asarray(a + b)


def _product(kernel: Product, X: Array, Z: Array) -> Cross:
    a, b = cross(kernel.k1, X, Z), cross(kernel.k2, X, Z)
    return Cross(
        np.asarray(a.K * b.K),
        lambda bar: a.by_theta(bar * b.K) + b.by_theta(bar * a.K),
        lambda bar: a.by_right(bar * b.K) + b.by_right(bar * a.K),
    )


def _power(kernel: Exponentiation, X: Array, Z: Array) -> Cross:
    base, power = cross(kernel.kernel, X, Z), kernel.exponent

    def inner(bar: Array) -> Array:
        result: Array = bar * (power * base.K ** (power - 1))
        return result

    return Cross(
        np.asarray(base.K**power),
        lambda bar: base.by_theta(inner(bar)),
        lambda bar: base.by_right(inner(bar)),
    )


def _no_move(bar: Array) -> float:
    return 0.0


def _constant(kernel: ConstantKernel, X: Array, Z: Array) -> Cross:
    value, fixed = kernel.constant_value, kernel.hyperparameter_constant_value.fixed
    return Cross(
        np.array(float(value)), lambda bar: [] if fixed else [value * float(bar.sum())], _no_move
    )


def _white(kernel: WhiteKernel, X: Array, Z: Array) -> Cross:
    zeros = [0.0] * kernel.n_dims
    return Cross(np.array(0.0), lambda bar: zeros, _no_move)


def _dot_product(kernel: DotProduct, X: Array, Z: Array) -> Cross:
    offset, fixed = kernel.sigma_0**2, kernel.hyperparameter_sigma_0.fixed
    return Cross(
        X @ Z.T + offset,
        lambda bar: [] if fixed else [2.0 * offset * float(bar.sum())],
        lambda bar: bar.T @ X,
    )


def _stationary(kernel: Kernel, X: Array, Z: Array) -> Cross:
    """A profile of s = Σₖ (xₖ − zₖ)²/ℓₖ² with one length scale or many."""
    profile = MATERN[kernel.nu] if isinstance(kernel, Matern) else MATERN[np.inf]
    scale = np.asarray(kernel.length_scale, float)
    if scale.size not in (1, X.shape[1]):
        raise ValueError(f"{scale.size} length scales for {X.shape[1]} features.")
    scale = np.broadcast_to(scale, X.shape[1:])
    left, right = X / scale, Z / scale
    K, slope = profile(cdist(left, right, "sqeuclidean"))
    fixed = kernel.hyperparameter_length_scale.fixed

    def by_theta(bar: Array) -> list[float]:
        if fixed:
            return []
        squares = _weighted_squares(bar * slope, left, right)
        return [float(s) for s in squares] if kernel.anisotropic else [float(squares.sum())]

    return Cross(K, by_theta, lambda bar: _pulls(bar * slope, left, right) / scale)


def _weighted_squares(W: Array, left: Array, right: Array) -> Array:
    """Σᵢⱼ Wᵢⱼ (xᵢₖ − zⱼₖ)² for every feature k, about a common centre so that little cancels."""
    centre = right.mean(axis=0)
    a, b = left - centre, right - centre
    squares: Array = W.sum(axis=1) @ a**2 + W.sum(axis=0) @ b**2
    squares -= 2.0 * np.einsum("jk,jk->k", W.T @ a, b)
    return squares


def _pulls(W: Array, left: Array, right: Array) -> Array:
    """Σᵢ Wᵢⱼ (xᵢ − zⱼ): the derivative by zⱼ where W is −2 ∂K/∂s, lengths in units of ℓ."""
    centre = right.mean(axis=0)
    pulls: Array = W.T @ (left - centre) - W.sum(axis=0)[:, None] * (right - centre)
    return pulls


def _rational_quadratic(kernel: RationalQuadratic, X: Array, Z: Array) -> Cross:
    """(1 + s/2α)^−α; parameters α and ℓ."""
    alpha, scale = kernel.alpha, float(np.squeeze(kernel.length_scale))
    s = cdist(X, Z, "sqeuclidean") / scale**2
    base = 1.0 + s / (2.0 * alpha)
    K = base**-alpha

    def by_theta(bar: Array) -> list[float]:
        by_alpha = K * (0.5 * s / base - alpha * np.log(base))
        return _free(kernel, bar, (by_alpha, K * s / base))

    return Cross(K, by_theta, lambda bar: _pulls(bar * K / base, X, Z) / scale**2)


def _periodic(kernel: ExpSineSquared, X: Array, Z: Array) -> Cross:
    """exp(−2 sin²(π d/p)/ℓ²); parameters ℓ and p."""
    period, scale = kernel.periodicity, float(np.squeeze(kernel.length_scale)) ** -2
    angle = np.pi / period * cdist(X, Z)
    sine = np.sin(angle)
    K = np.exp(-2.0 * scale * sine**2)

    def by_theta(bar: Array) -> list[float]:
        common = 4.0 * scale * K * sine
        return _free(kernel, bar, (common * sine, common * angle * np.cos(angle)))

    def by_right(bar: Array) -> Array:
        # −2 ∂K/∂d² with sin(a)/a at hand where d = 0
        slope = 4.0 * scale * (np.pi / period) ** 2 * K * np.cos(angle) * np.sinc(angle / np.pi)
        return _pulls(bar * slope, X, Z)

    return Cross(K, by_theta, by_right)


def _free(kernel: Kernel, bar: Array, derivatives: tuple[Array, ...]) -> list[float]:
    """K̄ on the derivatives by those parameters that are free."""
    return [
        float(np.einsum("ij,ij->", bar, derivative))
        for derivative, parameter in zip(derivatives, kernel.hyperparameters, strict=True)
        if not parameter.fixed
    ]


def _other(kernel: Kernel, X: Array, Z: Array) -> Cross:
    """Any other kernel."""

    def by_right(bar: Array) -> Array:
        raise ValueError(f"the derivatives of {kernel} by points are not known: see moves_points.")

    K = np.array(kernel(X, Z), dtype=np.float64)
    return Cross(K, partial(_differences, kernel, lambda other: other(X, Z)), by_right)


def _differences(kernel: Kernel, values: Callable[[Kernel], Array], bar: Array) -> list[float]:
    """Central differences by each free log-parameter, contracted with K̄."""
    found = []
    for k in range(kernel.n_dims):
        step = np.zeros(kernel.n_dims)
        step[k] = _STEP
        up, down = (values(kernel.clone_with_theta(kernel.theta + sign * step)) for sign in (1.0, -1.0))
        found.append(float(np.sum(bar * (up - down))) / (2.0 * _STEP))
    return found


_CROSS: dict[type[Kernel], Callable[[Any, Array, Array], Cross]] = {
    Sum: _sum,
    Product: _product,
    Exponentiation: _power,
    ConstantKernel: _constant,
    WhiteKernel: _white,
    DotProduct: _dot_product,
    RBF: _stationary,
    Matern: _stationary,
    RationalQuadratic: _rational_quadratic,
    ExpSineSquared: _periodic,
}

#: Kernels whose diagonal is a variance plus what no parameter changes, with its derivative by the log.
_OFFSET: dict[type[Kernel], Callable[[Any], float]] = {
    ConstantKernel: lambda kernel: float(kernel.constant_value),
    WhiteKernel: lambda kernel: float(kernel.noise_level),
    DotProduct: lambda kernel: 2.0 * float(kernel.sigma_0) ** 2,
}

#: Kernels whose diagonal is one.
_STATIONARY = (RBF, Matern, RationalQuadratic, ExpSineSquared)
