"""The exact gradient of the evidence: one adjoint solve and one matrix product.

The evidence depends on K directly, and through sites and marginals that move with it so that the
sites stay a fixed point. EP's evidence is stationary in the sites; PL's and Laplace's are not,
and dropping the implicit part is plainly wrong.
"""

from typing import NamedTuple

import numpy as np

from postlin._threads import blas_threads
from postlin._typing import Array
from postlin.evidence import site_scales
from postlin.linearised_map import LinearisedMap
from postlin.problem import Iterate, Problem

#: Relative tolerance of the adjoint solve.
_ACCURACY = 1e-11


class EvidenceGradient(NamedTuple):
    """∂ log Z by the covariance matrix (symmetric) and by a noise variance in the likelihood."""

    K_bar: Array
    by_noise: float


def evidence_gradient(problem: Problem, iterate: Iterate) -> EvidenceGradient:
    """The total derivative of log Z at a fixed point."""
    with blas_threads(len(problem.y)):
        return _evidence_gradient(problem, iterate)


def _evidence_gradient(problem: Problem, iterate: Iterate) -> EvidenceGradient:
    scales = site_scales(problem, iterate)
    v = iterate.posterior.variance
    sigma = np.sqrt(v)
    # the units of LinearisedMap: dm/√v, dv/v, v dτ, √v (dν − m dτ)
    by_mean, by_variance, by_tau, by_shift = scales.gradient * np.array([sigma, v, 1 / v, 1 / sigma])
    linearised = LinearisedMap(iterate)
    seed = linearised.posterior_adjoint(by_mean, by_variance) + np.stack([by_tau, by_shift])
    adjoint = linearised.solve_transposed(seed, rtol=_ACCURACY)
    through_mean, through_variance = linearised.local_adjoint(adjoint)
    K_bar = iterate.posterior.pull_back(
        (by_mean + through_mean) / sigma, (by_variance + through_variance) / v
    )
    proposed_by_noise = iterate.proposal.by_noise() * np.array([v, sigma])
    by_noise = float(np.sum(adjoint * proposed_by_noise) + scales.by_noise.sum())
    return EvidenceGradient(K_bar, by_noise)
