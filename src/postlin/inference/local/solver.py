"""The fixed points of many small problems at once, each with its own damping, step length and phase.

A problem takes the way of ``inference.solver``. From the prior it takes cautious steps. Then it makes
strides, whose damping follows the angle between successive residuals, and near the solution Newton
steps, or implicit steps of pseudo-time where those fail. Laplace climbs the log posterior first.

All problems that are not done take one trial step together, which costs each a factorisation. Those
whose trial succeeds plan the next step from there, the others a shorter one from where they were.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.inference.local.linearised import LinearMaps
from postlin.inference.local.mode import ModeClimbs
from postlin.inference.local.problems import Batch, Iterates, LocalProblems, moves, sizes, units
from postlin.inference.result import COARSE
from postlin.linalg.arrays import on_host
from postlin.linalg.functions import functions
from postlin.linalg.stacks import chosen_of, part_of, write
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
    False the numbers are those of the iterate with the smallest residual, finite but approximate. The
    first four are where the problems are, the others in NumPy's memory.
    """

    mean: Array  # (n, P)
    variance: Array  # (n, P)
    tau: Array  # (n, k)
    nu: Array  # (n, k)
    residual: Array  # (n,)
    converged: np.ndarray  # (n,)
    n_factorisations: np.ndarray  # (n,)

    def at_queries(self) -> Array:
        """The means and variances at the queries, (2, n), in NumPy's memory."""
        both = functions(self.mean).stack([self.mean[:, -1], self.variance[:, -1]])
        return np.asarray(on_host(both))


class _Search:
    """The state of the problems of one batch; arrays have one entry or row a problem.

    Marginals, sites and residuals are where the problems are. Sizes, dampings and kinds of steps are in
    NumPy's memory, and a trial of all problems moves three numbers of each of them there.
    """

    def __init__(self, batch: Batch, start: Array | None, tol: float, budget: int) -> None:
        self.batch, self.tol, self.budget, self.give = batch, tol, budget, batch.place.give
        problems, n, rows = batch.problems, len(batch), np.arange(len(batch))
        self.rule = problems.rule
        self.mean, self.variance = problems.mean * 1.0, batch.prior_variance * 1.0
        proposal = batch.proposal(rows, batch.prior_view(rows))
        self.wanted = batch.stacked(proposal.sites, n)
        self.sites: Array = functions(self.wanted).zeros_like(self.wanted)
        move = moves(self.sites, self.wanted, self.mean[:, :-1])
        self.residual = move * units(self.variance[:, :-1])
        self.best_sites, self.trial = self.sites * 1.0, self.sites * 1.0
        self.size, rounding = self._on_host(sizes(self.residual), self._rounding(self.sites, rows))
        self.best_size = np.where(np.isnan(self.size), np.inf, self.size)
        self.done = self._is_done(self.size, rounding)
        self.damping, self.time = np.full(n, _FIRST_DAMPING), np.full(n, np.inf)
        self.cold_damping = np.ones(n)  # of the first step
        self.warm_up = np.full(n, self.rule.warm_up)
        self.near = _NEWTON_BELOW_AT_CAVITY if self.rule.needs_cavity else _NEWTON_BELOW
        self.n_factorisations = np.zeros(n, dtype=int)
        self.kind = np.full(n, _START)
        self.climbs = ModeClimbs(batch) if self.rule.is_newton else None
        if start is None:
            self._set_out(rows)
        else:
            self.trial = start * 1.0

    def run(self) -> LocalPosteriors:
        """What is found when every problem has converged, or has spent its budget, or is stuck."""
        active = np.flatnonzero(~self.done)
        for _ in range(self.budget):
            if not len(active):
                break
            self.n_factorisations[active] += 1
            iterates = self.batch.iterates(active, self._of(self.trial, active))
            size, kept = self._accept(iterates)
            refused = np.setdiff1d(active, iterates.rows[kept], assume_unique=True)
            if len(refused):
                self._refuse(refused)
            self._plan(iterates, size, kept & ~self.done[iterates.rows])
            active = active[~self.done[active] & (self.kind[active] != _STUCK)]
        (rounding,) = self._on_host(self._rounding(self.best_sites, np.arange(len(self.done))))
        return LocalPosteriors(
            self.mean,
            self.variance,
            self.best_sites[:, 0, :],
            self.best_sites[:, 1, :],
            self.best_size,
            self.done & (rounding <= COARSE) & self.batch.sound,
            self.n_factorisations,
        )

    def _on_host(self, *values: Any) -> Any:
        """Vectors of numbers in NumPy's memory; they are moved together."""
        return np.array(on_host(functions(values[0]).stack(list(values))))

    def _of(self, values: Array, rows: np.ndarray) -> Array:
        """Copies of the rows of some problems."""
        part: Array = part_of(values, self.give(rows))
        return part

    def _put(self, rows: np.ndarray, *pairs: tuple[Array, Array]) -> None:
        """Write values to the rows of some problems, for each pair of an array and its new values."""
        there = self.give(rows)
        for array, values in pairs:
            write(array, there, values)

    def _rounding(self, sites: Array, rows: np.ndarray) -> Array:
        """The residuals that rounding in the factorisations can cause."""
        strength = sites[:, 0, :] * self.batch.part(self.batch.prior_variance, rows)[:, :-1]
        f = functions(strength)
        rounding: Array = _DIGIT * (1.0 + sizes(f.maximum(strength, 0.0)[:, None, :]))
        return rounding

    def _is_done(self, size: Array, rounding: Array) -> np.ndarray:
        """Whether residuals have reached the tolerance, or what rounding allows."""
        return size <= np.maximum(self.tol, np.minimum(_ROUNDED, rounding))

    def _accept(self, iterates: Iterates) -> tuple[Array, np.ndarray]:
        """Go to the iterates that are good enough; return the residuals of all, and which they are."""
        rows = iterates.rows
        size, turn, rounding = self._on_host(
            sizes(iterates.residual),
            _cosines(iterates.residual, self._of(self.residual, rows)),
            self._rounding(iterates.sites, rows),
        )
        kind, time, before = self.kind[rows], self.time[rows], self.size[rows]
        growth = np.where(time > _LONG_TIME, 0.9, np.where(turn > 0.5, 1.6, 1.2))
        highest = np.full(len(rows), np.inf)
        highest[kind == _START] = _WORTHWHILE
        highest = np.where(kind == _STRIDE, np.maximum(_WILD, before), highest)
        highest = np.where(kind == _NEWTON, growth * before, highest)
        kept = (size <= highest) & np.isfinite(size)
        here, strides, steps = rows[kept], (kind == _STRIDE)[kept], (kind == _NEWTON)[kept]
        damping, turn = self.damping[here], turn[kept]
        damping = np.where(strides & (turn < -0.1), 0.6 * damping, damping)
        self.damping[here] = np.where(strides & (turn > 0.5), np.minimum(1.0, 1.3 * damping), damping)
        well = (size < 0.3 * before)[kept] | (2.0 * time[kept] > _LONG_TIME)
        self.time[here] = np.where(steps, np.where(well, np.inf, 2.0 * time[kept]), time[kept])
        self.size[here] = size[kept]
        self.done[here] = self._is_done(size[kept], rounding[kept])
        better = kept & (self.done[rows] | (size < self.best_size[rows]))
        self.best_size[rows[better]] = size[better]
        present = (self.wanted, iterates.wanted), (self.residual, iterates.residual)
        best = (self.mean, iterates.mean), (self.variance, iterates.variance)
        self._keep(iterates, kept, (self.sites, iterates.sites), *present)
        self._keep(iterates, better, (self.best_sites, iterates.sites), *best)
        return size, kept

    def _keep(self, iterates: Iterates, chosen: np.ndarray, *pairs: tuple[Array, Array]) -> None:
        """Write what belongs to some of the iterates, for each pair of an array and new values."""
        if chosen.any():
            moved = ((array, chosen_of(values, chosen)) for array, values in pairs)
            self._put(iterates.rows[chosen], *moved)

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

    def _plan(self, iterates: Iterates, size: Array, kept: np.ndarray) -> None:
        """Plan the next steps of the problems that have gone to these iterates."""
        rows = iterates.rows
        kind = self.kind[rows]
        climbing = kept & (kind <= _CLIMB) & (self.climbs is not None)
        climbing &= 2 * self.n_factorisations[rows] <= self.budget  # which leaves some for the strides
        if climbing.any():
            self._climb(iterates, size, climbing)
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
            self.kind[rows] = _CLIMB
            self._put(rows, (self.trial, self.climbs.sites(rows)))

    def _guard(self, rows: np.ndarray) -> None:
        """Plan other steps to the mode where the log posterior is not concave; else begin anew."""
        if self.climbs is None or not len(rows):
            return
        guarded = self.climbs.is_guarded[rows]
        again = rows[~guarded]
        self.climbs.is_guarded[rows] = True
        if len(again):
            self._put(again, (self.trial, self.climbs.sites(again)))
        self._begin(rows[guarded])

    def _begin(self, rows: np.ndarray) -> None:
        """Plan cautious first steps from the prior.

        Where a whole step makes no posterior, a shorter one without negative precisions does.
        """
        if not len(rows):
            return
        sites, part = (
            self.batch.cautious_sites(rows, self.batch.prior_view(rows)),
            self.cold_damping[rows],
        )
        f = functions(sites)
        if (part < 1.0).any():
            tau, short = sites[:, 0, :], self.give(part)[:, None]
            sites[:, 0, :] = f.where(short < 1.0, f.maximum(tau, 0.0), tau)
            sites = short[:, :, None] * sites
        self._put(rows, (self.trial, sites))
        self.kind[rows] = np.where(part > _LEAST_DAMPING, _COLD, _STUCK)

    def _climb(self, iterates: Iterates, size: Array, chosen: np.ndarray) -> None:
        """Plan steps of Newton's method for the mode, from these iterates."""
        assert self.climbs is not None
        rows = iterates.rows
        self.climbs.set_out(iterates, chosen & (self.kind[rows] == _START))
        self.climbs.advance(iterates, size, chosen & (self.kind[rows] == _CLIMB))
        self._put(rows[chosen], (self.trial, self.climbs.sites(rows[chosen])))
        self.kind[rows[chosen]] = _CLIMB

    def _be_cautious(self, iterates: Iterates, chosen: np.ndarray) -> None:
        """Plan cautious half steps from these iterates."""
        rows = iterates.rows[chosen]
        cautious = self.batch.cautious_sites(rows, iterates.view_of(chosen))
        self._put(rows, (self.trial, 0.5 * (chosen_of(iterates.sites, chosen) + cautious)))
        self.warm_up[rows] -= 1
        self.kind[rows] = _CAUTIOUS

    def _newton(self, iterates: Iterates, chosen: np.ndarray) -> np.ndarray:
        """Plan Newton or implicit steps from these iterates; return which of the steps exist."""
        rows = iterates.rows[chosen]
        implicit = np.isfinite(self.time[rows]).any()
        time = self.give(self.time[rows])[:, None] if implicit else np.inf
        right = chosen_of(iterates.residual, chosen)
        steps, found = LinearMaps(iterates, chosen).solve(right, time)
        self._put(rows, (self.trial, iterates.moved(steps, chosen)))
        self.kind[rows] = _NEWTON
        return np.asarray(on_host(found))

    def _stride(self, rows: np.ndarray) -> None:
        """Plan damped steps to the proposed sites."""
        if not len(rows):
            return
        sites, part = self._of(self.sites, rows), self.give(self.damping[rows])[:, None, None]
        self._put(rows, (self.trial, sites + part * (self._of(self.wanted, rows) - sites)))
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
    (n, k), blank = problems.y.shape, problems.place.zeros
    found = LocalPosteriors(
        blank(n, k + 1),
        blank(n, k + 1),
        blank(n, k),
        blank(n, k),
        np.empty(n),
        np.empty(n, dtype=bool),
        np.empty(n, dtype=int),
    )

    def work(rows: slice, some: LocalProblems) -> None:
        sites = None
        if start is not None:
            sites = functions(start.tau).stack([part[rows, :] for part in start], axis=1)
        here = _Search(Batch(some), sites, tol, max_iter).run()
        for field in fields(found):
            getattr(found, field.name)[rows, ...] = getattr(here, field.name)

    problems.in_parts(work)
    return found


def _cosines(new: Array, old: Array) -> Array:
    """The cosines of the angles between residuals, which are negative when iterates oscillate."""
    f = functions(new)
    # the squares of the residuals could overflow
    left, right = (part / f.maximum(sizes(part), _TINY)[:, None, None] for part in (new, old))
    squares, others, products = (
        f.sum(f.sum(part, axis=2), axis=1) for part in (left**2, right**2, left * right)
    )
    norms = f.sqrt(squares * others)
    some = norms > 0
    cosines: Array = f.where(some, products / f.where(some, norms, 1.0), 1.0)
    return cosines
