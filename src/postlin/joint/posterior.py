"""The Gaussian posterior of all contrasts of all points, given sites in matrices.

One matrix of (n D)²: the Cholesky factor of B = I + Sᵀ prior S, T = S Sᵀ block by block; then its
inverse, for the variances; then the posterior correlation where somebody asks for it. As for
two classes all follows from B⁻¹: Vᵢ = Sᵢ⁻ᵀ(I − (B⁻¹)ᵢᵢ)Sᵢ⁻¹ and Σᵢⱼ = −Sᵢ⁻ᵀ(B⁻¹)ᵢⱼSⱼ⁻¹.
"""

from functools import cached_property

import numpy as np
from scipy.linalg import blas

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.joint.correlation import BlockCorrelation
from postlin.joint.factor import BlockFactor
from postlin.joint.prior import Prior
from postlin.joint.sites import root_of, symmetric, times
from postlin.sites import Sites

#: Roots of T's eigenvalues are kept above this: so weak they change no bit of B, but can be divided by.
_WEAKEST = 1e-100


class JointPosterior:
    """A prior times sites, normalised. One factorisation, made on construction."""

    def __init__(self, prior: Prior, sites: Sites) -> None:
        self.prior = prior
        self.sites = sites
        values, vectors = np.linalg.eigh(sites.tau)
        roots = np.sqrt(np.maximum(values, _WEAKEST**2))[:, None, :]
        self._S = vectors * roots  # T = S Sᵀ
        self._inverse_S = np.swapaxes(vectors / roots, 1, 2)
        self.half_log_det = self._factor.half_log_det
        # a = (I + T prior)⁻¹ ν and the mean is prior · a
        target = times(np.swapaxes(self._S, 1, 2), prior.times(sites.nu))
        inner = self._factor.solve(target.ravel()).reshape(sites.nu.shape)
        self.weights: Array = sites.nu - times(self._S, inner)
        self.mean: Array = prior.times(self.weights)

    @cached_property
    def _factor(self) -> BlockFactor:
        return BlockFactor(self.prior.between(self._S), len(self._S))

    @cached_property
    def variance(self) -> Array:
        """Posterior covariances of each point's contrasts, (n, D, D)."""
        gains, inverse = self._factor.gains(), self._inverse_S
        return symmetric(np.swapaxes(inverse, 1, 2) @ gains @ inverse)

    @cached_property
    def root(self) -> Array:
        """Lower triangular roots of the variances."""
        try:
            return root_of(self.variance)
        except np.linalg.LinAlgError:
            raise NotPositiveDefiniteError("a posterior variance has no digit left.") from None

    @cached_property
    def correlation(self) -> BlockCorrelation:
        """L⁻¹ Σ L⁻ᵀ with the roots L; its array is the factor's, which is given up."""
        scale = self._inverse_S @ np.swapaxes(np.linalg.inv(self.root), 1, 2)
        array = self._factor.into_inverse()
        del self._factor
        return BlockCorrelation(array, scale)

    @property
    def covariance(self) -> Array:
        """Σ, (n D, n D), as a matrix of its own."""
        return self.correlation.scaled(self.root)

    @property
    def log_normaliser(self) -> float:
        """Log ∫ prior Πᵢ exp(νᵢᵀuᵢ − ½ uᵢᵀTᵢuᵢ) du."""
        return 0.5 * float(np.sum(self.sites.nu * self.mean)) - self.half_log_det

    def release(self) -> None:
        """Give the matrix back; what else is asked for costs a factorisation."""
        for name in ("_factor", "correlation"):
            self.__dict__.pop(name, None)

    def _whitened(self, prior: Prior) -> Array:
        """L⁻¹ Sᵀ prior, in columns, with B = L Lᵀ."""
        if "correlation" in self.__dict__ or self._factor.is_inverted:
            self.release()
        return self._factor.whiten(np.asfortranarray(prior.right_of(self._S)), overwrite=True)

    def predict(self, cross: Prior, variances: list[Array]) -> tuple[Array, Array]:
        """Means (m, D) and covariances (m, D, D) at new points, from covariances with them."""
        return cross.times(self.weights), _explained_away(
            self._whitened(cross), cross.blocks(variances)
        )

    def predict_jointly(self, cross: Prior, new: Prior) -> tuple[Array, Array]:
        """Means (m, D) and the covariance (m D, m D) of new points."""
        W = self._whitened(cross)
        covariance = -(W.T @ W)
        new.add_to(covariance)
        return cross.times(self.weights), symmetric(covariance)

    def pull_back(self, mean_bar: Array, variance_bar: Array) -> list[Array]:
        """∂/∂K, for every K, of log ∫ prior × sites + m̄·mean + V̄·variance at fixed sites.

        With R = I − ΣT and Q = T − TΣT the derivative by the whole prior is
        Rᵀ V̄ R + ½(Rᵀm̄ aᵀ + a m̄ᵀR + a aᵀ − Q); a kernel has its part of it along its directions.
        """
        n, D = self.sites.nu.shape
        T, L, C, a = self.sites.tau, self.root, self.correlation, self.weights
        up, inverse = np.swapaxes(L, 1, 2), np.linalg.inv(L)
        Rm = mean_bar - times(T, times(L, C.times(times(up, mean_bar))))
        scaled_bar = up @ variance_bar @ L
        own = np.arange(n)
        parts = []
        for directions in self.prior.directions:
            K_bar = np.zeros((n, n), order="F")
            for d in directions:
                u = (up @ T) @ d
                along = C.along(u)  # (n, D, n): L⁻¹ Σ T d
                half = np.outer(Rm @ d + 0.5 * (a @ d), a @ d)
                K_bar += 0.5 * (half + half.T)
                K_bar += 0.5 * np.einsum("ia,iaj->ij", u, along)
                K_bar[own, own] -= 0.5 * (T @ d) @ d
                along *= -1.0
                along[own, :, own] += inverse @ d  # L⁻¹ R d
                weighted = scaled_bar @ along
                K_bar += blas.dgemm(
                    1.0, along.reshape(n * D, n).T, weighted.reshape(n * D, n).T, trans_b=1
                )
            parts.append(symmetric(K_bar))
        return parts


def _explained_away(W: Array, prior_blocks: Array) -> Array:
    """Prior blocks − W_iᵀ W_i for the blocks of columns of W."""
    m, D, _ = prior_blocks.shape
    columns = W.T.reshape(m, D, -1)
    return symmetric(prior_blocks - columns @ np.swapaxes(columns, 1, 2))
