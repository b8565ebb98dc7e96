"""Learning hyperparameters: maximise the evidence over the free log-parameters.

Several models may share their hyperparameters: then the sum of their log evidences is maximised.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.gradient import EXACT
from postlin.hyperparameters import Hyperparameters
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
#: Up to so many rows a factorisation costs next to nothing, and inference is exact at once.
_FEW = 64
#: The accuracy of the adjoint beside that tolerance.
_ADJOINT = 1e-3
#: A step that gains less than this, relatively, is the last.
_LEAST_GAIN = 4e-9
#: Steps of finite differences, wide enough for an evidence that is iterated to a tolerance.
_DIFFERENCE = 1e-4


class Evaluation(NamedTuple):
    """What a callback is told after every evaluation of the evidence."""

    number: int  # counting from one, over all restarts
    theta: Array  # logarithms of the free parameters
    names: list[str]  # and what they are called
    log_evidence: float
    gradient: Array | None  # None where the optimiser asks for none
    seconds: float  # since the fit began


Callback = Callable[[Evaluation], object]


class Training(NamedTuple):
    """The best fits found, what is to be said of the search, and where it looked.

    ``path`` holds the log-parameters and the log evidence of every evaluation, in order.
    """

    best: list[Fitted]
    message: str | None
    path: list[tuple[Array, float]]
    interrupted: bool = False


def train(
    models: Sequence[Model],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    rng: np.random.RandomState,
    starts: Sequence[Sites | None],
    callback: Callback | None = None,
    keep_on_interrupt: bool = False,
) -> Training:
    """Maximise the evidence from the hyperparameters given, and from random ones.

    An interrupt from the keyboard ends the search at the best point so far where that is asked for.
    """
    search = _Search(models, at, starts, optimizer == "bfgs", callback)
    if optimizer is None or len(at.theta) == 0:
        return Training(search.at(at.theta), None, [])
    try:
        optimum, message = _best_of_all(search, at, optimizer, restarts, rng)
        interrupted = False
    except KeyboardInterrupt:
        if not keep_on_interrupt or not search.path:
            raise
        optimum, message, interrupted = search.best(), None, True
    best = search.at(optimum)
    logger.info(
        "%s: log evidence %.6f after %d evaluations",
        best[0].at.kernel,
        sum(fitted.approximation.log_evidence for fitted in best),
        len(search.path),
    )
    return Training(best, message, search.path, interrupted)


def _best_of_all(
    search: "_Search",
    at: Hyperparameters,
    optimizer: Optimizer | str,
    restarts: int,
    rng: np.random.RandomState,
) -> tuple[Array, str | None]:
    """The best optimum over all starts, and what its optimiser complained of."""
    bounds = at.bounds
    starts = [at.theta]
    starts += [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(restarts)]
    ends = []
    for k, theta in enumerate(starts):
        if k > 0:
            search.restart()
        ends.append((*_optimise(search, theta, bounds, optimizer), search.sites))
    optimum, _, message, search.sites = min(ends, key=lambda end: end[1])
    return optimum, message


class _Search:
    """The objective of the optimisers: minus log evidence, warm-started along the path."""

    def __init__(
        self,
        models: Sequence[Model],
        hyperparameters: Hyperparameters,
        starts: Sequence[Sites | None],
        rough: bool,
        callback: Callback | None,
    ) -> None:
        self.models = models
        self.hyperparameters = hyperparameters
        self.sites = [SitePath(start) for start in starts]
        self.path: list[tuple[Array, float]] = []
        # BFGS can live with values that are exact to second order only; others expect the digits
        dear = max(len(model.y) for model in models) > _FEW
        self._loosest = _LOOSEST if rough and dear else models[0].tol
        self._steepness = np.inf
        self._known: dict[bytes, tuple[float, Array]] = {}
        self._callback = callback
        self._began = time.perf_counter()

    def restart(self) -> None:
        """Forget the way here: the next evaluation is elsewhere."""
        self.sites = [SitePath() for _ in self.models]
        self._steepness = np.inf

    def best(self) -> Array:
        """The best point so far."""
        return max(self.path, key=lambda point: point[1])[0]

    def at(self, theta: Array, tol: float | None = None) -> list[Fitted]:
        """The fits at theta."""
        return list(self._fits(theta, tol))

    def _fits(self, theta: Array, tol: float | None) -> Iterator[Fitted]:
        """One at a time, so that no more than one need be held."""
        here = self.hyperparameters.at(theta)
        for model, path in zip(self.models, self.sites, strict=True):
            fitted = model.infer(here, path.predict(theta), tol)
            if fitted.approximation.converged:
                path.add(theta, fitted.approximation.sites)
            yield fitted

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
        self._tell(np.array(theta), -value, -slope if eval_gradient else None)
        if not eval_gradient:
            return value
        self._steepness = float(np.linalg.norm(slope))
        self._known[key] = value, slope
        return value, slope.copy()

    def _evaluate(self, theta: Array, eval_gradient: bool) -> tuple[float, Array]:
        """Minus the log evidence and its gradient; inference as exact as the slope deserves."""
        tol = self.models[0].tol
        if eval_gradient:
            tol = max(tol, min(self._loosest, _LOOSE * self._steepness))
        total, slope = 0.0, np.zeros(len(theta) if eval_gradient else 0)
        for fitted in self._fits(theta, tol):
            approximation = fitted.approximation
            logger.debug(
                "theta %s: log evidence %.6f (%d factorisations)",
                theta,
                approximation.log_evidence,
                approximation.n_factorisations,
            )
            if eval_gradient:
                accuracy = max(EXACT, _ADJOINT * min(tol, _LOOSE))
                value, gradient = fitted.value_and_gradient(accuracy)
                slope -= gradient
            else:
                value = approximation.log_evidence
            total -= value
        return total, slope

    def _tell(self, theta: Array, log_evidence: float, gradient: Array | None) -> None:
        self.path.append((theta, log_evidence))
        if self._callback is not None:
            seconds = time.perf_counter() - self._began
            names = self.hyperparameters.names
            self._callback(Evaluation(len(self.path), theta, names, log_evidence, gradient, seconds))


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
