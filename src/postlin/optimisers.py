"""The optimisers of the evidence, by name or as scikit-learn has them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from postlin._typing import Array
from postlin.quasi_newton import Again, Minimum, Worth, minimise

#: (objective, initial theta, bounds) → (theta, value): scikit-learn's convention for optimisers.
Optimizer = Callable[..., tuple[Array, float]]

#: Called with theta, and with ``eval_gradient=False`` where the value alone will do.
Objective = Callable[..., Any]

#: Steps of finite differences, wide enough for an evidence that is iterated to a tolerance.
_DIFFERENCE = 1e-4

#: The optimisers by name.
OPTIMIZERS = ("fmin_l_bfgs_b", "bfgs", "bfgs_finite_differences")


def optimise(
    objective: Objective,
    theta: Array,
    bounds: Array,
    optimizer: Optimizer | str,
    worth: Worth,
    curvature: Array | None = None,
    again: Again = lambda x, loss: None,
) -> Minimum:
    """Run one optimiser from one start; the last two are for those that can use them."""
    if callable(optimizer):
        optimum, value = optimizer(objective, theta, bounds=bounds)
        return Minimum(np.asarray(optimum, float), float(value), None)
    if optimizer == "bfgs":
        return minimise(objective, theta, bounds, worth=worth, curvature=curvature, again=again)
    if optimizer == "fmin_l_bfgs_b":
        return _l_bfgs_b(objective, theta, bounds, worth.gain)
    # The paper: quasi-Newton with finite differences, no bounds. It calls it a failure (status 2)
    # when rounding ends the line search, which is as far as differences can get.
    result = minimize(
        lambda t: objective(t, eval_gradient=False),
        theta,
        method="BFGS",
        jac="3-point",
        options={"finite_diff_rel_step": _DIFFERENCE},
    )
    message = None if result.success or result.status == 2 else str(result.message)
    return Minimum(np.asarray(result.x, float), float(result.fun), message)


def _l_bfgs_b(objective: Objective, theta: Array, bounds: Array, gain: float) -> Minimum:
    """L-BFGS-B on the objective scaled so that its first step has length one at most.

    With bounds on every parameter the routine's own first step is the whole gradient, which in
    log-parameters leads out of all sense.
    """
    value, gradient = objective(theta)
    scale = 1.0 / max(1.0, float(np.linalg.norm(gradient)))
    # The routine compares a step's gain with its tolerance times max(1, |scaled value|).
    size = max(1.0, abs(value))
    least_gain = gain * scale * size / max(1.0, scale * size)

    def scaled(t: Array) -> tuple[float, Array]:
        value, slope = objective(t)
        return scale * value, scale * slope

    result = minimize(
        scaled,
        theta,
        method="L-BFGS-B",
        jac=True,
        bounds=bounds,
        options={"gtol": 1e-5 * scale, "ftol": least_gain},
    )
    message = None if result.success or result.status == 2 else str(result.message)
    return Minimum(np.asarray(result.x, float), float(result.fun) / scale, message)
