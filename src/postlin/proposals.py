"""What a rule proposes: new sites, and how these answer to small changes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from postlin._typing import Array
from postlin.sites import (
    Marginals,
    Response,
    Sites,
    SiteView,
    cavity_jacobian,
    noise_jacobian,
    site_jacobian,
)


@dataclass(frozen=True)
class Proposal(ABC):
    """The sites that follow from the likelihood's ``response`` at the Gaussians ``at``."""

    sites: Sites
    at: Marginals
    response: Response

    @abstractmethod
    def jacobian(self) -> Array:
        """Derivatives of the proposed sites, an array [row, column, point].

        Rows are dτ̂ and dν̂ − m dτ̂, columns dm and dv of the posterior marginal and dτ and
        dν − m dτ of the present site.
        """

    @abstractmethod
    def by_noise(self) -> Array:
        """The same rows, by a variance that the likelihood adds to the latent one."""

    @property
    def overruled(self) -> np.ndarray:
        """Which sites are not what the formula gave, because a policy changed them."""
        return np.zeros(np.shape(self.sites.tau), dtype=bool)


@dataclass(frozen=True)
class AtMode(Proposal):
    """Made at the posterior mean, whatever the variance: Laplace."""

    def jacobian(self) -> Array:
        """Only the mean matters."""
        full = np.zeros((2, 4, len(self.at.mean)))
        full[:, 0] = site_jacobian(self.at, self.response)[:, 0]
        return full

    def by_noise(self) -> Array:
        """The likelihood is looked at through its noise."""
        return noise_jacobian(self.at, self.response)


@dataclass(frozen=True)
class AtMarginal(Proposal):
    """Made at the posterior marginal: PL."""

    def jacobian(self) -> Array:
        """Mean and variance matter, the present site does not."""
        full = np.zeros((2, 4, len(self.at.mean)))
        full[:, :2] = site_jacobian(self.at, self.response)
        return full

    def by_noise(self) -> Array:
        """The likelihood is looked at through its noise."""
        return noise_jacobian(self.at, self.response)


@dataclass(frozen=True)
class AtCavity(Proposal):
    """Made at the cavity, which depends on the marginal and on the present site: EP.

    A policy for negative precisions may have replaced sites (τ̂, ν̂) by others (τ', ν'):
    ``replacement``, an array [row, column, point], holds d(τ', ν') by d(τ̂, ν̂) for those
    ``changed``, zero for sites that are held as they are; None where none is changed.
    """

    view: SiteView
    changed: np.ndarray
    replacement: Array | None

    @property
    def overruled(self) -> np.ndarray:
        """Which sites the policy has replaced."""
        return self.changed

    def jacobian(self) -> Array:
        """Through the cavity and the policy."""
        by_cavity = site_jacobian(self.at, self.response)
        return self._finish(np.einsum("rkn,kcn->rcn", by_cavity, cavity_jacobian(self.view)))

    def by_noise(self) -> Array:
        """The likelihood is looked at through its noise."""
        return self._finish(noise_jacobian(self.at, self.response))

    def _finish(self, rows: Array) -> Array:
        """From rows dτ̂, dν̂ − m dτ̂ with the cavity's m to those with the posterior's."""
        m = self.view.mean
        d_tau, d_nu = rows[0], rows[1] + self.at.mean * rows[0]
        if self.replacement is not None:
            (a, b), (c, d) = self.replacement
            d_tau, d_nu = (
                np.where(self.changed, a * d_tau + b * d_nu, d_tau),
                np.where(self.changed, c * d_tau + d * d_nu, d_nu),
            )
        return np.array([d_tau, d_nu - m * d_tau])
