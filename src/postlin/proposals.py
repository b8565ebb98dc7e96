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
        return np.zeros(len(self.sites.tau), dtype=bool)


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

    ``changed`` marks sites that a policy for negative precisions has replaced, by a constant or,
    where they were ``skipped``, by the present site.
    """

    view: SiteView
    changed: np.ndarray
    skipped: bool

    @property
    def overruled(self) -> np.ndarray:
        """Which sites the policy has replaced."""
        return self.changed

    def jacobian(self) -> Array:
        """Through the cavity."""
        by_cavity = site_jacobian(self.at, self.response)
        full = self._about_posterior_mean(
            np.einsum("rkn,kcn->rcn", by_cavity, cavity_jacobian(self.view))
        )
        full[:, :, self.changed] = 0.0
        if self.skipped:
            full[0, 2, self.changed] = full[1, 3, self.changed] = 1.0
        return full

    def by_noise(self) -> Array:
        """The likelihood is looked at through its noise."""
        full = self._about_posterior_mean(noise_jacobian(self.at, self.response))
        full[:, self.changed] = 0.0
        return full

    def _about_posterior_mean(self, rows: Array) -> Array:
        """Rows dτ̂ and dν̂ − m dτ̂ with m the posterior's mean, from rows with the cavity's."""
        offset = self.at.mean - self.view.mean
        return np.array([rows[0], rows[1] + offset * rows[0]])
