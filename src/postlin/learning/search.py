"""The evidence as an objective: warm starts along the path, and inference as exact as it pays."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.learning.hyperparameters import Hyperparameters
from postlin.linalg.minimise import Minimum, Optimizer, optimise

logger = logging.getLogger("postlin")

#: What an evidence that cannot be computed counts as.
_HOPELESS = -1e100
#: The tolerance of inference during a search, per unit of slope, and the loosest.
_LOOSE, _LOOSEST = 3e-3, 1e-2
#: The part of both where the likelihood is learned too: its fixed points come and go on the way.
_WARY = 0.1
#: Where the slope is less than this the search is about to end, and inference is exact at once.
_FLAT = 1e-2
#: Up to so many rows a factorisation costs next to nothing, and inference is exact at once.
_FEW = 64
#: The accuracy of the adjoint beside that tolerance.
_ADJOINT = 1e-2
#: A correction of the log evidence to the fixed point that its first order does not tell, per unit of
#: slope up to one; and how much smaller the tolerance is made then.
_DOUBTFUL, _CLOSER = 0.05, 0.03


class Evaluation(NamedTuple):
    """What a callback is told after every evaluation of the evidence."""

    number: int  # counting from one, over all restarts
    theta: Array  # logarithms of the free parameters
    names: list[str]  # and what they are called
    log_evidence: float
    gradient: Array | None  # None where the optimiser asks for none
    seconds: float  # since the fit began


Callback = Callable[[Evaluation], object]


class Search:
    """The objective of the optimisers: minus log evidence, warm-started along the path."""

    def __init__(
        self,
        models: Sequence[Any],  # Model, JointModel or SparseModel
        hyperparameters: Hyperparameters,
        starts: Sequence[Any],  # sites or states from elsewhere, or None
        rough: bool,
        callback: Callback | None,
    ) -> None:
        self.models = models
        self.hyperparameters = hyperparameters
        self.sites = [model.path(start) for model, start in zip(models, starts, strict=True)]
        self.path: list[tuple[Array, float]] = []
        # BFGS can live with values that are exact to second order only; others expect the digits
        dear = max(model.n_rows for model in models) > _FEW
        part = _WARY if hyperparameters.likelihood.free else 1.0
        self._loose = part * _LOOSE
        self._loosest = part * _LOOSEST if rough and dear else models[0].tol
        self._steepness = self._lowest = np.inf
        self._known: dict[bytes, tuple[float, Array]] = {}
        self._doubts: dict[bytes, float] = {}  # how far values may be off, where not exact
        self._last: tuple[bytes, list[Any]] | None = None
        self._callback = callback
        self._began = time.perf_counter()

    def restart(self) -> None:
        """Forget the way here: the next evaluation is elsewhere."""
        self.sites = [model.path(None) for model in self.models]
        self._steepness = self._lowest = np.inf

    def best(self) -> Array:
        """The best point so far."""
        latest = {_key(theta): (theta, value) for theta, value in self.path}
        return max(latest.values(), key=lambda point: point[1])[0]

    def at(self, theta: Array) -> list[Any]:
        """The fits at theta, to the tolerance of the models; the last evaluation may have made them."""
        if self._last is not None and self._last[0] == _key(theta):
            return self._last[1]
        self._last = None
        here = self.hyperparameters.at(theta)
        pairs = zip(self.models, self.sites, strict=True)
        return [model.infer(here, path.predict(theta)) for model, path in pairs]

    def __call__(self, theta: Array, eval_gradient: bool = True) -> Any:
        """Minus the log evidence, with its gradient on request."""
        key = _key(theta)
        if key in self._known:
            value, slope = self._known[key]
            return (value, slope.copy()) if eval_gradient else value
        try:
            value, slope = self._evaluate(theta, eval_gradient, self._tolerance(eval_gradient))
        except NotPositiveDefiniteError:
            logger.debug("theta %s: no posterior", theta)
            return (-_HOPELESS, np.zeros_like(theta)) if eval_gradient else -_HOPELESS
        self._tell(np.array(theta), -value, -slope if eval_gradient else None)
        if not eval_gradient:
            return value
        self._steepness = float(np.linalg.norm(slope))
        self._known[key] = value, slope
        return value, slope.copy()

    def again(self, theta: Array, loss: float) -> tuple[float, Array] | None:
        """The value at a known point, now exactly, if a loss so small elsewhere may be an error of it.

        A value that is too good would be the best for ever: no step from there would seem to succeed.
        """
        key = _key(theta)
        if loss > self._doubts.get(key, 0.0):
            return None
        lowest, self._lowest = self._lowest, np.inf
        try:
            value, slope = self._evaluate(theta, True, self.models[0].tol)
        except NotPositiveDefiniteError:
            self._lowest, self._doubts[key] = lowest, 0.0
            return None
        self._tell(np.array(theta), -value, -slope)
        self._known[key] = value, slope
        return value, slope.copy()

    def _tolerance(self, eval_gradient: bool) -> float:
        """As exact as the slope deserves."""
        exact: float = self.models[0].tol
        if not eval_gradient or self._steepness < _FLAT:
            return exact
        return max(exact, min(self._loosest, self._loose * self._steepness))

    def _evaluate(self, theta: Array, eval_gradient: bool, tol: float) -> tuple[float, Array]:
        """Minus the log evidence and its gradient, inference to a tolerance."""
        self._last = None  # before the next takes as much memory
        here = self.hyperparameters.at(theta)
        exact = self.models[0].tol
        total, slope, doubt = 0.0, np.zeros(len(theta) if eval_gradient else 0), 0.0
        starts: list[Any] = []
        fits: list[Any] = []
        doubtful = _DOUBTFUL * min(1.0, self._steepness)
        for model, path in zip(self.models, self.sites, strict=True):
            found = _solve(model, here, path.predict(theta), tol, doubtful, eval_gradient)
            approximation = found.fitted.approximation
            logger.debug("theta %s: log evidence %.6f (%s)", theta, found.value, approximation.effort)
            total -= found.value
            slope -= found.gradient
            doubt += abs(found.value - approximation.log_evidence)
            starts.append(approximation.start if approximation.converged else None)
            if approximation.is_clean and approximation.residual <= exact:
                fits.append(found.fitted)  # which are the result if the search ends here
            del found, approximation  # before the next takes as much memory
        if not (np.isfinite(total) and np.isfinite(slope).all()):
            raise NotPositiveDefiniteError("the evidence or its gradient is not finite.")
        self._remember(theta, total, starts)
        if len(fits) == len(self.models):
            self._last = _key(theta), fits
        self._doubts[_key(theta)] = doubt if tol > exact else 0.0
        return total, slope

    def _remember(self, theta: Array, value: float, solved: list[Any]) -> None:
        """Keep what was found for later starts, unless it is worse than what was known before.

        Fixed points need not be unique (noisy threshold): so the search stays with the better one.
        """
        if value > self._lowest:
            return
        self._lowest = value
        for path, start in zip(self.sites, solved, strict=True):
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


class _Found(NamedTuple):
    """The log evidence, its gradient (or none), and the fit they are of."""

    value: float
    gradient: Array
    fitted: Any


def _solve(
    model: Any, here: Hyperparameters, start: Any, tol: float, doubtful: float, eval_gradient: bool
) -> _Found:
    """Inference to a tolerance, and closer where need be.

    Where fixed points come and go, a small residual does not prove that there is one: where the
    correction to it is ``doubtful`` or more, inference is made more exact.
    """
    while True:
        fitted = model.infer(here, start, tol)
        approximation = fitted.approximation
        if model.is_lost(approximation):
            raise NotPositiveDefiniteError("inference did not converge.")
        if not eval_gradient:
            return _Found(approximation.log_evidence, np.zeros(0), fitted)
        accuracy = max(model.adjoint_accuracy, _ADJOINT * min(tol, _LOOSE))
        value, gradient = fitted.value_and_gradient(accuracy)
        if tol <= model.tol or abs(value - approximation.log_evidence) < doubtful:
            return _Found(value, gradient, fitted)
        start = approximation.start if approximation.converged else None
        tol = max(model.tol, _CLOSER * tol)
        del fitted, approximation  # before the next takes as much memory


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


class Training(NamedTuple):
    """The best fits found, what is to be said of the search, and where it looked.

    ``path`` holds the log-parameters and the log evidence of every evaluation, in order.
    """

    best: list[Any]
    message: str | None
    path: list[tuple[Array, float]]
    interrupted: bool = False


def train(
    models: Sequence[Any],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    rng: np.random.RandomState,
    starts: Sequence[Any],
    callback: Callback | None = None,
    keep_on_interrupt: bool = False,
    curvature: Array | None = None,
) -> Training:
    """Maximise the evidence from the hyperparameters given, and from random ones.

    ``curvature`` is what is known of that of minus the log evidence at the former.

    An interrupt from the keyboard ends the search at the best point so far where that is asked for.
    """
    search = Search(models, at, starts, optimizer == "bfgs", callback)
    if optimizer is None or len(at.theta) == 0:
        return Training(search.at(at.theta), None, [])
    try:
        found = _best_of_all(search, at, optimizer, restarts, rng, curvature)
        interrupted = False
    except KeyboardInterrupt:
        if not keep_on_interrupt or not search.path:
            raise
        found, interrupted = Minimum(search.best(), np.nan, None), True
    best = search.at(found.x)
    logger.info(
        "%s: log evidence %.6f after %d evaluations",
        best[0].at.kernel,
        sum(fitted.approximation.log_evidence for fitted in best),
        len(search.path),
    )
    return Training(best, found.message, search.path, interrupted)


def _best_of_all(
    search: Search,
    at: Hyperparameters,
    optimizer: Optimizer | str,
    restarts: int,
    rng: np.random.RandomState,
    curvature: Array | None,
) -> Minimum:
    """The best optimum over all starts."""
    starts = at.starts
    starts += [at.drawn(rng) for _ in range(restarts)]
    ends = []
    for k, theta in enumerate(starts):
        if k > 0:
            search.restart()
            curvature = None  # that is of the first start
        worth = search.models[0].worth
        end = optimise(search, theta, at.bounds, optimizer, worth, curvature, search.again)
        ends.append((end, search.sites))
    best, search.sites = min(ends, key=lambda end: end[0].value)
    return best
