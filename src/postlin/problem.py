"""A problem to solve: prior, labels, likelihood and rule; and a point on the way to its solution."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.likelihoods import Likelihood
from postlin.posterior import GaussianPosterior
from postlin.proposals import Proposal
from postlin.rules import Rule
from postlin.sites import Sites, SiteView

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Problem:
    """Find sites that equal what the rule proposes at the posterior that they make."""

    K: Array
    prior_mean: Array
    y: Array
    likelihood: Likelihood
    rule: Rule

    def posterior(self, sites: Sites) -> GaussianPosterior:
        """The posterior that sites make: one factorisation."""
        return GaussianPosterior(self.K, self.prior_mean, sites)

    def iterate(self, sites: Sites) -> "Iterate":
        """The point of the iteration at these sites."""
        return self.iterate_at(self.posterior(sites))

    def iterate_at(self, posterior: GaussianPosterior) -> "Iterate":
        """The point of the iteration at this posterior."""
        return Iterate(posterior, self.rule.propose(self.likelihood, self.y, posterior.view))

    def try_iterate(self, sites: Sites) -> "Iterate | None":
        """``iterate``, or nothing where the sites make no posterior or an improper cavity."""
        if not (np.isfinite(sites.tau).all() and np.isfinite(sites.nu).all()):
            return None
        try:
            posterior = self.posterior(sites)
            if not (posterior.variance > 0).all():  # no digit left: sites stronger than 1/rounding
                return None
            iterate = self.iterate_at(posterior)
        except (NotPositiveDefiniteError, ImproperCavityError):
            return None
        return iterate if np.isfinite(iterate.size) else None

    @property
    def prior_view(self) -> SiteView:
        """The start of every cold iteration: no sites yet."""
        zero = np.zeros_like(self.y)
        return SiteView(self.prior_mean, self.K.diagonal().copy(), zero, zero, np.ones_like(self.y))


@dataclass(frozen=True)
class Iterate:
    """Sites with their posterior, and what the rule proposes instead."""

    posterior: GaussianPosterior
    proposal: Proposal

    @cached_property
    def residual(self) -> Array:
        """The move that the rule asks for, in units of the marginal: [v Δτ, √v (Δν − m Δτ)]."""
        m, v = self.posterior.mean, self.posterior.variance
        d_tau = self.proposal.sites.tau - self.posterior.sites.tau
        d_nu = self.proposal.sites.nu - self.posterior.sites.nu
        return np.array([v * d_tau, np.sqrt(v) * (d_nu - m * d_tau)])

    @cached_property
    def size(self) -> float:
        """The largest entry of the residual; not finite if any entry is not."""
        return float(np.abs(self.residual).max())

    @property
    def rounding(self) -> float:
        """What rounding in B = I + SKS does to the residual: no iteration gets below it.

        Never more than 1e-6: beyond, that is a failure and no longer an excuse.
        """
        tau, k = self.posterior.sites.tau, self.posterior.K.diagonal()
        return min(1e-6, 8.0 * _EPS * float(1.0 + np.max(np.maximum(tau, 0.0) * k)))

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
        m, v = self.posterior.mean, self.posterior.variance
        tau, nu = self.posterior.sites
        wanted = np.minimum(tau, self.proposal.sites.tau)
        floor = np.where(wanted > 0, 0.1 * wanted, -np.inf)
        new_tau = np.maximum(tau + scaled_step[0] / v, floor)
        return Sites(new_tau, nu + scaled_step[1] / np.sqrt(v) + m * (new_tau - tau))
