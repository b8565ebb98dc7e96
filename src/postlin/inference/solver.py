"""The solver finds the fixed point: sites that equal what the rule proposes at their posterior.

Far from the solution it makes strides: damped parallel steps or sequential sweeps, whose damping
follows the angle between successive residuals. Iterates that oscillate need damping. Iterates that pass
a near-fold slowly, while their residual grows, do not. Near the solution it uses Newton's method with
GMRES. Where that fails, it takes implicit steps of pseudo-time, ((1 + 1/t) I − J) s = residual, which
are Newton steps for t → ∞ and damped strides for t → 0.
"""

from typing import Generic

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.contract import I, Iterate, Problem
from postlin.inference.result import COARSE, History, Record
from postlin.linalg.threads import keep_freed_memory
from postlin.rules.sites import Sites
from postlin.schedules import Parallel, Schedule

#: A warm start with a larger residual than this is no better than a cold one.
_WORTHWHILE = 1.0
#: The longest pseudo-time after a failed Newton step, and the one beyond which steps are Newton's.
_RETRY_TIME, _LONG_TIME = 2.0, 32.0
#: The damping factor of the first stride, and the smallest that is tried.
_FIRST_DAMPING, _LEAST_DAMPING = 0.5, 1e-3
#: The largest residual that is accepted because rounding can cause it. A larger one is a failure.
_ROUNDED = 1e-6
#: A stride to a residual above this and above the present one is too long.
_WILD = 1e6
#: Without convergence, the best iterate is the result if its residual is below this part of the last.
_BETTER = 0.1
#: Above this residual the plain iteration counts as diverged.
_RUNAWAY = 1e50


def solve(
    problem: Problem[I], schedule: Schedule, *, start: Sites | None, tol: float, max_iter: int
) -> tuple[I, Record]:
    """The last iterate, at the tolerance or after the schedule's number of iterations, and the record.

    ``max_iter`` limits the number of factorisations, including those of rejected steps.
    """
    search = _Search(problem, schedule, tol, max_iter)
    keep_freed_memory()
    if schedule.iterations is not None:
        iterate = search.plain(start, schedule.iterations, to_tolerance=False)
    elif problem.rule.plain_only:
        iterate = search.plain(start, max_iter, to_tolerance=True)
    else:
        iterate = search.run(start)
    counts, rounding = (search.n_iter, search.n_factorisations), iterate.rounding
    done = search.done(iterate) and rounding <= COARSE
    return iterate, Record(
        done, iterate.size, *counts, search.history, search.overruled, rounding=rounding
    )


def solve_from(problem: Problem[I], iterate: I, *, tol: float, max_iter: int) -> I | None:
    """The fixed point near an iterate that another rule has found; None if it is not reached."""
    search = _Search(problem, Parallel(), tol, max_iter)
    keep_freed_memory()
    found = search.from_iterate(search.accept(iterate))
    return found if search.done(found) and found.rounding <= COARSE else None


class _Search(Generic[I]):
    """The state of one solve."""

    def __init__(self, problem: Problem[I], schedule: Schedule, tol: float, budget: int) -> None:
        self.problem, self.schedule = problem, schedule
        self.tol, self.budget = tol, budget
        self.damping, self.time = _FIRST_DAMPING, np.inf
        self.n_iter = self.n_sweeps = self.n_factorisations = 0
        self.history = History()
        self._held: I | None = None
        self._best: tuple[float, Sites] | None = None
        self.overruled = np.zeros(len(problem.no_sites.nu), dtype=bool)

    def done(self, iterate: I) -> bool:
        """Whether the residual has reached the tolerance, or what rounding allows."""
        return iterate.size <= max(self.tol, min(_ROUNDED, iterate.rounding))

    def plain(self, start: Sites | None, iterations: int, *, to_tolerance: bool) -> I:
        """The iterate after undamped iterations, from the prior if there is no start.

        They end early where the numbers break down, or at the tolerance if ``to_tolerance``.
        """
        iterate = self._evaluate(start) if start is not None else None
        for _ in range(iterations):
            new = self._plain_step(iterate)
            if new is None:
                break
            iterate = self.accept(new)
            if to_tolerance and self.done(iterate):
                break
        return iterate or self._from_nothing()

    def run(self, start: Sites | None) -> I:
        """The iterate after strides and Newton steps to the tolerance."""
        warm = self._warm_start(start)
        rule = self.problem.rule
        is_newton = rule.is_newton and not self.schedule.sweeps
        iterate = self._climb(warm) if is_newton else warm
        if iterate is None:
            iterate = self._warmed_up(self.accept(self._from_nothing()))
        sweeps_due = 0 if warm else self.schedule.least_sweeps
        iterate = self.from_iterate(iterate, sweeps_due)
        return iterate if self.done(iterate) else self._best_of(iterate)

    def from_iterate(self, iterate: I, sweeps_due: int = 0) -> I:
        """The last iterate of strides and Newton steps from this one."""
        newton_below = self.problem.rule.newton_below
        while not self.done(iterate) and self._may_go_on:
            near = iterate.size < newton_below and self.n_sweeps >= sweeps_due
            new = self._newton(iterate) if near else None
            new = new or (self._stride(iterate) if self._may_go_on else None)
            if new is None:
                break
            iterate = self.accept(new)
        return iterate

    def _best_of(self, last: I) -> I:
        """The last iterate, or that of the smallest residual if it is far better."""
        assert self._best is not None  # the last iterate was accepted
        size, sites = self._best
        if size >= _BETTER * last.size:
            return last
        last.posterior.release()
        # this repeats a factorisation, and counts as none
        return self.problem.try_iterate(sites) or last

    @property
    def _may_go_on(self) -> bool:
        return self.n_factorisations < self.budget

    def accept(self, iterate: I) -> I:
        """Go on from this iterate."""
        self.n_iter += 1
        self._held = iterate
        if self._best is None or iterate.size < self._best[0]:
            self._best = iterate.size, iterate.posterior.sites
        self.overruled |= iterate.proposal.overruled
        self.history.residuals.append(iterate.size)
        self.history.means.append(iterate.posterior.mean)
        return iterate

    def _evaluate(self, sites: Sites) -> I | None:
        """The iterate at these sites, for which the last accepted iterate releases its memory."""
        if self._held is not None:
            self._held.posterior.release()
        self.n_factorisations += 1
        return self.problem.try_iterate(sites)

    def _warm_start(self, start: Sites | None) -> I | None:
        """The iterate at the caller's sites; None where a cold start is no worse."""
        if start is None:
            return None
        iterate = self._evaluate(start)
        return self.accept(iterate) if iterate is not None and iterate.size < _WORTHWHILE else None

    def _warmed_up(self, iterate: I) -> I:
        """The iterate after at most ``rule.warm_up`` cautious steps towards a small residual."""
        rule = self.problem.rule
        for _ in range(rule.warm_up):
            if iterate.size < rule.newton_below or not self._may_go_on:
                break
            iterate = self.accept(self._cautious_step(iterate, 0.5) or iterate)
        return iterate

    def _from_nothing(self) -> I:
        """The iterate after one cautious step from the prior, as long as possible."""
        damping = 1.0
        while damping > _LEAST_DAMPING:
            iterate = self._cautious_step(None, damping)
            if iterate is not None:
                return iterate
            damping *= 0.5
        raise NotPositiveDefiniteError(
            "no posterior could be computed even for sites close to zero: the covariance matrix "
            "is not positive semi-definite, or its entries are out of all range."
        )

    def _cautious_step(self, iterate: I | None, damping: float) -> I | None:
        """The iterate after a cautious parallel step; None where the sites make no posterior.

        The step starts from an iterate or from the prior. All schedules begin with such steps: fixed
        points need not be unique (noisy threshold), and schedules with a common start find the same.
        """
        try:
            with np.errstate(all="ignore"):  # a trial may overflow, which the iterate shows
                wanted = self.problem.cautious_sites(iterate)
                return self._evaluate(self._present(iterate).towards(wanted, damping))
        except (ImproperCavityError, NotPositiveDefiniteError):
            return None

    def _present(self, iterate: I | None) -> Sites:
        return self.problem.no_sites if iterate is None else iterate.posterior.sites

    def _plain_step(self, iterate: I | None) -> I | None:
        """The iterate after an undamped step or sweep; None where the iteration breaks down.

        An improper cavity is an error for a rule that is ``plain_only``.
        """
        try:
            sites = self._next_sites(iterate, 1.0)
            self.n_factorisations += 1
            with np.errstate(all="ignore"):  # the plain iteration may diverge, which is checked below
                new = self.problem.iterate(sites)
                return new if new.size < _RUNAWAY else None
        except ImproperCavityError:
            if self.problem.rule.plain_only:
                raise
            return None
        except NotPositiveDefiniteError:
            return None

    def _next_sites(self, iterate: I | None, damping: float) -> Sites:
        """The sites after the schedule's next step or sweep."""
        if self.n_sweeps < self.schedule.sweeps:
            self.n_factorisations += int(iterate is not None and iterate.posterior.is_released)
            try:
                sites, overruled = self.problem.sweep(iterate, damping, block=self.schedule.block)
            except (ImproperCavityError, NotPositiveDefiniteError):
                self.n_factorisations += 1  # as much work, so that failing sweeps are bounded too
                raise
            self.n_sweeps += 1
            self.overruled |= overruled
            return sites
        proposal = self.problem.prior_proposal() if iterate is None else iterate.proposal
        self.overruled |= proposal.overruled
        return self._present(iterate).towards(proposal.sites, damping)

    def _stride(self, iterate: I) -> I | None:
        """The iterate after a damped step or sweep; None where even the shortest makes no posterior."""
        while self.damping >= _LEAST_DAMPING and self._may_go_on:
            try:
                with np.errstate(all="ignore"):  # a trial may overflow, which the iterate shows
                    new = self._evaluate(self._next_sites(iterate, self.damping))
            except (ImproperCavityError, NotPositiveDefiniteError):
                new = None
            if new is not None and new.size <= max(_WILD, iterate.size):
                turn = _cosine(new.residual, iterate.residual)
                if turn < -0.1:
                    self.damping *= 0.6
                elif turn > 0.5:
                    self.damping = min(1.0, 1.3 * self.damping)
                return new
            self.damping *= 0.5
        return None

    def _newton(self, iterate: I) -> I | None:
        """The iterate after a Newton step or an implicit step; None if the residual grew too much."""
        with np.errstate(all="ignore"):  # a step may overflow, which the iterate shows
            step, time = self.problem.newton_step(iterate, time=self.time)
            new = self._evaluate(iterate.moved(step))
        if new is None or new.size > _allowed_growth(new, iterate, time) * iterate.size:
            self.time = max(1.0, min(0.25 * time, _RETRY_TIME))
            return None
        all_is_well = new.size < 0.3 * iterate.size or 2.0 * time > _LONG_TIME
        self.time = np.inf if all_is_well else 2.0 * time
        return new

    def _climb(self, iterate: I | None) -> I | None:
        """The iterate at the mode by Newton's method; None where it fails (not log-concave)."""
        climb = self.problem.climb(iterate)
        while not (iterate and self.done(iterate)):
            if 2 * self.n_factorisations > self.budget + 1:  # which leaves some for the strides
                return None
            new = self._evaluate(climb.sites())
            if new is None:
                return None
            iterate = self.accept(new)
            climb.advance(iterate)
        return iterate


def _allowed_growth(new: Iterate, old: Iterate, time: float) -> float:
    """The factor by which the residual may grow; after a Newton step it must shrink."""
    if time > _LONG_TIME:
        return 0.7
    return 1.6 if _cosine(new.residual, old.residual) > 0.5 else 1.2


def _cosine(new: Array, old: Array) -> float:
    """The cosine of the angle between two residuals, which is negative when iterates oscillate."""
    left, right = (part / (np.abs(part).max() or 1.0) for part in (new, old))  # their squares overflow
    norms = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(np.sum(left * right)) / norms if norms > 0 else 1.0
