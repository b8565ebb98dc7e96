"""Leave-one-out predictions without refitting.

The posterior without an observation is approximately its cavity, in which all other sites stay as they
are. Where they would hardly move, the cavity is the answer and costs nothing. Where removing the
observation moves them, they are solved again from their present values, which takes a factorisation or
two for each such row.
"""

from dataclasses import replace

import numpy as np

from postlin._typing import Array, Marginals
from postlin.exceptions import ImproperCavityError
from postlin.inference.exact.evidence import ExactApproximation
from postlin.inference.exact.problem import ExactProblem
from postlin.inference.solver import solve
from postlin.linalg.arrays import copied, diagonal_of, on_host
from postlin.linalg.triangles import panels
from postlin.rules.sites import Sites, SiteView
from postlin.schedules import Schedule

#: A cavity is used where removing the observation moves no other site by more than this, in units of
#: its marginal.
_SMALL = 0.02
#: The tolerance to which the other sites are solved.
_TOL = 1e-4
#: The number of rows whose effect on all others is computed together.
_ROWS = 64


def cavities(approximation: ExactApproximation) -> Marginals:
    """The latent marginal of each observation without its own site, all other sites being held."""
    return approximation.problem.weights.one(approximation.iterate.posterior.view).cavity


def left_out(approximation: ExactApproximation, schedule: Schedule, max_iter: int) -> Marginals:
    """The latent marginal of each observation without its own site, the other sites solved again."""
    mean, variance = (part.copy() for part in cavities(approximation))
    to_tolerance = replace(schedule, iterations=None)
    for i in np.flatnonzero(disturbances(approximation) > _SMALL):
        mean[i], variance[i] = _without(approximation, int(i), to_tolerance, max_iter)
    return Marginals(mean, variance)


def disturbances(approximation: ExactApproximation) -> Array:
    """For each row, the largest move of any other site after one observation of the row is removed."""
    problem = approximation.problem
    view = problem.weights.one(approximation.iterate.posterior.view)
    covariance, found = approximation.covariance, np.empty(len(view.mean))
    between = problem.weights.between(view)  # covariances with other observations of the same row
    for rows in panels(len(found), _ROWS):
        part = np.array(on_host(covariance[rows, :]))
        diagonal_of(part[:, rows])[:] = between[rows]
        found[rows] = _moves(problem, view, rows, part).max(axis=1)
    return found


def _moves(problem: ExactProblem, view: SiteView, rows: slice, covariance: Array) -> Array:
    """The residual of all sites (columns) once each of ``rows`` has lost an observation."""
    gap, part = view.gap[rows, None], np.broadcast_to(view.part, view.mean.shape)[rows, None]
    mean = view.mean - covariance * (part * view.pull[rows, None] / gap)
    variance = view.variance + covariance**2 * (part * view.tau[rows, None] / gap)
    left = 1.0 - view.part * view.tau * variance
    after = SiteView(mean, variance, view.tau, view.nu, left, view.part)
    try:
        wanted = problem.rule.propose(problem.likelihood, problem.y, after).sites
    except (ImproperCavityError, ValueError):  # the moves are too large to be computed
        return np.full_like(mean, np.inf)
    d_tau = wanted.tau - view.tau
    d_shift = wanted.nu - view.nu - mean * d_tau
    moves: Array = np.maximum(variance * np.abs(d_tau), np.sqrt(variance) * np.abs(d_shift))
    return moves


def _without(
    approximation: ExactApproximation, i: int, schedule: Schedule, max_iter: int
) -> tuple[float, float]:
    """Mean and variance of the latent value of row i without one observation of it."""
    problem, (tau, nu) = approximation.problem, approximation.sites
    weights, left = problem.weights.without(i, len(tau))
    K = copied(problem.K)
    K[i, i] += float(weights.point(i).mean_noise - problem.weights.point(i).mean_noise)
    start = Sites(tau.copy(), nu.copy())
    start.tau[i] *= left
    start.nu[i] *= left
    fewer = replace(problem, K=K, weights=weights)
    iterate, _ = solve(fewer, schedule, start=start, tol=_TOL, max_iter=max_iter)
    view = iterate.posterior.view
    return weights.point(i).new(SiteView(*(part[i] for part in view[:5])))
