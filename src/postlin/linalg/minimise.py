"""BFGS within bounds, for objectives whose evaluations are expensive.

It is made for log-parameters, whose natural step is one. The first step moves every parameter by its
gradient or by one, whichever is less, so that no stiff parameter hides the others. A model that has
seen no curvature expects a step of one. A trust region limits the steps. The search ends when the model
predicts no further gain, so that no evaluation is spent on a step without one.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import minimize

from postlin._typing import Array

#: The largest change of a parameter in the first step, in the first with known curvature, in any step.
_FIRST, _KNOWN, _LONGEST = 1.0, 0.3, 1.5
#: A step is accepted if it gains the first part of what the model predicted; the trust region shrinks
#: below the second and may grow above the third.
_SOME, _HALF, _MOST = 1e-3, 0.5, 0.7
#: Steps shorter than this end the search, since rounding dominates.
_SHORTEST = 1e-8
#: The slope above which a parameter passes its soft bound. Where the variance of a kernel grows without
#: bound, its slope halves in every log-unit or faster, so that less than 0.1 is left to gain below.
_FALLING = 0.05
#: A search ends after this many steps and one for each parameter without a gain: a slope that stays
#: steep then comes from rounding errors of the values.
_PATIENCE = 10
#: A step to where the objective cannot be computed counts as so many of them, since it costs the most;
#: the next is shorter by this factor. There may be as many of them in all as steps without a gain.
_UNKNOWN, _RETREAT = 3, 0.25
_BLOCKED = "the evidence rises towards points at which it cannot be computed"
#: Parameters of size one or less that differ by this may be equal but for rounding.
_ROUNDING = 1e-14
#: A model with less curvature than this along a step is not updated.
_NO_CURVATURE = 1e-100
#: A model with a larger condition number than this is discarded.
_CONDITION = 1e14
#: A measured curvature below this part of the model's along a step is damped.
_BELIEVED = 0.2
#: The largest slope from which the last step is taken without a slope at its end.
_GENTLE = 1.0

#: (objective, initial theta, bounds) → (theta, value): scikit-learn's convention for optimisers.
Optimizer = Callable[..., tuple[Array, float]]

#: The optimisers by name.
OPTIMIZERS = ("fmin_l_bfgs_b", "bfgs", "bfgs_finite_differences")

#: Steps of finite differences, wide enough for an evidence that is iterated to a tolerance.
_DIFFERENCE = 1e-4

Objective = Callable[[Array], tuple[float, Array]]

#: (known point, loss seen elsewhere) → value and slope at that point, computed more accurately, or None
#: where an error of the known value cannot explain the loss.
Again = Callable[[Array, float], tuple[float, Array] | None]

#: (point, slope there) → where the minimum may be, or None, and the curvature there.
Forecast = Callable[[Array, Array], tuple[Array | None, Array | None]]

#: The value alone at a point.
Value = Callable[[Array], float]


class Worth(NamedTuple):
    """When a search ends.

    ``gain`` is the improvement, relative to max(1, |value|), that is not worth an evaluation, and
    ``least`` one that is not whatever the value. The model's prediction counts only where no slope
    exceeds ``slope``: it may not know every direction. Where the model predicts a gain of at most
    ``leap``, the search ends after a step to its minimum without the slope there, if the value agrees.
    """

    gain: float = 4e-9
    slope: float = 2e-3
    least: float = 0.0
    leap: float = 0.0


class Minimum(NamedTuple):
    """Where the search ended, the value there, and a message if it did not converge.

    ``curvature`` is the model of the Hessian that the search has made, if it has.
    """

    x: Array
    value: float
    message: str | None
    curvature: Array | None = None


def minimise(
    objective: Objective,
    x: Array,
    bounds: Array,
    worth: Worth,
    *,
    curvature: Array | None = None,
    reach: float = _KNOWN,
    forecast: Forecast | None = None,
    again: Again = lambda x, loss: None,
    value_at: Value = lambda x: np.inf,
    soft: Array | float = np.inf,
    max_evaluations: int = 500,
) -> Minimum:
    """Minimise from x, given the curvature there if it is known.

    The first step goes towards the ``forecast``, if there is one; without one it changes no parameter
    by more than ``reach`` if the curvature is known. Where values are inexact, ``again`` recomputes the
    one at the best point: if that is too low by error, no other point would ever seem better;
    ``value_at`` is the exact objective without its slope. A parameter that has reached its ``soft``
    upper bound goes on only if it is worth it: a value that falls slowly would take many steps for
    little.
    """
    low, top = bounds.T
    x = np.clip(np.array(x, float), low, top)
    value, slope = objective(x)
    radius = _FIRST if curvature is None else reach
    there, model = (None, curvature) if forecast is None else forecast(x, slope)
    # steps in a row without a gain; whether the last one had no value, and the number of such steps
    idle, unknown, failures = 0, False, 0
    tested = False  # whether the last step has gained about what the model had predicted
    for _ in range(max_evaluations - 1):
        high = np.minimum(top, np.where(x < soft, soft, np.where(slope < -_FALLING, np.inf, x)))
        free = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))
        near, far = np.maximum(low - x, -radius), np.minimum(high - x, radius)
        step = _step(model, slope, free, near, far) if there is None else _towards(there - x)
        there = None
        # the gain that the model predicts
        promised = -float(slope @ step) - (0.0 if model is None else 0.5 * float(step @ model @ step))
        length = float(np.abs(step).max(initial=0.0))
        least = max(worth.gain * max(1.0, abs(value)), worth.least)
        flat = worth.slope if model is not None else min(worth.slope, least)
        steepest = float(np.abs(slope[free]).max(initial=0.0))
        weary = max(idle, failures) > _PATIENCE + len(x)
        if weary or length < _SHORTEST or (promised <= least and steepest <= flat):
            return Minimum(x, value, _BLOCKED if weary and unknown else None, model)
        moved = _within(x + step, low, high)
        leaps = tested and 0.0 < promised <= worth.leap and steepest <= _GENTLE
        if leaps and (end := _leapt(moved, value, promised, least, value_at)) is not None:
            return end._replace(curvature=model)
        new_value, new_slope = objective(moved)
        loss = new_value - value
        if loss > least and (known := again(x, loss)) is not None:
            value, slope = known
        unknown = not new_slope.any()  # a slope of zero means that there is no objective there
        failures += unknown
        idle = 0 if new_value < value - least else idle + (_UNKNOWN if unknown else 1)
        # values may be wrong by ``least``, so that a loss of this size is no loss
        success = (value - new_value + least) / (max(promised, 0.0) + least)
        model = model if unknown else _updated(model, step, new_slope - slope, new_slope)
        tested = not unknown and _HALF < success < 1.0 / _HALF
        if success > _MOST:
            radius = min(_LONGEST, max(radius, 2.0 * length))
        elif success < _HALF:
            shorter = _shrinkage(float(slope @ step), float(new_slope @ step))
            radius = length * (_RETREAT if unknown else shorter)
        if success > _SOME:
            x, value, slope = moved, new_value, new_slope
    return Minimum(x, value, f"no convergence after {max_evaluations} evaluations")


def _leapt(x: Array, value: float, promised: float, least: float, value_at: Value) -> Minimum | None:
    """The end of the search at x, unless more than ``least`` is left to gain there.

    If x gains less than the model has promised, the curvature along the step is larger by the missing
    part, and what is left follows from that.
    """
    here = value_at(x)
    missing = 1.0 - (value - here) / promised
    left = promised * missing**2 / (1.0 + missing) if -0.5 < missing < 1e3 else np.inf
    return Minimum(x, here, None) if left <= least else None


def _step(model: Array | None, slope: Array, free: np.ndarray, low: Array, high: Array) -> Array:
    """The step towards the model's minimum over the free parameters, within a box.

    A parameter that reaches the edge of the box stays there, and the others go on towards the minimum
    that remains, so that the model decreases all the way.
    """
    if model is None:
        return np.clip(np.where(free, -slope, 0.0), low, high)
    step = np.zeros_like(slope)
    while free.any():
        move = np.zeros_like(slope)
        move[free] = -np.linalg.solve(model[np.ix_(free, free)], (slope + model @ step)[free])
        room = np.full_like(move, np.inf)
        np.divide(np.where(move > 0, high, low) - step, move, out=room, where=move != 0)
        part = min(1.0, float(room.min()))
        step += part * move
        if part == 1.0:
            break
        free = free & (room > part)
    return step


def _towards(way: Array) -> Array:
    """The way, or its first part: a forecast that is far away knows the direction, not the distance."""
    return way * min(1.0, _LONGEST / max(float(np.abs(way).max()), _SHORTEST))


def _within(x: Array, low: Array, high: Array) -> Array:
    """x, but a parameter that is a rounding error away from a bound is exactly there."""
    error = _ROUNDING * np.maximum(1.0, np.abs(x))
    return np.where(x >= high - error, high, np.where(x <= low + error, low, x))


def _updated(model: Array | None, step: Array, change: Array, slope: Array) -> Array | None:
    """The BFGS update of the model, with Powell's damping, which keeps it positive definite.

    None is returned where rounding would make it singular.
    """
    if model is None:
        moved = np.abs(step) > _SHORTEST
        measured = np.divide(change, step, out=np.zeros_like(step), where=moved)
        # without positive curvature a step of one is expected
        model = np.diag(np.where(measured > 0, measured, np.maximum(np.abs(slope), _SHORTEST)))
    along = model @ step
    expected, seen = float(step @ along), float(step @ change)
    if expected < _NO_CURVATURE:
        return model
    if seen < _BELIEVED * expected:
        share = (1.0 - _BELIEVED) * expected / (expected - seen)
        change = share * change + (1.0 - share) * along
        seen = float(step @ change)
    update: Array = np.outer(change, change) / seen - np.outer(along, along) / expected
    model = model + update
    usable = np.isfinite(model).all() and np.linalg.cond(model) < _CONDITION
    return model if usable else None


def _shrinkage(slope_before: float, slope_after: float) -> float:
    """The factor that shortens the next step to where the slope along this one vanishes."""
    if slope_after <= slope_before:
        return 0.25
    return float(np.clip(-slope_before / (slope_after - slope_before), 0.1, 0.7))


class Differentiable(Protocol):
    """An objective that can return its value with or without the gradient."""

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """The value and the gradient."""

    def value(self, theta: Array) -> float:
        """The value alone."""


def optimise(
    objective: Differentiable, theta: Array, bounds: Array, optimizer: Optimizer | str, worth: Worth
) -> Minimum:
    """Minimise from one start by another optimiser than ``minimise``."""
    if callable(optimizer):

        def as_in_scikit_learn(x: Array, eval_gradient: bool = True) -> object:
            return objective(x) if eval_gradient else objective.value(x)

        optimum, value = optimizer(as_in_scikit_learn, theta, bounds=bounds)
        return Minimum(np.asarray(optimum, float), float(value), None)
    scale = 1.0
    if optimizer == "fmin_l_bfgs_b":
        # With bounds on every parameter the routine's first step is the whole gradient, which is far
        # too long in log-parameters. The objective is scaled so that this step has length one at most.
        value, gradient = first = objective(theta)
        scale = 1.0 / max(1.0, float(np.linalg.norm(gradient)))
        # The routine compares the gain of a step with its tolerance times max(1, |scaled value|).
        size = max(1.0, abs(value))
        options = {"gtol": 1e-5 * scale, "ftol": worth.gain * scale * size / max(1.0, scale * size)}

        def scaled(t: Array) -> tuple[float, Array]:
            value, slope = first if np.array_equal(t, theta) else objective(t)
            return scale * value, scale * slope

        result = minimize(scaled, theta, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    else:  # the paper's quasi-Newton method with finite differences and no bounds
        options = {"finite_diff_rel_step": _DIFFERENCE}
        result = minimize(objective.value, theta, method="BFGS", jac="3-point", options=options)
    # Status 2 means that rounding ended the line search, which is as far as differences can get.
    message = None if result.success or result.status == 2 else str(result.message)
    return Minimum(np.asarray(result.x, float), float(result.fun) / scale, message)
