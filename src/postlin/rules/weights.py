"""Weights: a point of weight w stands for w observations of the same row.

An observation depends on the latent value g + e, where e ~ N(0, s²) is its own white noise if the
kernel has some. All observations of a point have the same site (τ, ν), and act on the rest of the model
only through the mean of their latent values. The posterior therefore has one point with noise s²/w and
the site (w τ, w ν). The differences between its observations have a closed form:

    v = v̄ + (1 − 1/w) s²/(1 + s²τ),        −½ (w − 1) log(1 + s²τ) in the log evidence,

where v̄ is the variance of their mean and v that of one observation. The cavity of an observation lacks
the site of that observation alone. Where w < 1 the noise is not divided, and the cavity lacks the whole
site.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from postlin._typing import Array, cached_property, override
from postlin.likelihoods.base import Change
from postlin.linalg.blocks import inverted, symmetric
from postlin.linalg.functions import functions
from postlin.rules.joint_sites import JointProposal, JointWeighted
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Proposal, Sites, SiteView


class Weights:
    """Unit weights: every point is one observation. ``Observations`` has other weights."""

    #: Whether every point stands for one observation.
    is_unit: ClassVar[bool] = True
    #: s², the variance of each observation's own noise, which is not in K.
    noise: float = 0.0

    @property
    def count(self) -> Array | float:
        """The number of observations of each point."""
        return 1.0

    @property
    def mean_noise(self) -> Array | float:
        """The noise of the mean of a point's observations."""
        return 0.0

    def check_correction(self) -> None:
        """Raise ``ValueError`` for weights with which pairs of observations are not defined."""

    def with_noise(self, noise: float) -> "Weights":
        """These weights with this noise of each observation; with unit weights it stays in K."""
        return self

    def point(self, i: int | np.ndarray) -> "Weights":
        """The weight of point i alone."""
        return self

    def one(self, view: SiteView) -> SiteView:
        """The view of one observation of each point, from the view of the mean of them."""
        return view

    def total(self, sites: Sites) -> Sites:
        """The sites of the points, from those of one observation each."""
        return sites

    def propose(self, one: Proposal, tau: Array) -> Proposal:
        """The proposal for the points, from that for one observation with the present precision τ."""
        return one

    def scales(self, one: SiteScales, tau: Array) -> SiteScales:
        """The scales of all observations together, from those of one observation of each point."""
        return one

    def sum(self, terms: Array) -> float:
        """The sum over all observations of terms that are given for one of each point."""
        return float(terms.sum())

    def log_scale(self, tau: Array) -> float:
        """The term of the log evidence for the differences between a point's observations."""
        return 0.0

    def variance_by_noise(self, tau: Array) -> Array:
        """∂v/∂s² of one observation of each point at fixed sites and a fixed variance of their mean."""
        zero: Array = functions(tau).zeros_like(tau)
        return zero

    def by_noise(self, tau: Array, covariance_bar: Array, variance_bar: Array) -> float:
        """∂ log evidence/∂s², from the derivatives by the diagonal of K and by v."""
        return 0.0

    def between(self, one: SiteView) -> Array:
        """Posterior covariances of two observations of the same point, 0 where there is only one."""
        return np.zeros_like(one.mean)

    def without(self, i: int, n: int) -> tuple["Weights", float]:
        """The weights of n points without one observation of point i, and the part of w_i left."""
        return Observations(np.where(np.arange(n) == i, 0.0, 1.0)), 0.0

    def new(self, view: SiteView) -> tuple[float, float]:
        """Mean and variance of a new observation of the one point that has these weights.

        ``view`` holds numbers: the posterior of the mean of the point's observations, and its site.
        """
        return float(view.mean), float(view.variance)


#: The weights of points that stand for one observation each.
UNIT = Weights()


@dataclass(frozen=True)
class Observations(Weights):
    """The weight of each point, and the variance of the white noise that each observation has."""

    weight: Array
    noise: float = 0.0
    is_unit: ClassVar[bool] = False

    @cached_property
    def copies(self) -> Array:
        """max(w, 1), by which the noise of the mean is divided."""
        copies: Array = functions(self.weight).maximum(self.weight, 1.0)
        return copies

    @cached_property
    def _apart(self) -> Array:
        """1 − 1/max(w, 1)."""
        return 1.0 - 1.0 / self.copies

    @cached_property
    def _per_weight(self) -> Array:
        """1/w, and 0 where w = 0."""
        f, some = functions(self.weight), self.weight > 0
        per_weight: Array = f.where(some, 1.0 / f.where(some, self.weight, 1.0), 0.0)
        return per_weight

    @override
    @property
    def count(self) -> Array:
        return self.weight

    @override
    @property
    def mean_noise(self) -> Array:
        return self.noise / self.copies

    @override
    def check_correction(self) -> None:
        parts = np.flatnonzero((self.weight > 0.0) & (self.weight < 1.0))
        if len(parts):
            raise ValueError(
                "the correction needs weights that are 0 or at least 1, which count observations, and "
                f"that of row {parts[0]} is {self.weight[parts[0]]:g}: use other weights, or "
                "corrected=False."
            )

    @override
    def with_noise(self, noise: float) -> "Observations":
        return Observations(self.weight, noise)

    @override
    def point(self, i: int | np.ndarray) -> "Observations":
        return Observations(self.weight[i], self.noise)

    @override
    def one(self, view: SiteView) -> SiteView:
        tau, nu = self._per_weight * view.tau, self._per_weight * view.nu
        softening = 1.0 / (1.0 + self.noise * tau)
        return SiteView(
            view.mean,
            view.variance + self._apart * self.noise * softening,
            tau,
            nu,
            # 1 − τ v, to full precision where τ v̄ is close to one
            self._apart * softening + view.gap / self.copies,
            functions(self.weight).minimum(self.weight, 1.0),
        )

    @override
    def total(self, sites: Sites) -> Sites:
        return Sites(self.weight * sites.tau, self.weight * sites.nu)

    @override
    def propose(self, one: Proposal, tau: Array) -> Proposal:
        return Weighted(self.total(one.sites), one.at, one.response, one, self, tau)

    @override
    def scales(self, one: SiteScales, tau: Array) -> SiteScales:
        return SiteScales(
            self.weight * one.value,
            self.by_total(self.weight * one.gradient, tau),
            [self.weight * by for by in one.by_parameters],
        )

    @override
    def sum(self, terms: Array) -> float:
        return float(self.weight @ terms)

    @override
    def between(self, one: SiteView) -> Array:
        own = self.noise / (1.0 + self.noise * one.tau)
        return np.where(self.weight > 1.0, one.variance - own, 0.0)

    @override
    def without(self, i: int, n: int) -> tuple[Weights, float]:
        weight = self.weight.copy()
        weight[i] = max(weight[i] - 1.0, 0.0)
        return Observations(weight, self.noise), float(weight[i] / self.weight[i])

    @override
    def new(self, view: SiteView) -> tuple[float, float]:
        if not self.noise or not self.weight:
            return super().new(view)
        noise = float(self.mean_noise)
        cavity = view.cavity
        smooth = cavity.variance - noise  # the variance of g, given all other points
        shrink = 1.0 + noise * view.tau
        variance = 1.0 / (1.0 / smooth + view.tau / shrink)
        mean = variance * (cavity.mean / smooth + view.nu / shrink)
        return float(mean), float(variance + self.noise)

    def by_total(self, columns: Array, tau: Array) -> Array:
        """Derivatives by dm, dv̄, w dτ, w (dν − m dτ) from those by dm, dv, dτ, dν − m dτ, in place.

        ``columns`` is an array [..., column, point]; v depends on v̄ and on τ.
        """
        variance_by_tau = -self._apart * (self.noise / (1.0 + self.noise * tau)) ** 2
        columns[..., 2, :] += columns[..., 1, :] * variance_by_tau
        columns[..., 2:, :] *= self._per_weight
        return columns

    @override
    def log_scale(self, tau: Array) -> float:
        return -0.5 * float(np.sum((self.copies - 1.0) * np.log1p(self.noise * tau)))

    @override
    def variance_by_noise(self, tau: Array) -> Array:
        return self._apart / (1.0 + self.noise * tau) ** 2

    @override
    def by_noise(self, tau: Array, covariance_bar: Array, variance_bar: Array) -> float:
        through_variance = variance_bar * self.variance_by_noise(tau)
        direct = -0.5 * (self.copies - 1.0) * tau / (1.0 + self.noise * tau)
        return float(np.sum(covariance_bar / self.copies + through_variance + direct))


@dataclass(frozen=True)
class Weighted(Proposal):
    """The proposal for points of weight w: w times the proposal ``one`` for one observation."""

    one: Proposal
    observations: Observations
    tau: Array  # the present precision of one observation

    @property
    @override
    def overruled(self) -> np.ndarray:
        return self.one.overruled

    @override
    def jacobian(self) -> Array:
        return self.observations.by_total(self.observations.weight * self.one.jacobian(), self.tau)

    @override
    def by_parameter(self, change: Change) -> Array:
        by: Array = self.observations.weight * self.one.by_parameter(change)
        return by


@dataclass(frozen=True)
class JointWeights:
    """The weight of each point, and the covariance N, (D, D), of the noise of each observation.

    With V̄ for the covariance of the mean of a point's observations and V for that of one of them,
    V = V̄ + (1 − 1/w) M, where M = (N⁻¹ + T)⁻¹. The log evidence has the term −½ (w − 1) log |I + N T|.
    """

    weight: Array
    noise: Array

    @classmethod
    def unit(cls, n: int, dimension: int) -> "JointWeights":
        """One observation of each of n points."""
        return cls(np.ones(n), np.zeros((dimension, dimension)))

    @cached_property
    def has_noise(self) -> bool:
        """Whether observations of the same point have noise of their own."""
        return bool(self.noise.any())

    @cached_property
    def copies(self) -> Array:
        """max(w, 1), by which the noise of the mean is divided."""
        return np.maximum(self.weight, 1.0)

    @cached_property
    def share(self) -> Array:
        """The part of each site that a cavity lacks: 1/max(w, 1)."""
        return 1.0 / self.copies

    @cached_property
    def apart(self) -> Array:
        """1 − 1/max(w, 1), (n, 1, 1)."""
        return (1.0 - self.share)[:, None, None]

    def propose(self, one: JointProposal) -> JointProposal:
        """The proposal for the points, from that for one observation of each."""
        w = self.weight
        if (w == 1.0).all():
            return one
        return JointWeighted(one.view, *self.total(Sites(one.scaled_tau, one.pull)), one, w)

    def total(self, sites: Sites) -> Sites:
        """The sites of the points, from those of one observation each."""
        return Sites(self.weight[:, None, None] * sites.tau, self.weight[:, None] * sites.nu)

    def without(self, i: int) -> tuple["JointWeights", float]:
        """The weights without one observation of point i, and the part of w_i that is left."""
        weight = self.weight.copy()
        weight[i] = max(weight[i] - 1.0, 0.0)
        return JointWeights(weight, self.noise), float(weight[i] / self.weight[i])

    def _one(self, tau: Array) -> Array:
        """T of one observation, from that of the point; correct where w ≥ 1, and unused elsewhere."""
        return tau / self.copies[:, None, None]

    def _softening(self, tau: Array) -> Array:
        """(I + N T)⁻¹."""
        return inverted(np.eye(len(self.noise)) + self.noise @ self._one(tau))

    def own(self, tau: Array) -> Array:
        """M, from the precisions of the points' sites."""
        return symmetric(self._softening(tau) @ self.noise)

    def log_scale(self, tau: Array) -> float:
        """The term of the log evidence for the differences between a point's observations."""
        if not self.has_noise:
            return 0.0
        sizes = np.linalg.slogdet(np.eye(len(self.noise)) + self.noise @ self._one(tau))[1]
        return -0.5 * float(np.sum((self.copies - 1.0) * sizes))

    def by_noise(
        self, tau: Array, diagonal_bar: Array, variance_bar: Array, directions: Array
    ) -> float:
        """∂ log evidence by the noise of a kernel along its directions (rows).

        ``diagonal_bar`` and ``variance_bar`` are the derivatives by the kernel's variances and by V.
        """
        along = self._softening(tau) @ directions.T
        through_variance = np.sum(along * (self.apart * variance_bar @ along), axis=(1, 2))
        pulled = np.sum((directions @ self._one(tau)) * np.swapaxes(along, 1, 2), axis=(1, 2))
        direct = -0.5 * (self.copies - 1.0) * pulled
        return float(np.sum(diagonal_bar / self.copies + through_variance + direct))

    def new(self, i: int, mean: Array, variance: Array, sites: Sites) -> tuple[Array, Array]:
        """Mean (D,) and covariance (D, D) of a new observation of point i."""
        if not self.has_noise or not self.weight[i]:
            return mean, variance
        tau, nu = sites.tau[i], sites.nu[i]
        eye, shared = np.eye(len(mean)), self.noise / self.copies[i]
        loosened = np.linalg.inv(eye - variance @ tau)
        smooth = loosened @ variance - shared  # the covariance of g, given all other points
        elsewhere = loosened @ (mean - variance @ nu)
        seen = np.linalg.inv(eye + tau @ shared)
        shrink = np.linalg.inv(eye + smooth @ seen @ tau)
        return shrink @ (elsewhere + smooth @ (seen @ nu)), symmetric(shrink @ smooth) + self.noise
