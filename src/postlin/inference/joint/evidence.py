"""The joint evidence in its cavity form, and its exact gradient.

    log Z = log ∫ prior Π sites + Σᵢ [log ∫ p(yᵢ|u) cavity(u) du − log ∫ site(u) cavity(u) du],

in units of the marginal: with Γ = I − Lᵀ T L the cavity is N(m + L o, L Γ⁻¹ Lᵀ), o = −Γ⁻¹ Lᵀ(ν − T m).
Laplace matches site and likelihood at the mode.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.joint.jacobian import JointLinearised
from postlin.inference.joint.problem import JointIterate, JointProblem
from postlin.inference.result import Solved
from postlin.likelihoods.softmax import label_slopes
from postlin.linalg.blocks import half_lower, inverted, outer, symmetric, times
from postlin.rules.joint import JointLaplace


@dataclass(frozen=True)
class Scales:
    """The points' terms, and derivatives of log Z at fixed K by b, E, P and q."""

    value: Array
    by_mean: Array
    by_spread: Array
    by_tau: Array
    by_shift: Array


def log_evidence(problem: JointProblem, iterate: JointIterate) -> float:
    """Log Z at this point of the iteration."""
    return _base(problem, iterate) + float(scales(problem, iterate).value.sum())


def _base(problem: JointProblem, iterate: JointIterate) -> float:
    """Log ∫ prior Π sites, with all observations of every point."""
    base = iterate.posterior.log_normaliser
    if problem.observations is not None:
        base += problem.observations.log_scale(iterate.view.tau)
    return base


def scales(problem: JointProblem, iterate: JointIterate) -> Scales:
    """The form of the evidence that the rule calls for."""
    at_mode = isinstance(problem.rule, JointLaplace)
    return _at_mode(problem, iterate) if at_mode else _by_cavity(problem, iterate)


def cavity(problem: JointProblem, iterate: JointIterate) -> tuple[Array, Array, Array]:
    """Γ⁻¹, and mean and root of each point's marginal without one observation of it."""
    m, L, _, _ = iterate.view
    part = problem.share
    removed = part[:, None, None] * iterate.scaled_tau
    inverse = symmetric(inverted(np.eye(m.shape[1]) - removed))
    try:
        root = L @ np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError("a cavity is not proper.") from None
    return inverse, m - times(L, times(inverse, part[:, None] * iterate.pull)), root


def _by_cavity(problem: JointProblem, iterate: JointIterate) -> Scales:
    y = problem.y
    part = problem.share[:, None]
    weight = np.ones(len(y)) if problem.weight is None else problem.weight
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
    up = np.swapaxes(back, 1, 2)
    by_mean = times(up, weight[:, None] * shift) - pull / part
    by_variance = up @ symmetric(half_lower(weight[:, None, None] * stretch)) @ back
    by_variance = by_variance - 0.5 * (outer(pull, pull) - X @ (eye - X)) / part[:, :, None]
    by_b = times(inverse, by_mean)
    by_E = symmetric(outer(by_b, o)) + inverse @ symmetric(by_variance) @ inverse
    value = weight * log_p - with_site / part[:, 0]
    return Scales(value, by_b, by_E, part[:, :, None] * by_E, -part * by_b)


def _site_at(iterate: JointIterate) -> Array:
    """Log site at the posterior mean."""
    m, _, tau, nu = iterate.view
    value: Array = np.sum(nu * m, axis=1) - 0.5 * np.einsum("nd,nde,ne->n", m, tau, m)
    return value


def _at_mode(problem: JointProblem, iterate: JointIterate) -> Scales:
    f = iterate.view.mean @ problem.H.T
    top = f.max(axis=1)
    log_p = f[np.arange(len(f)), problem.y] - top - np.log(np.exp(f - top[:, None]).sum(axis=1))
    zero = np.zeros_like(iterate.scaled_tau)
    weight = np.ones(len(f)) if problem.weight is None else problem.weight
    by_b = iterate.proposal.pull - iterate.pull
    by_P = zero - 0.5 * np.eye(zero.shape[1])
    return Scales(weight * log_p - _site_at(iterate), by_b, zero, by_P, np.zeros_like(by_b))


class Adjoint(NamedTuple):
    """Log Z at the fixed point, to second order in the residual, and its slopes by the marginals."""

    value: float
    mean_bar: Array
    variance_bar: Array


def adjoint_at(problem: JointProblem, iterate: JointIterate, accuracy: float) -> Adjoint:
    """Solve the adjoint of the fixed point's equation, to a relative accuracy."""
    found = scales(problem, iterate)
    linearised = JointLinearised(iterate)
    direct = np.concatenate([found.by_tau.ravel(), found.by_shift.ravel()])
    seed = linearised.posterior_adjoint(found.by_mean, found.by_spread) + direct
    adjoint, _ = linearised.solve_transposed(seed, rtol=accuracy)
    b, E = iterate.proposal.pull_back(*iterate.split(adjoint))
    up = np.swapaxes(np.linalg.inv(iterate.view.root), 1, 2)
    value = _base(problem, iterate) + float(found.value.sum() + adjoint @ iterate.residual)
    return Adjoint(
        value,
        times(up, found.by_mean + b),
        symmetric(up @ (found.by_spread + E) @ np.swapaxes(up, 1, 2)),
    )


def value_and_gradient(
    problem: JointProblem, iterate: JointIterate, accuracy: float
) -> tuple[float, list[Array]]:
    """Log Z at the fixed point and ∂ log Z/∂K for every kernel, white noise apart."""
    value, mean_bar, variance_bar = adjoint_at(problem, iterate, accuracy)
    return value, iterate.posterior.pull_back(mean_bar, variance_bar)


@dataclass(frozen=True, eq=False, repr=False)
class JointApproximation(Solved):
    """A Gaussian approximation of the posterior over the contrasts of all classes."""

    @cached_property
    def log_evidence(self) -> float:
        """The approximate log marginal likelihood log p(y)."""
        return log_evidence(self.problem, self.solution.iterate)

    def spectral_radius(self) -> float:
        """Of the undamped map at the solution: below one, plain iteration from nearby stays."""
        return JointLinearised(self.solution.iterate).spectral_radius()
