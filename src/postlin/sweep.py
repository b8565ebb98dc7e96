"""A sequential sweep over the sites, in blocks.

Inside a block of β sites only the β×β corner of Σ is needed, one rank-one update a site; after
the block one rank-β product brings Σ and the mean up to date:

    Σ ← Σ − C G Cᵀ,   C = Σ[:, block],   G = (I + D Σ_bb)⁻¹ D,   D = diag(Δτ).

The numbers are those of site-by-site processing, at the speed of matrix products.
"""

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.posterior import GaussianPosterior, diagonal_of
from postlin.problem import Problem
from postlin.sites import Sites, SiteView


def sweep(
    problem: Problem,
    posterior: GaussianPosterior | None,
    *,
    block: int,
    damping: float = 1.0,
) -> tuple[Sites, np.ndarray]:
    """The sites after each has been set anew, in order, from a posterior kept up to date.

    ``posterior`` is where the sweep starts; None is the prior. Also says which sites a policy for
    negative precisions has changed.
    """
    if posterior is None:
        covariance, mean = problem.K.copy(), problem.prior_mean.copy()
        tau, nu = np.zeros_like(problem.y), np.zeros_like(problem.y)
    else:
        covariance, mean = posterior.covariance.copy(), posterior.mean.copy()
        tau, nu = posterior.sites.tau.copy(), posterior.sites.nu.copy()
    overruled = np.zeros(len(tau), dtype=bool)
    for first in range(0, len(tau), block):
        inside = slice(first, min(first + block, len(tau)))
        old_tau, old_nu = tau[inside].copy(), nu[inside].copy()
        corner = covariance[inside, inside].copy()
        _sweep_block(problem, inside, corner, mean[inside].copy(), tau, nu, overruled, damping)
        d_tau, d_nu = tau[inside] - old_tau, nu[inside] - old_nu
        columns = covariance[:, inside].copy()
        # rows of (I + Σ_bb D)⁻¹ applied from the right, by one small solve
        system = columns[inside] * d_tau
        diagonal_of(system)[:] += 1.0
        gain = np.linalg.solve(system.T, np.diag(d_tau))
        lift = np.linalg.solve(system.T, d_nu - d_tau * mean[inside])
        mean += columns @ lift
        covariance -= columns @ (0.5 * (gain + gain.T)) @ columns.T
    return Sites(tau, nu), overruled


def _sweep_block(
    problem: Problem,
    inside: slice,
    corner: Array,
    mean: Array,
    tau: Array,
    nu: Array,
    overruled: np.ndarray,
    damping: float,
) -> None:
    """Set the sites of one block in place; ``corner`` and ``mean`` are the block's own copies."""
    rule, likelihood = problem.rule, problem.likelihood
    for j, i in enumerate(range(inside.start, inside.stop)):
        column = corner[:, j]
        m, v = mean[j : j + 1], column[j : j + 1]
        view = SiteView(m, v, tau[i : i + 1], nu[i : i + 1], 1.0 - tau[i : i + 1] * v)
        y = problem.y[i : i + 1]
        try:
            proposal = rule.propose(likelihood, y, view)
        except ImproperCavityError as error:
            raise ImproperCavityError(i, error.cavity_variance) from None
        wanted = proposal.sites
        overruled[i] = proposal.overruled[0]
        d_tau = damping * float(wanted.tau[0] - tau[i])
        d_nu = damping * float(wanted.nu[0] - nu[i])
        tau[i] += d_tau
        nu[i] += d_nu
        shrink = 1.0 + d_tau * float(v[0])
        lift = (d_nu - d_tau * float(m[0])) / shrink
        mean += lift * column
        corner -= np.outer(column, (d_tau / shrink) * column)
