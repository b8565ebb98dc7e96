"""Sites: the Gaussian factors that stand in for the likelihood, and the one formula that sets them.

A site is the factor exp(ν f − τ f²/2). All rules set it from a slope g and a
curvature ρ of the likelihood at a Gaussian N(m, v):

    τ = ρ / (1 − ρ v),     ν = τ m + g / (1 − ρ v).

They differ in the Gaussian and in the curvature that they use (``rules.binary``). A rule returns a
``Proposal``: the new sites and their derivatives by the marginals and by the likelihood's parameters.
"""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from postlin._typing import Array, Marginals, override
from postlin.exceptions import NegativeSiteWarning
from postlin.likelihoods.base import Change, Response
from postlin.linalg.functions import functions


class Sites(NamedTuple):
    """Natural parameters of all sites: precisions ``tau`` and precision-times-means ``nu``."""

    tau: Array
    nu: Array

    def __repr__(self) -> str:
        if not np.size(self.nu):
            return "<Sites of 0 points>"
        tau, nu = (f"{np.min(part):.3g} to {np.max(part):.3g}" for part in self)
        return f"<Sites of {len(np.atleast_1d(self.nu))} points: tau {tau}, nu {nu}>"

    def towards(self, other: "Sites", part: float) -> "Sites":
        """The sites that lie the given part of the way from these to the others."""
        return Sites(self.tau + part * (other.tau - self.tau), self.nu + part * (other.nu - self.nu))

    def are_finite(self) -> bool:
        """Whether no entry is NaN or infinite."""
        return bool(np.isfinite(self.tau).all() and np.isfinite(self.nu).all())


class SiteView(NamedTuple):
    """What a rule starts from: each point's posterior marginal, its present site, and gap = 1 − τ v.

    The cavity is the marginal without ``part`` of the site: all of it, or less for a weight below one
    (``rules.weights``).
    """

    mean: Array
    variance: Array
    tau: Array
    nu: Array
    gap: Array
    part: Array | float = 1.0

    @property
    def pull(self) -> Array:
        """ν − τ m, the slope of the log site at the posterior mean."""
        return self.nu - self.tau * self.mean

    @property
    def cavity(self) -> Marginals:
        """The marginal with the site removed. It is improper where the gap is not positive."""
        variance = self.variance / self.gap
        return Marginals(self.mean - variance * self.part * self.pull, variance)


def set_sites(at: Marginals, response: Response) -> Sites:
    """The sites that the formula gives at these marginals."""
    stretch = 1.0 / (1.0 - response.rho * at.variance)
    tau = response.rho * stretch
    return Sites(tau, tau * at.mean + response.g * stretch)


def site_jacobian(at: Marginals, response: Response) -> Array:
    """Derivatives of (τ, ν) by (m, v): an array [row, column, point] with rows dτ and dν − m dτ."""
    r = response
    stretch = 1.0 / (1.0 - r.rho * at.variance)
    tau = r.rho * stretch
    tau_by_m = stretch**2 * r.rho_by_m
    tau_by_v = stretch**2 * r.rho_by_v + tau**2
    shift_by_m = tau + stretch * r.g_by_m + r.g * at.variance * tau_by_m
    shift_by_v = stretch * r.g_by_v + r.g * stretch * (tau + at.variance * stretch * r.rho_by_v)
    rows: Array = functions(tau).rows([[tau_by_m, tau_by_v], [shift_by_m, shift_by_v]])
    return rows


def cavity_jacobian(view: SiteView) -> Array:
    """Derivatives of the cavity's mean and variance by dm, dv, dτ and dν − m dτ."""
    cavity = view.cavity
    ratio = 1.0 / view.gap  # cavity variance over marginal variance
    offset = cavity.mean - view.mean
    removed = view.part * cavity.variance
    f = functions(offset)
    zero = f.zeros_like(offset)
    rows: Array = f.rows(
        [
            [ratio, ratio * offset / view.variance, removed * offset, -removed],
            [zero, ratio**2, removed * cavity.variance, zero],
        ]
    )
    return rows


class SiteRule(ABC):
    """The attributes of a rule, binary or joint, that the solver and its warnings use."""

    name: ClassVar[str]

    #: The largest number of cautious steps that a cold start takes before the rule's own.
    warm_up: ClassVar[int] = 0

    #: With inducing points cautious steps go on, for a while, until the residual is below this.
    warm_below: ClassVar[float] = float("inf")

    #: Exact and joint inference use Newton's method where the residual is below this.
    newton_below: ClassVar[float] = 0.45

    #: Whether the plain iteration is Newton's method.
    is_newton: ClassVar[bool] = False

    #: Whether the evidence is unusable far from a fixed point, where it can take any value.
    needs_fixed_point: ClassVar[bool] = False

    #: Whether there is a single fixed point where the likelihood is log-concave.
    is_unique: ClassVar[bool] = True

    #: The advice in the warning that inference has not converged.
    remedy: ClassVar[str] = "add white noise to the covariance"

    @property
    def plain_only(self) -> bool:
        """Whether sites are iterated without damping only, so that a breakdown is an error."""
        return False

    def doubt(self, overruled: np.ndarray) -> str:
        """Why the result is no fixed point of the rule although no site moves; empty if it is one.

        ``overruled`` marks the sites that a policy changes at the result.
        """
        return ""

    def policy_warning(self, overruled: np.ndarray) -> NegativeSiteWarning | None:
        """The warning that a policy has changed sites of negative precision, if it has."""
        return None


@dataclass(frozen=True)
class Proposal:
    """The sites that follow from the likelihood's ``response`` at the Gaussians ``at``."""

    sites: Sites
    at: Marginals
    response: Response

    #: On how many of dm and dv of the posterior marginal the sites depend.
    marginal_columns: ClassVar[int] = 2

    def jacobian(self) -> Array:
        """Derivatives of the proposed sites, an array [row, column, point].

        Rows are dτ̂ and dν̂ − m dτ̂, columns dm and dv of the posterior marginal and dτ and
        dν − m dτ of the present site.
        """
        columns, mean = self.marginal_columns, self.at.mean
        full: Array = functions(mean).zeros((2, 4, mean.shape[0]), mean)
        full[:, :columns, :] = site_jacobian(self.at, self.response)[:, :columns, :]
        return full

    def by_parameter(self, change: Change) -> Array:
        """Derivatives of the proposed sites by a parameter of the likelihood, in the same rows."""
        v, stretch = self.at.variance, 1.0 / (1.0 - self.response.rho * self.at.variance)
        tau_by = stretch**2 * change.rho
        rows: Array = functions(v).rows([tau_by, stretch * change.g + self.response.g * v * tau_by])
        return rows

    @property
    def overruled(self) -> np.ndarray:
        """Which sites a policy has changed from those of the formula."""
        return np.zeros(np.shape(self.sites.tau), dtype=bool)


class AtMarginal(Proposal):
    """Sites that follow from the posterior marginal, as PL's do."""


class AtMode(Proposal):
    """Sites that follow from the posterior mean alone, as Laplace's do."""

    marginal_columns: ClassVar[int] = 1


@dataclass(frozen=True)
class AtCavity(Proposal):
    """Sites that follow from the cavity, and so from the marginal and the present site: EP and CL.

    A policy may have replaced sites (τ̂, ν̂) of negative precision by others (τ', ν'). Then
    ``replacement``, an array [row, column, point], holds d(τ', ν') by d(τ̂, ν̂) for those
    ``changed``, zero for sites that are held as they are; it is None where none is changed.
    """

    view: SiteView
    changed: np.ndarray
    replacement: Array | None

    @property
    @override
    def overruled(self) -> np.ndarray:
        return self.changed

    @override
    def jacobian(self) -> Array:
        by_cavity = site_jacobian(self.at, self.response)
        by_view = functions(by_cavity).einsum("rkn,kcn->rcn", by_cavity, cavity_jacobian(self.view))
        return self._finish(by_view)

    @override
    def by_parameter(self, change: Change) -> Array:
        return self._finish(super().by_parameter(change))

    def _finish(self, rows: Array) -> Array:
        """Rows of the sites after the policy, with the posterior's m in place of the cavity's."""
        f = functions(rows)
        d_tau = rows[0, ...]
        d_nu = rows[1, ...] + self.at.mean * d_tau
        if self.replacement is not None:
            a, b, c, d = (self.replacement[i, j, ...] for i in (0, 1) for j in (0, 1))
            d_tau, d_nu = (
                f.where(self.changed, a * d_tau + b * d_nu, d_tau),
                f.where(self.changed, c * d_tau + d * d_nu, d_nu),
            )
        finished: Array = f.rows([d_tau, d_nu - self.view.mean * d_tau])
        return finished
