"""The Gaussian posterior of all contrasts of all points, given sites in matrices.

Two matrices of (n D)²: the Cholesky factor of B = I + Sᵀ prior S, T = S Sᵀ block by block, and
W = L⁻¹ Sᵀ prior, from which Σ = prior − Wᵀ W. A third where the covariance itself is asked for.
"""

from functools import cached_property

import numpy as np
from scipy.linalg import blas, lapack

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.joint.prior import Prior
from postlin.joint.sites import symmetric, times
from postlin.sites import Sites


class JointPosterior:
    """A prior times sites, normalised. One factorisation, made on construction."""

    def __init__(self, prior: Prior, sites: Sites) -> None:
        self.prior = prior
        self.sites = sites
        values, vectors = np.linalg.eigh(sites.tau)
        self._S = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # T = S Sᵀ
        self.half_log_det = float(np.log(self._factor.diagonal()).sum())
        # a = (I + T prior)⁻¹ ν and the mean is prior · a
        target = times(np.swapaxes(self._S, 1, 2), prior.times(sites.nu))
        inner = self._solve(target.ravel()).reshape(sites.nu.shape)
        self.weights: Array = sites.nu - times(self._S, inner)
        self.mean: Array = prior.times(self.weights)

    @cached_property
    def _factor(self) -> Array:
        B = self.prior.between(self._S)
        B[np.diag_indices_from(B)] += 1.0
        factor, failed = lapack.dpotrf(B.T, lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError(
                "the covariance matrix is not positive semi-definite, or holds NaN or infinity."
            )
        L: Array = factor
        return L

    def _solve(self, x: Array) -> Array:
        half = blas.dtrsv(self._factor, x, lower=1)
        result: Array = blas.dtrsv(self._factor, half, lower=1, trans=1)
        return result

    def _whitened(self, prior: Prior) -> Array:
        """L⁻¹ Sᵀ prior; columns in Fortran's order."""
        right = np.asfortranarray(prior.right_of(self._S))
        result: Array = blas.dtrsm(1.0, self._factor, right, lower=1, overwrite_b=1)
        return result

    @cached_property
    def _pulled(self) -> Array:
        return self._whitened(self.prior)

    @cached_property
    def variance(self) -> Array:
        """Posterior covariances of each point's contrasts, (n, D, D)."""
        return _explained_away(self._pulled, self.prior.blocks())

    @cached_property
    def covariance(self) -> Array:
        """Σ, (n D, n D)."""
        lower = blas.dsyrk(-1.0, self._pulled, trans=1, lower=1)
        sigma: Array = np.tril(lower)
        sigma += np.tril(lower, -1).T
        self.prior.add_to(sigma)
        return sigma

    @property
    def log_normaliser(self) -> float:
        """Log ∫ prior Πᵢ exp(νᵢᵀuᵢ − ½ uᵢᵀTᵢuᵢ) du."""
        return 0.5 * float(np.sum(self.sites.nu * self.mean)) - self.half_log_det

    def release(self) -> None:
        """Give the matrices back; what else is asked for costs a factorisation."""
        for name in ("_factor", "_pulled", "covariance"):
            self.__dict__.pop(name, None)

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
        T = self.sites.tau
        TS = T @ self.covariance.reshape(n, D, n * D)
        R = -TS.reshape(n * D, n * D).T
        R[np.diag_indices(n * D)] += 1.0
        Rm = (R.T @ mean_bar.ravel()).reshape(n, D)
        VR = (variance_bar @ R.reshape(n, D, n * D)).reshape(n * D, n, D)
        TR = (T @ R.reshape(n, D, n * D)).reshape(n * D, n, D)  # Q
        R3 = R.reshape(n * D, n, D)
        parts = []
        for directions in self.prior.directions:
            K_bar = np.zeros((n, n))
            for d in directions:
                half = np.outer(Rm @ d, self.weights @ d)
                K_bar += 0.5 * (half + half.T + np.outer(self.weights @ d, self.weights @ d))
                K_bar += (R3 @ d).T @ (VR @ d) - 0.5 * (TR @ d).reshape(n, D, n).transpose(0, 2, 1) @ d
            parts.append(symmetric(K_bar))
        return parts


def _explained_away(W: Array, prior_blocks: Array) -> Array:
    """Prior blocks − W_iᵀ W_i for the blocks of columns of W."""
    m, D, _ = prior_blocks.shape
    columns = W.T.reshape(m, D, -1)
    return symmetric(prior_blocks - columns @ np.swapaxes(columns, 1, 2))
