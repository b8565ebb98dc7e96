"""The joint problem of many classes: sites in matrices, its iterates, and its Jacobian."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from postlin._typing import Array, override
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.contract import Climb, Step, Swept
from postlin.inference.joint.posterior import JointPosterior, JointPrior
from postlin.inference.newton import LEAST, MEAN_ACCURACY, LinearisedMap, newton_step
from postlin.likelihoods.softmax import contrasts, normal_nodes
from postlin.linalg.blocks import inverted, root_of, symmetric, times, transposed
from postlin.linalg.krylov import gmres
from postlin.rules.joint import JointRule
from postlin.rules.joint_sites import JointProposal
from postlin.rules.sites import Sites
from postlin.rules.weights import JointWeights

_EPS = float(np.finfo(float).eps)


class JointView(NamedTuple):
    """What a rule looks at: each point's posterior marginal, its root, and its present site.

    Where points stand for several observations, the marginal is that of one of them.
    """

    mean: Array  # (n, D)
    root: Array  # (n, D, D), lower triangular
    tau: Array  # (n, D, D)
    nu: Array  # (n, D)


@dataclass(frozen=True)
class JointProblem:
    """Prior, labels (indices of classes), rule and weights."""

    prior: JointPrior
    y: np.ndarray
    n_classes: int
    rule: JointRule
    weights: JointWeights
    #: The kernels' white noise that is each observation's own, and not in the prior.
    levels: list[float] = field(default_factory=list)

    @cached_property
    def H(self) -> Array:  # noqa: N802
        """The contrasts between classes, (C, C − 1)."""
        return contrasts(self.n_classes)

    @cached_property
    def nodes(self) -> tuple[Array, Array]:
        """The nodes and weights that stand for a standard normal."""
        return normal_nodes(self.n_classes - 1, self.rule.nodes)

    def iterate(self, sites: Sites) -> "JointIterate":
        """The iterate at these sites: one factorisation."""
        posterior = JointPosterior(self.prior, sites)
        root, weights = posterior.root, self.weights
        if weights.has_noise:
            root = root_of(posterior.variance + weights.apart * weights.own(sites.tau))
        view = JointView(posterior.mean, root, *sites)
        return JointIterate(posterior, view, self.propose(view))

    def try_iterate(self, sites: Sites) -> "JointIterate | None":
        """The iterate, or None where the sites make no posterior."""
        if not sites.are_finite():
            return None
        try:
            iterate = self.iterate(sites)
        except NotPositiveDefiniteError:
            return None
        return iterate if np.isfinite(iterate.size) else None

    def propose(self, view: JointView) -> JointProposal:
        """The sites that the rule asks for."""
        return self.weights.propose(
            self.rule.propose(self.y, view.mean, view.root, self.H, *self.nodes)
        )

    @property
    def no_sites(self) -> Sites:
        """Sites of zeros."""
        n, D = len(self.y), self.n_classes - 1
        return Sites(np.zeros((n, D, D)), np.zeros((n, D)))

    def _prior_view(self) -> JointView:
        sites = self.no_sites
        return JointView(sites.nu, root_of(self.prior.blocks()), *sites)

    def prior_proposal(self) -> JointProposal:
        """What the rule proposes at the prior."""
        return self.propose(self._prior_view())

    def cautious_sites(self, iterate: "JointIterate | None") -> Sites:
        """Sites that are never far too weak, at an iterate or at the prior."""
        view = iterate.view if iterate else self._prior_view()
        return self.weights.total(
            self.rule.propose_cautiously(self.y, view.mean, view.root, self.H, *self.nodes)
        )

    def newton_step(self, iterate: "JointIterate", *, time: float) -> Step:
        """A Newton step, or an implicit step of this pseudo-time or less."""
        return newton_step(JointMap(self, iterate), iterate.residual, iterate.size, time)

    def sweep(self, iterate: "JointIterate | None", damping: float, *, block: int) -> Swept:
        """Joint inference has no sequential schedule; ``check_joint`` refuses it."""
        raise AssertionError

    def climb(self, iterate: "JointIterate | None") -> "Climb[JointIterate]":
        """Joint rules are not Newton's method by themselves."""
        raise AssertionError


@dataclass(frozen=True)
class JointIterate:
    """Sites with their posterior, and what the rule proposes instead."""

    posterior: JointPosterior
    view: JointView
    proposal: JointProposal

    @cached_property
    def scaled_tau(self) -> Array:
        """Lᵀ T L of the present sites."""
        L = self.view.root
        return symmetric(transposed(L) @ self.view.tau @ L)

    @cached_property
    def pull(self) -> Array:
        """Lᵀ (ν − T m) of the present sites."""
        m, L, tau, nu = self.view
        return times(transposed(L), nu - times(tau, m))

    @cached_property
    def residual(self) -> Array:
        """The move that the rule asks for, in units of the marginal: P and q in one vector."""
        return flat(self.proposal.scaled_tau - self.scaled_tau, self.proposal.pull - self.pull)

    @cached_property
    def size(self) -> float:
        """The largest entry of the residual; not finite if any entry is not."""
        return float(np.abs(self.residual).max())

    @property
    def rounding(self) -> float:
        """The residual that rounding in B can cause: no iteration gets below it."""
        blocks = self.posterior.prior.blocks()
        strongest = np.einsum("nab,nba->n", self.view.tau, blocks)
        return min(1e-6, 8.0 * _EPS * float(1.0 + strongest.max()))

    def split(self, flat: Array) -> tuple[Array, Array]:
        """(P, q) from one vector."""
        n, D = self.view.nu.shape
        return flat[: n * D * D].reshape(n, D, D), flat[n * D * D :].reshape(n, D)

    def moved(self, step: Array) -> Sites:
        """The sites after a step in the residual's units; precisions stay positive semi-definite."""
        m, L, tau, nu = self.view
        P, q = self.split(step)
        values, vectors = np.linalg.eigh(symmetric(self.scaled_tau + P))
        scaled = (vectors * np.maximum(values, 0.0)[:, None, :]) @ transposed(vectors)
        inverse = np.linalg.inv(L)
        up = transposed(inverse)
        new = symmetric(up @ scaled @ inverse)
        return Sites(new, nu + times(up, q) + times(new - tau, m))


class JointMap(LinearisedMap):
    """The Jacobian of the undamped map at an iterate; flat vectors hold P, then q.

    In units of the marginals b = C q and E_i = −Σ_j C_ij P_j C_ji, C being the posterior correlation.
    Where points stand for several observations, C is about the mean of them, in units of one; a site
    then also changes M, by which they vary among themselves, by −(1 − 1/w)/w M dT M.
    """

    krylov: ClassVar[int] = 40
    long_krylov: ClassVar[int] = 150

    def __init__(self, problem: JointProblem, iterate: JointIterate) -> None:
        self._problem, self.iterate = problem, iterate
        self._correlation = iterate.posterior.correlation
        self._units: Array | None = None
        weights = problem.weights
        if weights.has_noise:
            inverse = inverted(iterate.view.root)
            self._units = inverse @ iterate.posterior.root
            self._own = inverse @ weights.own(iterate.view.tau) @ transposed(inverse)
            self._share = weights.apart / weights.copies[:, None, None]

    def times(self, q: Array) -> Array:
        """C q."""
        if self._units is None:
            return self._correlation.times(q)
        return times(self._units, self._correlation.times(times(transposed(self._units), q)))

    def sandwich(self, P: Array) -> Array:
        """Σ_j C_ij P_j C_ji, and by how much the observations of a point vary among themselves."""
        if self._units is None:
            return self._correlation.sandwich(P)
        through = self._units @ self._correlation.sandwich(transposed(self._units) @ P @ self._units)
        return through @ transposed(self._units) + self._share * (self._own @ P @ self._own)

    def columns(self, i: int, repeated: bool) -> Array:
        """C_ji for all j, (n, D, D), with other observations of i itself where it is repeated."""
        blocks = self._correlation.columns(i)
        if self._units is not None:
            blocks = self._units @ blocks @ self._units[i].T
            blocks[i] = np.eye(blocks.shape[1]) - self._own[i]
        if not repeated:
            blocks[i] = 0.0
        return blocks

    @override
    def apply(self, step: Array) -> Array:
        P, q = self.iterate.split(step)
        return flat(*self.iterate.proposal.change(self.times(q), -self.sandwich(P)))

    @override
    def apply_transposed(self, adjoint: Array) -> Array:
        return self.posterior_adjoint(*self.iterate.proposal.pull_back(*self.iterate.split(adjoint)))

    def posterior_adjoint(self, b: Array, E: Array) -> Array:
        """Adjoints on the sites from those on the marginals."""
        return flat(-self.sandwich(E), self.times(b))

    def marginals_after(self, step: Array) -> tuple[Array, Array]:
        """L⁻¹(m' − m), exactly, and L⁻¹ V' L⁻ᵀ, approximately, after a step (P, q).

        The mean follows from (I + P C) x = q; the precision of a marginal grows by what the others
        would add to it alone, which is exact for a single site.
        """
        P, q = self.iterate.split(step)
        D = q.shape[1]

        def product(x: Array) -> Array:
            x = x.reshape(q.shape)
            return (x + times(P, self.times(x))).ravel()

        pull, _ = gmres(product, q.ravel(), rtol=MEAN_ACCURACY, dimension=self.krylov)
        growth, vectors = np.linalg.eigh(np.eye(D) + self.sandwich(P))
        shrunk = 1.0 / np.clip(growth, LEAST, 1.0 / LEAST)[:, None, :]
        variance = (vectors * shrunk) @ transposed(vectors)
        return self.times(pull.reshape(q.shape)), symmetric(variance)

    @override
    def residual_after(self, step: Array) -> Array | None:
        m, L, _, _ = self.iterate.view
        b, variance = self.marginals_after(step)
        sites = self.iterate.moved(step)
        try:
            root = L @ root_of(variance)
        except np.linalg.LinAlgError:
            return None
        wanted = self._problem.propose(JointView(m + times(L, b), root, *sites)).sites
        up, missing = transposed(L), wanted.tau - sites.tau
        return flat(symmetric(up @ missing @ L), times(up, wanted.nu - sites.nu - times(missing, m)))


def flat(P: Array, q: Array) -> Array:
    """P and q in one vector."""
    return np.concatenate([P.ravel(), q.ravel()])
