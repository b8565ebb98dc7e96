"""Weights: a point of weight w stands for w observations of the same row.

Each observation sees the latent value g + e, with its own white noise e ~ N(0, s²) where the kernel
has some. They all have the same site (τ, ν), and together they act on the rest of the model through
the mean of their latent values alone: a point with noise s²/w and the site (w τ, w ν), which is what
the posterior knows. What the observations have for themselves, they have in closed form:

    v = v̄ + (1 − 1/w) s²/(1 + s²τ),        −½ (w − 1) log(1 + s²τ) in the log evidence,

v̄ the variance of the mean and v that of one observation. Their cavity is without one of them. Where
w < 1 there is less than one: noise is not divided, and the cavity is without all that there is.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.base import Change
from postlin.linalg.blocks import inverted, symmetric
from postlin.rules.sites import Proposal, Sites, SiteView


@dataclass(frozen=True)
class Observations:
    """Weights, by point, and the variance of the white noise that is each observation's own."""

    weight: Array
    noise: float = 0.0

    @cached_property
    def copies(self) -> Array:
        """max(w, 1): what the noise is divided by."""
        return np.maximum(self.weight, 1.0)

    @cached_property
    def _apart(self) -> Array:
        """1 − 1/max(w, 1)."""
        return 1.0 - 1.0 / self.copies

    @cached_property
    def _per_weight(self) -> Array:
        """1/w, and nothing for no weight."""
        return np.divide(1.0, self.weight, out=np.zeros_like(self.weight), where=self.weight > 0)

    @property
    def mean_noise(self) -> Array:
        """The noise of the mean of a point's observations."""
        return self.noise / self.copies

    def point(self, i: int) -> "Observations":
        """Those of one point."""
        return Observations(self.weight[i : i + 1], self.noise)

    def one(self, view: SiteView) -> SiteView:
        """What a rule looks at: one observation, from what the posterior knows of their mean."""
        tau, nu = self._per_weight * view.tau, self._per_weight * view.nu
        softening = 1.0 / (1.0 + self.noise * tau)
        return SiteView(
            view.mean,
            view.variance + self._apart * self.noise * softening,
            tau,
            nu,
            # of 1 − τ v, with full precision where τ v̄ is close to one
            self._apart * softening + view.gap / self.copies,
            np.minimum(self.weight, 1.0),
        )

    def between(self, one: SiteView) -> Array:
        """Posterior covariances of two observations of each point; none where there is but one."""
        own = self.noise / (1.0 + self.noise * one.tau)
        return np.where(self.weight > 1.0, one.variance - own, 0.0)

    def new(self, view: SiteView) -> tuple[float, float]:
        """Mean and variance of one observation more of a point, from what is known of their mean."""
        if not self.noise or not self.weight[0]:
            return float(view.mean[0]), float(view.variance[0])
        noise = float(self.mean_noise[0])
        cavity = view.cavity
        smooth = cavity.variance[0] - noise  # of the value without noise, given all other points
        shrink = 1.0 + noise * view.tau[0]
        variance = 1.0 / (1.0 / smooth + view.tau[0] / shrink)
        mean = variance * (cavity.mean[0] / smooth + view.nu[0] / shrink)
        return float(mean), float(variance + self.noise)

    def total(self, sites: Sites) -> Sites:
        """The sites of the points from those of one observation each."""
        return Sites(self.weight * sites.tau, self.weight * sites.nu)

    def by_total(self, columns: Array, tau: Array) -> Array:
        """Derivatives by dm, dv̄, w dτ, w (dν − m dτ) from those by dm, dv, dτ, dν − m dτ, in place.

        ``columns`` is an array [..., column, point]; v depends on v̄ and on τ.
        """
        columns[..., 2, :] += columns[..., 1, :] * self._variance_by_tau(tau)
        columns[..., 2:, :] *= self._per_weight
        return columns

    def _variance_by_tau(self, tau: Array) -> Array:
        return -self._apart * (self.noise / (1.0 + self.noise * tau)) ** 2

    def log_scale(self, tau: Array) -> float:
        """What the differences between a point's observations add to the log evidence."""
        return -0.5 * float(np.sum((self.copies - 1.0) * np.log1p(self.noise * tau)))

    def by_noise(self, tau: Array, covariance_bar: Array, variance_bar: Array) -> float:
        """∂ log evidence by s², from those by the posterior's K (its diagonal) and by v."""
        softening = 1.0 / (1.0 + self.noise * tau)
        through_variance = variance_bar * self._apart * softening**2
        direct = -0.5 * (self.copies - 1.0) * tau * softening
        return float(np.sum(covariance_bar / self.copies + through_variance + direct))


@dataclass(frozen=True)
class JointObservations:
    """Weights, by point, and the covariance (D, D) of the noise that is each observation's own."""

    weight: Array
    noise: Array

    @cached_property
    def copies(self) -> Array:
        """max(w, 1): what the noise is divided by."""
        return np.maximum(self.weight, 1.0)

    @cached_property
    def apart(self) -> Array:
        """1 − 1/max(w, 1), (n, 1, 1)."""
        return (1.0 - 1.0 / self.copies)[:, None, None]

    def _one(self, tau: Array) -> Array:
        """T of one observation, from that of the point; where w < 1 it is never asked for."""
        return tau / self.copies[:, None, None]

    def _softening(self, tau: Array) -> Array:
        """(I + N T)⁻¹."""
        return inverted(np.eye(len(self.noise)) + self.noise @ self._one(tau))

    def own(self, tau: Array) -> Array:
        """M, given the points' sites."""
        return symmetric(self._softening(tau) @ self.noise)

    def log_scale(self, tau: Array) -> float:
        """What the differences between a point's observations add to the log evidence."""
        sizes = np.linalg.slogdet(np.eye(len(self.noise)) + self.noise @ self._one(tau))[1]
        return -0.5 * float(np.sum((self.copies - 1.0) * sizes))

    def by_noise(
        self, tau: Array, diagonal_bar: Array, variance_bar: Array, directions: Array
    ) -> float:
        """∂ log evidence by the noise of a kernel along its directions (rows).

        From those by its covariance (the diagonal) and by the variances V.
        """
        softening = self._softening(tau)
        along = softening @ directions.T
        through_variance = np.sum(along * (self.apart * variance_bar @ along), axis=(1, 2))
        pulled = np.sum((directions @ self._one(tau)) * np.swapaxes(along, 1, 2), axis=(1, 2))
        direct = -0.5 * (self.copies - 1.0) * pulled
        return float(np.sum(diagonal_bar / self.copies + through_variance + direct))

    def new(self, i: int, mean: Array, variance: Array, tau: Array, nu: Array) -> tuple[Array, Array]:
        """Mean (D,) and covariance (D, D) of one observation more of point i."""
        if not self.noise.any() or not self.weight[i]:
            return mean, variance
        eye, shared = np.eye(len(mean)), self.noise / self.copies[i]
        loosened = np.linalg.inv(eye - variance @ tau)
        smooth = loosened @ variance - shared  # of the value without noise, given all other points
        elsewhere = loosened @ (mean - variance @ nu)
        seen = np.linalg.inv(eye + tau @ shared)
        shrink = np.linalg.inv(eye + smooth @ seen @ tau)
        mean = shrink @ (elsewhere + smooth @ (seen @ nu))
        covariance = shrink @ smooth
        return mean, 0.5 * (covariance + covariance.T) + self.noise


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
