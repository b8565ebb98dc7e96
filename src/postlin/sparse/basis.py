"""Inducing points and what a kernel makes of them: the coordinates R = L⁻¹k(Z, x) of a row."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.kernels.rectangles import Cross, Diagonal, cross, diagonal, full_cross
from postlin.sparse.triangle import Triangle

#: What is added to the diagonal of Kuu, in units of its mean.
JITTER = 1e-6


class Coordinates(NamedTuple):
    """Rows in the basis of the inducing points: R, an array (rows, m), and λ = k(x, x) − |R|²."""

    R: Array
    lam: Array
    cross: Cross  # its K is good only where it was kept
    diagonal: Diagonal


@dataclass(frozen=True, eq=False)
class Basis:
    """A kernel, inducing points Z, and L with L Lᵀ = k(Z, Z) + jitter.

    This is the only jitter in the library. Exact inference factorises I + SKS, which is never worse
    than I; here k(Z, Z) itself must be factorised, and for smooth kernels it is singular to
    rounding as soon as there are more points than the kernel can tell apart. It changes the
    approximation, not its consistency: what the jittered basis does not explain is in λ.
    """

    kernel: Kernel
    Z: Array
    jitter: float
    factor: Triangle

    @classmethod
    def of(cls, kernel: Kernel, Z: Array, jitter: float = JITTER) -> "Basis":
        """The basis of inducing points under a kernel."""
        with np.errstate(over="ignore"):  # that is seen below
            Kuu = full_cross(kernel, Z, Z).K
        if not np.isfinite(Kuu).all():
            raise NotPositiveDefiniteError("the kernel's values at the inducing points are not finite.")
        Kuu[np.diag_indices_from(Kuu)] += jitter * Kuu.diagonal().mean()
        try:
            return cls(kernel, Z, jitter, Triangle(cholesky(Kuu, lower=True)))
        except LinAlgError:
            i, j = _closest(Kuu)
            raise NotPositiveDefiniteError(
                f"the covariance of the {len(Z)} inducing points is singular to rounding: points {i} "
                f"and {j} nearly coincide, or the kernel is too smooth to tell so many apart; drop "
                "one, use fewer, or raise the jitter."
            ) from None

    def coordinates(self, X: Array, *, keep: bool = False) -> Coordinates:
        """Of the rows of X; λ below zero is rounding. Derivatives need k(X, Z) kept."""
        rectangle, variances = full_cross(self.kernel, X, self.Z), diagonal(self.kernel, X)
        R = self.factor.solve(rectangle.K.copy() if keep else rectangle.K)
        lam = variances.k - np.einsum("ij,ij->i", R, R)
        return Coordinates(R, np.maximum(lam, 0.0), rectangle, variances)

    def pull_back(self, S: Array, *, points: bool) -> tuple[Array, Array]:
        """From S = Σ R̄Rᵀ to derivatives by the kernel's log-parameters and, where asked for, by Z.

        R = L⁻¹k, so dL changes R by −L⁻¹dL R, and the Cholesky factorisation is reversed.
        """
        inverse = self.factor.inverse
        lower = np.tril(S)
        lower[np.diag_indices_from(lower)] *= 0.5
        by_gram = -inverse.T @ lower @ inverse
        by_gram = 0.5 * (by_gram + by_gram.T)
        # the jitter is a part of the mean variance
        by_gram[np.diag_indices_from(by_gram)] += self.jitter * by_gram.trace() / len(by_gram)
        square = cross(self.kernel, self.Z, self.Z)
        by_points = np.zeros_like(self.Z)
        if points:
            by_points += 2.0 * square.by_right(by_gram)  # Z is on both sides
        return np.array(square.by_theta(by_gram), dtype=float), by_points


def _closest(K: Array) -> tuple[int, int]:
    """The two points whose values are most alike."""
    scale = np.sqrt(K.diagonal())
    with np.errstate(invalid="ignore"):  # variances of zero
        alike = np.tril(K / np.outer(scale, scale), -1)
    i, j = np.unravel_index(np.argmax(alike), alike.shape)
    return int(j), int(i)
