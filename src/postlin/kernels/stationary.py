"""Kernels of the distance between two points.

With s = Σₖ (xₖ − x'ₖ)²/ℓₖ² the gradient by log ℓₖ is (xₖ − x'ₖ)²/ℓₖ² times −2 ∂K/∂s. A profile is
the function s ↦ (K, −2 ∂K/∂s); all else is common to them.
"""

from abc import abstractmethod
from collections.abc import Callable
from itertools import compress

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Kernel, Matern, RationalQuadratic

from postlin._typing import Array
from postlin.kernels.terms import Blocks, Gram, PullBack, Term, no_parameters, term_for

#: Features that reach farther than this, in length scales, cancel in the product form.
_FAR = 1e3

Profile = Callable[[Array], tuple[Array, Array]]


def _squared_exponential(s: Array) -> tuple[Array, Array]:
    K = np.exp(-0.5 * s)
    return K, K


def _matern_12(s: Array) -> tuple[Array, Array]:
    r = np.sqrt(s)
    K = np.exp(-r)
    return K, np.divide(K, r, out=np.zeros_like(r), where=r > 0)


def _matern_32(s: Array) -> tuple[Array, Array]:
    r = np.sqrt(3.0 * s)
    decay = np.exp(-r)
    return (1.0 + r) * decay, 3.0 * decay


def _matern_52(s: Array) -> tuple[Array, Array]:
    r = np.sqrt(5.0 * s)
    decay = np.exp(-r)
    return (1.0 + r + r**2 / 3.0) * decay, 5.0 / 3.0 * (1.0 + r) * decay


_MATERN: dict[float, Profile] = {
    0.5: _matern_12,
    1.5: _matern_32,
    2.5: _matern_52,
    np.inf: _squared_exponential,
}


#: Squared distances to K and to its derivatives by the log-parameters, in the kernel's order.
Isotropic = Callable[[Array], tuple[Array, Callable[[], tuple[Array, ...]]]]


def _isotropic_blocks(kernel: Kernel, squared_distances: Array, profile: Isotropic) -> Blocks:
    free = [not parameter.fixed for parameter in kernel.hyperparameters]

    def block(rows: slice, columns: slice) -> Gram:
        K, derivatives = profile(squared_distances[rows, columns])

        def pull_back(K_bar: Array) -> list[float]:
            wanted = compress(derivatives(), free)
            return [float(np.einsum("ij,ij->", K_bar, by_parameter)) for by_parameter in wanted]

        return Gram(K, pull_back if any(free) else no_parameters)

    return block


class _Stationary(Term):
    """A profile with one length scale or with one for every feature."""

    @classmethod
    def needs_distances(cls, kernel: Kernel) -> bool:
        """Only if there is but one length scale."""
        return not kernel.anisotropic

    def blocks(self, kernel: Kernel) -> Blocks:
        profile = _MATERN[kernel.nu] if isinstance(kernel, Matern) else _squared_exponential
        if kernel.anisotropic:
            fixed = kernel.hyperparameter_length_scale.fixed
            return self._anisotropic(profile, np.asarray(kernel.length_scale), fixed)
        scale = _inverse_square(kernel)

        def isotropic(squared: Array) -> tuple[Array, Callable[[], tuple[Array]]]:
            s = scale * squared
            K, slope = profile(s)
            return K, lambda: (slope * s,)

        return _isotropic_blocks(kernel, self.points.squared_distances, isotropic)

    def _anisotropic(self, profile: Profile, length_scale: Array, fixed: bool) -> Blocks:
        X = self.points.centred / length_scale
        far = np.flatnonzero(np.abs(X).max(axis=0) > _FAR)

        def block(rows: slice, columns: slice) -> Gram:
            left, right = X[rows], X[columns]
            K, slope = profile(cdist(left, right, "sqeuclidean"))
            return Gram(K, no_parameters if fixed else _by_features(left, right, slope, far))

        return block


def _by_features(left: Array, right: Array, slope: Array, far: np.ndarray) -> PullBack:
    """Σᵢⱼ Wᵢⱼ (xᵢ − xⱼ)² for all features at once, W = K̄ ∘ slope."""

    def pull_back(K_bar: Array) -> list[float]:
        W = K_bar * slope
        squares = W.sum(axis=1) @ left**2 + W.sum(axis=0) @ right**2
        squares -= 2.0 * np.einsum("ik,ik->k", left, W @ right)
        for k in far:
            squares[k] = np.einsum("ij,ij->", W, (left[:, k, None] - right[:, k]) ** 2)
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
        return _isotropic_blocks(kernel, self.points.squared_distances, self._profile(kernel))

    @staticmethod
    @abstractmethod
    def _profile(kernel: Kernel) -> Isotropic:
        """K and its derivatives as functions of the squared distance."""


@term_for(RationalQuadratic)
class _RationalQuadratic(_Isotropic):
    """(1 + s/2α)^−α; parameters α and ℓ."""

    @staticmethod
    def _profile(kernel: RationalQuadratic) -> Isotropic:
        alpha, scale = kernel.alpha, _inverse_square(kernel)

        def profile(squared: Array) -> tuple[Array, Callable[[], tuple[Array, Array]]]:
            s = scale * squared
            base = 1.0 + s / (2.0 * alpha)
            K = base**-alpha
            return K, lambda: (K * (0.5 * s / base - alpha * np.log(base)), K * s / base)

        return profile


@term_for(ExpSineSquared)
class _ExpSineSquared(_Isotropic):
    """exp(−2 sin²(π d/p)/ℓ²); parameters ℓ and p."""

    @staticmethod
    def _profile(kernel: ExpSineSquared) -> Isotropic:
        period, scale = kernel.periodicity, _inverse_square(kernel)

        def profile(squared: Array) -> tuple[Array, Callable[[], tuple[Array, Array]]]:
            angle = np.pi / period * np.sqrt(squared)
            sine = np.sin(angle)
            K = np.exp(-2.0 * scale * sine**2)

            def derivatives() -> tuple[Array, Array]:
                common = 4.0 * scale * K * sine
                return common * sine, common * angle * np.cos(angle)

            return K, derivatives

        return profile


def _inverse_square(kernel: Kernel) -> float:
    """1/ℓ² of a kernel with one length scale."""
    return float(np.squeeze(kernel.length_scale)) ** -2
