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
from postlin.sites import Sites, SiteView


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
