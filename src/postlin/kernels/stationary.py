"""Kernels of the distance between two points.

With s = Σₖ (xₖ − x'ₖ)²/ℓₖ² the gradient by log ℓₖ is (xₖ − x'ₖ)²/ℓₖ² times −2 ∂K/∂s. A profile is
the function s ↦ (K, −2 ∂K/∂s); all else is common to them.
"""

from abc import abstractmethod
from collections.abc import Callable
from itertools import compress

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Kernel, Matern, RationalQuadratic

from postlin._typing import Array
from postlin.kernels.terms import Blocks, Gram, PullBack, Term, no_parameters, term_for
from postlin.linalg.arrays import (
    Matrix,
    column_products,
    inner_product,
    namespace,
    on_host,
    ratio,
    squared_distances,
)

#: Features that reach farther than this, in length scales, cancel in the product form.
_FAR = 1e3

Profile = Callable[[Matrix], tuple[Matrix, Matrix]]


def _squared_exponential(s: Matrix) -> tuple[Matrix, Matrix]:
    K = namespace(s).exp(-0.5 * s)
    return K, K


def _matern_12(s: Matrix) -> tuple[Matrix, Matrix]:
    xp = namespace(s)
    r = xp.sqrt(s)
    K = xp.exp(-r)
    return K, ratio(K, r)


def _matern_32(s: Matrix) -> tuple[Matrix, Matrix]:
    xp = namespace(s)
    r = xp.sqrt(3.0 * s)
    decay = xp.exp(-r)
    return (1.0 + r) * decay, 3.0 * decay


def _matern_52(s: Matrix) -> tuple[Matrix, Matrix]:
    xp = namespace(s)
    r = xp.sqrt(5.0 * s)
    decay = xp.exp(-r)
    return (1.0 + r + r**2 / 3.0) * decay, 5.0 / 3.0 * (1.0 + r) * decay


_MATERN: dict[float, Profile] = {
    0.5: _matern_12,
    1.5: _matern_32,
    2.5: _matern_52,
    np.inf: _squared_exponential,
}


#: Squared distances to K and to its derivatives by the log-parameters, in the kernel's order.
Isotropic = Callable[[Matrix], tuple[Matrix, Callable[[], tuple[Matrix, ...]]]]


def _isotropic_blocks(free: list[bool], squared: Matrix, profile: Isotropic) -> Blocks:
    def block(rows: slice, columns: slice) -> Gram:
        K, derivatives = profile(squared[rows, columns])

        def pull_back(K_bar: Matrix) -> list[float]:
            wanted = compress(derivatives(), free)
            return [inner_product(K_bar, by_parameter) for by_parameter in wanted]

        return Gram(K, pull_back if any(free) else no_parameters)

    return block


class _Stationary(Term):
    """A profile with one length scale or with one for every feature."""

    @classmethod
    def needs_distances(cls, kernel: Kernel) -> bool:
        """Only if there is but one length scale."""
        return not kernel.anisotropic

    @classmethod
    def is_covariance(cls, kernel: Kernel) -> bool:
        """In any number of dimensions."""
        return True

    def blocks(self, kernel: Kernel) -> Blocks:
        profile = _MATERN[kernel.nu] if isinstance(kernel, Matern) else _squared_exponential
        if kernel.anisotropic:
            return self._anisotropic(profile, np.asarray(kernel.length_scale))
        scale = _inverse_square(kernel)

        def isotropic(squared: Matrix) -> tuple[Matrix, Callable[[], tuple[Matrix]]]:
            s = scale * squared
            K, slope = profile(s)
            return K, lambda: (slope * s,)

        return _isotropic_blocks(self.free, self.points.squared_distances, isotropic)

    def _anisotropic(self, profile: Profile, length_scale: Array) -> Blocks:
        features = self.points.left.shape[1]
        if len(length_scale) != features:
            raise ValueError(f"{len(length_scale)} length scales for {features} features.")
        scale = self.points.place.put(length_scale)
        X, Y = self.points.left / scale, self.points.right / scale
        far = np.flatnonzero(np.abs(on_host(X)).max(axis=0) > _FAR)

        def block(rows: slice, columns: slice) -> Gram:
            left, right = X[rows, :], Y[columns, :]
            K, slope = profile(squared_distances(left, right))
            return Gram(K, _by_features(left, right, slope, far) if any(self.free) else no_parameters)

        return block


def _by_features(left: Matrix, right: Matrix, slope: Matrix, far: np.ndarray) -> PullBack:
    """Σᵢⱼ Wᵢⱼ (xᵢ − xⱼ)² for all features at once, W = K̄ ∘ slope."""
    xp = namespace(left)

    def pull_back(K_bar: Matrix) -> list[float]:
        W = K_bar * slope
        sums = xp.sum(W, axis=1) @ left**2 + xp.sum(W, axis=0) @ right**2
        sums -= 2.0 * column_products(left, W @ right)
        squares: Array = np.array(on_host(sums))
        for k in map(int, far):
            squares[k] = inner_product(W, (left[:, k][:, None] - right[:, k][None, :]) ** 2)
        return [float(s) for s in squares]

    return pull_back


@term_for(RBF)
class _RBF(_Stationary):
    pass


@term_for(Matern)
class _Matern(_Stationary):
    @classmethod
    def suits(cls, kernel: Matern) -> bool:
        """Half-integers up to 5/2, and infinity; others need a Bessel function."""
        return kernel.nu in _MATERN


class _Isotropic(Term):
    """Kernels with one length scale only and a second parameter."""

    @classmethod
    def needs_distances(cls, kernel: Kernel) -> bool:
        """Always."""
        return True

    def blocks(self, kernel: Kernel) -> Blocks:
        return _isotropic_blocks(self.free, self.points.squared_distances, self._profile(kernel))

    @staticmethod
    @abstractmethod
    def _profile(kernel: Kernel) -> Isotropic:
        """K and its derivatives as functions of the squared distance."""


@term_for(RationalQuadratic)
class _RationalQuadratic(_Isotropic):
    """(1 + s/2α)^−α; parameters α and ℓ."""

    @classmethod
    def is_covariance(cls, kernel: Kernel) -> bool:
        """A mixture of squared exponentials."""
        return bool(kernel.alpha > 0)

    @staticmethod
    def _profile(kernel: RationalQuadratic) -> Isotropic:
        alpha, scale = float(kernel.alpha), _inverse_square(kernel)

        def profile(squared: Matrix) -> tuple[Matrix, Callable[[], tuple[Matrix, Matrix]]]:
            log = namespace(squared).log
            s = scale * squared
            base = 1.0 + s / (2.0 * alpha)
            K = base**-alpha
            return K, lambda: (K * (0.5 * s / base - alpha * log(base)), K * s / base)

        return profile


@term_for(ExpSineSquared)
class _ExpSineSquared(_Isotropic):
    """exp(−2 sin²(π d/p)/ℓ²); parameters ℓ and p."""

    @staticmethod
    def _profile(kernel: ExpSineSquared) -> Isotropic:
        period, scale = float(kernel.periodicity), _inverse_square(kernel)

        def profile(squared: Matrix) -> tuple[Matrix, Callable[[], tuple[Matrix, Matrix]]]:
            xp = namespace(squared)
            angle = np.pi / period * xp.sqrt(squared)
            sine = xp.sin(angle)
            K = xp.exp(-2.0 * scale * sine**2)

            def derivatives() -> tuple[Matrix, Matrix]:
                common = 4.0 * scale * K * sine
                return common * sine, common * angle * xp.cos(angle)

            return K, derivatives

        return profile


def _inverse_square(kernel: Kernel) -> float:
    """1/ℓ² of a kernel with one length scale."""
    return float(np.squeeze(kernel.length_scale)) ** -2
