"""The joint problem of many classes, its iterates, and its Jacobian; precisions are matrices."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from postlin._typing import Array, cached_property, override
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.contract import LEAST, MEAN_ACCURACY, Iterate, Jacobian, Problem, Step
from postlin.inference.joint.posterior import JointPosterior, JointPrior
from postlin.likelihoods.softmax import Nodes
from postlin.linalg.blocks import clipped, inverted, root_of, symmetric, times, transposed
from postlin.linalg.krylov import gmres
from postlin.rules.joint import JointRule
from postlin.rules.joint_sites import JointProposal, JointView
from postlin.rules.sites import Sites
from postlin.rules.weights import JointWeights

#: With fewer latent values a factorisation costs no more than a look ahead.
_MANY = 2000
#: A Newton step that leaves less than this part of the residual needs no more than a correction.
_WELL = 0.2
#: How many steps from predicted to predicted marginals are made at most, the part of the residual at
#: which they end, the relative accuracy of their linear solves, and the part they must leave less than.
_LOOKS, _ENOUGH, _ROUGHLY, _GAIN = 8, 0.05, 0.05, 0.9
#: Damped steps towards the site of an observation that is added alone.
_STEPS, _DAMPING = 7, 0.7


@dataclass(frozen=True)
class JointProblem(Problem["JointIterate"]):
    """A prior over contrasts, labels (indices of classes) with their weights, and the rule."""

    prior: JointPrior
    y: np.ndarray
    n_classes: int
    rule: JointRule
    weights: JointWeights
    #: The levels of the kernels' white noise where each observation has its own.
    levels: list[float] = field(default_factory=list)

    @property
    def H(self) -> Array:  # noqa: N802
        """The contrasts between classes, (C, C − 1)."""
        return self.nodes.H

    @cached_property
    def nodes(self) -> Nodes:
        """The contrasts, and the nodes with which softmax is averaged over a Gaussian."""
        return Nodes.of(self.n_classes, self.rule.nodes, self.prior.place)

    @override
    def iterate(self, sites: Sites, *, strict: bool = False) -> "JointIterate":
        posterior = JointPosterior(self.prior, sites)
        root, weights = posterior.root, self.weights
        if weights.has_noise:
            root = root_of(posterior.variance + weights.apart * weights.own(sites.tau))
        view = JointView(posterior.mean, root, *sites)
        return JointIterate(posterior, view, self.propose(view))

    def propose(self, view: JointView) -> JointProposal:
        """The sites that the rule proposes."""
        return self.weights.propose(self.rule.propose(self.nodes, self.y, view))

    def alone(self, mean: Array, variance: Array, y: np.ndarray) -> Sites:
        """Sites for further observations with these predicted marginals, as if each were the only one.

        They are a start for inference, after a few steps; where those fail they are zero.
        """
        sites = self._no_sites(len(y))
        try:
            view, precision = JointView(mean, root_of(variance), *sites), inverted(variance)
            wanted = self.rule.propose_cautiously(self.nodes, y, view)
            for _ in range(_STEPS):
                sites = sites.towards(wanted, _DAMPING)
                after = symmetric(inverted(precision + sites.tau))
                centre = times(after, times(precision, mean) + sites.nu)
                view = JointView(centre, root_of(after), *sites)
                wanted = self.rule.propose(self.nodes, y, view).sites
            found = sites.towards(wanted, _DAMPING)
        except (np.linalg.LinAlgError, NotPositiveDefiniteError):
            return self._no_sites(len(y))
        return found if found.are_finite() else self._no_sites(len(y))

    @property
    @override
    def no_sites(self) -> Sites:
        return self._no_sites(len(self.y))

    def _no_sites(self, n: int) -> Sites:
        D = self.n_classes - 1
        return Sites(np.zeros((n, D, D)), np.zeros((n, D)))

    def _prior_view(self) -> JointView:
        sites = self.no_sites
        return JointView(sites.nu, root_of(self.prior.blocks()), *sites)

    @override
    def prior_proposal(self) -> JointProposal:
        return self.propose(self._prior_view())

    @override
    def cautious_sites(self, iterate: "JointIterate | None") -> Sites:
        view = iterate.view if iterate else self._prior_view()
        return self.weights.total(self.rule.propose_cautiously(self.nodes, self.y, view))

    @override
    def newton_step(self, iterate: "JointIterate", *, time: float) -> Step:
        return JointMap(self, iterate).newton_step(iterate.residual, iterate.size, time)


@dataclass(frozen=True)
class JointIterate(Iterate):
    """Sites with their posterior, and the sites that the rule proposes there."""

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
        """The move from the present to the proposed sites: P and q in one vector."""
        return flat(self.proposal.scaled_tau - self.scaled_tau, self.proposal.pull - self.pull)

    @property
    @override
    def strength(self) -> float:
        return float(np.einsum("nab,nba->n", self.view.tau, self.posterior.prior.blocks()).max())

    def split(self, flat: Array) -> tuple[Array, Array]:
        """(P, q) from one vector."""
        n, D = self.view.nu.shape
        return flat[: n * D * D].reshape(n, D, D), flat[n * D * D :].reshape(n, D)

    def moved(self, step: Array) -> Sites:
        """The sites after a step in the residual's units; precisions stay positive semi-definite."""
        m, L, tau, nu = self.view
        P, q = self.split(step)
        scaled, inverse = clipped(symmetric(self.scaled_tau + P), 0.0), np.linalg.inv(L)
        up = transposed(inverse)
        new = symmetric(up @ scaled @ inverse)
        return Sites(new, nu + times(up, q) + times(new - tau, m))


class JointMap(Jacobian):
    """The Jacobian of the undamped map at an iterate; flat vectors hold P, then q.

    In units of the marginals b = C q and E_i = −Σ_j C_ij P_j C_ji with the posterior correlation C.
    Where points stand for several observations, C is that of their means, in units of one observation;
    a change of a site then also changes M (``rules.weights``), by −(1 − 1/w)/w M dT M.
    """

    krylov: ClassVar[int] = 40
    long_krylov: ClassVar[int] = 150

    def __init__(self, problem: JointProblem, iterate: JointIterate) -> None:
        self._problem, self.iterate = problem, iterate
        self._correlation = iterate.posterior.correlation
        self._seen: tuple[Array, JointIterate] | None = None  # the last step looked at, and its end
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
        """Σ_j C_ij P_j C_ji, plus the change of M where observations have noise of their own."""
        if self._units is None:
            return self._correlation.sandwich(P)
        through = self._units @ self._correlation.sandwich(transposed(self._units) @ P @ self._units)
        return through @ transposed(self._units) + self._share * (self._own @ P @ self._own)

    def columns(self, i: int, repeated: bool) -> Array:
        """C_ji for all j, (n, D, D); C_ii is zero, or where repeated for another observation of i."""
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
        """Adjoints of the sites from those of the marginals."""
        return flat(-self.sandwich(E), self.times(b))

    def marginals_after(self, step: Array) -> tuple[Array, Array]:
        """L⁻¹(m' − m), exactly, and L⁻¹ V' L⁻ᵀ, approximately, after a step (P, q).

        The mean follows from (I + P C) x = q. The precision of a marginal grows by the sum of what each
        change of a site would add to it alone, which is exact for a single site.
        """
        P, q = self.iterate.split(step)

        def product(x: Array) -> Array:
            x = x.reshape(q.shape)
            return (x + times(P, self.times(x))).ravel()

        pull, _ = gmres(product, q.ravel(), rtol=MEAN_ACCURACY, dimension=self.krylov)
        growth = clipped(np.eye(q.shape[1]) + self.sandwich(P), LEAST, 1.0 / LEAST)
        return self.times(pull.reshape(q.shape)), symmetric(inverted(growth))

    def _ahead(self, step: Array) -> JointIterate | None:
        """What is predicted for the end of a step; None where the rule proposes nothing there.

        Only its view and its proposal are meant: no matrix is factorised.
        """
        m, L, _, _ = self.iterate.view
        b, variance = self.marginals_after(step)
        try:
            root = L @ root_of(variance)
        except np.linalg.LinAlgError:
            return None
        view = JointView(m + times(L, b), root, *self.iterate.moved(step))
        ahead = JointIterate(self.iterate.posterior, view, self._problem.propose(view))
        self._seen = step, ahead
        return ahead

    def _step_to(self, sites: Sites) -> Array:
        """The step from the present to other sites."""
        m, L, tau, nu = self.iterate.view
        up, change = transposed(L), sites.tau - tau
        return flat(symmetric(up @ change @ L), times(up, sites.nu - nu - times(change, m)))

    @override
    def residual_after(self, step: Array) -> Array | None:
        ahead = self._ahead(step)
        return None if ahead is None else self._step_to(ahead.proposal.sites) - step

    @override
    def newton_step(self, residual: Array, size: float, time: float) -> Step:
        """A Newton step as for two classes, with more corrections where the first leaves much.

        Softmax at the nodes is far from linear where variances are large, while the posterior is nearly
        linear in the sites: its prediction is right to a few per cent. Further steps are therefore made
        from predicted to predicted marginals, each with the rule's own derivatives there, before the
        large matrix is factorised again.
        """
        step, time = super().newton_step(residual, size, time)
        here = self._poor_end(step, size)
        for _ in range(_LOOKS):
            if here is None or here.size < _ENOUGH * size:
                break
            found = self._further(here)
            if found is None:
                break
            step, here = found
        return Step(step, time)

    def _poor_end(self, step: Array, size: float) -> JointIterate | None:
        """What is predicted for the end of a Newton step that leaves much of the residual, and no more.

        None is returned for any other step, and where a factorisation costs no more than looking.
        """
        if self._seen is None or self.iterate.view.nu.size < _MANY:
            return None
        seen, here = self._seen
        if here.size < _WELL * size:
            return None
        end = here if seen is step else self._ahead(step)  # which may have been corrected
        return end if end is not None and end.size < size else None

    def _further(self, here: JointIterate) -> tuple[Array, JointIterate] | None:
        """The whole step, and what is predicted for its end, after one from a predicted iterate.

        None is returned where the residual is not predicted to decrease.
        """
        from_here = inverted(here.view.root) @ self.iterate.view.root  # to units of its marginals
        up = transposed(from_here)

        def product(x: Array) -> Array:
            P, q = here.split(x)
            b = times(from_here, self.times(times(up, q)))
            E = from_here @ self.sandwich(up @ P @ from_here) @ up
            return x - flat(*here.proposal.change(b, -E))

        move, _ = gmres(product, here.residual, rtol=_ROUGHLY, dimension=self.krylov)
        for part in (1.0, 0.5, 0.25):
            step = self._step_to(here.moved(part * move))
            ahead = self._ahead(step)
            if ahead is not None and ahead.size < _GAIN * here.size:
                return step, ahead
        return None


def flat(P: Array, q: Array) -> Array:
    """P and q in one vector."""
    return np.concatenate([P.ravel(), q.ravel()])
