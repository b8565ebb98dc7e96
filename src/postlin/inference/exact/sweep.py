"""A sequential sweep over the sites, in blocks within blocks.

Inside a block of β sites only the β×β corner of Σ is needed, one rank-one update a site; after
the block one rank-β product brings the mean and Σ up to date where sites are still to come:

    Σ ← Σ − C G Cᵀ,   C = Σ[later, block],   G = (I + D Σ_bb)⁻¹ D,   D = diag(Δτ).

The numbers are those of site-by-site processing, at the speed of matrix products, and since what
has been passed is never looked at again a sweep costs no more than a factorisation or two. A
corner is swept like the whole, in smaller blocks, so that most work stays in the cache.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.inference.exact.problem import Problem
from postlin.linalg.triangles import diagonal_of, mirror, panels
from postlin.rules.sites import Sites, SiteView

#: The whole is swept in blocks of this many of the schedule's.
_BLOCKS = 8
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
        covariance, mean = posterior.lower_covariance(), posterior.mean.copy()
        tau, nu = posterior.sites.tau.copy(), posterior.sites.nu.copy()
    state = _Sweep(problem, tau, nu, np.zeros(len(tau), dtype=bool), damping)
    state.run(0, covariance, mean, (_BLOCKS * block, block))
    return Sites(tau, nu), state.overruled


class _Sweep(NamedTuple):
    """The sites of a sweep, set in place."""

    problem: Problem
    tau: Array
    nu: Array
    overruled: np.ndarray
    damping: float

    def run(self, first: int, covariance: Array, mean: Array, blocks: tuple[int, ...]) -> None:
        """Set the sites from ``first`` on that have this covariance (its lower triangle) and mean.

        Both are used up. ``blocks`` are the sizes of the blocks, the larger ones first.
        """
        if not blocks or len(mean) == 1:
            self._one_by_one(first, mirror(covariance), mean)
            return
        for inside in panels(len(mean), blocks[0]):
            sites = slice(first + inside.start, first + inside.stop)
            corner = covariance[inside, inside].copy(order="F")
            before = self.tau[sites].copy(), self.nu[sites].copy(), mean[inside].copy()
            self.run(sites.start, corner.copy(order="F"), mean[inside], blocks[1:])
            later = slice(inside.stop, len(mean))
            if later.start < later.stop:
                gain, lift = self._change(sites, mirror(corner), *before)
                columns = np.asfortranarray(covariance[later, inside])
                mean[later] += columns @ lift
                _downdate(covariance[later, later], columns, gain)

    def _change(
        self, sites: slice, corner: Array, tau: Array, nu: Array, mean: Array
    ) -> tuple[Array, Array]:
        """G, and what times C moves the mean, from how the sites of a block have changed."""
        d_tau, d_nu = self.tau[sites] - tau, self.nu[sites] - nu
        system = corner * d_tau  # (I + Σ_bb D)ᵀ, by which is divided from the right
        diagonal_of(system)[:] += 1.0
        right = np.column_stack([np.diag(d_tau), d_nu - d_tau * mean])
        answers = lapack.dgesv(system.T, right)[2]
        return 0.5 * (answers[:, :-1] + answers[:, :-1].T), answers[:, -1]

    def _one_by_one(self, first: int, covariance: Array, mean: Array) -> None:
        tau, nu = self.tau, self.nu
        for j in range(len(mean)):
            i = first + j
            # scalars, not arrays of one: half the time
            m, v, t = mean[j], covariance[j, j], tau[i]
            view = SiteView(m, v, t, nu[i], 1.0 - t * v)
            try:
                wanted, overruled = self._set(i, view)
            except ImproperCavityError as error:
                raise ImproperCavityError(i, error.cavity_variance) from None
            self.overruled[i] = overruled
            d_tau = self.damping * (wanted.tau - t)
            d_nu = self.damping * (wanted.nu - nu[i])
            tau[i] += d_tau
            nu[i] += d_nu
            column = covariance[j:, j].copy()
            shrink = 1.0 + d_tau * v
            mean[j:] += (d_nu - d_tau * m) / shrink * column
            covariance[j:, j:] -= np.outer(column, (d_tau / shrink) * column)

    def _set(self, i: int, view: SiteView) -> tuple[Sites, bool]:
        """The site of point i, and whether a policy has changed it."""
        problem = self.problem
        if problem.observations is None:
            sites, overruled = problem.rule.set_sites(problem.likelihood, problem.y[i], view)
            return sites, bool(overruled)
        point = problem.observations.point(i)
        sites, overruled = problem.rule.set_sites(problem.likelihood, problem.y[i], point.one(view))
        tau, nu = point.total(sites)
        return Sites(tau[0], nu[0]), bool(np.any(overruled))


def _downdate(covariance: Array, columns: Array, gain: Array) -> None:
    """Σ ← Σ − C G Cᵀ, the lower triangle."""
    gained = blas.dgemm(1.0, columns, gain)
    for part in panels(len(columns), _PANEL):
        below = slice(part.start, len(columns))
        covariance[below, part] -= blas.dgemm(1.0, gained[below], columns[part], trans_b=1)
