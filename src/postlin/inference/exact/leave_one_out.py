"""Leave-one-out predictions without refitting.

The posterior without an observation is approximately its cavity, in which all other sites stay as they
are. Where they would hardly move, the cavity is the answer and costs nothing. Where removing the
observation moves them, they are solved again from their present values, which takes two or three
factorisations for each such row. Where that does not converge, the cavity is the answer too, and where
the approximation itself has not converged it is so for all rows: the sites are not solved then.
"""

from dataclasses import replace

import numpy as np

from postlin._typing import Array, Marginals
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
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
#: The tolerance to which the other sites are solved, and the most factorisations that a row may take.
#: On crab, thyroid and ionosphere, with all rules and likelihoods, no row took more than 17.
_TOL, _EFFORT = 1e-4, 30
#: The number of rows whose effect on all others is computed together.
_ROWS = 64


def cavities(approximation: ExactApproximation) -> Marginals:
    """The latent marginal of each observation without its own site, all other sites being held.

    Where the cavity is improper, which it may be if the likelihood is not log-concave, the others tell
    nothing about the observation, and its marginal is that of the prior.
    """
    problem = approximation.problem
    view = problem.weights.one(approximation.iterate.posterior.view)
    proper, prior = view.gap > 0, problem.prior_view()
    with np.errstate(divide="ignore", invalid="ignore"):  # where it is improper
        cavity = view.cavity
    return Marginals(
        np.where(proper, cavity.mean, prior.mean), np.where(proper, cavity.variance, prior.variance)
    )


def left_out(approximation: ExactApproximation, schedule: Schedule, max_iter: int) -> Marginals:
    """The latent marginal of each observation without its own site, the other sites solved again.

    Rows whose other sites cannot be solved keep the cavity: all rows, if inference has not converged.
    """
    mean, variance = (part.copy() for part in cavities(approximation))
    if not approximation.converged:
        return Marginals(mean, variance)
    to_tolerance, effort = replace(schedule, iterations=None), min(max_iter, _EFFORT)
    for i in map(int, np.flatnonzero(disturbances(approximation) > _SMALL)):
        found = _without(approximation, i, to_tolerance, effort)
        if found is not None:
            mean[i], variance[i] = found
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
    with np.errstate(over="ignore", invalid="ignore"):  # a tiny gap, which ``sound`` excludes
        mean = view.mean - covariance * (part * view.pull[rows, None] / gap)
        variance = view.variance + covariance**2 * (part * view.tau[rows, None] / gap)
        left = 1.0 - view.part * view.tau * variance
    # a site whose cavity would be improper moves too far to be computed; it is shown as it is
    sound = (variance > 0) & np.isfinite(mean) & ((left > 0) | (not problem.rule.needs_cavity))
    mean, variance = np.where(sound, mean, view.mean), np.where(sound, variance, view.variance)
    after = SiteView(mean, variance, view.tau, view.nu, np.where(sound, left, view.gap), view.part)
    try:
        wanted = problem.rule.propose(problem.likelihood, problem.y, after).sites
    except (ImproperCavityError, ValueError):  # the posterior itself is improper, or moments overflow
        return np.full_like(mean, np.inf)
    d_tau = wanted.tau - view.tau
    d_shift = wanted.nu - view.nu - mean * d_tau
    moves = np.maximum(variance * np.abs(d_tau), np.sqrt(variance) * np.abs(d_shift))
    return np.where(sound & np.isfinite(moves), moves, np.inf)


def _without(
    approximation: ExactApproximation, i: int, schedule: Schedule, max_iter: int
) -> tuple[float, float] | None:
    """Mean and variance of the latent value of row i without one observation of it.

    None where the other sites could not be solved.
    """
    problem, (tau, nu) = approximation.problem, approximation.sites
    weights, left = problem.weights.without(i, len(tau))
    K = copied(problem.K)
    K[i, i] += float(weights.point(i).mean_noise - problem.weights.point(i).mean_noise)
    start = Sites(tau.copy(), nu.copy())
    start.tau[i] *= left
    start.nu[i] *= left
    fewer = replace(problem, K=K, weights=weights)
    try:
        iterate, record = solve(fewer, schedule, start=start, tol=_TOL, max_iter=max_iter)
    except NotPositiveDefiniteError:
        return None
    if not record.converged:
        return None
    view = iterate.posterior.view
    return weights.point(i).new(SiteView(*(part[i] for part in view[:5])))
