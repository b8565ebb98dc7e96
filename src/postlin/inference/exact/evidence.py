"""The exact gradient of the evidence: one adjoint solve and one symmetric product.

The evidence depends on K directly, and through sites and marginals that move with it so that the
sites stay a fixed point. EP's evidence is stationary in the sites; PL's and Laplace's are not,
and dropping the implicit part is plainly wrong.
"""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.inference.exact.jacobian import LinearisedMap
from postlin.inference.exact.problem import Iterate, Problem
from postlin.inference.result import EXACT
from postlin.linalg.arrays import Matrix
from postlin.linalg.threads import blas_threads
from postlin.rules.scales import SiteScales, scales_at


def log_evidence(problem: Problem, iterate: Iterate, scales: SiteScales | None = None) -> float:
    """Log Z at this point of the iteration, whose ``site_scales`` may be known."""
    posterior, observations = iterate.posterior, problem.observations
    scales = scales or site_scales(problem, iterate)
    value = posterior.log_normaliser + float(scales.value.sum())
    if observations is not None:
        value += observations.log_scale(observations.one(posterior.view).tau)
    return value


def site_scales(problem: Problem, iterate: Iterate) -> SiteScales:
    """The form of the evidence that the rule and the likelihood call for, over all observations."""
    view, observations = iterate.posterior.view, problem.observations
    if observations is None:
        return scales_at(problem.rule, problem.likelihood, problem.y, view)
    view = observations.one(view)
    one = scales_at(problem.rule, problem.likelihood, problem.y, view)
    weight = observations.weight
    return SiteScales(
        weight * one.value,
        observations.by_total(weight * one.gradient, view.tau),
        [weight * by for by in one.by_parameters],
    )


class Adjoint(NamedTuple):
    """What the gradient of log Z needs to know beside the posterior: vectors only.

    ``mean_bar`` and ``variance_bar`` are total derivatives of log Z by the marginals that K makes at
    fixed sites, ``by_parameters`` those by the likelihood's parameters, and ``correction`` is what
    log Z gains, to first order, from the present sites to the fixed point itself.
    """

    mean_bar: Array
    variance_bar: Array
    by_parameters: Array
    correction: float


def adjoint_at(
    problem: Problem, iterate: Iterate, accuracy: float = EXACT, scales: SiteScales | None = None
) -> Adjoint:
    """Solve the adjoint of the fixed point's equation, to a relative accuracy."""
    with blas_threads(len(problem.y)):
        return _adjoint_at(problem, iterate, accuracy, scales or site_scales(problem, iterate))


def _adjoint_at(problem: Problem, iterate: Iterate, accuracy: float, scales: SiteScales) -> Adjoint:
    v = iterate.posterior.variance
    sigma = np.sqrt(v)
    units = np.array([v, sigma])
    # the units of LinearisedMap: dm/√v, dv/v, v dτ, √v (dν − m dτ)
    by_mean, by_variance, by_tau, by_shift = scales.gradient * np.array([sigma, v, 1 / v, 1 / sigma])
    linearised = LinearisedMap(iterate)
    seed = linearised.posterior_adjoint(by_mean, by_variance) + np.array([by_tau, by_shift])
    adjoint = linearised.solve_transposed(seed, rtol=accuracy)
    through_mean, through_variance = linearised.local_adjoint(adjoint)
    changes = problem.rule.changes(problem.likelihood, problem.y, iterate.proposal.at)
    by_parameters = [
        np.sum(adjoint * units * iterate.proposal.by_parameter(change)) + direct.sum()
        for change, direct in zip(changes, scales.by_parameters, strict=True)
    ]
    return Adjoint(
        (by_mean + through_mean) / sigma,
        (by_variance + through_variance) / v,
        np.array(by_parameters),
        float(np.sum(adjoint * units * iterate.move)),
    )


def by_covariance(iterate: Iterate, adjoint: Adjoint) -> Matrix:
    """∂ log Z/∂K, symmetric, where K is."""
    with blas_threads(len(adjoint.mean_bar)):
        return iterate.posterior.pull_back(adjoint.mean_bar, adjoint.variance_bar)
