"""What a rule proposes: new sites, and how these answer to small changes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from postlin._typing import Array
from postlin.observations import Observations
from postlin.sites import (
    Change,
    Marginals,
    Response,
    Sites,
    SiteView,
    cavity_jacobian,
    parameter_jacobian,
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

    def by_parameter(self, change: Change) -> Array:
        """The same rows, by a parameter of the likelihood."""
        return parameter_jacobian(self.at, self.response, change)

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


@dataclass(frozen=True)
class AtMarginal(Proposal):
    """Made at the posterior marginal: PL."""

    def jacobian(self) -> Array:
        """Mean and variance matter, the present site does not."""
        full = np.zeros((2, 4, len(self.at.mean)))
        full[:, :2] = site_jacobian(self.at, self.response)
        return full


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

    def by_parameter(self, change: Change) -> Array:
        """Through the policy."""
        return self._finish(super().by_parameter(change))

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


@dataclass(frozen=True)
class Weighted(Proposal):
    """What is proposed for one observation of each point, for all of them."""

    one: Proposal
    observations: Observations
    tau: Array  # the present site of one observation

    @classmethod
    def of(cls, one: Proposal, observations: Observations, tau: Array) -> "Weighted":
        """The proposal for the points."""
        return cls(observations.total(one.sites), one.at, one.response, one, observations, tau)

    @property
    def overruled(self) -> np.ndarray:
        """Which sites a policy has replaced."""
        return self.one.overruled

    def jacobian(self) -> Array:
        """As often as observed, by the site of all."""
        rows: Array = self.observations.weight * self.one.jacobian()
        return self.observations.by_total(rows, self.tau)

    def by_parameter(self, change: Change) -> Array:
        """As often as observed."""
        rows: Array = self.observations.weight * self.one.by_parameter(change)
        return rows
