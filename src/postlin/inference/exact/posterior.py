"""The Gaussian posterior that a prior N(μ₀, K) and sites (τ, ν) make: dense linear algebra only.

All follows from the Cholesky factor of B = I + S K S, S = diag(√τ). Sites of negative precision (EP
may keep some) are added after the others as a downdate, whose own Cholesky factor exists exactly when
the posterior does.

Beside K there is one array of n² numbers (two where n is small). It holds the factor of B, then its
inverse once variances are needed, then the posterior correlation once derivatives by the sites are
needed. The array is on K's device; vectors are NumPy's.
"""

import numpy as np

from postlin._typing import Array, Marginals, cached_property, override
from postlin.inference.contract import Posterior
from postlin.linalg.arrays import Matrix, clipped, column_products, diagonal, on_host, place_of
from postlin.linalg.factor import Correlation, Downdate, Factor, power_products
from postlin.linalg.tiles import TiledCorrelation, TiledFactor, whole_times
from postlin.linalg.triangles import times
from postlin.rules.sites import Sites, SiteView

#: √τ is at least this: weaker sites change no bit of B, and it can be divided by and B⁻¹ be squared.
_WEAKEST = 1e-70
_EPS = float(np.finfo(float).eps)


class GaussianPosterior(Posterior):
    """N(μ₀, K) times sites, normalised. The constructor makes one factorisation."""

    def __init__(self, K: Matrix, prior_mean: Array, sites: Sites) -> None:
        self.K, self.prior_mean, self.sites = K, prior_mean, sites
        self._is_host = place_of(K).is_host
        self._k = diagonal(K)
        tau, nu = sites
        self._root = np.sqrt(np.maximum(tau, _WEAKEST**2))
        self.half_log_det = self._factor.half_log_det
        target = nu - tau * prior_mean
        # a = (I + TK)⁻¹(ν − τμ₀) and the posterior mean is μ₀ + K a
        self.weights = self._root * self._factor.solve(target / self._root)
        mean = times(K.T, self.weights) if self._is_host else whole_times(K, self.weights)
        strong = tau * self._k > 1.0
        mean[strong] = (target[strong] - self.weights[strong]) / tau[strong]
        self._downdate = self._negative() if (tau < 0).any() else None
        if self._downdate:
            shift, negative = self._downdate.shift(target), self._downdate.negative
            mean += shift
            self.half_log_det += self._downdate.half_log_det
            self.weights -= np.maximum(tau, 0.0) * shift
            self.weights[negative] = target[negative] - tau[negative] * mean[negative]
        self.mean = mean + prior_mean

    @cached_property
    def _factor(self) -> Factor | TiledFactor:
        return Factor(self.K, self._root) if self._is_host else TiledFactor(self.K, self._root)

    @cached_property
    def _from_positive(self) -> tuple[Array, Array]:
        """Variances and 1 − τv given the positive sites alone."""
        return self._factor.marginals()

    @cached_property
    def is_resolved(self) -> bool:
        """Whether every posterior variance has a correct digit."""
        return bool((self._marginals[0] > _EPS * self._highest).all())

    @property
    def _highest(self) -> Array:
        """k/(1 + τk), upper bounds of the variances, which ignore other points."""
        return self._k / (1.0 + np.maximum(self.sites.tau, 0.0) * self._k)

    @cached_property
    def _marginals(self) -> tuple[Array, Array]:
        """Variances and 1 − τv given all sites; no variance is below the last bit of its bound."""
        variance, gap = self._computed
        return np.maximum(variance, _EPS * self._highest), gap

    @cached_property
    def _computed(self) -> tuple[Array, Array]:
        """``_marginals`` as rounding leaves them, where a variance may even be negative."""
        if self._downdate is None:
            return self._factor.marginals()
        variance, gap = self._from_positive
        tau, widening = self.sites.tau, self._downdate.widening
        variance = variance + widening
        return variance, np.where(tau > 0, gap - tau * widening, 1.0 - tau * variance)

    @property
    @override
    def variance(self) -> Array:
        return self._marginals[0]

    @property
    def gap(self) -> Array:
        """1 − τ v, to full precision."""
        return self._marginals[1]

    @property
    def view(self) -> SiteView:
        """The marginals and sites from which a rule proposes sites."""
        variance, gap = self._marginals
        return SiteView(self.mean, variance, *self.sites, gap)

    @property
    def view_without_variance(self) -> SiteView:
        """``view`` for rules that use means alone, at half the cost.

        In place of the variances it has their upper bounds k/(1 + τk), which ignore other points.
        """
        gap = 1.0 / (1.0 + np.maximum(self.sites.tau, 0.0) * self._k)
        return SiteView(self.mean, gap * self._k, *self.sites, gap)

    def _negative(self) -> Downdate:
        """The downdate by the negative sites, from their columns of Σ given the positive sites."""
        index = np.flatnonzero(self.sites.tau < 0)
        own = index, np.arange(len(index))
        variance, _ = self._from_positive
        chosen = np.zeros((len(variance), len(index)), order="F")
        chosen[own] = 1.0
        columns: Array = -self._factor.solve(chosen) / self._root[:, None] / self._root[index]
        columns[own] = variance[index]
        return Downdate(self.sites.tau, index, columns)

    @cached_property
    def correlation(self) -> Correlation | TiledCorrelation:
        """The posterior correlation. It takes over the array of the factor."""
        sigma = np.sqrt(self.variance)
        factor = self._factor
        del self._factor
        # Σᵢⱼ = −(B⁻¹)ᵢⱼ/√τᵢτⱼ off the diagonal
        spread = self._downdate.spread / sigma if self._downdate else None
        return factor.into_correlation(1.0 / (self._root * sigma), spread)

    @property
    @override
    def covariance(self) -> Matrix:
        return self.correlation.covariance(np.sqrt(self.variance), self.variance)

    def lower_covariance(self) -> Array:
        """The lower triangle of Σ in a NumPy array; the strict upper triangle is undefined."""
        assert isinstance(self.correlation, Correlation)
        return self.correlation.lower_covariance(np.sqrt(self.variance), self.variance)

    @property
    def log_normaliser(self) -> float:
        """log ∫ N(f; μ₀, K) Πᵢ exp(νᵢfᵢ − τᵢfᵢ²/2) df."""
        (tau, nu), mu = self.sites, self.prior_mean
        at_prior_mean = float(mu @ (nu - 0.5 * tau * mu))
        fit = 0.5 * float((nu - tau * mu) @ (self.mean - mu))
        return at_prior_mean + fit - self.half_log_det

    def predict_mean(self, cross: Matrix, prior_mean: Array | float = 0.0) -> Array:
        """Latent means at new points, from k(training, new) on K's device."""
        mean: Array = prior_mean + on_host(cross.T @ place_of(cross).put(self.weights))
        return mean

    def predict(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float = 0.0
    ) -> Marginals:
        """Latent marginals at new points, from k(training, new) and k(new, new)'s diagonal."""
        return self._marginals_from(cross, *self._whitened(cross), prior_variance, prior_mean)

    def predict_with_powers(
        self,
        cross: Matrix,
        prior_variance: Array,
        vectors: Array,
        prior_mean: Array | float = 0.0,
    ) -> tuple[Marginals, Array]:
        """``predict``, and the sums Σᵢ xᵢ ρᵢᵏ for the k-th row x of the vectors, (k, new).

        ρ holds the posterior correlations of the latent values at the training points with a new one.
        """
        sigma, put = np.sqrt(self.variance), place_of(cross).put
        whitened, widening = self._whitened(cross)
        latent = self._marginals_from(cross, whitened, widening, prior_variance, prior_mean)
        unit = put(1.0 / (self._root * sigma))
        correlation = self._factor.whiten(whitened, transposed=True, overwrite=True)
        correlation *= unit[:, None]
        if self._downdate is not None:
            correlation += put(self._downdate.spread / sigma).T @ widening
        correlation /= put(np.sqrt(latent.variance))
        correlation = clipped(correlation)  # rounding exceeds one where a variance has no digit
        xs = put(vectors)
        return latent, power_products(correlation.T, [xs[k, :] for k in range(len(vectors))])

    def _marginals_from(
        self,
        cross: Matrix,
        whitened: Matrix,
        widening: Matrix | None,
        prior_variance: Array,
        prior_mean: Array | float,
    ) -> Marginals:
        """Latent marginals at new points from what ``_whitened`` returns."""
        variance = prior_variance - _squares(whitened)
        if widening is not None:
            variance += _squares(widening)
        # No subtraction from k(x, x) can resolve a variance below its last bit.
        variance = np.maximum(variance, _EPS * prior_variance)
        return Marginals(self.predict_mean(cross, prior_mean), variance)

    def predict_jointly(self, cross: Matrix, prior_covariance: Array) -> tuple[Array, Array]:
        """Latent means and their covariance at new points, from k(training, new) and k(new, new)."""
        whitened, widening = self._whitened(cross)
        covariance = prior_covariance - on_host(whitened.T @ whitened)
        if widening is not None:
            covariance += on_host(widening.T @ widening)
        return self.predict_mean(cross), covariance

    def _whitened(self, cross: Matrix) -> tuple[Matrix, Matrix | None]:
        """A and, where there are negative sites, D such that crossᵀ Q cross = AᵀA − DᵀD.

        Q is T − TΣT = (K + T⁻¹)⁻¹.
        """
        # computing T − TΣT would lose digits; L⁻¹ would give other bits than a model read from a file
        if "correlation" in self.__dict__ or self._factor.is_inverted:
            self.release()
        whitened = self._factor.whiten_cross(cross)
        if self._downdate is None:
            return whitened, None
        return whitened, place_of(cross).put(self._downdate.response) @ cross

    def pull_back(self, mean_bar: Array, variance_bar: Array) -> Matrix:
        """∂/∂K of log ∫ prior × sites + m̄·mean + v̄·variance, at fixed sites; symmetric.

        With R = I − ΣT = (I + KT)⁻¹ and Q = T − TΣT that is
        Rᵀ V̄ R + ½(Rᵀm̄ aᵀ + a m̄ᵀR + a aᵀ − Q), put together from C = D⁻¹ΣD⁻¹, D = diag(σ).
        """
        C, a, gap, tau = self.correlation, self.weights, self.gap, self.sites.tau
        sigma = np.sqrt(self.variance)
        pull = tau * sigma
        through_mean = gap * mean_bar - pull * C.off_diagonal_times(sigma * mean_bar)
        K_bar = C.weighted_square(pull, sigma**2 * variance_bar)
        C.add_products(K_bar, 0.25 * pull - sigma * gap * variance_bar, pull)
        rest = 0.5 * through_mean + 0.25 * a
        return C.add_outer(K_bar, rest, a, gap**2 * variance_bar - 0.5 * tau * gap)


def _squares(columns: Matrix) -> Array:
    """The sum of squares of every column."""
    sums: Array = on_host(column_products(columns, columns))
    return sums
