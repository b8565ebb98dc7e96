"""The fixed point of the passes: warm-up, damped steps, and Anderson acceleration.

Every evaluation is a pass over all rows, and beside it work of order m³ costs nothing: residuals are
measured and steps are combined in units of the present posterior, as (E, e) of ``passes``. Newton's
method is slower here, since each product with the Jacobian would be a pass too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.result import History, Record
from postlin.inference.sparse.passes import Cautious, Evidence, Sweep, Update
from postlin.inference.sparse.posterior import Basis, SparsePosterior, State
from postlin.inference.sparse.row_sites import Method
from postlin.linalg.arrays import (
    Matrix,
    add_to_diagonal,
    all_finite,
    is_definite,
    least_squares,
    norm,
    place_of,
)
from postlin.linalg.functions import functions
from postlin.linalg.stacks import shaped
from postlin.linalg.threads import keep_freed_memory
from postlin.streaming.views import Rows


class Residual(NamedTuple):
    """The change of the state by a pass: (E, e) in units of the posterior, and (dB, db) as such."""

    E: Matrix
    e: Matrix
    B: Matrix
    b: Matrix

    @property
    def size(self) -> float:
        """max(‖E‖, ‖e‖), which bounds the relative change of every marginal."""
        return max(norm(self.E), norm(self.e))

    @property
    def flat(self) -> Matrix:
        """(E, e) as one vector."""
        return functions(self.e).concat([shaped(self.E, -1), self.e])

    def cosine(self, previous: "Residual") -> float:
        """The cosine of the angle to the previous residual; it is negative if iterates oscillate."""
        here, before = self.flat, previous.flat
        norms = norm(here) * norm(before)
        return float(here @ before) / norms if norms > 0 else 1.0


def residual_of(posterior: SparsePosterior, update: Update | Evidence) -> Residual:
    """The residual at a posterior, from the sums of a pass."""
    L, inverse = posterior.factor.L, posterior.factor.inverse
    E = update.precision + inverse @ inverse.T
    add_to_diagonal(E, -1.0)
    # L_B⁻¹(b' − B'w̄), with B' = I + Σ τ'RRᵀ and b' − Σ τ'RRᵀw̄ = Σ (ν' − τ'μ)R
    e = update.pull - inverse @ posterior.coefficients
    dB = L @ E @ L.T
    return Residual(E, e, 0.5 * (dB + dB.T), L @ e + dB @ posterior.coefficients)


#: The damping of plain steps: its first value, its reduction where iterates oscillate, its growth
#: where they go on in one direction, and its least value.
_DAMPING, _REDUCTION, _GROWTH, _LEAST_DAMPING = 0.5, 0.7, 1.3, 0.1
#: The damping of each pass of the warm-up, and the most further passes that a rule may ask for.
_WARM_UP, _MORE = (1.0, 0.5, 0.5, 0.5), 20
#: A plain step is too long if the residual grows by this factor, and above one.
_TOO_FAR = 3.0
#: Anderson acceleration: the residual below which it is used, how many earlier points, its damping.
_ACCELERATED, _MEMORY, _BETA = 1.0, 8, 0.7
#: An accelerated step is taken only if the eigenvalues of its E lie between these.
_LOW, _HIGH = -0.7, 3.0
#: The passes without a residual half as large after which acceleration pauses, and its pause.
_PATIENCE, _PAUSE = 8, 6
#: A warm start with a larger residual is no better than a cold one.
_WORTHWHILE = 30.0
#: The number of passes after which a cold start replaces a warm one.
_WARM_PASSES = 60

#: Makes a pass of the iteration, from a posterior and a method.
Share = Callable[[SparsePosterior, Method], Sweep | Cautious]

#: Called after every pass with its number, the residual, and the state in which the pass was made.
AfterPass = Callable[[int, float, State], object]


def record_of_passes(converged: bool, residual: float, residuals: list[float], unsolved: int) -> Record:
    """The record of a solve whose passes had these residuals."""
    n, history = len(residuals), History(residuals)
    return Record(converged, residual, n, n, history, np.zeros(0, dtype=bool), unsolved)


@dataclass
class Point:
    """A state with its posterior, and the residual and the number of unsolved rows of a pass there."""

    state: State
    posterior: SparsePosterior
    residual: Residual
    unsolved: int

    @property
    def size(self) -> float:
        """The size of the residual."""
        return self.residual.size

    def moved(self, damping: float) -> State:
        """The state after a damped plain step."""
        state, change = self.state, self.residual
        return State(state.B + damping * change.B, state.b + damping * change.b, state.L)


@dataclass
class Solver:
    """Iterates until the residual is at most ``tol``, in at most ``budget`` passes."""

    rows: Rows
    basis: Basis
    method: Method
    tol: float
    budget: int
    after_pass: AfterPass | None = None

    def __post_init__(self) -> None:
        self.damping = 1.0 if self.method.rule.is_newton else _DAMPING
        self.residuals: list[float] = []  # of all passes
        self.memory: list[Point] = []  # for acceleration

    def run(self, start: State | None) -> Point:
        """The best point on the way from a state (of any basis), or from the prior."""
        keep_freed_memory()
        warm = None if start is None else self._evaluate(start.in_basis(self.basis))
        point = None
        if warm is not None and warm.size < _WORTHWHILE:
            point = self._iterate(warm, min(self.budget, _WARM_PASSES))
        if point is None or (point.size > self.tol and len(self.residuals) < self.budget):
            self.memory.clear()
            point = self._iterate(self._cold(), self.budget)
        return point

    def _iterate(self, point: Point, budget: int) -> Point:
        """The first point within the tolerance, or the best one after ``budget`` passes in all."""
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
                self.memory.clear()
                pause, since, reference = _PAUSE, 0, point.size
        return best

    def _evaluate(self, state: State, share: Share = Sweep) -> Point | None:
        """The point after a pass; None where the state has no posterior or a number is not finite."""
        try:
            posterior = SparsePosterior.of(self.basis, state)
        except NotPositiveDefiniteError:
            return None
        try:
            update: Update = self.rows.total(share(posterior, self.method))
        except ImproperCavityError:  # moments that are not finite
            self.residuals.append(np.inf)
            return None
        if not all_finite(update.precision, update.pull):
            self.residuals.append(np.inf)
            return None
        residual = residual_of(posterior, update)
        self.residuals.append(residual.size)
        if self.after_pass is not None:
            self.after_pass(len(self.residuals), residual.size, state)
        point = Point(state, posterior, residual, update.unsolved)
        if share is Sweep:
            self.memory = [*self.memory[-_MEMORY:], point]
        return point

    def _cold(self) -> Point:
        """The point after the warm-up, which begins at the prior."""
        state: State | None = State.prior(self.basis)
        for damping in _WARM_UP:
            point = None if state is None else self._evaluate(state, Cautious)
            state = None if point is None else point.moved(damping)
        point = None if point is None else self._evaluate(self._warmed_up(point))
        if point is None:
            raise NotPositiveDefiniteError(
                "no posterior could be computed, starting from the prior: the kernel is out of range."
            )
        return point

    def _warmed_up(self, point: Point) -> State:
        """The state after as many more cautious steps as the rule needs."""
        usual, steps = self.damping, 0
        while point.size >= self.method.rule.warm_below and steps < _MORE:
            new = self._plain(point, Cautious)
            if new is None:
                break
            point, steps = new, steps + 1
        damping, self.damping = min(self.damping, _WARM_UP[-1]), usual
        return point.moved(damping)

    def _plain(self, point: Point, share: Share = Sweep) -> Point | None:
        """The point after a damped plain step; None where no step has a posterior."""
        damping = self.damping
        while len(self.residuals) < self.budget and damping > 1e-3:
            new = self._evaluate(point.moved(damping), share)
            if new is not None and new.size < max(_TOO_FAR * point.size, 1.0):
                # iterates that oscillate need damping; those that pass a near-fold slowly do not
                cosine = new.residual.cosine(point.residual)
                if cosine < -0.1:
                    self.damping = max(_LEAST_DAMPING, _REDUCTION * self.damping)
                elif cosine > 0.5:
                    self.damping = min(1.0, _GROWTH * self.damping)
                return new
            damping *= 0.5
            self.damping = max(_LEAST_DAMPING, damping)
        return None

    def _accelerated(self, point: Point) -> Point | None:
        """The point after an Anderson step; None where there is none or it has no posterior."""
        others = [other for other in self.memory if other is not point]
        if point.size > _ACCELERATED or not others or self.method.rule.is_newton:
            return None
        state = _combined(point, others)
        return None if state is None else self._evaluate(state)


def _combined(point: Point, others: list[Point]) -> State | None:
    """The state after an Anderson step in the metric of this posterior; None if it is too long."""
    inverse, w = point.posterior.factor.inverse, point.posterior.coefficients
    state, residual = point.state, point.residual
    changes = [(o.residual.B - residual.B, o.residual.b - residual.b) for o in others]
    f = functions(w)
    scaled = [
        f.concat([shaped(inverse @ B @ inverse.T, -1), inverse @ (b - B @ w)]) for B, b in changes
    ]
    weights = map(float, least_squares(f.rows(scaled).T, -residual.flat, 1e-10))
    dB, db = _BETA * residual.B, _BETA * residual.b
    for weight, o, (B, b) in zip(weights, others, changes, strict=True):
        dB = dB + weight * (o.state.B - state.B + _BETA * B)
        db = db + weight * (o.state.b - state.b + _BETA * b)
    if not all_finite(dB, db):
        return None
    E, eye = inverse @ dB @ inverse.T, place_of(dB).eye(len(w))
    if not (is_definite(E - _LOW * eye) and is_definite(_HIGH * eye - E)):
        return None
    return State(state.B + dB, state.b + db, state.L)
