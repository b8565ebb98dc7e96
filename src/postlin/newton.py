"""Newton's step for the fixed point, and what can be known about its end without a factorisation.

After a step (p, q) the posterior mean follows exactly from (I + diag(p) C) x = q, the variances
approximately from 1/v' = (1 + (C∘C) p)/v, which is exact for a single site.
"""

from functools import partial

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.linearised_map import LinearisedMap
from postlin.look_ahead import Step, corrected_step
from postlin.problem import Iterate, Problem
from postlin.sites import SiteView


def newton_step(problem: Problem, iterate: Iterate, *, time: float) -> Step:
    """A Newton step in the residual's units, or an implicit step of pseudo-time."""
    if problem.rule.is_newton:
        return Step(iterate.residual / (1.0 + 1.0 / time), time)
    linearised = LinearisedMap(iterate)
    residual_after = partial(_residual_after, problem, iterate, linearised)
    return corrected_step(linearised, iterate.residual, iterate.size, time, residual_after)


def _residual_after(
    problem: Problem, iterate: Iterate, linearised: LinearisedMap, step: Array
) -> Array | None:
    """The residual to expect after a step; None where the rule has no answer there."""
    m, v, tau, nu, *_ = iterate.view
    sigma = np.sqrt(v)
    mean, variance = linearised.marginals_after(step)
    d_tau = step[0] / v
    tau, nu = tau + d_tau, nu + step[1] / sigma + m * d_tau
    view = SiteView(m + sigma * mean, v * variance, tau, nu, 1.0 - tau * v * variance)
    try:
        wanted = problem.sites_for(view)
    except (ImproperCavityError, ValueError):  # of an improper cavity or of moments that overflow
        return None
    missing = wanted.tau - tau
    return np.array([v * missing, sigma * (wanted.nu - nu - m * missing)])
