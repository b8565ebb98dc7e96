"""A sequential sweep over the sites, in blocks within blocks.

Inside a block of β sites only the β×β corner of Σ is needed, one rank-one update a site; after
the block one rank-β product brings the mean and Σ up to date where sites are still to come:

    Σ ← Σ − C G Cᵀ,   C = Σ[later, block],   G = (I + D Σ_bb)⁻¹ D,   D = diag(Δτ).

The numbers are those of site-by-site processing, at the speed of matrix products. Rows of Σ that the
sweep has passed are not updated, so a sweep costs no more than a factorisation or two. The corner of a
block is swept like the whole matrix, in smaller blocks, so that most work stays in the cache.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.linalg.arrays import diagonal_of
from postlin.linalg.triangles import mirror, panels
from postlin.rules.sites import Sites, SiteView

#: An outer block holds this many of the schedule's blocks.
_BLOCKS = 8
#: The number of columns of Σ that one product updates.
_PANEL = 256

#: Returns the new site of point i at the given view, and whether a policy has changed it.
SetSite = Callable[[int, SiteView], tuple[Sites, bool]]


def swept(
    covariance: Array, mean: Array, sites: Sites, set_site: SetSite, damping: float, block: int
) -> tuple[Sites, np.ndarray]:
    """The sites after each has been set in turn, and which of them a policy has changed.

    The sweep starts from the posterior with the given covariance, of which only the lower triangle is
    read, and mean. It overwrites both arrays.
    """
    tau, nu = (part.copy() for part in sites)
    state = _Sweep(set_site, tau, nu, np.zeros(len(tau), dtype=bool), damping)
    state.run(0, covariance, mean, (_BLOCKS * block, block))
    return Sites(tau, nu), state.overruled


class _Sweep(NamedTuple):
    """The state of a sweep, whose arrays are changed in place."""

    set_site: SetSite
    tau: Array
    nu: Array
    overruled: np.ndarray
    damping: float

    def run(self, first: int, covariance: Array, mean: Array, blocks: tuple[int, ...]) -> None:
        """Set the sites from ``first`` on, given their covariance (lower triangle) and mean.

        Both arrays are overwritten. ``blocks`` holds the sizes of the blocks, the larger ones first.
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
        """G, and the vector x for which C x is the change of the mean, after a block has changed."""
        d_tau, d_nu = self.tau[sites] - tau, self.nu[sites] - nu
        system = corner * d_tau  # becomes I + Σ_bb D, whose transpose is solved with
        diagonal_of(system)[:] += 1.0
        right = np.column_stack([np.diag(d_tau), d_nu - d_tau * mean])
        answers = lapack.dgesv(system.T, right)[2]
        return 0.5 * (answers[:, :-1] + answers[:, :-1].T), answers[:, -1]

    def _one_by_one(self, first: int, covariance: Array, mean: Array) -> None:
        """Set the sites from ``first`` on with a rank-one update after each."""
        tau, nu = self.tau, self.nu
        for j, i in enumerate(range(first, first + len(mean))):
            # scalars, not arrays of one: half the time
            m, v, t = mean[j], covariance[j, j], tau[i]
            try:
                wanted, self.overruled[i] = self.set_site(i, SiteView(m, v, t, nu[i], 1.0 - t * v))
            except ImproperCavityError as error:
                raise ImproperCavityError(i, error.cavity_variance) from None
            d_tau = self.damping * (wanted.tau - t)
            d_nu = self.damping * (wanted.nu - nu[i])
            tau[i] += d_tau
            nu[i] += d_nu
            column = covariance[j:, j].copy()
            shrink = 1.0 + d_tau * v
            mean[j:] += (d_nu - d_tau * m) / shrink * column
            covariance[j:, j:] -= np.outer(column, (d_tau / shrink) * column)


def _downdate(covariance: Array, columns: Array, gain: Array) -> None:
    """Replace the lower triangle of Σ by that of Σ − C G Cᵀ."""
    gained = blas.dgemm(1.0, columns, gain)
    for part in panels(len(columns), _PANEL):
        below = slice(part.start, len(columns))
        covariance[below, part] -= blas.dgemm(1.0, gained[below], columns[part], trans_b=1)
