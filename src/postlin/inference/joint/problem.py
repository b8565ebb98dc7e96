"""The joint problem: sites in matrices that equal what the rule proposes at the posterior they make."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.joint.posterior import JointPosterior, Prior
from postlin.likelihoods.softmax import contrasts, normal_nodes
from postlin.linalg.blocks import root_of, symmetric, times
from postlin.rules.joint import JointRule
from postlin.rules.joint_sites import Proposal, Weighted
from postlin.rules.sites import Sites
from postlin.rules.weights import JointObservations

_EPS = float(np.finfo(float).eps)


class JointView(NamedTuple):
    """What is known where the sites stand: the posterior marginal, its root, and the site.

    Where points stand for several observations, the marginal is that of one of them.
    """

    mean: Array  # (n, D)
    root: Array  # (n, D, D), lower triangular
    tau: Array  # (n, D, D)
    nu: Array  # (n, D)


@dataclass(frozen=True)
class JointProblem:
    """Prior, labels (indices of classes) and rule."""

    prior: Prior
    y: np.ndarray
    n_classes: int
    rule: JointRule
    weight: Array | None = None  # how many observations each point stands for; None: one
    levels: list[float] | None = None  # the kernels' white noise that is each observation's own

    @cached_property
    def H(self) -> Array:  # noqa: N802
        """The contrasts."""
        return contrasts(self.n_classes)

    @cached_property
    def nodes(self) -> tuple[Array, Array]:
        """What stands for a standard normal."""
        return normal_nodes(self.n_classes - 1, self.rule.nodes)

    @property
    def size(self) -> int:
        """Rows of the largest matrix."""
        return len(self.y) * (self.n_classes - 1)

    @cached_property
    def observations(self) -> JointObservations | None:
        """The weights, where they are of observations with noise of their own."""
        if self.weight is None or self.levels is None:
            return None
        return JointObservations(self.weight, self.prior.noise(self.levels))

    def iterate(self, sites: Sites) -> "JointIterate":
        """The point of the iteration at these sites."""
        posterior = JointPosterior(self.prior, sites)
        root = posterior.root
        if self.observations is not None:
            root = root_of(
                posterior.variance + self.observations.apart * self.observations.own(sites.tau)
            )
        view = JointView(posterior.mean, root, *sites)
        return JointIterate(posterior, view, self.propose(view), self.observations)

    def try_iterate(self, sites: Sites) -> "JointIterate | None":
        """``iterate``, or nothing where the sites make no posterior."""
        if not (np.isfinite(sites.tau).all() and np.isfinite(sites.nu).all()):
            return None
        try:
            iterate = self.iterate(sites)
        except NotPositiveDefiniteError:
            return None
        return iterate if np.isfinite(iterate.size) else None

    def propose(self, view: JointView) -> Proposal:
        """The sites that the rule asks for."""
        one = self.rule.propose(self.y, view.mean, view.root, self.H, *self.nodes)
        return one if self.weight is None else Weighted.of(one, self.weight)

    def propose_cautiously(self, view: JointView) -> Sites:
        """Sites for the first steps from the prior."""
        sites = self.rule.propose_cautiously(self.y, view.mean, view.root, self.H, *self.nodes)
        if self.weight is None:
            return sites
        return Sites(self.weight[:, None, None] * sites.tau, self.weight[:, None] * sites.nu)

    @property
    def share(self) -> Array:
        """The part of each site that a cavity is without: one observation, or all of less."""
        return np.ones(len(self.y)) if self.weight is None else 1.0 / np.maximum(self.weight, 1.0)

    @property
    def prior_view(self) -> JointView:
        """The start of every cold iteration: no sites yet."""
        n, D = len(self.y), self.n_classes - 1
        root = root_of(self.prior.blocks())
        return JointView(np.zeros((n, D)), root, np.zeros((n, D, D)), np.zeros((n, D)))


@dataclass(frozen=True)
class JointIterate:
    """Sites with their posterior, and what the rule proposes instead."""

    posterior: JointPosterior
    view: JointView
    proposal: Proposal
    observations: JointObservations | None = None  # with noise of their own; None: there is none

    @cached_property
    def scaled_tau(self) -> Array:
        """Lᵀ T L of the present sites."""
        L = self.view.root
        return symmetric(np.swapaxes(L, 1, 2) @ self.view.tau @ L)

    @cached_property
    def pull(self) -> Array:
        """Lᵀ (ν − T m) of the present sites."""
        m, L, tau, nu = self.view
        return times(np.swapaxes(L, 1, 2), nu - times(tau, m))

    @cached_property
    def move(self) -> tuple[Array, Array]:
        """The move that the rule asks for, in units of the marginal: P and q."""
        return self.proposal.scaled_tau - self.scaled_tau, self.proposal.pull - self.pull

    @cached_property
    def residual(self) -> Array:
        """P and q in one vector."""
        return np.concatenate([part.ravel() for part in self.move])

    @cached_property
    def size(self) -> float:
        """The largest entry of the residual; not finite if any entry is not."""
        return float(np.abs(self.residual).max())

    @property
    def rounding(self) -> float:
        """What rounding in B does to the residual: no iteration gets below it."""
        blocks = self.posterior.prior.blocks()
        strongest = np.einsum("nab,nba->n", self.view.tau, blocks)
        return min(1e-6, 8.0 * _EPS * float(1.0 + strongest.max()))

    def turned_from(self, previous: "JointIterate") -> float:
        """The cosine between this residual and the one before: negative when iterates swing."""
        product = float(self.residual @ previous.residual)
        norms = float(np.linalg.norm(self.residual) * np.linalg.norm(previous.residual))
        return product / norms if norms > 0 else 1.0

    def split(self, flat: Array) -> tuple[Array, Array]:
        """(P, q) from one vector."""
        n, D = self.view.nu.shape
        return flat[: n * D * D].reshape(n, D, D), flat[n * D * D :].reshape(n, D)

    def moved(self, step: Array) -> Sites:
        """Sites after a step given in the residual's units; precisions stay positive semi-definite."""
        m, L, tau, nu = self.view
        P, q = self.split(step)
        values, vectors = np.linalg.eigh(symmetric(self.scaled_tau + P))
        scaled = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        inverse = np.linalg.inv(L)
        up = np.swapaxes(inverse, 1, 2)
        new = symmetric(up @ scaled @ inverse)
        return Sites(new, nu + times(up, q) + times(new - tau, m))
