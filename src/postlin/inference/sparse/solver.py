"""The fixed point of the passes: warm-up, damped steps, and Anderson acceleration.

Every evaluation is a pass over all rows, so that what costs m³ is free: the residual is measured,
and steps are combined, in units of the present posterior, (E, e) of ``passes``. Newton's method
loses here, for each product with the derivative would cost a pass too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.result import History, Record
from postlin.inference.sparse.passes import Cautious, Evidence, Sweep, Update
from postlin.inference.sparse.posterior import Basis, SparsePosterior, State
from postlin.inference.sparse.row_sites import Method
from postlin.linalg.threads import keep_freed_memory
from postlin.streaming.chunks import Rows


class Residual(NamedTuple):
    """What a pass moves the state by: in units of the posterior, and as it is."""

    E: Array
    e: Array
    B: Array
    b: Array

    @property
    def size(self) -> float:
        """max(‖E‖, ‖e‖): bounds the relative change of every marginal."""
        return float(max(np.linalg.norm(self.E), np.linalg.norm(self.e)))

    def turned_from(self, previous: "Residual") -> float:
        """The cosine between this and the one before: negative when iterates swing."""
        here = np.concatenate([self.E.ravel(), self.e])
        before = np.concatenate([previous.E.ravel(), previous.e])
        norms = float(np.linalg.norm(here) * np.linalg.norm(before))
        return float(here @ before) / norms if norms > 0 else 1.0


def residual_of(posterior: SparsePosterior, update: Update | Evidence) -> Residual:
    """From what a pass has added up."""
    factor = posterior.factor
    inverse = factor.inverse
    E = update.precision + inverse @ inverse.T
    E[np.diag_indices_from(E)] -= 1.0
    # L_B⁻¹(b' − B'w̄), with B' = I + Σ τ'RRᵀ and b' − Σ τ'RRᵀw̄ = Σ (ν' − τ'μ)R
    e = update.pull - inverse @ posterior.coefficients
    L = factor.L
    dB = L @ E @ L.T
    return Residual(E, e, 0.5 * (dB + dB.T), L @ e + dB @ posterior.coefficients)


#: Damping of plain steps: at first, its reduction where iterates swing, its growth, the least.
_DAMPING, _REDUCTION, _GROWTH, _LEAST_DAMPING = 0.5, 0.7, 1.3, 0.1
#: Damping of the warm-up's passes.
_WARM_UP = (1.0, 0.5, 0.5, 0.5)
#: Anderson's: below which residual, how many earlier points, its own damping.
_NEAR, _MEMORY, _BETA = 1.0, 8, 0.7
#: Eigenvalues of E between which a combined step is believed.
_LOW, _HIGH = -0.7, 3.0
#: A residual that has not halved in so many passes has stalled.
_PATIENCE = 8
#: A warm start with a larger residual is no better than a cold one.
_WORTHWHILE = 30.0
#: Passes after which a warm start is given up for a cold one.
_WARM_PASSES = 60
#: Plain steps after a stall before acceleration is tried again.
_PAUSE = 6

#: Told after every pass: its number, the residual, and the state that it was made at.
AfterPass = Callable[[int, float, State], object]


def record_of_passes(converged: bool, residual: float, residuals: list[float], unsolved: int) -> Record:
    """The record of a solve whose passes had these residuals."""
    n, history = len(residuals), History(residuals)
    return Record(converged, residual, n, n, history, np.zeros(0, dtype=bool), unsolved)


class SparseSolution(NamedTuple):
    """The last state, its posterior, and how it was reached."""

    state: State
    posterior: SparsePosterior
    record: Record


def solve(
    rows: Rows,
    basis: Basis,
    method: Method,
    *,
    start: State | None,
    tol: float,
    max_passes: int,
    after_pass: AfterPass | None = None,
) -> SparseSolution:
    """Iterate to the tolerance, from a state (of any basis) or from the prior."""
    damping = 1.0 if method.rule.is_newton else _DAMPING
    keep_freed_memory()
    return _Solver(rows, basis, method, tol, max_passes, after_pass, damping).run(start)


@dataclass
class _Point:
    state: State
    posterior: SparsePosterior
    residual: Residual
    unsolved: int

    @property
    def size(self) -> float:
        return self.residual.size


@dataclass
class _Solver:
    rows: Rows
    basis: Basis
    method: Method
    tol: float
    budget: int
    after_pass: AfterPass | None
    damping: float
    residuals: list[float] = field(default_factory=list)
    memory: list[_Point] = field(default_factory=list)

    def run(self, start: State | None) -> SparseSolution:
        warm = self._warm(start)
        point = self._iterate(warm, min(self.budget, _WARM_PASSES)) if warm else None
        if point is None or (point.size > self.tol and self._may_go_on):
            self.memory.clear()
            point = self._iterate(self._cold(), self.budget)
        converged = point.size <= self.tol and not point.unsolved
        record = record_of_passes(converged, point.size, self.residuals, point.unsolved)
        return SparseSolution(point.state, point.posterior, record)

    def _iterate(self, point: _Point, budget: int) -> _Point:
        """To the tolerance, or to the best point that so many passes found."""
        best, pause = point, 0
        since, reference = 0, point.size
        while point.size > self.tol and len(self.residuals) < budget:
            new = (self._accelerated(point) if pause <= 0 else None) or self._plain(point)
            if new is None:
                break
            point = new
            best = min(best, point, key=lambda p: p.size)
            pause, since = pause - 1, since + 1
            if point.size < 0.5 * reference:
                since, reference = 0, point.size
            elif since >= _PATIENCE and pause <= 0:
                # acceleration has stalled: plain steps for a while
                self.memory.clear()
                pause, since, reference = _PAUSE, 0, point.size
        return best

    @property
    def _may_go_on(self) -> bool:
        return len(self.residuals) < self.budget

    def _evaluate(
        self, state: State, share: Callable[[SparsePosterior, Method], Sweep | Cautious] = Sweep
    ) -> _Point | None:
        """A pass at a state; None where it is no posterior or the numbers break down."""
        try:
            posterior = SparsePosterior.of(self.basis, state)
        except NotPositiveDefiniteError:
            return None
        update: Update = self.rows.total(share(posterior, self.method))
        if not (np.isfinite(update.precision).all() and np.isfinite(update.pull).all()):
            self.residuals.append(np.inf)
            return None
        residual = residual_of(posterior, update)
        self.residuals.append(residual.size)
        if self.after_pass is not None:
            self.after_pass(len(self.residuals), residual.size, state)
        return _Point(state, posterior, residual, update.unsolved)

    def _warm(self, start: State | None) -> _Point | None:
        if start is None:
            return None
        point = self._evaluate(start.in_basis(self.basis))
        return self._remembered(point) if point is not None and point.size < _WORTHWHILE else None

    def _cold(self) -> _Point:
        """From the prior, by sites that are never far too weak."""
        state = State.prior(self.basis)
        for damping in _WARM_UP:
            point = self._evaluate(state, Cautious)
            if point is None:
                break
            state = _moved(point, damping)
        point = self._evaluate(state)
        if point is None:
            raise NotPositiveDefiniteError(
                "no posterior could be computed from the prior on: the kernel is out of range."
            )
        return self._remembered(point)

    def _remembered(self, point: _Point) -> _Point:
        self.memory = [*self.memory[-_MEMORY:], point]
        return point

    def _plain(self, point: _Point) -> _Point | None:
        """A damped step."""
        damping = self.damping
        while self._may_go_on and damping > 1e-3:
            new = self._evaluate(_moved(point, damping))
            if new is not None:
                self._adapt(new.residual.turned_from(point.residual))
                return self._remembered(new)
            damping *= 0.5
        return None

    def _adapt(self, turn: float) -> None:
        """Iterates that swing to and fro need damping; those that creep past a near-fold do not."""
        if turn < -0.1:
            self.damping = max(_LEAST_DAMPING, _REDUCTION * self.damping)
        elif turn > 0.5:
            self.damping = min(1.0, _GROWTH * self.damping)

    def _accelerated(self, point: _Point) -> _Point | None:
        """Anderson's combination of the points so far; None where it is not to be believed."""
        others = [other for other in self.memory if other is not point]
        if point.size > _NEAR or not others or self.method.rule.is_newton:
            return None
        state = _combined(point, others)
        if state is None:
            return None
        new = self._evaluate(state)
        return None if new is None else self._remembered(new)


def _moved(point: _Point, damping: float) -> State:
    state, residual = point.state, point.residual
    return State(state.B + damping * residual.B, state.b + damping * residual.b, state.L)


def _combined(point: _Point, others: list[_Point]) -> State | None:
    """Where the residual vanishes as far as known differences tell, in the metric of this posterior."""
    inverse, w = point.posterior.factor.inverse, point.posterior.coefficients

    def scaled(B: Array, b: Array) -> Array:
        return np.concatenate([(inverse @ B @ inverse.T).ravel(), inverse @ (b - B @ w)])

    changes = np.array(
        [scaled(o.residual.B - point.residual.B, o.residual.b - point.residual.b) for o in others]
    )
    right = np.concatenate([point.residual.E.ravel(), point.residual.e])
    weights, *_ = np.linalg.lstsq(changes.T, -right, rcond=1e-10)
    dB, db = _BETA * point.residual.B, _BETA * point.residual.b
    for weight, o in zip(weights, others, strict=True):
        dB = dB + weight * (o.state.B - point.state.B + _BETA * (o.residual.B - point.residual.B))
        db = db + weight * (o.state.b - point.state.b + _BETA * (o.residual.b - point.residual.b))
    if not (np.isfinite(dB).all() and np.isfinite(db).all()):
        return None
    values = np.linalg.eigvalsh(inverse @ dB @ inverse.T)
    if values[0] < _LOW or values[-1] > _HIGH:
        return None
    return State(point.state.B + dB, point.state.b + db, point.state.L)
