"""The Gaussian posterior that a prior N(μ₀, K) and sites (τ, ν) make: dense linear algebra only.

Everything stands on the Cholesky factor of B = I + S K S, S = diag(√τ), whose eigenvalues are
at least one: no jitter, ever. Sites of negative precision (EP may keep some) are added after
the others as a downdate, whose own Cholesky factor exists exactly when the posterior does.
"""

from functools import cached_property

import numpy as np
from scipy.linalg import lapack, solve_triangular

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.sites import Marginals, Sites, SiteView

#: √τ is kept above this: sites so weak change no bit of B, but can then be divided by.
_WEAKEST = 1e-100
#: Rows with τ k below this take their variance from the covariance's other entries.
_WEAK = 1e-2


class GaussianPosterior:
    """N(μ₀, K) times sites, normalised. One factorisation, made on construction."""

    def __init__(self, K: Array, prior_mean: Array, sites: Sites) -> None:
        self.K = K
        self.prior_mean = prior_mean
        self.sites = sites
        self._root = np.sqrt(np.maximum(sites.tau, _WEAKEST**2))
        self._factorise()
        self._solve()

    def _factorise(self) -> None:
        B = np.multiply(self._root[:, None], self.K, order="C")
        B *= self._root
        diagonal_of(B)[:] += 1.0
        # B is symmetric, so its transpose is B in the memory order that LAPACK wants.
        factor, failed = lapack.dpotrf(B.T, lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError(
                "the covariance matrix is not positive semi-definite, or holds NaN or infinity."
            )
        self._factor: Array = factor
        self.half_log_det = float(np.log(factor.diagonal()).sum())
        inverse, _ = lapack.dpotri(factor, lower=1)
        self._inverse: Array = _mirror_lower(inverse)

    def _solve(self) -> None:
        """Marginals. For strong sites B⁻¹ has the digits, for weak ones the prior has."""
        tau, nu = self.sites
        k = self.K.diagonal()
        root = self._root
        inverse_diagonal = self._inverse.diagonal().copy()
        target = nu - tau * self.prior_mean
        # a = (I + TK)⁻¹(ν − τμ₀) and the posterior mean is μ₀ + K a
        self.weights: Array = root * (self._inverse @ (target / root))
        mean = self.K @ self.weights
        strong = tau * k > 1.0
        mean[strong] = (target[strong] - self.weights[strong]) / tau[strong]

        variance = (1.0 - inverse_diagonal) / root**2
        gap = inverse_diagonal
        weak = np.flatnonzero(tau * k < _WEAK)
        if len(weak):
            # From Σ = K − K T Σ: the diagonal, given the rest of its row.
            positive = np.maximum(tau, 0.0)
            rows = -self._inverse[weak] / root[weak, None] / root
            rows[np.arange(len(weak)), weak] = 0.0
            explained = np.einsum("ij,ij->i", self.K[weak] * positive, rows)
            variance[weak] = (k[weak] - explained) / (1.0 + positive[weak] * k[weak])
            gap[weak] = 1.0 - positive[weak] * variance[weak]
        self._variance_from_positive = variance
        negative = np.flatnonzero(tau < 0)
        self._negative = negative
        if len(negative):
            mean, variance, gap = self._add_negative(negative, mean, variance, gap, target)
        self.mean: Array = mean + self.prior_mean
        self.variance: Array = variance
        self.gap: Array = gap

    def _add_negative(
        self, negative: np.ndarray, mean: Array, variance: Array, gap: Array, target: Array
    ) -> tuple[Array, Array, Array]:
        """Add the sites of negative precision to the posterior of the others."""
        tau = self.sites.tau
        strength = np.sqrt(-tau[negative])
        columns = self._positive_covariance(negative) * strength
        downdate = -strength[:, None] * columns[negative]
        diagonal_of(downdate)[:] += 1.0
        factor, failed = lapack.dpotrf(downdate, lower=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError("negative sites outweigh the prior and the other sites.")
        self.half_log_det += float(np.log(factor.diagonal()).sum())
        spread = solve_triangular(factor, columns.T, lower=True)
        self._spread: Array = spread
        # (I − Q₊K) rows of the negative sites, for the predictive variance
        response = -np.maximum(tau, 0.0) * columns.T
        response[np.arange(len(negative)), negative] += strength
        self._negative_response: Array = solve_triangular(factor, response, lower=True)
        shift = spread.T @ (spread @ target)
        widening = np.einsum("ij,ij->j", spread, spread)
        self.weights -= np.maximum(tau, 0.0) * shift
        mean = mean + shift
        variance = variance + widening
        gap = np.where(tau > 0, gap - tau * widening, 1.0 - tau * variance)
        self.weights[negative] = target[negative] - tau[negative] * mean[negative]
        return mean, variance, gap

    def _positive_covariance(self, columns: np.ndarray | slice) -> Array:
        """Columns of the covariance given the positive sites alone."""
        root = self._root
        part: Array = -self._inverse[:, columns] / root[:, None] / root[columns]
        index = np.arange(len(root))[columns]
        part[index, np.arange(len(index))] = self._variance_from_positive[columns]
        return part

    @property
    def view(self) -> SiteView:
        """What the rules look at."""
        return SiteView(self.mean, self.variance, *self.sites, self.gap)

    @cached_property
    def covariance(self) -> Array:
        """Σ = (K⁻¹ + T)⁻¹."""
        covariance = self._positive_covariance(slice(None))
        if len(self._negative):
            covariance += self._spread.T @ self._spread
        return covariance

    @cached_property
    def precision_gain(self) -> Array:
        """Q = T − TΣT = (K + T⁻¹)⁻¹, by which data reduce variances: Σ = K − K Q K."""
        gain: Array = self._root[:, None] * self._inverse * self._root
        if len(self._negative):
            gain -= self._negative_response.T @ self._negative_response
        return gain

    @property
    def log_normaliser(self) -> float:
        """Log ∫ N(f; μ₀, K) Πᵢ exp(νᵢfᵢ − τᵢfᵢ²/2) df."""
        tau, nu = self.sites
        mu = self.prior_mean
        at_prior_mean = float(mu @ (nu - 0.5 * tau * mu))
        fit = 0.5 * float((nu - tau * mu) @ (self.mean - mu))
        return at_prior_mean + fit - self.half_log_det

    def predict(
        self, cross: Array, prior_variance: Array, prior_mean: Array | float = 0.0
    ) -> Marginals:
        """Latent marginals at new points, from k(training, new) and k(new, new)'s diagonal."""
        mean = prior_mean + cross.T @ self.weights
        explained = solve_triangular(self._factor, self._root[:, None] * cross, lower=True)
        variance = prior_variance - np.einsum("ij,ij->j", explained, explained)
        if len(self._negative):
            widening = self._negative_response @ cross
            variance += np.einsum("ij,ij->j", widening, widening)
        # No subtraction from k(x, x) can resolve a variance below its last bit.
        return Marginals(mean, np.maximum(variance, np.finfo(float).eps * prior_variance))

    def pull_back(self, mean_bar: Array, variance_bar: Array) -> Array:
        """∂/∂K of log ∫ prior × sites + m̄·mean + v̄·variance, at fixed sites; symmetric."""
        tau = self.sites.tau
        R = -self.covariance * tau  # R = I − ΣT = (I + KT)⁻¹
        diagonal_of(R)[:] = self.gap
        outer = np.outer(R.T @ mean_bar, self.weights)
        K_bar = R.T @ (variance_bar[:, None] * R)
        K_bar += 0.5 * (outer + outer.T)
        K_bar += 0.5 * (np.outer(self.weights, self.weights) - self.precision_gain)
        return 0.5 * (K_bar + K_bar.T)


def _mirror_lower(matrix: Array) -> Array:
    """The symmetric matrix whose lower triangle is given."""
    lower = np.tril(matrix, -1)
    symmetric: Array = lower + lower.T
    diagonal_of(symmetric)[:] = matrix.diagonal()
    return symmetric


def diagonal_of(matrix: Array) -> Array:
    """The diagonal as something that can be written to, whatever the layout in memory."""
    view: Array = np.einsum("ii->i", matrix)
    return view
