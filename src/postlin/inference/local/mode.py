"""Newton's method for the modes of many small posteriors at once, with a search along each step.

A point is f = μ₀ + K a. The search needs no factorisation: along a step f and a change linearly.
"""

import numpy as np

from postlin._typing import Array
from postlin.inference.local.problems import Batch, Iterates, stacked

#: The shortest part of a step that is tried, and the residual below which the whole step is taken.
_SHORTEST, _CLOSE = 1e-12, 0.3


class ModeClimbs:
    """The latent values f of the labelled rows on their way to the maxima of the log posteriors."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._prior_mean = batch.problems.mean[:, :-1]
        self._f, self._a = self._prior_mean.copy(), np.zeros_like(self._prior_mean)
        self._height = self._log_posterior(np.arange(len(batch)), self._f, self._a)
        #: whether negative precisions, which outweigh the prior, are left out of the next step
        self.is_guarded = np.zeros(len(batch), dtype=bool)

    def sites(self, rows: np.ndarray) -> Array:
        """The sites at the present points, (n, 2, k); their posteriors' means are Newton's steps.

        Without negative precisions the steps are shorter, but lead upwards from every point.
        """
        f = self._f[rows]
        view = self._batch.prior_view(rows)._replace(mean=f.ravel())
        sites = stacked(self._batch.proposal(rows, view).sites, f)
        dropped = np.where(self.is_guarded[rows, None], np.minimum(sites[:, 0], 0.0), 0.0)
        sites[:, 0] -= dropped
        sites[:, 1] -= dropped * f
        return sites

    def set_out(self, iterates: Iterates, chosen: np.ndarray) -> None:
        """Start at the means of these iterates."""
        rows, sites, mean = iterates.rows[chosen], iterates.sites[chosen], iterates.mean[chosen, :-1]
        self._f[rows], self._a[rows] = mean, sites[:, 1] - sites[:, 0] * mean
        self._height[rows] = self._log_posterior(rows, self._f[rows], self._a[rows])

    def advance(self, iterates: Iterates, chosen: np.ndarray) -> None:
        """Go from the present points towards the iterates' means, as far as the densities increase."""
        rows, sites, mean = iterates.rows[chosen], iterates.sites[chosen], iterates.mean[chosen, :-1]
        self.is_guarded[rows] = False
        step = mean - self._f[rows]
        turn = sites[:, 1] - sites[:, 0] * mean - self._a[rows]
        size, length = iterates.size[chosen], np.ones(len(rows))
        left = np.arange(len(rows))
        while len(left):
            here, part = rows[left], length[left, None]
            f, a = self._f[here] + part * step[left], self._a[here] + part * turn[left]
            height = self._log_posterior(here, f, a)
            ends = (height > self._height[here]) | (length[left] * size[left] < _CLOSE)
            ends |= length[left] < _SHORTEST
            there = here[ends]
            self._f[there], self._a[there], self._height[there] = f[ends], a[ends], height[ends]
            left = left[~ends]
            length[left] *= 0.5

    def _log_posterior(self, rows: np.ndarray, f: Array, a: Array) -> Array:
        """The log densities of the posteriors at f, up to constants, (n,)."""
        problems = self._batch.problems
        jet = problems.likelihood.jet(problems.y[rows].ravel(), f.ravel(), np.zeros(f.size))
        terms = jet.log_z.reshape(f.shape)
        if problems.weights is not None:
            terms = problems.weights[rows] * terms
        height: Array = np.sum(terms - 0.5 * a * (f - self._prior_mean[rows]), axis=1)
        return height
