"""Where to start at new hyperparameters: sites extrapolated from those already solved."""

import numpy as np

from postlin._typing import Array
from postlin.sites import Sites

#: An extrapolation farther than this, in known steps, is not trusted.
_FAR = 5.0
#: Changes of log τ beyond which a site is left as it was.
STEADY = 5.0
#: How many solved points are kept.
_MEMORY = 8


class SitePath:
    """Solved sites along the path of an optimiser."""

    def __init__(self, start: Sites | None = None) -> None:
        self._default = start
        self._solved: list[tuple[Array, Sites]] = []

    def add(self, theta: Array, sites: Sites) -> None:
        """Remember the sites found at theta."""
        others = [solved for solved in self._solved if not np.array_equal(solved[0], theta)]
        self._solved = [*others[-_MEMORY + 1 :], (np.array(theta), sites)]

    def predict(self, theta: Array) -> Sites | None:
        """Sites to start from at theta: linear in theta through the nearest solved points.

        Precisions are extrapolated by their logarithms, so that positive ones stay positive.
        """
        if not self._solved:
            return self._default
        near = sorted(self._solved, key=lambda point: float(np.sum((point[0] - theta) ** 2)))
        origin, sites = near[0]
        near = near[1 : len(theta) + 1]
        if not near:
            return sites
        steps = np.array([other - origin for other, _ in near])
        weights, *_ = np.linalg.lstsq(steps.T, theta - origin, rcond=1e-3)
        if np.abs(weights).sum() > _FAR:
            return sites
        return self.extrapolated(
            sites, [(w, other) for w, (_, other) in zip(weights, near, strict=True)]
        )

    @staticmethod
    def extrapolated(sites: Sites, others: list[tuple[float, Sites]]) -> Sites:
        """``sites`` moved by so much of the way to each of the others."""
        here = _coordinates(sites)
        log_tau, pull = here + sum(weight * (_coordinates(other) - here) for weight, other in others)
        # what goes to nothing by orders of magnitude is not linear in anything
        steady = np.abs(log_tau - here[0]) < STEADY
        positive = (sites.tau > 0) & steady
        root = np.exp(0.5 * np.where(steady, log_tau, 0.0))
        return Sites(np.where(positive, root**2, sites.tau), np.where(positive, root * pull, sites.nu))


def _coordinates(sites: Sites) -> Array:
    """Log τ and ν/√τ: of these the latter stays put when the prior is only scaled."""
    tau = np.where(sites.tau > 0, sites.tau, 1.0)
    return np.array([np.log(tau), sites.nu / np.sqrt(tau)])
