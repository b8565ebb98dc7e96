"""The kernels of scikit-learn: of the distance of two points, and others, and those made of several.

A kernel of the distance is a function of s = Σₖ (xₖ − x'ₖ)²/ℓₖ², with one length ℓ or one for every
feature, and may have a second parameter. With the slope −2 ∂K/∂s, the derivative by log ℓₖ is (xₖ −
x'ₖ)²/ℓₖ² times the slope, and the derivative by x'ₖ is (xₖ − x'ₖ)/ℓₖ² times the slope. Kernels made of
kernels combine entries one by one, so that the same formula serves blocks and diagonals.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np
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

from postlin._typing import Array, cached_property
from postlin.kernels.terms import (
    Blocks,
    ByTheta,
    Cross,
    Gram,
    Points,
    Term,
    bind,
    full_gram,
    no_move,
    term_for,
)
from postlin.kernels.tree import SMOOTHNESS, can_split, free_numbers, parts, split_white
from postlin.linalg.arrays import (
    Matrix,
    add_to_diagonal,
    column_products,
    diagonal,
    inner_product,
    namespace,
    on_host,
    ratio,
    row_products,
    squared_distances,
)

#: Features that reach farther than this, in length scales, cancel in the product form.
_FAR = 1e3
#: The squares of shorter length scales underflow.
_SHORTEST = 1e-150


class Radial(NamedTuple):
    """K as a function of s, and what is computed only when derivatives are wanted."""

    K: Matrix
    slope: Callable[[], Matrix]  # −2 ∂K/∂s
    by_parameters: Callable[[], tuple[Matrix, ...]]  # ∂K/∂ log of each parameter, if isotropic


def _matern(nu: float, s: Matrix) -> tuple[Matrix, Matrix]:
    """K and −2 ∂K/∂s of the Matérn kernel with a ν of ``SMOOTHNESS``."""
    xp = namespace(s)
    if nu == np.inf:
        K = xp.exp(-0.5 * s)
        return K, K
    r = xp.sqrt(s if nu == 0.5 else 2.0 * nu * s)
    decay = xp.exp(-r)
    if nu == 0.5:
        return decay, ratio(decay, r)
    if nu == 1.5:
        return (1.0 + r) * decay, 3.0 * decay
    return (1.0 + r + r**2 / 3.0) * decay, 5.0 / 3.0 * (1.0 + r) * decay


class _Stationary(Term):
    @staticmethod
    def _lengths(kernel: Kernel) -> Array:
        """The length ℓ, or the lengths ℓₖ of all features, that distances are divided by."""
        return np.asarray(float(np.squeeze(kernel.length_scale)))

    @staticmethod
    @abstractmethod
    def _radial(kernel: Kernel, s: Matrix) -> Radial:
        """K and its derivatives as functions of s."""

    @classmethod
    def needs_distances(cls, kernel: Kernel) -> bool:
        return not getattr(kernel, "anisotropic", False)

    def diagonal(self, kernel: Kernel) -> Cross:
        return Cross(1.0, lambda k_bar: [0.0] * int(kernel.n_dims), no_move)

    def blocks(self, kernel: Kernel) -> Blocks:
        points, lengths = self.points, self._lengths(kernel)
        (X, Z), many = points.centred, lengths.ndim > 0
        if many and len(lengths) != X.shape[1]:
            raise ValueError(f"{len(lengths)} length scales for {X.shape[1]} features.")
        if not lengths.min() >= _SHORTEST:
            raise ValueError(
                f"the length scale {lengths.min():g} is below {_SHORTEST:g}, and its square "
                "underflows: rescale the features."
            )
        scale = points.place.put(lengths) if many else float(lengths)
        squared = None if many else points.squared_distances
        left = X / scale
        right = left if Z is X else Z / scale

        def block(rows: slice, columns: slice) -> Cross:
            a, b = left[rows, :], right[columns, :]
            s = squared_distances(a, b) if squared is None else scale**-2 * squared[rows, columns]
            K, slope, by_parameters = self._radial(kernel, s)

            def by_features(K_bar: Matrix) -> list[float]:
                far = np.flatnonzero(points.reach > _FAR * lengths)
                return _weighted_squares(K_bar * slope(), a, b, far) if any(self.free) else []

            # the derivatives hold on to the matrices that they need, and to no others
            by_theta = by_features if many else partial(self._by_parameters, by_parameters)
            return Cross(K, by_theta, lambda K_bar: _pulls(K_bar * slope(), a, b) / scale)

        return block

    def _by_parameters(self, by: Callable[[], tuple[Matrix, ...]], K_bar: Matrix) -> list[float]:
        wanted = compress(by(), self.free) if any(self.free) else ()
        return [inner_product(K_bar, by_parameter) for by_parameter in wanted]


def _weighted_squares(W: Matrix, left: Matrix, right: Matrix, far: np.ndarray) -> list[float]:
    """Σᵢⱼ Wᵢⱼ (xᵢₖ − x'ⱼₖ)² for every feature k; of those in ``far`` without products, which cancel."""
    xp = namespace(left)
    sums = xp.sum(W, axis=1) @ left**2 + xp.sum(W, axis=0) @ right**2
    sums -= 2.0 * column_products(W.T @ left, right)
    squares: Array = np.array(on_host(sums))
    for k in map(int, far):
        squares[k] = inner_product(W, (left[:, k][:, None] - right[:, k][None, :]) ** 2)
    return [float(s) for s in squares]


def _pulls(W: Matrix, left: Matrix, right: Matrix) -> Matrix:
    """Σᵢ Wᵢⱼ (xᵢ − x'ⱼ) for every column j."""
    return W.T @ left - namespace(W).sum(W, axis=0)[:, None] * right


@term_for(RBF, Matern)
class _Matern(_Stationary):
    @classmethod
    def suits(cls, kernel: RBF | Matern) -> bool:
        return type(kernel) is RBF or kernel.nu in SMOOTHNESS

    @staticmethod
    def _lengths(kernel: RBF | Matern) -> Array:
        return np.squeeze(np.asarray(kernel.length_scale, float))

    @staticmethod
    def _radial(kernel: RBF | Matern, s: Matrix) -> Radial:
        K, slope = _matern(np.inf if type(kernel) is RBF else kernel.nu, s)
        return Radial(K, lambda: slope, lambda: (slope * s,))


@term_for(RationalQuadratic)
class _RationalQuadratic(_Stationary):
    """(1 + s/2α)^−α, a mixture of squared exponentials; parameters α and ℓ."""

    @staticmethod
    def _radial(kernel: RationalQuadratic, s: Matrix) -> Radial:
        alpha, log = float(kernel.alpha), namespace(s).log
        base = 1.0 + s / (2.0 * alpha)
        K = base**-alpha

        def by_parameters() -> tuple[Matrix, Matrix]:
            return K * (0.5 * s / base - alpha * log(base)), K * s / base

        return Radial(K, lambda: K / base, by_parameters)


@term_for(ExpSineSquared)
class _ExpSineSquared(_Stationary):
    """exp(−2 sin²(π d/p)/ℓ²); parameters ℓ and p, of which p/π is what distances d are divided by."""

    @staticmethod
    def _lengths(kernel: ExpSineSquared) -> Array:
        return np.asarray(float(kernel.periodicity) / np.pi)

    @staticmethod
    def _radial(kernel: ExpSineSquared, s: Matrix) -> Radial:
        xp, scale = namespace(s), float(np.squeeze(kernel.length_scale)) ** -2
        angle = xp.sqrt(s)
        sine = xp.sin(angle)
        K = xp.exp(-2.0 * scale * sine**2)

        def by_parameters() -> tuple[Matrix, Matrix]:
            common = 4.0 * scale * K * sine
            return common * sine, common * angle * xp.cos(angle)

        return Radial(K, lambda: 4.0 * scale * K * xp.cos(angle) * ratio(sine, angle), by_parameters)


def radial(kernel: RBF | Matern | RationalQuadratic, s: Matrix) -> Radial:
    """K of a kernel with length scales, and its derivatives, as functions of squared distances s."""
    term = _RationalQuadratic if type(kernel) is RationalQuadratic else _Matern
    return term._radial(kernel, s)


class _OneParameter(Term):
    def _by_theta(self, slope: float) -> ByTheta:
        """The contraction with ∂K/∂θ = slope in every entry."""
        return lambda K_bar: [slope * float(namespace(K_bar).sum(K_bar))] if any(self.free) else []


@term_for(ConstantKernel)
class _Constant(_OneParameter):
    def blocks(self, kernel: ConstantKernel) -> Blocks:
        block = self.diagonal(kernel)
        return lambda rows, columns: block

    def diagonal(self, kernel: ConstantKernel) -> Cross:
        value = float(kernel.constant_value)
        return Cross(value, self._by_theta(value), no_move)


@term_for(WhiteKernel)
class _White(_OneParameter):
    """σ² δ[i − j]: by index, never by distance, so that it is zero in rectangles."""

    def blocks(self, kernel: WhiteKernel) -> Blocks:
        if self.points.right is not None:
            zero = Cross(0.0, self._by_theta(0.0), no_move)
            return lambda rows, columns: zero
        value = float(kernel.noise_level)

        def block(rows: slice, columns: slice) -> Cross:
            height, width = rows.stop - rows.start, columns.stop - columns.start

            def by_theta(K_bar: Matrix) -> list[float]:
                return [value * float(diagonal(K_bar[:width, :]).sum())] if any(self.free) else []

            K = self.points.place.give(value * np.eye(height, width))
            return Cross(K, by_theta, no_move)

        return block

    def diagonal(self, kernel: WhiteKernel) -> Cross:
        value = float(kernel.noise_level)
        return Cross(value, self._by_theta(value), no_move)


@term_for(DotProduct)
class _DotProduct(_OneParameter):
    """σ₀² + x·x'."""

    def blocks(self, kernel: DotProduct) -> Blocks:
        (left, right), offset = self.points.raw, float(kernel.sigma_0**2)
        by_theta = self._by_theta(2.0 * offset)

        def block(rows: slice, columns: slice) -> Cross:
            a, b = left[rows, :], right[columns, :]
            return Cross(a @ b.T + offset, by_theta, lambda K_bar: K_bar.T @ a)

        return block

    def diagonal(self, kernel: DotProduct) -> Cross:
        (X, _), offset = self.points.raw, float(kernel.sigma_0**2)
        return Cross(row_products(X, X) + offset, self._by_theta(2.0 * offset), no_move)


class _Compound(Term):
    def __init__(self, kernel: Kernel, points: Points) -> None:
        super().__init__(kernel, points)
        self._terms = [bind(part, points) for part in parts(kernel)]

    def blocks(self, kernel: Kernel) -> Blocks:
        inner = [term.blocks(part) for term, part in zip(self._terms, parts(kernel), strict=True)]
        return lambda rows, columns: self._join(kernel, [blocks(rows, columns) for blocks in inner])

    def diagonal(self, kernel: Kernel) -> Cross:
        inner = zip(self._terms, parts(kernel), strict=True)
        return self._join(kernel, [term.diagonal(part) for term, part in inner])

    @abstractmethod
    def _join(self, kernel: Kernel, inner: list[Cross]) -> Cross:
        """The block of this kernel from those of its parts."""


@term_for(Sum)
class _Sum(_Compound):
    @cached_property
    def _smooth(self) -> tuple[Term, list[int]] | None:
        """The sum without its white noise, if it can be split, and its ``free_numbers``."""
        if not can_split(self.kernel):
            return None
        return bind(split_white(self.kernel).smooth, self.points), free_numbers(self.kernel)

    def gram(self, kernel: Sum) -> Gram:
        """K, with white noise added to the diagonal instead of as a matrix of its own."""
        if self._smooth is None:
            return super().gram(kernel)
        term, numbers = self._smooth
        split = split_white(kernel, numbers)
        smooth = full_gram(term.gram(split.smooth), self.points.n, self.points.place)
        add_to_diagonal(smooth.K, split.noise)

        def pull_back(K_bar: Matrix) -> list[float]:
            return split.join(smooth.pull_back(K_bar), float(diagonal(K_bar).sum()))

        return Gram(smooth.K, pull_back)

    def _join(self, kernel: Sum, inner: list[Cross]) -> Cross:
        a, b = inner
        return Cross(
            _added(a.K, b.K),
            lambda K_bar: a.by_theta(K_bar) + b.by_theta(K_bar),
            lambda K_bar: a.by_right(K_bar) + b.by_right(K_bar),
        )


def _added(a: Matrix, b: Matrix) -> Matrix:
    """The sum, without a pass over a matrix where the other one is the number zero."""
    if np.ndim(b) == 0 and b == 0.0:
        return a
    return b if np.ndim(a) == 0 and a == 0.0 else a + b


@term_for(Product)
class _Product(_Compound):
    def _join(self, kernel: Product, inner: list[Cross]) -> Cross:
        a, b = inner
        return Cross(
            a.K * b.K,
            lambda K_bar: _by_factor(a, b.K, K_bar) + _by_factor(b, a.K, K_bar),
            lambda K_bar: a.by_right(K_bar * b.K) + b.by_right(K_bar * a.K),
        )


def _by_factor(factor: Cross, other: Matrix, K_bar: Matrix) -> list[float]:
    """The derivatives by θ of one factor, with at most one pass over a matrix if one is a number."""
    if np.ndim(other) == 0:
        return [other * by for by in factor.by_theta(K_bar)]
    if np.ndim(factor.K) == 0 and np.ndim(other) == 2:  # of K̄ only the sum counts
        return factor.by_theta(np.array([[inner_product(K_bar, other)]]))
    return factor.by_theta(K_bar * other)


@term_for(Exponentiation)
class _Power(_Compound):
    def _join(self, kernel: Exponentiation, inner: list[Cross]) -> Cross:
        (base,), power = inner, float(kernel.exponent)

        def by_base(K_bar: Matrix) -> Matrix:
            return K_bar * (power * base.K ** (power - 1))

        return Cross(
            base.K**power,
            lambda K_bar: base.by_theta(by_base(K_bar)),
            lambda K_bar: base.by_right(by_base(K_bar)),
        )
