"""From the Gaussian posterior of a fit to the exact posterior of the same model.

The fit's posterior is q = N(m, Σ), with a site in place of each likelihood term. With f = m + d,
w for the weights and a = ν − T m = K⁻¹(m − μ₀), the exact posterior is proportional to q exp Φ, where

    Φ(d) = Σᵢ wᵢ log p(yᵢ|fᵢ) − aᵀd + ½ dᵀT d,
    log p(y) = log E_q[exp Φ] − ½ (m − μ₀)ᵀa − ½ log |B|.

This holds whatever the sites are. Those of the fit make the expectation easy to estimate. Where the
likelihood is not log-concave the exact posterior may have modes in which the fit's has next to no mass,
so that no draw finds them; with weaker sites q is wider and covers them.

In z, where d = L z, the exact posterior has the score Lᵀ∇Φ − z, whose mean under it is zero. So the
mean over particles of any combination of its entries is noise, and what goes with it in the mean
probability of a new row can be taken out (Mira, Solgi and Imparato, 2013).
"""

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.inference.exact.problem import ExactProblem
from postlin.likelihoods.base import BinaryLikelihood
from postlin.likelihoods.tables import Tables
from postlin.linalg.factor import PivotedRoot
from postlin.rules.sites import Sites

#: Sites of a likelihood that is not log-concave keep this part of their strength. With 20 rows and the
#: noisy threshold log p(y) was off by -.19 with all of it, by -.05 with half, and by -.01 with this, in
#: as many levels; on three larger sets it takes up to half as many more.
_WEAKER = 0.4
#: Tables of log p(y|f) reach this many standard deviations from the posterior means.
_REACH = 10.0
#: The accuracy of log p(y|f), of which n are summed, and of the probabilities that are averaged.
_FINE, _COARSE = 1e-9, 1e-7
#: The largest part of a probability that is taken for noise.
_MOST = 0.5
_EPS = float(np.finfo(float).eps)


class Bridge:
    """q and Φ, of which particles d are an array [particle, point]."""

    def __init__(self, problem: ExactProblem, sites: Sites) -> None:
        """Take a problem whose matrix is in NumPy's memory, and the sites of its approximation."""
        assert isinstance(problem.likelihood, BinaryLikelihood)
        if not problem.likelihood.log_concave:
            sites = Sites(_WEAKER * sites.tau, _WEAKER * sites.nu)
        posterior = self._posterior = GaussianPosterior(problem.K, problem.prior_mean, sites)
        self.likelihood, self._positive = problem.likelihood, problem.y > 0
        self._weight = problem.weights.count
        self._mean, self._tau, self._pull = posterior.mean, sites.tau, posterior.weights
        #: log p(y) − log E_q[exp Φ]
        self.offset = -posterior.half_log_det - 0.5 * float(
            (self._mean - problem.prior_mean) @ self._pull
        )
        reach = _REACH * np.sqrt(posterior.variance)
        low, high = np.min(self._mean - reach, keepdims=True), np.max(self._mean + reach, keepdims=True)
        self._log_p = Tables(self.likelihood, low, high, np.zeros(1), accuracy=_FINE)
        self.covariance: Array = np.ascontiguousarray(posterior.covariance)
        self.root = PivotedRoot(self.covariance)

    def __len__(self) -> int:
        return len(self._mean)

    def drawn(self, rng: np.random.Generator, n: int) -> Array:
        """n draws of d from q."""
        return np.asarray(rng.standard_normal((n, self.root.rank)) @ self.root.matrix.T)

    def log_ratio(self, d: Array) -> tuple[Array, Array]:
        """Φ of each particle, and its gradient."""
        value, slope = self._log_p(self._positive, self._mean + d)
        value *= self._weight
        slope *= self._weight
        slope -= self._pull
        bent = self._tau * d
        slope += bent
        bent *= 0.5
        bent -= self._pull
        return value.sum(axis=1) + np.einsum("ij,ij->i", bent, d), slope

    def predictor(
        self, cross: Array, prior_variance: Array, prior_mean: Array | float = 0.0
    ) -> "Predictor":
        """The latent values of new rows, from k(training, new) and the diagonal of k(new, new)."""
        mean, variance = self._posterior.predict(cross, prior_variance, prior_mean)
        pivots = self.root.pivots
        # the covariance of f and f* under q is (I − ΣT) k(training, new)
        covariance = cross[pivots] - self.covariance[pivots] @ (self._tau[:, None] * cross)
        by_z = self.root.whitened(covariance)
        # no subtraction can resolve a variance below the last bit of k(x, x)
        left = np.maximum(variance - np.einsum("ij,ij->j", by_z, by_z), _EPS * prior_variance)
        return Predictor(self.likelihood, mean, by_z, left)

    def whitened(self, d: Array) -> tuple[Array, Array]:
        """z of particles d = L z, and the score of the exact posterior there, [particle, pivot]."""
        z = np.ascontiguousarray(self.root.whitened(d[:, self.root.pivots].T).T)
        return z, self.log_ratio(d)[1] @ self.root.matrix - z


class Predictor:
    """Probabilities at new rows: f* given f is N(m* + Aᵀz, v*), the same as in the prior."""

    def __init__(self, likelihood: BinaryLikelihood, mean: Array, by_z: Array, variance: Array) -> None:
        self._likelihood, self._mean, self._by_z, self._variance = likelihood, mean, by_z, variance

    def log_probabilities(self, z: Array, score: Array, log_weights: Array) -> Array:
        """The logarithms of the mean probabilities of −1 and +1 over weighted particles, (rows, 2)."""
        m = z @ self._by_z
        m += self._mean
        tables = Tables(
            self._likelihood, m.min(axis=0), m.max(axis=0), self._variance, accuracy=_COARSE
        )
        center = np.exp(log_weights) @ m
        everywhere = np.ones(len(center), dtype=bool)
        is_rare = tables(everywhere, center[None])[0][0] < np.log(0.5)  # whether +1 is
        log_p = tables(is_rare, m)[0] + log_weights[:, None]
        rare = _without_noise(log_p, log_weights, score @ self._by_z)
        other = np.log1p(-np.exp(rare))
        return np.stack([np.where(is_rare, other, rare), np.where(is_rare, rare, other)], axis=1)


def _without_noise(log_p: Array, log_weights: Array, noise: Array) -> Array:
    """log Σ p of each column without the part that goes with a noise whose true mean is zero."""
    weights, total = np.exp(log_weights), logsumexp(log_p, axis=0)
    parts = np.exp(log_p - np.where(np.isfinite(total), total, 0.0))
    mean = weights @ noise
    noise = noise - mean
    square = weights @ noise**2
    slope = np.einsum("ij,ij->j", parts, noise) / np.where(square > 0.0, square, 1.0)
    # where p varies by orders of magnitude a few particles make its mean, and no slope is known
    return np.asarray(total + np.log1p(-np.clip(slope * mean, -_MOST, _MOST)))
