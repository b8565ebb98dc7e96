"""The fixed points of many small problems at once, each with its own damping, step length and phase.

A problem takes the way of ``inference.solver``. From the prior it takes cautious steps. Then it makes
strides, whose damping follows the angle between successive residuals, and near the solution Newton
steps, or implicit steps of pseudo-time where those fail. Laplace climbs the log posterior first.

All problems that are not done take one trial step together, which costs each a factorisation. Those
whose trial succeeds plan the next step from there, the others a shorter one from where they were.
"""

from dataclasses import dataclass, fields

import numpy as np

from postlin._typing import Array
from postlin.inference.local.linearised import LinearMaps
from postlin.inference.local.mode import ModeClimbs
from postlin.inference.local.problems import (
    Batch,
    Iterates,
    LocalProblems,
    moves,
    sizes,
    stacked,
    units,
)
from postlin.inference.result import COARSE
from postlin.rules.sites import Sites

#: Newton's method is used where the residual is below the first number, or the second for rules that
#: look at cavities. With the first, half of 150 EP problems with weights of 1000 ended without a
#: solution, with the second 5; but PL loses problems with the second.
_NEWTON_BELOW, _NEWTON_BELOW_AT_CAVITY = 0.45, 1.0
#: A warm start with a larger residual than this is no better than a cold one.
_WORTHWHILE = 1.0
#: The pseudo-time after a refused Newton step, and the one beyond which steps are Newton's. With a
#: longer first, 1 of 1,700 PL problems with the noisy threshold circles about a near-fold without end.
_RETRY_TIME, _LONG_TIME = 1.0, 32.0
#: The damping factor of the first stride, and the smallest that is tried.
_FIRST_DAMPING, _LEAST_DAMPING = 0.5, 1e-3
#: A stride to a residual above this and above the present one is too long.
_WILD = 1e6
#: The largest residual that is accepted because rounding can cause it, and the rounding of one digit.
_ROUNDED, _DIGIT = 1e-6, 8.0 * float(np.finfo(float).eps)

_TINY = float(np.finfo(float).tiny)

#: The kinds of trial steps.
_START, _CLIMB, _COLD, _CAUTIOUS, _STRIDE, _NEWTON, _STUCK = range(7)


@dataclass(frozen=True)
class LocalPosteriors:
    """What inference found for n problems of k labelled rows and a query each.

    The marginal of the query is the last column of ``mean`` and ``variance``. Where ``converged`` is
    False the numbers are those of the iterate with the smallest residual, finite but approximate.
    """

    mean: Array  # (n, P)
    variance: Array  # (n, P)
    tau: Array  # (n, k)
    nu: Array  # (n, k)
    residual: Array  # (n,)
    converged: np.ndarray  # (n,)
    n_factorisations: np.ndarray  # (n,)


class _Search:
    """The state of the problems of one batch; arrays have one entry or row a problem."""

    def __init__(self, batch: Batch, start: Array | None, tol: float, budget: int) -> None:
        self.batch, self.tol, self.budget = batch, tol, budget
        self.rule, n, rows = batch.problems.rule, len(batch), np.arange(len(batch))
        self.mean, self.variance = batch.problems.mean.copy(), batch.prior_variance.copy()
        self.sites = np.zeros((n, 2, batch.problems.n_neighbors))
        self.wanted = stacked(batch.proposal(rows, batch.prior_view(rows)).sites, batch.problems.y)
        move = moves(self.sites, self.wanted, self.mean[:, :-1])
        self.residual = move * units(self.variance[:, :-1])
        self.size = sizes(self.residual)
        self.best_sites = self.sites.copy()
        self.best_size = np.where(np.isnan(self.size), np.inf, self.size)
        self.done = self._is_done(self.size, self.sites, rows)
        self.damping, self.time = np.full(n, _FIRST_DAMPING), np.full(n, np.inf)
        self.cold_damping = np.ones(n)  # of the first step
        self.warm_up = np.full(n, self.rule.warm_up)
        self.near = _NEWTON_BELOW_AT_CAVITY if self.rule.needs_cavity else _NEWTON_BELOW
        self.n_factorisations = np.zeros(n, dtype=int)
        self.trial, self.kind = np.zeros_like(self.sites), np.full(n, _START)
        self.climbs = ModeClimbs(batch) if self.rule.is_newton else None
        if start is None:
            self._set_out(rows)
        else:
            self.trial[:] = start

    def run(self) -> LocalPosteriors:
        """What is found when every problem has converged, or has spent its budget, or is stuck."""
        active = np.flatnonzero(~self.done)
        for _ in range(self.budget):
            if not len(active):
                break
            self.n_factorisations[active] += 1
            iterates = self.batch.iterates(active, self.trial[active])
            kept = self._accept(iterates)
            refused = np.setdiff1d(active, iterates.rows[kept], assume_unique=True)
            self._refuse(refused)
            self._plan(iterates, kept & ~self.done[iterates.rows])
            active = active[~self.done[active] & (self.kind[active] != _STUCK)]
        accurate = self._rounding(self.best_sites, np.arange(len(self.done))) <= COARSE
        return LocalPosteriors(
            self.mean,
            self.variance,
            self.best_sites[:, 0],
            self.best_sites[:, 1],
            self.best_size,
            self.done & accurate & self.batch.sound,
            self.n_factorisations,
        )

    def _rounding(self, sites: Array, rows: np.ndarray) -> Array:
        """The residuals that rounding in the factorisations can cause."""
        strength = np.maximum(sites[:, 0], 0.0) * self.batch.prior_variance[rows, :-1]
        rounding: Array = _DIGIT * (1.0 + strength.max(axis=1, initial=0.0))
        return rounding

    def _is_done(self, size: Array, sites: Array, rows: np.ndarray) -> np.ndarray:
        """Whether residuals have reached the tolerance, or what rounding allows."""
        return size <= np.maximum(self.tol, np.minimum(_ROUNDED, self._rounding(sites, rows)))

    def _accept(self, iterates: Iterates) -> np.ndarray:
        """Go to the iterates that are good enough; return which they are."""
        rows, size = iterates.rows, iterates.size
        kind, time, before = self.kind[rows], self.time[rows], self.size[rows]
        turn = _cosines(iterates.residual, self.residual[rows])
        growth = np.where(time > _LONG_TIME, 0.9, np.where(turn > 0.5, 1.6, 1.2))
        highest = np.full(len(rows), np.inf)
        highest[kind == _START] = _WORTHWHILE
        highest = np.where(kind == _STRIDE, np.maximum(_WILD, before), highest)
        highest = np.where(kind == _NEWTON, growth * before, highest)
        kept = size <= highest
        here, strides, steps = rows[kept], (kind == _STRIDE)[kept], (kind == _NEWTON)[kept]
        damping, turn = self.damping[here], turn[kept]
        damping = np.where(strides & (turn < -0.1), 0.6 * damping, damping)
        self.damping[here] = np.where(strides & (turn > 0.5), np.minimum(1.0, 1.3 * damping), damping)
        well = (size < 0.3 * before)[kept] | (2.0 * time[kept] > _LONG_TIME)
        self.time[here] = np.where(steps, np.where(well, np.inf, 2.0 * time[kept]), time[kept])
        self.sites[here], self.wanted[here] = iterates.sites[kept], iterates.wanted[kept]
        self.residual[here], self.size[here] = iterates.residual[kept], size[kept]
        self.done[here] = self._is_done(size[kept], iterates.sites[kept], here)
        better = kept & (self.done[rows] | (size < self.best_size[rows]))
        best = rows[better]
        self.best_sites[best], self.best_size[best] = iterates.sites[better], size[better]
        self.mean[best], self.variance[best] = iterates.mean[better], iterates.variance[better]
        return kept

    def _refuse(self, rows: np.ndarray) -> None:
        """Plan other steps of these problems from where they are."""
        kind = self.kind[rows]
        self._set_out(rows[kind == _START])
        self._guard(rows[kind == _CLIMB])
        cold, stride, newton = (rows[kind == which] for which in (_COLD, _STRIDE, _NEWTON))
        self.cold_damping[cold] *= 0.5
        self._begin(cold)
        self.time[newton] = _RETRY_TIME
        self.damping[stride] *= 0.5
        self._stride(rows[kind >= _CAUTIOUS])

    def _plan(self, iterates: Iterates, kept: np.ndarray) -> None:
        """Plan the next steps of the problems that have gone to these iterates."""
        rows, size = iterates.rows, iterates.size
        kind = self.kind[rows]
        climbing = kept & (kind <= _CLIMB) & (self.climbs is not None)
        climbing &= 2 * self.n_factorisations[rows] <= self.budget  # which leaves some for the strides
        if climbing.any():
            self._climb(iterates, climbing)
        near, free = size < self.near, kept & ~climbing
        cautious = free & ~near & (kind >= _COLD) & (kind <= _CAUTIOUS) & (self.warm_up[rows] > 0)
        if cautious.any():
            self._be_cautious(iterates, cautious)
        stepping = free & near
        if stepping.any():
            stepping[stepping] = self._newton(iterates, stepping)
        self._stride(rows[free & ~cautious & ~stepping])

    def _set_out(self, rows: np.ndarray) -> None:
        """Plan first steps from the prior."""
        if self.climbs is None:
            self._begin(rows)
        elif len(rows):
            self.kind[rows], self.trial[rows] = _CLIMB, self.climbs.sites(rows)

    def _guard(self, rows: np.ndarray) -> None:
        """Plan other steps to the mode where the log posterior is not concave; else begin anew."""
        if self.climbs is not None:
            again = ~self.climbs.is_guarded[rows]
            self.climbs.is_guarded[rows] = True
            self.trial[rows[again]] = self.climbs.sites(rows[again])
            self._begin(rows[~again])

    def _begin(self, rows: np.ndarray) -> None:
        """Plan cautious first steps from the prior.

        Where a whole step makes no posterior, a shorter one without negative precisions does.
        """
        if len(rows):
            sites = self.batch.cautious_sites(rows, self.batch.prior_view(rows))
            part = self.cold_damping[rows]
            sites[:, 0] = np.where(part[:, None] < 1.0, np.maximum(sites[:, 0], 0.0), sites[:, 0])
            self.trial[rows] = part[:, None, None] * sites
            self.kind[rows] = np.where(part > _LEAST_DAMPING, _COLD, _STUCK)

    def _climb(self, iterates: Iterates, chosen: np.ndarray) -> None:
        """Plan steps of Newton's method for the mode, from these iterates."""
        assert self.climbs is not None
        rows = iterates.rows
        self.climbs.set_out(iterates, chosen & (self.kind[rows] == _START))
        self.climbs.advance(iterates, chosen & (self.kind[rows] == _CLIMB))
        self.trial[rows[chosen]] = self.climbs.sites(rows[chosen])
        self.kind[rows[chosen]] = _CLIMB

    def _be_cautious(self, iterates: Iterates, chosen: np.ndarray) -> None:
        """Plan cautious half steps from these iterates."""
        rows, view = iterates.rows[chosen], iterates.view_of(chosen)
        self.trial[rows] = 0.5 * (self.sites[rows] + self.batch.cautious_sites(rows, view))
        self.warm_up[rows] -= 1
        self.kind[rows] = _CAUTIOUS

    def _newton(self, iterates: Iterates, chosen: np.ndarray) -> np.ndarray:
        """Plan Newton or implicit steps from these iterates; return which of the steps exist."""
        rows = iterates.rows[chosen]
        steps, found = LinearMaps(iterates, chosen).solve(self.residual[rows], self.time[rows])
        self.trial[rows] = iterates.moved(steps, chosen)
        self.kind[rows] = _NEWTON
        return found

    def _stride(self, rows: np.ndarray) -> None:
        """Plan damped steps to the proposed sites."""
        sites, part = self.sites[rows], self.damping[rows, None, None]
        self.trial[rows] = sites + part * (self.wanted[rows] - sites)
        self.kind[rows] = np.where(self.damping[rows] >= _LEAST_DAMPING, _STRIDE, _STUCK)


def solve(
    problems: LocalProblems, *, start: Sites | None = None, tol: float = 1e-8, max_iter: int = 100
) -> LocalPosteriors:
    """The posteriors of all problems at the fixed points of their sites.

    The residual of a problem is max(|Δτ| v, |Δν − m Δτ| √v). It has converged at a residual of ``tol``,
    or of at most 1e-6 where rounding can cause that. ``max_iter`` limits the factorisations of each.
    ``start`` holds sites to begin from, arrays (n, k). Results do not depend on the order of the
    problems, on how many there are, or on the number of threads.
    """
    n, k = problems.y.shape
    found = LocalPosteriors(
        np.empty((n, k + 1)),
        np.empty((n, k + 1)),
        np.empty((n, k)),
        np.empty((n, k)),
        np.empty(n),
        np.empty(n, dtype=bool),
        np.empty(n, dtype=int),
    )

    def work(rows: slice, some: LocalProblems) -> None:
        sites = None if start is None else np.stack([part[rows] for part in start], axis=1)
        here = _Search(Batch(some), sites, tol, max_iter).run()
        for field in fields(found):
            getattr(found, field.name)[rows] = getattr(here, field.name)

    problems.in_parts(work)
    return found


def _cosines(new: Array, old: Array) -> Array:
    """The cosines of the angles between residuals, which are negative when iterates oscillate."""
    # the squares of the residuals could overflow
    left, right = (part / np.maximum(sizes(part), _TINY)[:, None, None] for part in (new, old))
    norms = np.sqrt(np.sum(left**2, axis=(1, 2)) * np.sum(right**2, axis=(1, 2)))
    products = np.sum(left * right, axis=(1, 2))
    cosines: Array = np.divide(products, norms, out=np.ones_like(norms), where=norms > 0)
    return cosines
