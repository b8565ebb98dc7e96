"""The joint approximation: its evidence in the cavity form, and the exact gradient.

    log Z = log ∫ prior Π sites + Σᵢ [log ∫ p(yᵢ|u) cavity(u) du − log ∫ site(u) cavity(u) du],

where in units of the marginal, with Γ = I − Lᵀ T L, the cavity is N(m + L o, L Γ⁻¹ Lᵀ) and o is
−Γ⁻¹ Lᵀ(ν − T m). Laplace matches site and likelihood at the mode instead. Leave-one-out needs no refit:
its last functions say how far the other sites move when an observation is removed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from postlin._typing import Array, cached_property, override
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.joint.problem import JointIterate, JointMap, JointProblem, flat
from postlin.inference.result import Adjoint, SiteApproximation
from postlin.likelihoods.softmax import label_slopes
from postlin.linalg.arrays import copied
from postlin.linalg.blocks import half_lower, inverted, outer, symmetric, times, transposed
from postlin.rules.sites import Sites


class JointScales(NamedTuple):
    """Each point's term of log Z, and the derivatives of log Z at fixed K by b, E, P and q."""

    value: Array
    by_mean: Array
    by_spread: Array
    by_tau: Array
    by_shift: Array


def log_evidence(problem: JointProblem, iterate: JointIterate, scales: JointScales) -> float:
    """log Z at an iterate, from the scales there."""
    between = problem.weights.log_scale(iterate.view.tau)
    return iterate.posterior.log_normaliser + between + float(scales.value.sum())


def scales_at(problem: JointProblem, iterate: JointIterate) -> JointScales:
    """The scales of the sites in the evidence, at the mode or at the cavity as the rule requires."""
    return (_at_mode if problem.rule.at_mode else _by_cavity)(problem, iterate)


def cavity(problem: JointProblem, iterate: JointIterate) -> tuple[Array, Array, Array]:
    """Γ⁻¹, and the mean and root of each point's marginal without one of its observations."""
    m, L, _, _ = iterate.view
    part = problem.weights.share
    removed = part[:, None, None] * iterate.scaled_tau
    inverse = symmetric(inverted(np.eye(m.shape[1]) - removed))
    try:
        root = L @ np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError("a cavity is not proper.") from None
    return inverse, m - times(L, times(inverse, part[:, None] * iterate.pull)), root


def _by_cavity(problem: JointProblem, iterate: JointIterate) -> JointScales:
    part, weight = problem.weights.share[:, None], problem.weights.weight
    X, pull = part[:, :, None] * iterate.scaled_tau, part * iterate.pull  # the removed part of the site
    inverse, mean, root = cavity(problem, iterate)
    o = -times(inverse, pull)
    # derivatives of the log label probability at the cavity, by its mean and root
    log_p, shift, stretch = label_slopes(problem.y, mean, root, problem.nodes)
    eye = np.eye(X.shape[1])
    # log ∫ site cavity, in units of the marginal and about its mean
    with_site = (
        0.5 * np.linalg.slogdet(eye - X)[1]
        + part[:, 0] * _site_at(iterate)
        + np.sum(pull * o, axis=1)
        - 0.5 * np.einsum("nd,nde,ne->n", o, X, o)
        + 0.5 * np.sum((pull - times(X, o)) ** 2, axis=1)
    )
    # the slopes in units of the posterior marginal
    back = np.linalg.inv(np.linalg.cholesky(inverse))  # from the cavity's units
    up = transposed(back)
    by_mean = times(up, weight[:, None] * shift) - pull / part
    by_variance = up @ symmetric(half_lower(weight[:, None, None] * stretch)) @ back
    by_variance = by_variance - 0.5 * (outer(pull, pull) - X @ (eye - X)) / part[:, :, None]
    by_b = times(inverse, by_mean)
    by_E = symmetric(outer(by_b, o)) + inverse @ symmetric(by_variance) @ inverse
    value = weight * log_p - with_site / part[:, 0]
    return JointScales(value, by_b, by_E, part[:, :, None] * by_E, -part * by_b)


def _site_at(iterate: JointIterate) -> Array:
    """The logarithm of each site at the posterior mean."""
    m, _, tau, nu = iterate.view
    value: Array = np.sum(nu * m, axis=1) - 0.5 * np.einsum("nd,nde,ne->n", m, tau, m)
    return value


def _at_mode(problem: JointProblem, iterate: JointIterate) -> JointScales:
    log_p = log_softmax(iterate.view.mean @ problem.H.T, axis=1)[np.arange(len(problem.y)), problem.y]
    value = problem.weights.weight * log_p - _site_at(iterate)
    zero, by_b = np.zeros_like(iterate.scaled_tau), iterate.proposal.pull - iterate.pull
    return JointScales(value, by_b, zero, zero - 0.5 * np.eye(len(zero[0])), np.zeros_like(by_b))


def adjoint_at(
    problem: JointProblem, iterate: JointIterate, scales: JointScales, accuracy: float
) -> Adjoint:
    """Solve the adjoint of the fixed-point equation to a relative accuracy."""
    linearised = JointMap(problem, iterate)
    seed = linearised.posterior_adjoint(scales.by_mean, scales.by_spread)
    seed += flat(scales.by_tau, scales.by_shift)
    adjoint, _ = linearised.solve_transposed(seed, rtol=accuracy)
    b, E = iterate.proposal.pull_back(*iterate.split(adjoint))
    up = transposed(np.linalg.inv(iterate.view.root))
    by_variance = symmetric(up @ (scales.by_spread + E) @ transposed(up))
    correction = float(adjoint @ iterate.residual)
    return Adjoint(times(up, scales.by_mean + b), by_variance, np.zeros(0), correction)


#: From an approximation and its adjoint to the derivatives by the free log-parameters.
PullBack = Callable[["JointApproximation", Adjoint], Array]


@dataclass(frozen=True, eq=False, repr=False)
class JointApproximation(SiteApproximation[JointProblem, JointIterate]):
    """The approximation that joint inference makes over the contrasts of all classes."""

    @cached_property
    def _scales(self) -> JointScales:
        return scales_at(self.problem, self.iterate)

    @cached_property
    @override
    def log_evidence(self) -> float:
        return log_evidence(self.problem, self.iterate, self._scales)

    @override
    def adjoint(self, accuracy: float) -> Adjoint:
        return adjoint_at(self.problem, self.iterate, self._scales, accuracy)

    def spectral_radius(self) -> float:
        """The spectral radius of the undamped map: below one, plain iteration converges locally."""
        return JointMap(self.problem, self.iterate).spectral_radius(len(self.iterate.residual))


def disturbances(approximation: JointApproximation) -> Array:
    """For each row, the largest move of any other site after one observation of the row is removed.

    The moves are of first order, which is enough to tell small ones from large ones.
    """
    problem, iterate = approximation.problem, approximation.iterate
    linearised, share = JointMap(problem, iterate), problem.weights.share
    X = share[:, None, None] * iterate.scaled_tau
    loosened = symmetric(inverted(np.eye(X.shape[1]) - X))
    push = times(loosened, share[:, None] * iterate.pull)
    gain = symmetric(loosened @ X)
    found = np.empty(len(push))
    for i in range(len(found)):
        across = linearised.columns(i, bool(share[i] < 1.0))  # (n, D, D)
        b = -(across @ push[i])
        P, q = iterate.proposal.change(b, across @ gain[i] @ transposed(across))
        moves = np.maximum(np.abs(P).max(axis=(1, 2)), np.abs(q).max(axis=1))
        found[i] = np.max(moves / problem.weights.weight)  # of the site of one observation
    return found


def without_one(approximation: JointApproximation, i: int) -> tuple[JointProblem, Sites]:
    """The problem without one observation of point i, and the sites to start from."""
    problem = approximation.problem
    weights, left = problem.weights.without(i)
    start = Sites(*(part.copy() for part in approximation.sites))
    start.tau[i] *= left
    start.nu[i] *= left
    prior = problem.prior
    if problem.levels:
        prior = prior._replace(covariances=[copied(K) for K in prior.covariances])
        prior.add_noise(problem.levels, weights.share - problem.weights.share)
    return replace(problem, weights=weights, prior=prior), start
