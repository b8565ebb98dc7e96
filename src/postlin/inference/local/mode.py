"""Newton's method for the modes of many small posteriors at once, with a search along each step.

A point is f = μ₀ + K a. The search needs no factorisation: along a step f and a change linearly.
"""

import numpy as np

from postlin._typing import Array
from postlin.inference.local.problems import Batch, Iterates, flat
from postlin.linalg.arrays import on_host
from postlin.linalg.functions import functions
from postlin.linalg.stacks import chosen_of, part_of, shaped, write

#: The shortest part of a step that is tried, and the residual below which the whole step is taken.
_SHORTEST, _CLOSE = 1e-12, 0.3


class ModeClimbs:
    """The latent values f of the labelled rows on their way to the maxima of the log posteriors."""

    def __init__(self, batch: Batch) -> None:
        self._batch, self._give = batch, batch.place.give
        self._prior_mean = batch.problems.mean[:, :-1]
        self._f, self._a = self._prior_mean * 1.0, self._prior_mean * 0.0
        self._height = self._log_posterior(np.arange(len(batch)), self._f, self._a)
        #: whether negative precisions, which outweigh the prior, are left out of the next step
        self.is_guarded = np.zeros(len(batch), dtype=bool)

    def sites(self, rows: np.ndarray) -> Array:
        """The sites at the present points, (n, 2, k); their posteriors' means are Newton's steps.

        Without negative precisions the steps are shorter, but lead upwards from every point.
        """
        f = self._batch.part(self._f, rows)
        view = self._batch.prior_view(rows)._replace(mean=flat(f))
        sites = self._batch.stacked(self._batch.proposal(rows, view).sites, len(rows))
        if self.is_guarded[rows].any():
            fn, tau = functions(sites), sites[:, 0, :]
            guarded = self._give(self.is_guarded[rows])[:, None]
            dropped = fn.where(guarded, fn.minimum(tau, 0.0), 0.0)
            sites[:, 0, :] -= dropped
            sites[:, 1, :] -= dropped * f
        return sites

    def set_out(self, iterates: Iterates, chosen: np.ndarray) -> None:
        """Start at the means of these iterates."""
        if not chosen.any():
            return
        rows = iterates.rows[chosen]
        f, a = self._at(iterates, chosen)
        self._go(rows, f, a, self._log_posterior(rows, f, a))

    def advance(self, iterates: Iterates, size: Array, chosen: np.ndarray) -> None:
        """Go from the present points towards the iterates' means, as far as the densities increase.

        ``size`` holds the residuals of all iterates.
        """
        rows, size = iterates.rows[chosen], size[chosen]
        self.is_guarded[rows] = False
        if not len(rows):
            return
        f, a = (
            part * 1.0 for part in (self._batch.part(self._f, rows), self._batch.part(self._a, rows))
        )
        ends = self._at(iterates, chosen)
        step, turn = ends[0] - f, ends[1] - a
        length, left = np.ones(len(rows)), np.arange(len(rows))
        while len(left):
            here, there = rows[left], self._give(left)
            part = self._give(length[left])[:, None]
            new_f, new_a = (
                part_of(old, there) + part * part_of(move, there)
                for old, move in ((f, step), (a, turn))
            )
            height = self._log_posterior(here, new_f, new_a)
            ends_here = (height > self._height[here]) | (length[left] * size[left] < _CLOSE)
            ends_here |= length[left] < _SHORTEST
            f_there, a_there = (chosen_of(new, ends_here) for new in (new_f, new_a))
            self._go(here[ends_here], f_there, a_there, height[ends_here])
            left = left[~ends_here]
            length[left] *= 0.5

    def _at(self, iterates: Iterates, chosen: np.ndarray) -> tuple[Array, Array]:
        """f and a at the means of these iterates."""
        sites, mean = chosen_of(iterates.sites, chosen), chosen_of(iterates.mean, chosen)[:, :-1]
        return mean, sites[:, 1, :] - sites[:, 0, :] * mean

    def _go(self, rows: np.ndarray, f: Array, a: Array, height: Array) -> None:
        """Go to these points."""
        there = self._give(rows)
        write(self._f, there, f)
        write(self._a, there, a)
        self._height[rows] = height

    def _log_posterior(self, rows: np.ndarray, f: Array, a: Array) -> Array:
        """The log densities of the posteriors at f, up to constants, (n,), in NumPy's memory."""
        batch, fn = self._batch, functions(f)
        jet = batch.likelihood.jet(batch.labels(rows), flat(f), fn.zeros_like(flat(f)))
        terms = shaped(jet.log_z, *f.shape)
        if batch.problems.weights is not None:
            terms = batch.part(batch.problems.weights, rows) * terms
        terms = terms - 0.5 * a * (f - batch.part(self._prior_mean, rows))
        return np.array(on_host(fn.sum(terms, axis=1)))
