"""The exact problem of two classes: prior, labels, likelihood and rule; its iterates; its Jacobian.

In the residual's own units a change of the sites is (p, q) = (v dτ, √v (dν − m dτ)), and the
posterior answers with dm/√v = C q and dv/v = −(C∘C) p, where C is the posterior correlation: so a
product with the Jacobian J of the undamped map costs O(n²).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from postlin._typing import Array, override
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.contract import Step, Swept
from postlin.inference.exact.mode import ModeClimb
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.inference.exact.sweep import swept
from postlin.inference.newton import LEAST, MEAN_ACCURACY, LinearisedMap, newton_step
from postlin.likelihoods.base import BinaryLikelihood, Likelihood
from postlin.linalg.arrays import Matrix, diagonal
from postlin.linalg.krylov import gmres
from postlin.rules.binary import Rule
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Proposal, Sites, SiteView
from postlin.rules.weights import UNIT, Weights

_EPS = float(np.finfo(float).eps)
#: Up to this many points, eigenvalues are taken from J written out.
_DENSE = 150


@dataclass(frozen=True)
class ExactProblem:
    """Find sites that equal what the rule proposes at the posterior that they make."""

    K: Matrix
    prior_mean: Array
    y: Array
    likelihood: Likelihood
    rule: Rule
    weights: Weights = UNIT

    def iterate(self, sites: Sites) -> "ExactIterate":
        """The iterate at these sites: one factorisation."""
        posterior = GaussianPosterior(self.K, self.prior_mean, sites)
        view = posterior.view if self.rule.looks_at_variance else posterior.view_without_variance
        return ExactIterate(posterior, view, self._propose(view))

    def try_iterate(self, sites: Sites) -> "ExactIterate | None":
        """The iterate, or None where sites make no posterior, or one with an improper cavity."""
        if not sites.are_finite():
            return None
        try:
            posterior = GaussianPosterior(self.K, self.prior_mean, sites)
            view = posterior.view if self.rule.looks_at_variance else posterior.view_without_variance
            if not (view.variance > 0).all():
                return None  # no digit left: sites stronger than 1/rounding
            iterate = ExactIterate(posterior, view, self._propose(view))
        except (NotPositiveDefiniteError, ImproperCavityError):
            return None
        return iterate if np.isfinite(iterate.size) else None

    def _propose(self, view: SiteView) -> Proposal:
        one = self.weights.one(view)
        return self.weights.propose(self.rule.propose(self.likelihood, self.y, one), one.tau)

    def sites_for(self, view: SiteView) -> Sites:
        """The sites that the rule proposes, without their derivatives: half the time."""
        one = self.weights.one(view)
        return self.weights.total(self.rule.set_sites(self.likelihood, self.y, one)[0])

    @property
    def no_sites(self) -> Sites:
        """Sites of zeros."""
        zero = np.zeros_like(self.y)
        return Sites(zero, zero)

    def _prior_view(self) -> SiteView:
        return SiteView(self.prior_mean, diagonal(self.K).copy(), *self.no_sites, np.ones_like(self.y))

    def prior_proposal(self) -> Proposal:
        """What the rule proposes at the prior."""
        return self._propose(self._prior_view())

    def cautious_sites(self, iterate: "ExactIterate | None") -> Sites:
        """Sites that are never far too weak, at an iterate or at the prior."""
        one = self.weights.one(iterate.view if iterate else self._prior_view())
        return self.weights.total(self.rule.propose_cautiously(self.likelihood, self.y, one))

    def newton_step(self, iterate: "ExactIterate", *, time: float) -> Step:
        """A Newton step, or an implicit step of this pseudo-time or less."""
        residual = iterate.residual.ravel()
        if self.rule.is_newton:
            return Step(residual / (1.0 + 1.0 / time), time)
        return newton_step(ExactMap(self, iterate), residual, iterate.size, time)

    def sweep(self, iterate: "ExactIterate | None", damping: float, *, block: int) -> Swept:
        """The sites after a damped sequential sweep from an iterate, or from the prior."""
        if iterate is None:
            covariance, mean, sites = self.K.T.copy(order="F"), self.prior_mean, self.no_sites
        else:
            posterior = iterate.posterior
            covariance, mean = posterior.lower_covariance(), posterior.mean
            sites = posterior.sites
        return swept(covariance, mean.copy(), sites, self._set_site, damping, block)

    def _set_site(self, i: int, view: SiteView) -> tuple[Sites, bool]:
        weights = self.weights.point(i)
        sites, overruled = self.rule.set_sites(self.likelihood, self.y[i], weights.one(view))
        return weights.total(sites), bool(np.any(overruled))

    def climb(self, iterate: "ExactIterate | None") -> ModeClimb:
        """Newton's method for the mode, from an iterate or from the prior."""
        likelihood, view = self.likelihood, self._prior_view()
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
        """log Z at an iterate whose scales are known."""
        tau = self.weights.one(iterate.posterior.view).tau
        between = self.weights.log_scale(tau)
        return iterate.posterior.log_normaliser + float(scales.value.sum()) + between


@dataclass(frozen=True)
class ExactIterate:
    """Sites with their posterior, and what the rule proposes instead."""

    posterior: GaussianPosterior
    view: SiteView  # what the rule looked at
    proposal: Proposal

    @property
    def move(self) -> Array:
        """The move that the rule asks for: [Δτ, Δν − m Δτ]."""
        d_tau = self.proposal.sites.tau - self.view.tau
        return np.array([d_tau, self.proposal.sites.nu - self.view.nu - self.view.mean * d_tau])

    @cached_property
    def residual(self) -> Array:
        """The move in units of the marginal: [v Δτ, √v (Δν − m Δτ)]."""
        v = self.view.variance
        return np.array([v, np.sqrt(v)]) * self.move

    @cached_property
    def size(self) -> float:
        """The largest entry of the residual; not finite if any entry is not."""
        return float(np.abs(self.residual).max())

    @property
    def rounding(self) -> float:
        """The residual that rounding in B = I + SKS can cause: no iteration gets below it.

        It is at most 1e-6: a larger residual is a failure, whatever its cause.
        """
        k = diagonal(self.posterior.K)
        return min(1e-6, 8.0 * _EPS * float(1.0 + np.max(np.maximum(self.view.tau, 0.0) * k)))

    def moved(self, step: Array) -> Sites:
        """The sites after a step in the residual's units.

        A precision that the step would make negative while the rule wants it positive stops at a
        tenth of the smaller of the present precision and the wanted one.
        """
        m, v, tau, nu, *_ = self.view
        p, q = step.reshape(2, -1)
        wanted = np.minimum(tau, self.proposal.sites.tau)
        floor = np.where(wanted > 0, 0.1 * wanted, -np.inf)
        new_tau = np.maximum(tau + p / v, floor)
        return Sites(new_tau, nu + q / np.sqrt(v) + m * (new_tau - tau))


class ExactMap(LinearisedMap):
    """The Jacobian of the undamped map at an iterate; flat vectors hold p, then q."""

    krylov: ClassVar[int] = 60
    long_krylov: ClassVar[int] = 200

    def __init__(self, problem: ExactProblem, iterate: ExactIterate) -> None:
        self._problem, self._iterate = problem, iterate
        posterior = iterate.posterior
        v = posterior.variance
        self.sigma = sigma = np.sqrt(v)
        self._correlation = posterior.correlation
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
        if not found:  # a dense solve gets there
            solution = np.linalg.solve(np.eye(len(right)) - self.dense().T, right).astype(np.float64)
        return solution, True

    def dense(self) -> Array:
        """J as a matrix, (2n, 2n)."""
        local, n = self._local, len(self.sigma)
        correlation = self._correlation.dense()
        blocks = np.empty((2, n, 2, n))
        for row in range(2):
            blocks[row, :, 0] = -local[row, 1][:, None] * correlation**2
            blocks[row, :, 1] = local[row, 0][:, None] * correlation
            for column in range(2):
                block = blocks[row, :, column]
                block[np.arange(n), np.arange(n)] += local[row, 2 + column]
        return blocks.reshape(2 * n, 2 * n)

    @override
    def spectral_radius(self, size: int = 0) -> float:
        if len(self.sigma) <= _DENSE:
            return float(np.abs(np.linalg.eigvals(self.dense())).max())
        return super().spectral_radius(2 * len(self.sigma))
