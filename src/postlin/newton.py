"""Newton's step for the fixed point, and what can be known about its end without a factorisation.

After a step (p, q) the posterior mean follows exactly from (I + diag(p) C) x = q, the variances
approximately from 1/v' = (1 + (C∘C) p)/v, which is exact for a single site. The rule's answer
there shows what the linear step has missed, and a second solve corrects it: together they leave
about a tenth of the residual that the first step alone would.
"""

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.linearised_map import LinearisedMap
from postlin.problem import Iterate, Problem
from postlin.sites import SiteView

#: Relative accuracy of the solves, from afar and near the end.
_ROUGH, _FINE = 1e-2, 1e-6
#: A correction longer than this part of the step is not one.
_SMALL = 0.5
#: Variances are not predicted to fall below this part of what they are.
_LEAST = 0.1


def newton_step(problem: Problem, iterate: Iterate, *, time: float) -> Array:
    """A Newton step in the residual's units, or an implicit step of pseudo-time."""
    if problem.rule.is_newton:
        return iterate.residual / (1.0 + 1.0 / time)
    linearised = LinearisedMap(iterate)
    # Newton's method squares the residual: near the end the solves must not stand in its way.
    rtol = min(_ROUGH, max(iterate.size, _FINE))
    step = linearised.solve(iterate.residual, time=time, rtol=rtol)
    if np.isfinite(time):
        return step
    missed = _residual_after(problem, iterate, linearised, step)
    if missed is None:
        return step
    correction = linearised.solve(missed, rtol=rtol)
    is_small = np.abs(correction).max() < _SMALL * np.abs(step).max()
    return step + correction if is_small else step


def _residual_after(
    problem: Problem, iterate: Iterate, linearised: LinearisedMap, step: Array
) -> Array | None:
    """The residual to expect after a step; None where the rule has no answer there."""
    m, v, tau, nu, *_ = iterate.view
    sigma = np.sqrt(v)
    mean, variance = linearised.marginals_after(step, least=_LEAST)
    d_tau = step[0] / v
    tau, nu = tau + d_tau, nu + step[1] / sigma + m * d_tau
    view = SiteView(m + sigma * mean, v * variance, tau, nu, 1.0 - tau * v * variance)
    try:
        wanted = problem.propose(view).sites
    except (ImproperCavityError, ValueError):  # of an improper cavity or of moments that overflow
        return None
    missing = wanted.tau - tau
    return np.array([v * missing, sigma * (wanted.nu - nu - m * missing)])
