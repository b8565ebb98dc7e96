"""Newton's step for the fixed point, and what can be known about its end without a factorisation.

After a step (p, q) the posterior mean follows exactly from (I + diag(p) C) x = q, the variances
approximately from 1/v' = (1 + (C∘C) p)/v, which is exact for a single site.
"""

from functools import partial

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.inference.exact.problem import Iterate, Problem
from postlin.inference.newton import LEAST, MEAN_ACCURACY, Step, corrected_step
from postlin.linalg.krylov import gmres, spectral_radius
from postlin.rules.sites import SiteView

#: Up to this many points, eigenvalues are taken from J written out.
_DENSE = 150
#: Dimensions of the Krylov spaces, for steps and for the adjoint.
_KRYLOV, _LONG_KRYLOV = 60, 200


class LinearisedMap:
    """Products and solves with J and Jᵀ at an iterate."""

    def __init__(self, iterate: Iterate) -> None:
        posterior = iterate.posterior
        sigma = np.sqrt(posterior.variance)
        self.sigma = sigma
        self._correlation = posterior.correlation
        v = posterior.variance
        rows = np.array([v, sigma])[:, None]
        columns = np.array([sigma, v, 1.0 / v, 1.0 / sigma])
        #: [row, column, point]: v dτ̂ and √v (dν̂ − m dτ̂) by dm/√v, dv/v, v dτ and √v (dν − m dτ)
        self._local: Array = rows * columns * iterate.proposal.jacobian()
        self._by_site = bool(self._local[:, 2:].any())

    @property
    def _size(self) -> int:
        return 2 * len(self.sigma)

    def apply(self, step: Array) -> Array:
        """J (p, q), arrays of shape (2, n)."""
        local = self._local
        moved: Array = local[:, 0] * self._correlation.times(step[1])
        moved -= local[:, 1] * self._correlation.squared_times(step[0])
        if self._by_site:
            moved += local[:, 2] * step[0] + local[:, 3] * step[1]
        return moved

    def apply_transposed(self, adjoint: Array) -> Array:
        """Jᵀ applied to an array of shape (2, n)."""
        moved = self.posterior_adjoint(*self.local_adjoint(adjoint))
        if self._by_site:
            moved += (self._local[:, 2:] * adjoint[:, None]).sum(axis=0)
        return moved

    def posterior_adjoint(self, by_mean: Array, by_variance: Array) -> Array:
        """(p̄, q̄) from adjoints on the marginals in their units, dm/√v and dv/v."""
        return np.array(
            [-self._correlation.squared_times(by_variance), self._correlation.times(by_mean)]
        )

    def local_adjoint(self, adjoint: Array) -> Array:
        """Adjoints on dm/√v and dv/v from those on the proposed sites."""
        by: Array = (self._local[:, :2] * adjoint[:, None]).sum(axis=0)
        return by

    def marginals_after(self, step: Array) -> tuple[Array, Array]:
        """(m' − m)/√v, exactly, and v'/v, roughly, after a step (p, q)."""
        p, q = step
        pull, _ = gmres(
            lambda x: x + p * self._correlation.times(x), q, rtol=MEAN_ACCURACY, dimension=_KRYLOV
        )
        shrinkage = 1.0 + self._correlation.squared_times(p)
        return self._correlation.times(pull), 1.0 / np.clip(shrinkage, LEAST, 1.0 / LEAST)

    def solve(self, right: Array, *, time: float, rtol: float) -> Array:
        """((1 + 1/time) I − J)⁻¹ right: a Newton step, or an implicit step of pseudo-time."""
        diagonal = 1.0 + 1.0 / time

        def product(flat: Array) -> Array:
            step = flat.reshape(2, -1)
            return (diagonal * step - self.apply(step)).ravel()

        solution, _ = gmres(product, right.ravel(), rtol=rtol, dimension=_KRYLOV)
        return solution.reshape(2, -1)

    def solve_transposed(self, right: Array, *, rtol: float) -> Array:
        """(I − Jᵀ)⁻¹ right, to the tolerance: by a dense solve where GMRES does not get there."""

        def product(flat: Array) -> Array:
            step = flat.reshape(2, -1)
            return (step - self.apply_transposed(step)).ravel()

        solution, found = gmres(product, right.ravel(), rtol=rtol, dimension=_LONG_KRYLOV)
        if not found:
            system = np.eye(self._size) - self.dense().T
            solution = np.asarray(np.linalg.solve(system, right.ravel()), dtype=np.float64)
        return solution.reshape(2, -1)

    def dense(self) -> Array:
        """J written out, (2n, 2n)."""
        local, n = self._local, len(self.sigma)
        correlation = self._correlation.dense()
        blocks = np.empty((2, n, 2, n))
        for row in range(2):
            blocks[row, :, 0] = -local[row, 1][:, None] * correlation**2
            blocks[row, :, 1] = local[row, 0][:, None] * correlation
            for column in range(2):
                block = blocks[row, :, column]
                block[np.arange(n), np.arange(n)] += local[row, 2 + column]
        return blocks.reshape(2 * n, 2 * n)

    def spectral_radius(self) -> float:
        """Max |eigenvalue of J|: below one, the plain iteration converges locally."""
        if len(self.sigma) <= _DENSE:
            return float(np.abs(np.linalg.eigvals(self.dense())).max())
        start = np.random.default_rng(0).standard_normal(self._size)
        return spectral_radius(lambda flat: self.apply(flat.reshape(2, -1)).ravel(), start)


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
