"""The exact approximation: its evidence, the gradient of it, and predictions from covariances.

The gradient takes one adjoint solve and one symmetric product. The evidence depends on K directly, and
through sites and marginals that move with it so that the sites stay a fixed point. EP's evidence is
stationary in the sites; PL's and Laplace's are not, and without the implicit part the gradient would be
plainly wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from postlin._typing import Array, Marginals, override
from postlin.inference.exact.problem import ExactIterate, ExactMap, ExactProblem
from postlin.inference.result import EXACT, Approximation
from postlin.likelihoods.base import BinaryLikelihood
from postlin.likelihoods.conditional_moments import ConditionalMoments
from postlin.linalg.arrays import Matrix, as_matrix, on_host, place_of
from postlin.linalg.threads import blas_threads
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Sites

#: EP that has not converged and still moves by more than this, in units of the marginal, is lost.
_LOST = 0.1


class Adjoint(NamedTuple):
    """What the gradient of log Z needs to know beside the posterior: vectors only.

    ``mean_bar`` and ``variance_bar`` are total derivatives of log Z by the marginals that K makes at
    fixed sites, ``by_parameters`` those by the likelihood's parameters, and ``correction`` is what
    log Z gains, to first order, from the present sites to the fixed point itself.
    """

    mean_bar: Array
    variance_bar: Array
    by_parameters: Array
    correction: float


def adjoint_at(
    problem: ExactProblem, iterate: ExactIterate, scales: SiteScales, accuracy: float
) -> Adjoint:
    """Solve the adjoint of the fixed point's equation, to a relative accuracy."""
    v = iterate.posterior.variance
    sigma = np.sqrt(v)
    units = np.array([v, sigma])
    # the units of ExactMap: dm/√v, dv/v, v dτ, √v (dν − m dτ)
    by_mean, by_variance, by_tau, by_shift = scales.gradient * np.array([sigma, v, 1 / v, 1 / sigma])
    linearised = ExactMap(problem, iterate)
    seed = linearised.posterior_adjoint(by_mean, by_variance) + np.concatenate([by_tau, by_shift])
    solution, _ = linearised.solve_transposed(seed, rtol=accuracy)
    through_mean, through_variance = linearised.local_adjoint(solution)
    adjoint = units * solution.reshape(2, -1)
    changes = problem.rule.changes(problem.likelihood, problem.y, iterate.proposal.at)
    by_parameters = [
        np.sum(adjoint * iterate.proposal.by_parameter(change)) + direct.sum()
        for change, direct in zip(changes, scales.by_parameters, strict=True)
    ]
    return Adjoint(
        (by_mean + through_mean) / sigma,
        (by_variance + through_variance) / v,
        np.array(by_parameters),
        float(np.sum(adjoint * iterate.move)),
    )


#: From an approximation and its adjoint to the derivatives by the free log-parameters.
PullBack = Callable[["ExactApproximation", Adjoint], Array]


def _no_hyperparameters(approximation: "ExactApproximation", adjoint: Adjoint) -> Array:
    return np.zeros(0)


@dataclass(frozen=True, eq=False, repr=False)
class ExactApproximation(Approximation[Sites]):
    """The approximation that exact inference makes for two classes, or for conditional moments."""

    problem: ExactProblem
    iterate: ExactIterate
    pull_back: PullBack = _no_hyperparameters
    is_plain: bool = False  # whether a protocol of so many iterations was asked for

    @property
    def mean(self) -> Array:
        """Posterior means of the latent values."""
        return self.iterate.posterior.mean

    @property
    def variance(self) -> Array:
        """Posterior variances of the latent values."""
        return self.iterate.posterior.variance

    @property
    def covariance(self) -> Matrix:
        """Posterior covariance of the latent values, as an array of K's kind."""
        return self.iterate.posterior.covariance

    @property
    def sites(self) -> Sites:
        """The Gaussian factors, ``sites.tau`` and ``sites.nu``; pass them on as ``start``."""
        return self.iterate.posterior.sites

    @property
    @override
    def start(self) -> Sites:
        return self.sites

    @property
    @override
    def kept(self) -> tuple[Array, Array]:
        return self.sites.tau, self.sites.nu

    @property
    @override
    def is_unusable(self) -> bool:
        apart = not self.converged and self.residual > _LOST
        return apart and self.problem.rule.needs_fixed_point and not self.is_plain

    @cached_property
    def _scales(self) -> SiteScales:
        return self.problem.scales(self.iterate)

    @cached_property
    def log_evidence(self) -> float:
        """The approximate log marginal likelihood log p(y)."""
        return self.problem.log_evidence(self.iterate, self._scales)

    @override
    def value_and_gradient(self, accuracy: float = EXACT) -> tuple[float, Array]:
        adjoint = adjoint_at(self.problem, self.iterate, self._scales, accuracy)
        # the correction holds near a fixed point, even one that is reached to a loose tolerance only
        value = self.log_evidence + (adjoint.correction if self.converged else 0.0)
        return value, self.pull_back(self, adjoint)

    @override
    def without_gradient(self) -> Self:
        return replace(self, pull_back=_no_hyperparameters)

    @cached_property
    def _adjoint(self) -> Adjoint:
        with blas_threads(len(self.mean)):
            return adjoint_at(self.problem, self.iterate, self._scales, EXACT)

    def by_covariance(self, adjoint: Adjoint) -> Matrix:
        """∂ log evidence / ∂K from an adjoint, symmetric."""
        return self.iterate.posterior.pull_back(adjoint.mean_bar, adjoint.variance_bar)

    def evidence_gradient(self) -> Matrix:
        """∂ log evidence / ∂K, symmetric: dK changes the log evidence by the sum of its product.

        It is an array of K's kind.
        """
        with blas_threads(len(self.mean)):
            return self.by_covariance(self._adjoint)

    def evidence_gradient_by_parameters(self) -> dict[str, float]:
        """∂ log evidence by each parameter of the likelihood.

        ``NoisyThreshold`` has the parameter ``epsilon``, ``WithNoise`` the parameter ``variance``.
        """
        names = self.problem.likelihood.parameters
        return dict(zip(names, map(float, self._adjoint.by_parameters), strict=True))

    def spectral_radius(self) -> float:
        """The spectral radius of the undamped parallel map: the certificate of local convergence.

        Below one, plain iteration from nearby converges to this solution; above one it does not.
        """
        with blas_threads(len(self.mean)):
            return ExactMap(self.problem, self.iterate).spectral_radius()

    def predict_latent(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Marginals:
        """Latent means and variances at new points.

        ``cross`` is k(training, new), n × n*, ``prior_variance`` the diagonal of k(new, new), and
        ``prior_mean`` that at the new points (None: the number that ``infer`` was given).
        """
        cross, prior_variance = as_matrix(cross, place_of(self.problem.K)), on_host(prior_variance)
        if cross.ndim != 2 or cross.shape[0] != len(self.mean):
            raise ValueError(
                f"cross must have shape (n, n_new) with n = {len(self.mean)} training points, "
                f"got {tuple(cross.shape)}; did you pass its transpose?"
            )
        if np.shape(prior_variance) not in ((), (cross.shape[1],)):
            raise ValueError(
                f"prior_variance must have shape ({cross.shape[1]},) to match cross, got "
                f"{np.shape(prior_variance)}."
            )
        if prior_mean is None:
            known = self.problem.prior_mean
            if np.ptp(known) > 0:
                raise ValueError("prior_mean must be given: infer had a different one at every point.")
            prior_mean = float(known[0])
        variance = np.asarray(prior_variance, float)
        return self.iterate.posterior.predict(cross, variance, on_host(prior_mean))

    def predict_proba(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Array:
        """Probabilities of the label +1 at new points."""
        likelihood = self.problem.likelihood
        if not isinstance(likelihood, BinaryLikelihood):
            raise ValueError(f"{likelihood!r} has no label probabilities: use predict_moments.")
        plus, _ = likelihood.jets(*self.predict_latent(cross, prior_variance, prior_mean))
        return np.exp(plus.log_z)

    def predict_moments(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float | None = None
    ) -> Marginals:
        """Mean and variance of y at new points; for labels ±1 those of the label."""
        likelihood = self.problem.likelihood
        latent = self.predict_latent(cross, prior_variance, prior_mean)
        if isinstance(likelihood, ConditionalMoments):
            return likelihood.predict(*latent)
        assert isinstance(likelihood, BinaryLikelihood)
        plus, minus = likelihood.jets(*latent)
        p, q = np.exp(plus.log_z), np.exp(minus.log_z)
        return Marginals(p - q, 4 * p * q)
