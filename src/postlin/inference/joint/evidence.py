"""The joint approximation: its evidence in the cavity form, and the exact gradient.

    log Z = log ∫ prior Π sites + Σᵢ [log ∫ p(yᵢ|u) cavity(u) du − log ∫ site(u) cavity(u) du],

in units of the marginal: with Γ = I − Lᵀ T L the cavity is N(m + L o, L Γ⁻¹ Lᵀ), o = −Γ⁻¹ Lᵀ(ν − T m).
Laplace matches site and likelihood at the mode.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from postlin._typing import Array, override
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.joint.problem import JointIterate, JointMap, JointProblem, flat
from postlin.inference.result import EXACT, Approximation
from postlin.likelihoods.softmax import label_slopes
from postlin.linalg.blocks import half_lower, inverted, outer, symmetric, times, transposed
from postlin.rules.sites import Sites


class JointScales(NamedTuple):
    """The points' terms of log Z, and derivatives of log Z at fixed K by b, E, P and q."""

    value: Array
    by_mean: Array
    by_spread: Array
    by_tau: Array
    by_shift: Array


def log_evidence(problem: JointProblem, iterate: JointIterate, scales: JointScales) -> float:
    """log Z at an iterate whose scales are known."""
    between = problem.weights.log_scale(iterate.view.tau)
    return iterate.posterior.log_normaliser + between + float(scales.value.sum())


def scales_at(problem: JointProblem, iterate: JointIterate) -> JointScales:
    """The scales of the sites in the evidence, in the form that the rule calls for."""
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
    y = problem.y
    part = problem.weights.share[:, None]
    weight = problem.weights.weight
    X, pull = part[:, :, None] * iterate.scaled_tau, part * iterate.pull  # what the cavity is without
    inverse, mean, root = cavity(problem, iterate)
    o = -times(inverse, pull)
    # softmax's slopes at the cavity, by its mean and root
    log_p, shift, stretch = label_slopes(y, mean, root, problem.H, *problem.nodes)
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
    f = iterate.view.mean @ problem.H.T
    top = f.max(axis=1)
    log_p = f[np.arange(len(f)), problem.y] - top - np.log(np.exp(f - top[:, None]).sum(axis=1))
    zero = np.zeros_like(iterate.scaled_tau)
    weight = problem.weights.weight
    by_b = iterate.proposal.pull - iterate.pull
    by_P = zero - 0.5 * np.eye(zero.shape[1])
    return JointScales(weight * log_p - _site_at(iterate), by_b, zero, by_P, np.zeros_like(by_b))


class JointAdjoint(NamedTuple):
    """Total derivatives of log Z by the marginals, and its gain on the way to the fixed point."""

    mean_bar: Array
    variance_bar: Array
    correction: float


def adjoint_at(
    problem: JointProblem, iterate: JointIterate, scales: JointScales, accuracy: float
) -> JointAdjoint:
    """Solve the adjoint of the fixed point's equation, to a relative accuracy."""
    linearised = JointMap(problem, iterate)
    seed = linearised.posterior_adjoint(scales.by_mean, scales.by_spread)
    seed += flat(scales.by_tau, scales.by_shift)
    adjoint, _ = linearised.solve_transposed(seed, rtol=accuracy)
    b, E = iterate.proposal.pull_back(*iterate.split(adjoint))
    up = transposed(np.linalg.inv(iterate.view.root))
    return JointAdjoint(
        times(up, scales.by_mean + b),
        symmetric(up @ (scales.by_spread + E) @ transposed(up)),
        float(adjoint @ iterate.residual),
    )


#: From an approximation and its adjoint to the derivatives by the free log-parameters.
PullBack = Callable[["JointApproximation", JointAdjoint], Array]


def _no_hyperparameters(approximation: "JointApproximation", adjoint: JointAdjoint) -> Array:
    return np.zeros(0)


@dataclass(frozen=True, eq=False, repr=False)
class JointApproximation(Approximation[Sites]):
    """The approximation that joint inference makes over the contrasts of all classes."""

    problem: JointProblem
    iterate: JointIterate
    pull_back: PullBack

    @property
    def mean(self) -> Array:
        """Posterior means of the contrasts, (n, C − 1)."""
        return self.iterate.posterior.mean

    @property
    def variance(self) -> Array:
        """Posterior covariances of each point's contrasts, (n, C − 1, C − 1)."""
        return self.iterate.posterior.variance

    @property
    def covariance(self) -> Array:
        """Posterior covariance of all contrasts of all points."""
        return self.iterate.posterior.covariance

    @property
    def sites(self) -> Sites:
        """The Gaussian factors: matrices ``sites.tau`` and vectors ``sites.nu``."""
        return self.iterate.posterior.sites

    @property
    @override
    def start(self) -> Sites:
        return self.sites

    @property
    @override
    def kept(self) -> tuple[Array, Array]:
        return self.sites.tau, self.sites.nu

    @cached_property
    def _scales(self) -> JointScales:
        return scales_at(self.problem, self.iterate)

    @cached_property
    def log_evidence(self) -> float:
        """The approximate log marginal likelihood log p(y)."""
        return log_evidence(self.problem, self.iterate, self._scales)

    @override
    def value_and_gradient(self, accuracy: float = EXACT) -> tuple[float, Array]:
        adjoint = adjoint_at(self.problem, self.iterate, self._scales, accuracy)
        value = self.log_evidence + (adjoint.correction if self.converged else 0.0)
        return value, self.pull_back(self, adjoint)

    @override
    def without_gradient(self) -> Self:
        return replace(self, pull_back=_no_hyperparameters)

    def spectral_radius(self) -> float:
        """The spectral radius of the undamped map: below one, plain iteration from nearby stays."""
        return JointMap(self.problem, self.iterate).spectral_radius(len(self.iterate.residual))
