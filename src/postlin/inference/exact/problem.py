"""The exact problem of two classes: prior, labels, likelihood and rule; its iterates; its Jacobian.

In the residual's units a change of the sites is (p, q) = (v dτ, √v (dν − m dτ)). It changes the
marginals by dm/√v = C q and dv/v = −(C∘C) p, where C is the posterior correlation, so a product with
the Jacobian J of the undamped map costs O(n²).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from postlin._typing import Array, cached_property, override
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.contract import LEAST, MEAN_ACCURACY, Iterate, Jacobian, Posterior, Problem, Step
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.inference.exact.sweep import swept
from postlin.likelihoods.base import BinaryLikelihood, Likelihood
from postlin.linalg.arrays import Matrix, diagonal
from postlin.linalg.krylov import gmres
from postlin.rules.binary import Rule
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Proposal, Sites, SiteView
from postlin.rules.weights import UNIT, Weights

#: Up to this many points, eigenvalues are computed from J as a dense matrix.
_DENSE = 150


#: The shortest part of a step that is tried, and the residual below which the whole step is taken.
_SHORTEST, _CLOSE = 1e-3, 0.3


class ModeClimb:
    """A point f = μ₀ + K a that moves towards the maximum of log p(y|f) + log prior(f): for Laplace.

    Newton's step is searched along without a factorisation: both f and a change linearly.
    """

    def __init__(
        self,
        prior_mean: Array,
        start: Posterior | None,
        sites_at: Callable[[Array], Sites],
        log_likelihood: Callable[[Array], float],
    ) -> None:
        self._prior_mean, self._sites_at, self._log_likelihood = prior_mean, sites_at, log_likelihood
        self._f = prior_mean if start is None else start.mean
        self._a = np.zeros_like(prior_mean) if start is None else start.weights
        self._height = self._log_posterior(self._f, self._a)

    def sites(self) -> Sites:
        """The sites at the present point. The mean of their posterior is where Newton's step leads."""
        return self._sites_at(self._f)

    def advance(self, iterate: Iterate) -> None:
        """Go from the present point towards the iterate's mean, as far as the density increases."""
        length = 1.0
        step, turn = iterate.posterior.mean - self._f, iterate.posterior.weights - self._a
        while True:
            f, a = self._f + length * step, self._a + length * turn
            height = self._log_posterior(f, a)
            if height > self._height or length * iterate.size < _CLOSE or length < _SHORTEST:
                break
            length *= 0.5
        self._f, self._a, self._height = f, a, height

    def _log_posterior(self, f: Array, a: Array) -> float:
        """The log density of the posterior at f, up to a constant."""
        return self._log_likelihood(f) - 0.5 * float(a @ (f - self._prior_mean))


@dataclass(frozen=True)
class ExactProblem(Problem["ExactIterate"]):
    """A prior N(prior_mean, K), labels with their likelihood and weights, and the rule."""

    K: Matrix
    prior_mean: Array
    y: Array
    likelihood: Likelihood
    rule: Rule
    weights: Weights = UNIT

    @override
    def iterate(self, sites: Sites, *, strict: bool = False) -> "ExactIterate":
        posterior = GaussianPosterior(self.K, self.prior_mean, sites)
        if strict and self.rule.looks_at_variance and not posterior.is_resolved:
            raise NotPositiveDefiniteError("a posterior variance has no digit left.")
        return self.at(posterior)

    def at(self, posterior: GaussianPosterior) -> "ExactIterate":
        """The iterate at a posterior, which may be that of another rule."""
        view = posterior.view if self.rule.looks_at_variance else posterior.view_without_variance
        return ExactIterate(posterior, view, self._propose(view))

    def _propose(self, view: SiteView) -> Proposal:
        one = self.weights.one(view)
        return self.weights.propose(self.rule.propose(self.likelihood, self.y, one), one.tau)

    def sites_for(self, view: SiteView) -> Sites:
        """The sites that the rule proposes, without their derivatives, in half the time."""
        one = self.weights.one(view)
        return self.weights.total(self.rule.set_sites(self.likelihood, self.y, one)[0])

    @property
    @override
    def no_sites(self) -> Sites:
        zero = np.zeros_like(self.y)
        return Sites(zero, zero)

    def prior_view(self) -> SiteView:
        """The marginals of the prior, without sites."""
        return SiteView(self.prior_mean, diagonal(self.K).copy(), *self.no_sites, np.ones_like(self.y))

    @override
    def prior_proposal(self) -> Proposal:
        return self._propose(self.prior_view())

    @override
    def cautious_sites(self, iterate: "ExactIterate | None") -> Sites:
        one = self.weights.one(iterate.view if iterate else self.prior_view())
        return self.weights.total(self.rule.propose_cautiously(self.likelihood, self.y, one))

    @override
    def newton_step(self, iterate: "ExactIterate", *, time: float) -> Step:
        residual = iterate.residual.ravel()
        if self.rule.is_newton:
            return Step(residual / (1.0 + 1.0 / time), time)
        return ExactMap(self, iterate).newton_step(residual, iterate.size, time)

    @override
    def sweep(
        self, iterate: "ExactIterate | None", damping: float, *, block: int
    ) -> tuple[Sites, np.ndarray]:
        if iterate is None:
            covariance, mean, sites = self.K.T.copy(order="F"), self.prior_mean, self.no_sites
        else:
            posterior = iterate.posterior
            covariance, mean, sites = posterior.lower_covariance(), posterior.mean, posterior.sites
        return swept(covariance, mean.copy(), sites, self._set_site, damping, block)

    def _set_site(self, i: int, view: SiteView) -> tuple[Sites, bool]:
        weights = self.weights.point(i)
        sites, overruled = self.rule.set_sites(self.likelihood, self.y[i], weights.one(view))
        return weights.total(sites), bool(np.any(overruled))

    @override
    def climb(self, iterate: "ExactIterate | None") -> ModeClimb:
        likelihood, view = self.likelihood, self.prior_view()
        assert isinstance(likelihood, BinaryLikelihood)
        return ModeClimb(
            self.prior_mean,
            iterate.posterior if iterate else None,
            lambda f: self._propose(view._replace(mean=f)).sites,
            lambda f: self.weights.sum(likelihood.jet(self.y, f, np.zeros_like(f)).log_z),
        )

    def scales(self, iterate: "ExactIterate") -> SiteScales:
        """The scales of the sites in the evidence, over all observations."""
        view = self.weights.one(iterate.posterior.view)
        return self.weights.scales(self.rule.scales(self.likelihood, self.y, view), view.tau)

    def log_evidence(self, iterate: "ExactIterate", scales: SiteScales) -> float:
        """log Z at an iterate, from the scales there."""
        between = self.weights.log_scale(self.weights.one(iterate.posterior.view).tau)
        return iterate.posterior.log_normaliser + float(scales.value.sum()) + between


@dataclass(frozen=True)
class ExactIterate(Iterate):
    """Sites with their posterior, and the sites that the rule proposes there."""

    posterior: GaussianPosterior
    view: SiteView  # from which the rule proposes sites
    proposal: Proposal

    @property
    def move(self) -> Array:
        """The move from the present to the proposed sites: [Δτ, Δν − m Δτ]."""
        d_tau = self.proposal.sites.tau - self.view.tau
        return np.array([d_tau, self.proposal.sites.nu - self.view.nu - self.view.mean * d_tau])

    @cached_property
    def residual(self) -> Array:
        """The move in units of the marginal: [v Δτ, √v (Δν − m Δτ)]."""
        v = self.view.variance
        return np.array([v, np.sqrt(v)]) * self.move

    @property
    @override
    def strength(self) -> float:
        return float(np.max(np.maximum(self.view.tau, 0.0) * diagonal(self.posterior.K)))

    def moved(self, step: Array) -> Sites:
        """The sites after a step in the residual's units.

        Where neither the present nor the proposed precision is negative, the new one is at least a
        tenth of the smaller of them.
        """
        m, v, tau, nu, *_ = self.view
        p, q = step.reshape(2, -1)
        wanted = np.minimum(tau, self.proposal.sites.tau)
        floor = np.where(wanted >= 0, 0.1 * wanted, -np.inf)
        new_tau = np.maximum(tau + p / v, floor)
        return Sites(new_tau, nu + q / np.sqrt(v) + m * (new_tau - tau))


class ExactMap(Jacobian):
    """The Jacobian of the undamped map at an iterate; flat vectors hold p, then q."""

    krylov: ClassVar[int] = 60
    long_krylov: ClassVar[int] = 200

    def __init__(self, problem: ExactProblem, iterate: ExactIterate) -> None:
        self._problem, self._iterate = problem, iterate
        v = iterate.posterior.variance
        self.sigma = sigma = np.sqrt(v)
        self._correlation = iterate.posterior.correlation
        rows = np.array([v, sigma])[:, None]
        columns = np.array([sigma, v, 1.0 / v, 1.0 / sigma])
        #: [row, column, point]: v dτ̂ and √v (dν̂ − m dτ̂) by dm/√v, dv/v, v dτ and √v (dν − m dτ)
        self._local: Array = rows * columns * iterate.proposal.jacobian()
        self._by_site = bool(self._local[:, 2:].any())

    @override
    def apply(self, step: Array) -> Array:
        local, (p, q) = self._local, step.reshape(2, -1)
        moved: Array = local[:, 0] * self._correlation.times(q)
        moved -= local[:, 1] * self._correlation.squared_times(p)
        if self._by_site:
            moved += local[:, 2] * p + local[:, 3] * q
        return moved.ravel()

    @override
    def apply_transposed(self, adjoint: Array) -> Array:
        moved = self.posterior_adjoint(*self.local_adjoint(adjoint))
        if self._by_site:
            moved += (self._local[:, 2:] * adjoint.reshape(2, 1, -1)).sum(axis=0).ravel()
        return moved

    def posterior_adjoint(self, by_mean: Array, by_variance: Array) -> Array:
        """Adjoints on (p, q) from those on the marginals in their units, dm/√v and dv/v."""
        C = self._correlation
        return np.concatenate([-C.squared_times(by_variance), C.times(by_mean)])

    def local_adjoint(self, adjoint: Array) -> Array:
        """Adjoints on dm/√v and dv/v from those on the proposed sites."""
        by: Array = (self._local[:, :2] * adjoint.reshape(2, 1, -1)).sum(axis=0)
        return by

    def marginals_after(self, step: Array) -> tuple[Array, Array]:
        """(m' − m)/√v, exactly, and v'/v, approximately, after a step (p, q).

        The mean follows from (I + diag(p) C) x = q, the variance from 1/v' = (1 + (C∘C) p)/v, which is
        exact for a single site.
        """
        C, (p, q) = self._correlation, step.reshape(2, -1)
        pull, _ = gmres(lambda x: x + p * C.times(x), q, rtol=MEAN_ACCURACY, dimension=self.krylov)
        shrinkage = 1.0 + C.squared_times(p)
        return C.times(pull), 1.0 / np.clip(shrinkage, LEAST, 1.0 / LEAST)

    @override
    def residual_after(self, step: Array) -> Array | None:
        m, v, tau, nu, *_ = self._iterate.view
        mean, variance = self.marginals_after(step)
        p, q = step.reshape(2, -1)
        d_tau = p / v
        tau, nu = tau + d_tau, nu + q / self.sigma + m * d_tau
        view = SiteView(m + self.sigma * mean, v * variance, tau, nu, 1.0 - tau * v * variance)
        try:
            wanted = self._problem.sites_for(view)
        except (ImproperCavityError, ValueError):  # an improper cavity, or moments that overflow
            return None
        missing = wanted.tau - tau
        return np.concatenate([v * missing, self.sigma * (wanted.nu - nu - m * missing)])

    @override
    def solve_transposed(self, right: Array, *, rtol: float) -> tuple[Array, bool]:
        solution, found = super().solve_transposed(right, rtol=rtol)
        if not found:  # GMRES failed, a dense solve does not
            solution = np.linalg.solve(np.eye(len(right)) - self.dense().T, right).astype(np.float64)
        return solution, True

    def dense(self) -> Array:
        """J as a matrix, (2n, 2n)."""
        local, n, correlation = self._local, len(self.sigma), self._correlation.dense()
        blocks = np.empty((2, n, 2, n))
        blocks[:, :, 0] = -local[:, 1, :, None] * correlation**2
        blocks[:, :, 1] = local[:, 0, :, None] * correlation
        np.einsum("rici->rci", blocks)[:] += local[:, 2:]  # a view of the diagonals
        return blocks.reshape(2 * n, 2 * n)

    @override
    def spectral_radius(self, size: int = 0) -> float:
        if len(self.sigma) <= _DENSE:
            return float(np.abs(np.linalg.eigvals(self.dense())).max())
        return super().spectral_radius(2 * len(self.sigma))
