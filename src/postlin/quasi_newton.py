"""BFGS within bounds, for objectives of which every evaluation is dear.

Made for log-parameters, whose natural step is one: the first step moves every parameter by its
gradient or by one, whichever is less, so that no stiff parameter hides the others; a model that
has seen no curvature expects a step of one; steps are kept within a trust region. The search ends
when the model promises no further gain: that costs no evaluation to see the gain fail to come.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from postlin._typing import Array

#: Largest change of a parameter in the first step, and in any.
_FIRST, _LONGEST = 1.0, 1.5
#: A step counts if it gains this part of what the model promised; below the second the region is
#: too large, above the third it may grow.
_SOME, _HALF, _MOST = 1e-3, 0.5, 0.7
#: A promise is believed only where no slope is larger than this: the model may not know all of them.
_FLAT = 2e-3
#: Steps shorter than this end the search: rounding has taken over.
_SHORTEST = 1e-8
#: Models flatter than this are not made flatter still.
_NO_CURVATURE = 1e-100
#: Below this part of the model's curvature along a step, the measured one is not believed.
_BELIEVED = 0.2

Objective = Callable[[Array], tuple[float, Array]]


class Minimum(NamedTuple):
    """Where the search ended, the value there, and a complaint if it did not converge."""

    x: Array
    value: float
    message: str | None


def minimise(
    objective: Objective, x: Array, bounds: Array, *, gain: float, max_evaluations: int = 500
) -> Minimum:
    """Minimise from x. ``gain`` is the improvement, relative to max(1, |value|), not worth a step."""
    low, high = bounds.T
    x = np.clip(np.array(x, float), low, high)
    value, slope = objective(x)
    model: Array | None = None
    radius = _FIRST
    for _ in range(max_evaluations - 1):
        free = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))
        step = np.clip(x + _step(model, slope, free, radius), low, high) - x
        promised = _promise(model, slope, step)
        length = float(np.abs(step).max())
        is_flat = float(np.abs(slope[free]).max(initial=0.0)) <= _FLAT
        if (is_flat and promised <= gain * max(1.0, abs(value))) or length < _SHORTEST:
            return Minimum(x, value, None)
        new_value, new_slope = objective(x + step)
        model = _updated(model, step, new_slope - slope, new_slope)
        success = (value - new_value) / promised
        if success > _MOST:
            radius = min(_LONGEST, max(radius, 2.0 * length))
        elif success < _HALF:
            radius = length * _shrinkage(float(slope @ step), float(new_slope @ step))
        if success > _SOME:
            x, value, slope = x + step, new_value, new_slope
    return Minimum(x, value, f"no convergence after {max_evaluations} evaluations")


def _step(model: Array | None, slope: Array, free: np.ndarray, radius: float) -> Array:
    """The model's step to its minimum over the free parameters, or as far as the region goes."""
    if model is None:
        return -np.clip(np.where(free, slope, 0.0), -radius, radius)
    step = np.zeros_like(slope)
    while free.any():
        rest = slope[free] + model[np.ix_(free, ~free)] @ step[~free]
        step[free] = -np.linalg.solve(model[np.ix_(free, free)], rest)
        far = free & (np.abs(step) > radius)
        if not far.any():
            break
        # those that would go too far go as far as they may, and the others adapt to it
        step[far] = np.clip(step[far], -radius, radius)
        free = free & ~far
    return step


def _promise(model: Array | None, slope: Array, step: Array) -> float:
    """What the model gains by a step."""
    curvature = 0.0 if model is None else float(step @ model @ step)
    return -float(slope @ step) - 0.5 * curvature


def _updated(model: Array | None, step: Array, change: Array, slope: Array) -> Array:
    """The BFGS update, damped as Powell's so that the model stays positive definite."""
    if model is None:
        moved = np.abs(step) > _SHORTEST
        measured = np.divide(change, step, out=np.zeros_like(step), where=moved)
        # no curvature seen: expect a step of one
        model = np.diag(np.where(measured > 0, measured, np.maximum(np.abs(slope), 1.0)))
    along = model @ step
    expected, seen = float(step @ along), float(step @ change)
    if expected < _NO_CURVATURE:
        return model
    if seen < _BELIEVED * expected:
        share = (1.0 - _BELIEVED) * expected / (expected - seen)
        change = share * change + (1.0 - share) * along
        seen = float(step @ change)
    update: Array = np.outer(change, change) / seen - np.outer(along, along) / expected
    return model + update


def _shrinkage(slope_before: float, slope_after: float) -> float:
    """How much shorter the next step should be: to where the slope along this one vanished."""
    if slope_after <= slope_before:
        return 0.25
    return float(np.clip(-slope_before / (slope_after - slope_before), 0.1, 0.7))
