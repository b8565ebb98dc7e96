"""A sequential sweep over the sites, in blocks.

Inside a block of β sites only the β×β corner of Σ is needed, one rank-one update a site; after
the block one rank-β product brings the mean and Σ up to date where sites are still to come:

    Σ ← Σ − C G Cᵀ,   C = Σ[later, block],   G = (I + D Σ_bb)⁻¹ D,   D = diag(Δτ).

The numbers are those of site-by-site processing, at the speed of matrix products, and since what
has been passed is never looked at again a sweep costs no more than a factorisation or two.
"""

import numpy as np
from scipy.linalg import blas

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.posterior import GaussianPosterior
from postlin.problem import Problem
from postlin.sites import Sites, SiteView
from postlin.triangles import diagonal_of, mirror, panels

#: Columns of Σ that are brought up to date by one product.
_PANEL = 256


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
        covariance, mean = problem.K.T.copy(order="F"), problem.prior_mean.copy()
        tau, nu = np.zeros_like(problem.y), np.zeros_like(problem.y)
    else:
        covariance, mean = posterior.covariance, posterior.mean.copy()
        tau, nu = posterior.sites.tau.copy(), posterior.sites.nu.copy()
    n = len(tau)
    overruled = np.zeros(n, dtype=bool)
    for inside in panels(n, block):
        later = slice(inside.stop, n)
        old_tau, old_nu, old_mean = tau[inside].copy(), nu[inside].copy(), mean[inside].copy()
        corner = mirror(covariance[inside, inside].copy(order="F"))
        _sweep_block(problem, inside, corner.copy(), mean[inside], tau, nu, overruled, damping)
        d_tau, d_nu = tau[inside] - old_tau, nu[inside] - old_nu
        # rows of (I + Σ_bb D)⁻¹ applied from the right, by one small solve
        system = corner * d_tau
        diagonal_of(system)[:] += 1.0
        answers = np.linalg.solve(system.T, np.column_stack([np.diag(d_tau), d_nu - d_tau * old_mean]))
        columns = covariance[later, inside]
        mean[later] += columns @ answers[:, -1]
        _downdate(covariance, columns, 0.5 * (answers[:, :-1] + answers[:, :-1].T), inside.stop)
    return Sites(tau, nu), overruled


def _downdate(covariance: Array, columns: Array, gain: Array, first: int) -> None:
    """Σ ← Σ − C G Cᵀ from row and column ``first`` on, the lower triangle."""
    gained = columns @ gain
    for part in panels(len(columns), _PANEL):
        target = covariance[first + part.start :, first + part.start : first + part.stop]
        target -= blas.dgemm(1.0, gained[part.start :], columns[part], trans_b=1)


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
    """Set the sites of one block in place; ``corner`` is used up, ``mean`` brought up to date."""
    rule, likelihood = problem.rule, problem.likelihood
    for j, i in enumerate(range(inside.start, inside.stop)):
        site = slice(i, i + 1)
        m, v, t = mean[j : j + 1], corner[j, j : j + 1], tau[site]
        try:
            proposal = rule.propose(
                likelihood, problem.y[site], SiteView(m, v, t, nu[site], 1.0 - t * v)
            )
        except ImproperCavityError as error:
            raise ImproperCavityError(i, error.cavity_variance) from None
        overruled[i] = proposal.overruled[0]
        d_tau = damping * float(proposal.sites.tau[0] - tau[i])
        d_nu = damping * float(proposal.sites.nu[0] - nu[i])
        tau[i] += d_tau
        nu[i] += d_nu
        column = corner[j:, j].copy()
        shrink = 1.0 + d_tau * float(column[0])
        mean[j:] += (d_nu - d_tau * float(m[0])) / shrink * column
        corner[j:, j:] -= np.outer(column, (d_tau / shrink) * column)
