"""Learning hyperparameters: maximise the evidence over the free log-parameters.

``Search`` is the evidence as an objective, with warm starts along the path and inference as exact as it
pays. Several models may share their hyperparameters: then the sum of their log evidences is maximised.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.result import Approximation
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import Model, Start
from postlin.linalg.minimise import Minimum, Optimizer, minimise, optimise

logger = logging.getLogger("postlin")

#: The log evidence that stands for one that cannot be computed.
_HOPELESS = -1e100
#: The tolerance of inference during a search, per unit of slope, and the loosest.
_LOOSE, _LOOSEST = 3e-3, 1e-2
#: The part of both where the likelihood is learned too: its fixed points come and go on the way.
_WARY = 0.1
#: Where the slope is less than this the search is about to end, and inference is exact at once.
_FLAT = 1e-2
#: Up to this many rows a factorisation costs next to nothing, and inference is exact at once.
_FEW = 64
#: The accuracy of the adjoint beside that tolerance.
_ADJOINT = 1e-2
#: A correction of the log evidence to the fixed point that its first order cannot be trusted with, per
#: unit of slope up to one; and how much smaller the tolerance is made then.
_DOUBTFUL, _CLOSER = 0.05, 0.03


class Evaluation(NamedTuple):
    """What a callback is told after every evaluation of the evidence."""

    number: int  # counting from one, over all restarts
    theta: Array  # logarithms of the free parameters
    names: list[str]  # the names of these parameters
    log_evidence: float
    gradient: Array | None  # None where the optimiser asks for none
    seconds: float  # since the fit began


Callback = Callable[[Evaluation], object]


class Search(Generic[Start]):
    """The objective of the optimisers: minus log evidence, warm-started along the path."""

    def __init__(
        self,
        models: Sequence[Model[Start]],
        hyperparameters: Hyperparameters,
        starts: Sequence[Start | None],
        rough: bool,
        callback: Callback | None = None,
    ) -> None:
        self.models = models
        self.hyperparameters = hyperparameters
        self.paths = [model.path(start) for model, start in zip(models, starts, strict=True)]
        self.path: list[tuple[Array, float]] = []
        # BFGS can live with values that are exact to second order only; others expect the digits
        dear = max(model.n_rows for model in models) > _FEW
        part = _WARY if hyperparameters.likelihood.free else 1.0
        self._exact = models[0].tol
        self._loose = part * _LOOSE
        self._loosest = part * _LOOSEST if rough and dear else self._exact
        self._steepness = self._lowest = np.inf
        self._known: dict[bytes, tuple[float, Array]] = {}
        self._doubts: dict[bytes, float] = {}  # how far values may be off, where not exact
        self._last: tuple[bytes, list[Approximation[Start]]] | None = None
        self._callback = callback
        self._began = time.perf_counter()

    def restart(self) -> None:
        """Forget the way here: the next evaluation is elsewhere."""
        self.paths = [model.path(None) for model in self.models]
        self._steepness = self._lowest = np.inf

    def best(self) -> Array:
        """The best point so far."""
        latest = {_key(theta): (theta, value) for theta, value in self.path}
        return max(latest.values(), key=lambda point: point[1])[0]

    def at(self, theta: Array) -> list[Approximation[Start]]:
        """The approximations at theta, to the tolerance of the models.

        Where the last evaluation was made at theta to that tolerance, they are known already.
        """
        if self._last is not None and self._last[0] == _key(theta):
            return self._last[1]
        self._last = None
        here = self.hyperparameters.at(theta)
        pairs = zip(self.models, self.paths, strict=True)
        return [model.infer(here, path.predict(theta)) for model, path in pairs]

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Minus the log evidence, and its gradient."""
        key = _key(theta)
        if key not in self._known:
            exact = self._steepness < _FLAT
            tol = max(self._exact, min(self._loosest, self._loose * self._steepness))
            try:
                value, slope = self._evaluate(theta, self._exact if exact else tol)
            except NotPositiveDefiniteError:
                logger.debug("theta %s: no posterior", theta)
                return -_HOPELESS, np.zeros_like(theta)
            self._steepness = float(np.linalg.norm(slope))
            self._known[key] = value, slope
        value, slope = self._known[key]
        return value, slope.copy()

    def value(self, theta: Array) -> float:
        """Minus the log evidence alone, exactly."""
        key = _key(theta)
        if key in self._known:
            return self._known[key][0]
        try:
            return self._evaluate(theta, self._exact, with_gradient=False)[0]
        except NotPositiveDefiniteError:
            logger.debug("theta %s: no posterior", theta)
            return -_HOPELESS

    def again(self, theta: Array, loss: float) -> tuple[float, Array] | None:
        """The exact value and slope at a known point, if a loss so small may be an error of its value.

        A value that is too good would be the best for ever: no step from there would seem to succeed.
        """
        key = _key(theta)
        if loss > self._doubts.get(key, 0.0):
            return None
        lowest, self._lowest = self._lowest, np.inf
        try:
            value, slope = self._evaluate(theta, self._exact)
        except NotPositiveDefiniteError:
            self._lowest, self._doubts[key] = lowest, 0.0
            return None
        self._known[key] = value, slope
        return value, slope.copy()

    def _evaluate(self, theta: Array, tol: float, *, with_gradient: bool = True) -> tuple[float, Array]:
        """Minus the log evidence and its gradient, by inference to a tolerance."""
        self._last = None  # before the next takes as much memory
        here = self.hyperparameters.at(theta)
        total, slope, doubt = 0.0, np.zeros(len(theta) if with_gradient else 0), 0.0
        starts: list[Start | None] = []
        fits: list[Approximation[Start]] = []
        for model, path in zip(self.models, self.paths, strict=True):
            found, value, gradient = self._solve(model, here, path.predict(theta), tol, with_gradient)
            logger.debug("theta %s: log evidence %.6f (%s)", theta, value, found.effort)
            total -= value
            slope -= gradient
            doubt += abs(value - found.log_evidence)
            starts.append(found.start if found.converged else None)
            if found.is_clean and found.residual <= self._exact:
                fits.append(found)  # which are the result if the search ends here
            del found  # before the next takes as much memory
        if not (np.isfinite(total) and np.isfinite(slope).all()):
            raise NotPositiveDefiniteError("the evidence or its gradient is not finite.")
        self._remember(theta, total, starts)
        if len(fits) == len(self.models):
            self._last = _key(theta), fits
        self._doubts[_key(theta)] = doubt if tol > self._exact else 0.0
        self._tell(np.array(theta), -total, -slope if with_gradient else None)
        return total, slope

    def _solve(
        self,
        model: Model[Start],
        here: Hyperparameters,
        start: Start | None,
        tol: float,
        with_gradient: bool,
    ) -> tuple[Approximation[Start], float, Array]:
        """Inference to a tolerance, and closer where need be; the log evidence and its gradient.

        Where fixed points come and go, a small residual does not prove that there is one: where the
        correction to the fixed point is doubtful, inference is made more exact.
        """
        doubtful = _DOUBTFUL * min(1.0, self._steepness)
        while True:
            found = model.infer(here, start, tol)
            if found.is_unusable:
                raise NotPositiveDefiniteError("inference did not converge.")
            if not with_gradient:
                return found, found.log_evidence, np.zeros(0)
            accuracy = max(model.adjoint_accuracy, _ADJOINT * min(tol, _LOOSE))
            value, gradient = found.value_and_gradient(accuracy)
            if tol <= model.tol or abs(value - found.log_evidence) < doubtful:
                return found, value, gradient
            start = found.start if found.converged else None
            tol = max(model.tol, _CLOSER * tol)
            del found  # before the next takes as much memory

    def _remember(self, theta: Array, value: float, solved: list[Start | None]) -> None:
        """Keep what was found for later starts, unless it is worse than what was known before.

        Fixed points need not be unique (noisy threshold): so the search stays with the better one.
        """
        if value > self._lowest:
            return
        self._lowest = value
        for path, start in zip(self.paths, solved, strict=True):
            if start is not None:
                path.add(theta, start)

    def _tell(self, theta: Array, log_evidence: float, gradient: Array | None) -> None:
        self.path.append((theta, log_evidence))
        if self._callback is not None:
            seconds = time.perf_counter() - self._began
            names = self.hyperparameters.names
            self._callback(Evaluation(len(self.path), theta, names, log_evidence, gradient, seconds))


def _key(theta: Array) -> bytes:
    return np.asarray(theta, float).tobytes()


class Training(NamedTuple, Generic[Start]):
    """The best hyperparameters found, the approximations there, and how the search went.

    ``path`` holds the log-parameters and the log evidence of every evaluation, in order; ``message`` is
    the optimiser's complaint, if it has one.
    """

    at: Hyperparameters
    best: list[Approximation[Start]]
    message: str | None
    path: list[tuple[Array, float]]
    interrupted: bool = False


def train(
    models: Sequence[Model[Start]],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    rng: np.random.RandomState,
    starts: Sequence[Start | None],
    callback: Callback | None = None,
    keep_on_interrupt: bool = False,
    curvature: Array | None = None,
) -> Training[Start]:
    """Maximise the evidence from the hyperparameters given, and from random ones.

    ``curvature`` is that of minus the log evidence at the former, where it is known. With
    ``keep_on_interrupt`` Ctrl-C ends the search at the best point so far.
    """
    search = Search(models, at, starts, optimizer == "bfgs", callback)
    if optimizer is None or len(at.theta) == 0:
        return Training(at.at(at.theta), search.at(at.theta), None, [])
    ends: list[Minimum] = []
    paths = []
    interrupted = False
    try:
        for k, theta in enumerate([*at.starts, *(at.drawn(rng) for _ in range(restarts))]):
            if k > 0:
                search.restart()
            bounds, worth = at.bounds, models[0].worth
            if optimizer == "bfgs":
                known = curvature if k == 0 else None  # it is that of the first start
                end = minimise(search, theta, bounds, worth, curvature=known, again=search.again)
            else:
                end = optimise(search, theta, bounds, optimizer, worth)
            ends.append(end)
            paths.append(search.paths)
        best = min(range(len(ends)), key=lambda k: ends[k].value)
        found, search.paths = ends[best], paths[best]
    except KeyboardInterrupt:
        if not keep_on_interrupt or not search.path:
            raise
        found, interrupted = Minimum(search.best(), np.nan, None), True
    fits = search.at(found.x)
    there = at.at(found.x)
    value = sum(fit.log_evidence for fit in fits)
    logger.info("%s: log evidence %.6f after %d evaluations", there.kernel, value, len(search.path))
    return Training(there, fits, found.message, search.path, interrupted)


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
