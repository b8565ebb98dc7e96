"""Reaching the fixed point: sites that equal what the rule proposes at the posterior they make.

Far away, strides: damped parallel steps or sequential sweeps, whose damping follows the angle
between successive residuals. Iterates that swing to and fro need damping; iterates that creep
past a near-fold, their residual growing for a while, do not. Near the solution, Newton's method
with GMRES; where it fails, implicit steps of pseudo-time, ((1 + 1/t) I − J) s = residual, which
are Newton steps for t → ∞ and damped strides for t → 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.exact.jacobian import newton_step
from postlin.inference.exact.mode import Climb
from postlin.inference.exact.problem import Iterate, Problem
from postlin.inference.exact.sweep import sweep
from postlin.inference.newton import Step
from postlin.linalg.threads import blas_threads, keep_freed_memory
from postlin.rules.binary import EP
from postlin.rules.sites import Sites
from postlin.schedules import Schedule

#: (problem, iterate, time) → a step in the residual's units, of that time or less.
Newton = Callable[..., Step]

#: Newton's method is tried once the residual is below this.
_NEAR = 0.45
#: A warm start with a larger residual than this is no better than a cold one.
_WORTHWHILE = 1.0
#: Pseudo-times: the longest after a failed Newton step, and the one beyond which all is Newton.
_RETRY_TIME, _LONG_TIME = 2.0, 32.0
#: Damping of the first strides, and the least before giving up.
_FIRST_DAMPING, _LEAST_DAMPING = 0.5, 1e-3
#: A residual that says that the plain iteration has run away.
_RUNAWAY = 1e50


@dataclass
class History:
    """What happened, iteration by iteration: residuals and posterior means."""

    residuals: list[float] = field(default_factory=list)
    means: list[Array] = field(default_factory=list)


@dataclass(frozen=True)
class Record:
    """How a solve went."""

    converged: bool
    residual: float
    n_iter: int
    n_factorisations: int
    history: History
    overruled: np.ndarray  # sites that EP's policy has changed at any time


@dataclass(frozen=True)
class Solution:
    """The last iterate, of a ``Problem`` or of one with its methods, and how it was reached."""

    iterate: Any
    record: Record


def solve(
    problem: Problem,
    schedule: Schedule,
    *,
    start: Sites | None,
    tol: float,
    max_iter: int,
    newton: Newton = newton_step,
) -> Solution:
    """Iterate to the tolerance, or as the schedule's protocol says.

    ``max_iter`` is the most factorisations that are spent, those of rejected steps included.
    """
    search = _Search(problem, schedule, tol, max_iter, newton)
    keep_freed_memory()
    with blas_threads(problem.size):
        if schedule.iterations is not None:
            iterate = search.plain(start, schedule.iterations, to_tolerance=False)
        elif isinstance(problem.rule, EP) and problem.rule.negative_sites == "raise":
            iterate = search.plain(start, max_iter, to_tolerance=True)
        else:
            iterate = search.run(start)
    record = Record(
        search.done(iterate),
        iterate.size,
        search.n_iter,
        search.n_factorisations,
        search.history,
        search.overruled,
    )
    return Solution(iterate, record)


class _Search:
    """The state of one solve."""

    def __init__(
        self, problem: Problem, schedule: Schedule, tol: float, budget: int, newton: Newton
    ) -> None:
        self.problem = problem
        self.schedule = schedule
        self.tol = tol
        self.budget = budget
        self.newton = newton
        self.damping = _FIRST_DAMPING
        self.time = np.inf
        self.n_iter = 0
        self.n_sweeps = 0
        self.n_factorisations = 0
        self.history = History()
        self._held: Iterate | None = None
        self.overruled = np.zeros(len(problem.y), dtype=bool)

    def done(self, iterate: Iterate) -> bool:
        """Converged, to the tolerance or to what rounding allows."""
        return iterate.size <= max(self.tol, iterate.rounding)

    def plain(self, start: Sites | None, iterations: int, *, to_tolerance: bool) -> Iterate:
        """Undamped iterations, from the prior if there is no start.

        Stops early only where the numbers break down.
        """
        iterate = self._evaluate(start) if start is not None else None
        for _ in range(iterations):
            new = self._attempt(iterate, damping=1.0, strict=True)
            if new is None:
                break
            iterate = self._accept(new)
            if to_tolerance and self.done(iterate):
                break
        return iterate or self._from_nothing()

    def run(self, start: Sites | None) -> Iterate:
        """Strides and Newton steps, to the tolerance."""
        warm = self._warm_start(start)
        iterate = (self._climb(warm) if self._is_newton else warm) or self._cold_start()
        sweeps_due = 0 if warm else self.schedule.least_sweeps
        while not self.done(iterate) and self._may_go_on:
            near = iterate.size < _NEAR and self.n_sweeps >= sweeps_due
            new = self._newton(iterate) if near else None
            new = new or (self._stride(iterate) if self._may_go_on else None)
            if new is None:
                break
            iterate = self._accept(new)
        return iterate

    @property
    def _is_newton(self) -> bool:
        return self.problem.rule.is_newton and not self.schedule.sweeps

    @property
    def _may_go_on(self) -> bool:
        return self.n_factorisations < self.budget

    def _accept(self, iterate: Iterate) -> Iterate:
        self.n_iter += 1
        self._held = iterate
        self.overruled |= iterate.proposal.overruled
        self.history.residuals.append(iterate.size)
        self.history.means.append(iterate.posterior.mean)
        return iterate

    def _evaluate(self, sites: Sites) -> Iterate | None:
        """The iterate at these sites. The one before gives its memory for it."""
        if self._held is not None:
            self._held.posterior.release()
        self.n_factorisations += 1
        return self.problem.try_iterate(sites)

    def _warm_start(self, start: Sites | None) -> Iterate | None:
        """Where the caller's sites lead, unless a cold start leads to something better."""
        if start is None:
            return None
        iterate = self._evaluate(start)
        return self._accept(iterate) if iterate is not None and iterate.size < _WORTHWHILE else None

    def _cold_start(self) -> Iterate:
        """From the prior, cautiously, until the rule's own steps are safe."""
        iterate = self._accept(self._from_nothing())
        for _ in range(self.problem.rule.warm_up):
            if iterate.size < _NEAR or not self._may_go_on:
                break
            iterate = self._accept(self._attempt(iterate, damping=0.5, cautious=True) or iterate)
        return iterate

    def _from_nothing(self) -> Iterate:
        damping = 1.0
        while damping > _LEAST_DAMPING:
            iterate = self._attempt(None, damping=damping, cautious=True)
            if iterate is not None:
                return iterate
            damping *= 0.5
        raise NotPositiveDefiniteError(
            "no posterior could be computed even for sites close to zero: the covariance matrix "
            "is not positive semi-definite, or its entries are out of all range."
        )

    def _attempt(
        self, iterate: Iterate | None, *, damping: float, cautious: bool = False, strict: bool = False
    ) -> Iterate | None:
        """One step or sweep from here (None: the prior); None where it leads nowhere.

        ``strict`` lets EP's complaint about an improper cavity through.
        """
        try:
            sites = self._next_sites(iterate, damping, cautious)
            if strict:
                self.n_factorisations += 1
                with np.errstate(all="ignore"):  # the plain iteration may run away; that is seen below
                    new = self.problem.iterate(sites)
                    return new if new.size < _RUNAWAY else None
        except ImproperCavityError:
            if (
                strict
                and isinstance(self.problem.rule, EP)
                and self.problem.rule.negative_sites == "raise"
            ):
                raise
            return None
        except NotPositiveDefiniteError:
            return None
        return self._evaluate(sites)

    def _next_sites(self, iterate: Iterate | None, damping: float, cautious: bool) -> Sites:
        """Where a step leads. Cautious ones are parallel, so that all schedules start alike.

        Fixed points need not be unique (noisy threshold): a common start finds a common one.
        """
        problem = self.problem
        if self.n_sweeps < self.schedule.sweeps and not cautious:
            posterior = iterate.posterior if iterate else None
            self.n_factorisations += int(posterior is not None and posterior.is_released)
            sites, overruled = sweep(problem, posterior, block=self.schedule.block, damping=damping)
            self.n_sweeps += 1
            self.overruled |= overruled
            return sites
        view = iterate.view if iterate else problem.prior_view
        if iterate and not cautious:
            wanted = iterate.proposal.sites
        elif cautious:
            wanted = problem.propose_cautiously(view)
        else:
            proposal = problem.propose(view)
            self.overruled |= proposal.overruled
            wanted = proposal.sites
        return Sites(
            view.tau + damping * (wanted.tau - view.tau), view.nu + damping * (wanted.nu - view.nu)
        )

    def _stride(self, iterate: Iterate) -> Iterate | None:
        """A damped step or sweep; None when even the shortest leads nowhere."""
        while self.damping >= _LEAST_DAMPING and self._may_go_on:
            new = self._attempt(iterate, damping=self.damping)
            if new is not None:
                turn = new.turned_from(iterate)
                if turn < -0.1:
                    self.damping *= 0.6
                elif turn > 0.5:
                    self.damping = min(1.0, 1.3 * self.damping)
                return new
            self.damping *= 0.5
        return None

    def _newton(self, iterate: Iterate) -> Iterate | None:
        """A Newton step, or an implicit step of the present pseudo-time; None if it made it worse."""
        step, time = self.newton(self.problem, iterate, time=self.time)
        new = self._evaluate(iterate.moved(step))
        if new is None or new.size > _allowed_growth(new, iterate, time) * iterate.size:
            self.time = max(1.0, min(0.25 * time, _RETRY_TIME))
            return None
        all_is_well = new.size < 0.3 * iterate.size or 2.0 * time > _LONG_TIME
        self.time = np.inf if all_is_well else 2.0 * time
        return new

    def _climb(self, iterate: Iterate | None) -> Iterate | None:
        """Newton's method for the mode; None where it fails: no log-concave likelihood, then."""
        climb = Climb(self.problem, iterate.posterior if iterate else None)
        while not (iterate and self.done(iterate)):
            if 2 * self.n_factorisations > self.budget + 1:  # leave some to the strides
                return None
            new = self._evaluate(climb.sites())
            if new is None:
                return None
            iterate = self._accept(new)
            climb.advance(iterate.posterior, iterate.size)
        return iterate


def _allowed_growth(new: Iterate, old: Iterate, time: float) -> float:
    """A Newton step must pay; a short implicit one may follow the flow uphill for a while."""
    if time > _LONG_TIME:
        return 0.7
    return 1.6 if new.turned_from(old) > 0.5 else 1.2
