"""Leave-one-out predictions without refitting.

The posterior without an observation is, to begin with, its cavity: all other sites stay as they are.
Where they would hardly move that is the answer, and costs nothing. Where taking the observation away
disturbs them, they are brought to their new fixed point, from where they stood: a factorisation or
two for each such row.
"""

from dataclasses import replace

import numpy as np

from postlin._typing import Array, Marginals
from postlin.exceptions import ImproperCavityError
from postlin.inference.exact.problem import Problem
from postlin.inference.infer import Approximation
from postlin.inference.solver import solve
from postlin.linalg.arrays import copied, on_host
from postlin.linalg.threads import blas_threads
from postlin.linalg.triangles import diagonal_of, panels
from postlin.rules.sites import Sites, SiteView
from postlin.rules.weights import Observations
from postlin.schedules import Schedule

#: Cavities that disturb no other site by more than this, in units of its marginal, are believed.
_SMALL = 0.02
#: The residual to which the others are brought.
_TOL = 1e-4
#: Rows whose effect on all others is computed at a time.
_ROWS = 64


def cavities(approximation: Approximation) -> Marginals:
    """What the posterior without each observation says about it, all other sites held."""
    return _one(approximation.problem, approximation.solution.iterate.posterior.view).cavity


def left_out(approximation: Approximation, schedule: Schedule, max_iter: int) -> Marginals:
    """The same with all other sites where they would be."""
    mean, variance = (part.copy() for part in cavities(approximation))
    plain = replace(schedule, iterations=None)
    with blas_threads(len(mean)):
        for i in np.flatnonzero(disturbances(approximation) > _SMALL):
            mean[i], variance[i] = _without(approximation, int(i), plain, max_iter)
    return Marginals(mean, variance)


def disturbances(approximation: Approximation) -> Array:
    """For each row, how much any other site would move if one observation of it were not there."""
    problem, posterior = approximation.problem, approximation.solution.iterate.posterior
    view = _one(problem, posterior.view)
    covariance = approximation.covariance
    n = len(view.mean)
    # with the other observations of the same row
    between = np.zeros(n) if problem.observations is None else problem.observations.between(view)
    found = np.empty(n)
    for rows in panels(n, _ROWS):
        part = np.array(on_host(covariance[rows, :]))
        diagonal_of(part[:, rows])[:] = between[rows]
        found[rows] = _moves(problem, view, rows, part).max(axis=1)
    return found


def _moves(problem: Problem, view: SiteView, rows: slice, covariance: Array) -> Array:
    """The residual of all sites (columns) once each of ``rows`` has lost an observation."""
    gap, part = view.gap[rows, None], np.broadcast_to(view.part, view.mean.shape)[rows, None]
    mean = view.mean - covariance * (part * view.pull[rows, None] / gap)
    variance = view.variance + covariance**2 * (part * view.tau[rows, None] / gap)
    after = SiteView(
        mean, variance, view.tau, view.nu, 1.0 - view.part * view.tau * variance, view.part
    )
    try:
        wanted = problem.rule.propose(problem.likelihood, problem.y, after).sites
    except (ImproperCavityError, ValueError):  # then it disturbs them indeed
        return np.full_like(mean, np.inf)
    d_tau = wanted.tau - view.tau
    d_shift = wanted.nu - view.nu - mean * d_tau
    moves: Array = np.maximum(variance * np.abs(d_tau), np.sqrt(variance) * np.abs(d_shift))
    return moves


def _without(
    approximation: Approximation, i: int, schedule: Schedule, max_iter: int
) -> tuple[float, float]:
    """Mean and variance of the latent value of row i without one observation of it."""
    problem, (tau, nu) = approximation.problem, approximation.sites
    observations = problem.observations or Observations(np.ones(len(tau)))
    weight = observations.weight.copy()
    fewer = max(weight[i] - 1.0, 0.0)
    left = fewer / weight[i]
    weight[i] = fewer
    others = Observations(weight, observations.noise)
    K = copied(problem.K)
    K[i, i] += float(others.mean_noise[i] - observations.mean_noise[i])
    start = Sites(tau.copy(), nu.copy())
    start.tau[i] *= left
    start.nu[i] *= left
    solution = solve(
        replace(problem, K=K, observations=others),
        schedule,
        start=start,
        tol=_TOL,
        max_iter=max_iter,
    )
    view = solution.iterate.posterior.view
    return others.point(i).new(SiteView(*(part[i : i + 1] for part in view[:5])))


def _one(problem: Problem, view: SiteView) -> SiteView:
    return view if problem.observations is None else problem.observations.one(view)
