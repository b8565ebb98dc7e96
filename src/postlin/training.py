"""Learning hyperparameters: maximise the evidence over the kernel's free log-parameters."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.gradient import EXACT
from postlin.model import Fitted, Model
from postlin.quasi_newton import minimise
from postlin.sites import Sites
from postlin.warm_start import SitePath

logger = logging.getLogger("postlin")


@contextmanager
def shown_log(verbose: int) -> Iterator[None]:
    """Show the log on standard error, unless the application has handlers of its own."""
    if not verbose or logger.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


#: (objective, initial theta, bounds) → (theta, value): scikit-learn's convention for optimisers.
Optimizer = Callable[..., tuple[Array, float]]

#: What an evidence that cannot be computed counts as.
_HOPELESS = -1e100
#: The tolerance of inference during a search, per unit of slope, and the loosest.
_LOOSE, _LOOSEST = 3e-3, 1e-2
#: The accuracy of the adjoint beside that tolerance.
_ADJOINT = 1e-3
#: A step that gains less than this, relatively, is the last.
_LEAST_GAIN = 4e-9
#: Steps of finite differences, wide enough for an evidence that is iterated to a tolerance.
_DIFFERENCE = 1e-4


class Training(NamedTuple):
    """The best fit found, what the optimiser complained of, and where it looked.

    ``path`` holds the log-parameters and the log evidence of every evaluation, in order.
    """

    best: Fitted
    message: str | None
    path: list[tuple[Array, float]]


def train(
    model: Model,
    kernel: Kernel,
    optimizer: Optimizer | str | None,
    *,
    restarts: int,
    rng: np.random.RandomState,
    start: Sites | None = None,
) -> Training:
    """Maximise the evidence from the kernel's own parameters, and from random ones."""
    if optimizer is None or kernel.n_dims == 0:
        return Training(model.infer(kernel, start), None, [])
    # BFGS can live with values that are exact to second order only; others expect the digits.
    search = _Search(model, kernel, start, _LOOSEST if optimizer == "bfgs" else model.tol)
    starts = [kernel.theta]
    starts += [rng.uniform(kernel.bounds[:, 0], kernel.bounds[:, 1]) for _ in range(restarts)]
    messages: dict[int, str | None] = {}
    bests = []
    for k, theta in enumerate(starts):
        if k > 0:
            search.restart()
        optimum, value, messages[k] = _optimise(search, theta, kernel.bounds, optimizer)
        bests.append((value, optimum, search.sites))
    winner = int(np.argmin([value for value, *_ in bests]))
    _, optimum, search.sites = bests[winner]
    best = search.at(optimum)
    logger.info(
        "%s: log evidence %.6f after %d evaluations",
        best.kernel,
        best.approximation.log_evidence,
        len(search.path),
    )
    return Training(best, messages[winner], search.path)


class _Search:
    """The objective of the optimisers: minus log evidence, warm-started along the path."""

    def __init__(self, model: Model, kernel: Kernel, start: Sites | None, loosest: float) -> None:
        self.model = model
        self.kernel = kernel
        self.sites = SitePath(start)
        self.path: list[tuple[Array, float]] = []
        self._loosest = loosest
        self._steepness = np.inf
        self._known: dict[bytes, tuple[float, Array]] = {}

    def restart(self) -> None:
        """Forget the way here: the next evaluation is elsewhere."""
        self.sites = SitePath()
        self._steepness = np.inf

    def at(self, theta: Array, tol: float | None = None) -> Fitted:
        """The fit at theta."""
        fitted = self.model.infer(self.kernel.clone_with_theta(theta), self.sites.predict(theta), tol)
        if fitted.approximation.converged:
            self.sites.add(theta, fitted.approximation.sites)
        return fitted

    def __call__(self, theta: Array, eval_gradient: bool = True) -> Any:
        key = np.asarray(theta, float).tobytes()
        if key in self._known:
            value, slope = self._known[key]
            return (value, slope.copy()) if eval_gradient else value
        try:
            value, slope = self._evaluate(theta, eval_gradient)
            if not (np.isfinite(value) and np.isfinite(slope).all()):
                raise NotPositiveDefiniteError("the evidence or its gradient is not finite.")
        except NotPositiveDefiniteError:
            logger.debug("theta %s: no posterior", theta)
            return (-_HOPELESS, np.zeros_like(theta)) if eval_gradient else -_HOPELESS
        self.path.append((np.array(theta), -value))
        if not eval_gradient:
            return value
        self._steepness = float(np.linalg.norm(slope))
        self._known[key] = value, slope
        return value, slope.copy()

    def _evaluate(self, theta: Array, eval_gradient: bool) -> tuple[float, Array]:
        """Minus the log evidence and its gradient; inference as exact as the slope deserves."""
        loosest = self._loosest if eval_gradient else self.model.tol
        tol = max(self.model.tol, min(loosest, _LOOSE * self._steepness))
        fitted = self.at(theta, tol)
        approximation = fitted.approximation
        logger.debug(
            "theta %s: log evidence %.6f (%d factorisations)",
            theta,
            approximation.log_evidence,
            approximation.n_factorisations,
        )
        if not eval_gradient:
            return -approximation.log_evidence, np.zeros(0)
        value, gradient = fitted.value_and_gradient(max(EXACT, _ADJOINT * min(tol, _LOOSE)))
        return -value, -gradient


def _optimise(
    search: _Search, theta: Array, bounds: Array, optimizer: Optimizer | str
) -> tuple[Array, float, str | None]:
    """Run one optimiser from one start."""
    if callable(optimizer):
        optimum, value = optimizer(search, theta, bounds=bounds)
        return np.asarray(optimum, float), float(value), None
    if optimizer == "bfgs":
        return minimise(search, theta, bounds, gain=_LEAST_GAIN)
    if optimizer == "fmin_l_bfgs_b":
        return _l_bfgs_b(search, theta, bounds)
    # The paper: quasi-Newton with finite differences, no bounds. It calls it a failure (status 2)
    # when rounding ends the line search, which is as far as differences can get.
    result = minimize(
        lambda t: search(t, eval_gradient=False),
        theta,
        method="BFGS",
        jac="3-point",
        options={"finite_diff_rel_step": _DIFFERENCE},
    )
    message = None if result.success or result.status == 2 else str(result.message)
    return np.asarray(result.x, float), float(result.fun), message


def _l_bfgs_b(search: _Search, theta: Array, bounds: Array) -> tuple[Array, float, str | None]:
    """L-BFGS-B on the objective scaled so that its first step has length one at most.

    With bounds on every parameter the routine's own first step is the whole gradient, which in
    log-parameters leads out of all sense.
    """
    value, gradient = search(theta)
    scale = 1.0 / max(1.0, float(np.linalg.norm(gradient)))
    # The routine compares a step's gain with its tolerance times max(1, |scaled value|).
    size = max(1.0, abs(value))
    least_gain = _LEAST_GAIN * scale * size / max(1.0, scale * size)

    def objective(t: Array) -> tuple[float, Array]:
        value, slope = search(t)
        return scale * value, scale * slope

    result = minimize(
        objective,
        theta,
        method="L-BFGS-B",
        jac=True,
        bounds=bounds,
        options={"gtol": 1e-5 * scale, "ftol": least_gain},
    )
    message = None if result.success or result.status == 2 else str(result.message)
    return np.asarray(result.x, float), float(result.fun) / scale, message


#: The optimisers by name.
OPTIMIZERS = ("fmin_l_bfgs_b", "bfgs", "bfgs_finite_differences")
