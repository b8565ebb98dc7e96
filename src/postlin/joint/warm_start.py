"""Warm starts for sites in matrices: extrapolated by their logarithms."""

import numpy as np

from postlin._typing import Array
from postlin.joint.sites import symmetric, times
from postlin.sites import Sites
from postlin.warm_start import STEADY, SitePath

#: Eigenvalues of a site below this part of its largest count as that much.
_FAINT = 1e-12


class JointSitePath(SitePath):
    """Solved sites along the path of an optimiser.

    As for scalars the coordinates are log T and T^(−1/2) ν: precisions stay positive, and a prior
    that is only scaled moves the first alone.
    """

    @staticmethod
    def extrapolated(sites: Sites, others: list[tuple[float, Sites]]) -> Sites:
        """``sites`` moved by so much of the way to each of the others."""
        known = [sites, *(other for _, other in others)]
        positive = np.all([part.tau.any(axis=(1, 2)) for part in known], axis=0)
        logarithm, pull = _coordinates(sites, positive)
        log_tau, moved = logarithm.copy(), pull.copy()
        for weight, other in others:
            its, its_pull = _coordinates(other, positive)
            log_tau += weight * (its - logarithm)
            moved += weight * (its_pull - pull)
        # what changes by orders of magnitude is not linear in anything
        steady = np.abs(np.linalg.eigvalsh(log_tau - logarithm)).max(axis=1) < STEADY
        values, vectors = np.linalg.eigh(log_tau[steady])
        root = (vectors * np.exp(0.5 * values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        tau, nu = sites.tau.copy(), sites.nu.copy()
        chosen = np.flatnonzero(positive)[steady]
        tau[chosen], nu[chosen] = symmetric(root @ root), times(root, moved[steady])
        return Sites(tau, nu)


def _coordinates(sites: Sites, chosen: np.ndarray) -> tuple[Array, Array]:
    """Log T and T^(−1/2) ν."""
    values, vectors = np.linalg.eigh(sites.tau[chosen])
    values = np.maximum(values, _FAINT * values[:, -1:])
    up = np.swapaxes(vectors, 1, 2)
    logarithm = symmetric((vectors * np.log(values)[:, None, :]) @ up)
    return logarithm, times((vectors / np.sqrt(values)[:, None, :]) @ up, sites.nu[chosen])
