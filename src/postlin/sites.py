"""Sites: the Gaussian factors that stand in for the likelihood, and the one formula that sets them.

A site is the factor exp(ν f − τ f²/2). Laplace, EP and PL all set it from a slope g and a
curvature ρ of the likelihood at a Gaussian N(m, v):

    τ = ρ / (1 − ρ v),     ν = τ m + g / (1 − ρ v).

They differ in where they look and in what they call curvature: see ``rules``.
"""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array


class Sites(NamedTuple):
    """Natural parameters of all sites: precisions ``tau`` and precision-times-means ``nu``."""

    tau: Array
    nu: Array


class Marginals(NamedTuple):
    """Means and variances of latent values, point by point."""

    mean: Array
    variance: Array


class SiteView(NamedTuple):
    """What is known where the sites stand: the posterior marginal, the site, and 1 − τ v.

    ``part`` is what a cavity is without: all of the site, but of a weight below one (``observations``).
    """

    mean: Array
    variance: Array
    tau: Array
    nu: Array
    gap: Array
    part: Array | float = 1.0

    @property
    def pull(self) -> Array:
        """A = ν − τ m, the force with which the site pulls at the latent value."""
        return self.nu - self.tau * self.mean

    @property
    def cavity(self) -> Marginals:
        """The marginal with the site removed; improper where the gap is not positive."""
        variance = self.variance / self.gap
        return Marginals(self.mean - variance * self.part * self.pull, variance)


class Response(NamedTuple):
    """Slope g and curvature ρ of the likelihood at N(m, v), with their derivatives there."""

    g: Array
    rho: Array
    g_by_m: Array
    g_by_v: Array
    rho_by_m: Array
    rho_by_v: Array


def set_sites(at: Marginals, response: Response) -> Sites:
    """The site formula."""
    stretch = 1.0 / (1.0 - response.rho * at.variance)
    tau = response.rho * stretch
    return Sites(tau, tau * at.mean + response.g * stretch)


def site_jacobian(at: Marginals, response: Response) -> Array:
    """Derivatives of (τ, ν) by (m, v): array [row, column, point], the rows dτ and dν − m dτ."""
    r = response
    stretch = 1.0 / (1.0 - r.rho * at.variance)
    tau = r.rho * stretch
    tau_by_m = stretch**2 * r.rho_by_m
    tau_by_v = stretch**2 * r.rho_by_v + tau**2
    shift_by_m = tau + stretch * r.g_by_m + r.g * at.variance * tau_by_m
    shift_by_v = stretch * r.g_by_v + r.g * stretch * (tau + at.variance * stretch * r.rho_by_v)
    return np.array([[tau_by_m, tau_by_v], [shift_by_m, shift_by_v]])


class Change(NamedTuple):
    """How log Z_y, slope and curvature change with a parameter of the likelihood."""

    log_z: Array
    g: Array
    rho: Array


def parameter_jacobian(at: Marginals, response: Response, change: Change) -> Array:
    """Derivatives of (τ, ν) by a parameter of the likelihood: rows dτ and dν − m dτ."""
    stretch = 1.0 / (1.0 - response.rho * at.variance)
    tau_by = stretch**2 * change.rho
    return np.array([tau_by, stretch * change.g + response.g * at.variance * tau_by])


def cavity_jacobian(view: SiteView) -> Array:
    """Derivatives of the cavity's mean and variance by dm, dv, dτ and dν − m dτ."""
    cavity = view.cavity
    ratio = 1.0 / view.gap  # cavity variance over marginal variance
    offset = cavity.mean - view.mean
    removed = view.part * cavity.variance
    zero = np.zeros_like(offset)
    return np.array(
        [
            [ratio, ratio * offset / view.variance, removed * offset, -removed],
            [zero, ratio**2, removed * cavity.variance, zero],
        ]
    )
