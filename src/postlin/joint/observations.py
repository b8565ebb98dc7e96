"""Weights in matrices: a point of weight w stands for w observations of the same row.

As for two classes (``postlin.observations``) each observation sees the latent value with white noise of
its own, e ~ N(0, N), and together they act on the rest through the mean of their values: a point with
noise N/w and the site (w T, w ν). What they have for themselves, they have in closed form:

    V = V̄ + (1 − 1/w) M,   M = (N⁻¹ + T)⁻¹,        −½ (w − 1) log |I + N T| in the log evidence,

V̄ the covariance of the mean and V that of one observation.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from postlin._typing import Array
from postlin.joint.sites import inverted, symmetric


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
