"""A problem to solve: prior, labels, likelihood and rule; and a point on the way to its solution."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.likelihoods import Likelihood
from postlin.linalg.arrays import Matrix, diagonal
from postlin.rules.binary import Rule
from postlin.rules.sites import Proposal, Sites, SiteView
from postlin.rules.weights import Observations, Weighted

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Problem:
    """Find sites that equal what the rule proposes at the posterior that they make."""

    K: Matrix
    prior_mean: Array
    y: Array
    likelihood: Likelihood
    rule: Rule
    observations: Observations | None = None  # None: every point is one

    @property
    def size(self) -> int:
        """Rows of the largest matrix."""
        return len(self.y)

    def posterior(self, sites: Sites) -> GaussianPosterior:
        """The posterior that sites make: one factorisation."""
        return GaussianPosterior(self.K, self.prior_mean, sites)

    def iterate(self, sites: Sites) -> "Iterate":
        """The point of the iteration at these sites."""
        return self.iterate_at(self.posterior(sites))

    def iterate_at(self, posterior: GaussianPosterior) -> "Iterate":
        """The point of the iteration at this posterior."""
        view = self.view(posterior)
        return Iterate(posterior, view, self.propose(view))

    def propose(self, view: SiteView) -> Proposal:
        """The sites that the rule asks for, given what the posterior knows."""
        if self.observations is None:
            return self.rule.propose(self.likelihood, self.y, view)
        one = self.observations.one(view)
        return Weighted.of(self.rule.propose(self.likelihood, self.y, one), self.observations, one.tau)

    def sites_for(self, view: SiteView) -> Sites:
        """Those sites alone, without what only Newton's method needs: half the time."""
        if self.observations is None:
            return self.rule.set_sites(self.likelihood, self.y, view)[0]
        one = self.observations.one(view)
        return self.observations.total(self.rule.set_sites(self.likelihood, self.y, one)[0])

    def propose_cautiously(self, view: SiteView) -> Sites:
        """Sites for the first steps from the prior."""
        if self.observations is None:
            return self.rule.propose_cautiously(self.likelihood, self.y, view)
        one = self.observations.one(view)
        return self.observations.total(self.rule.propose_cautiously(self.likelihood, self.y, one))

    def view(self, posterior: GaussianPosterior) -> SiteView:
        """What the rule looks at."""
        return posterior.view if self.rule.looks_at_variance else posterior.view_without_variance

    def try_iterate(self, sites: Sites) -> "Iterate | None":
        """``iterate``, or nothing where the sites make no posterior or an improper cavity."""
        if not (np.isfinite(sites.tau).all() and np.isfinite(sites.nu).all()):
            return None
        try:
            posterior = self.posterior(sites)
            if not (self.view(posterior).variance > 0).all():
                return None  # no digit left: sites stronger than 1/rounding
            iterate = self.iterate_at(posterior)
        except (NotPositiveDefiniteError, ImproperCavityError):
            return None
        return iterate if np.isfinite(iterate.size) else None

    @property
    def prior_view(self) -> SiteView:
        """The start of every cold iteration: no sites yet."""
        zero, one = np.zeros_like(self.y), np.ones_like(self.y)
        return SiteView(self.prior_mean, diagonal(self.K).copy(), zero, zero, one)


@dataclass(frozen=True)
class Iterate:
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
        """That move in units of the marginal: [v Δτ, √v (Δν − m Δτ)]."""
        v = self.view.variance
        return np.array([v, np.sqrt(v)]) * self.move

    @cached_property
    def size(self) -> float:
        """The largest entry of the residual; not finite if any entry is not."""
        return float(np.abs(self.residual).max())

    @property
    def rounding(self) -> float:
        """What rounding in B = I + SKS does to the residual: no iteration gets below it.

        Never more than 1e-6: beyond, that is a failure and no longer an excuse.
        """
        k = diagonal(self.posterior.K)
        return min(1e-6, 8.0 * _EPS * float(1.0 + np.max(np.maximum(self.view.tau, 0.0) * k)))

    def turned_from(self, previous: "Iterate") -> float:
        """The cosine between this residual and the one before: negative when iterates swing."""
        product = float(np.sum(self.residual * previous.residual))
        norms = float(np.linalg.norm(self.residual) * np.linalg.norm(previous.residual))
        return product / norms if norms > 0 else 1.0

    def moved(self, scaled_step: Array) -> Sites:
        """Sites after a step given in the residual's units.

        A precision that the step would make negative while the rule wants it positive stops at a
        tenth of the smaller of what it is and what the rule wants.
        """
        m, v, tau, nu, *_ = self.view
        wanted = np.minimum(tau, self.proposal.sites.tau)
        floor = np.where(wanted > 0, 0.1 * wanted, -np.inf)
        new_tau = np.maximum(tau + scaled_step[0] / v, floor)
        return Sites(new_tau, nu + scaled_step[1] / np.sqrt(v) + m * (new_tau - tau))
