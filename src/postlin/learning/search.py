"""The evidence as the objective of a search over the free log-parameters.

``Search`` is the evidence as an objective, times a hyperprior if there is one. Inference starts from
earlier results of the search, and its tolerance follows the slope, since far from the optimum few
digits matter. If several models share their hyperparameters, the sum of their log evidences is
maximised.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.result import Approximation
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import Hyperprior
from postlin.learning.models import Model, Start
from postlin.learning.progress import Sought

logger = logging.getLogger("postlin")

#: The log evidence that an optimiser gets where there is none.
_HOPELESS = -1e100
#: The tolerance of inference during a search, per unit of slope, and the loosest.
_LOOSE, LOOSEST = 3e-3, 1e-2
#: The factor of both if the likelihood is learned too, since its fixed points appear and disappear.
_WARY = 0.1
#: If the slope is less than this the search is about to end, and inference is exact at once.
_FLAT = 1e-2
#: Up to this many rows a factorisation costs next to nothing, and inference is exact at once.
_FEW = 64
#: The accuracy of the adjoint, relative to the tolerance of inference.
_ADJOINT = 1e-2
#: The correction of the log evidence to the fixed point, per unit of slope up to one, from which on its
#: first order is not trusted; and the factor of the tolerance then.
_DOUBTFUL, _CLOSER = 0.05, 0.03


class Evaluation(NamedTuple):
    """What a callback receives after every evaluation of the evidence."""

    number: int  # counting from one, over all restarts
    theta: Array  # logarithms of the free parameters
    names: list[str]  # the names of these parameters
    log_evidence: float
    gradient: Array | None  # of the log evidence; None if the optimiser asks for none
    seconds: float  # since the search began


Callback = Callable[[Evaluation], object]


class Search(Generic[Start]):
    """The objective of the optimisers: minus the log evidence and the log density of the hyperprior.

    Inference starts from what it found along the path.
    """

    def __init__(
        self,
        models: Sequence[Model[Start]],
        hyperparameters: Hyperparameters,
        starts: Sequence[Start | None],
        rough: bool,
        callback: Callback | None = None,
        hyperprior: Hyperprior | None = None,
    ) -> None:
        self.models = models
        self.hyperparameters = hyperparameters
        self.hyperprior = hyperprior
        self.paths = [model.path(start) for model, start in zip(models, starts, strict=True)]
        self.path: list[tuple[Array, float]] = []
        # values that are exact to second order only are enough for BFGS; others expect all digits
        rough = rough and max(model.n_rows for model in models) > _FEW
        part = _WARY if hyperparameters.likelihood.free else 1.0
        self._exact, self._loose = models[0].tol, part * _LOOSE
        self._leaps = models[0].worth.leap > 0.0  # the last evaluation, without a gradient, is exact
        self._loosest = part * LOOSEST if rough else self._exact
        self._steepness = self._lowest = np.inf
        self._known: dict[bytes, tuple[float, Array]] = {}
        #: Every point with the latest value and log evidence there.
        self._values: dict[bytes, tuple[Array, float, float]] = {}
        self._doubts: dict[bytes, float] = {}  # the possible error of each value that is not exact
        self._last: tuple[bytes, list[Approximation[Start]]] | None = None
        self._callback = callback
        #: What is told of the evaluations, if somebody watches.
        self.sought: Sought | None = None
        self._began = time.perf_counter()

    def restart(self) -> None:
        """Forget the path, because the next evaluation is far away."""
        self.paths = [model.path(None) for model in self.models]
        self._steepness = self._lowest = np.inf

    def release(self) -> None:
        """Free the matrices that are kept for the next evaluation."""
        self._last = None
        for model in self.models:
            model.forget()

    def best(self) -> Array:
        """The point with the lowest value so far."""
        return min(self._values.values(), key=lambda point: point[1])[0]

    def log_evidence(self, theta: Array) -> float:
        """The log evidence at a point that was evaluated; minus infinity if it had none."""
        known = self._values.get(_key(theta))
        return -np.inf if known is None else known[2]

    def at(self, theta: Array) -> list[Approximation[Start]]:
        """The approximations at theta, to the tolerance of the models.

        They are not computed again if the last evaluation was at theta and to that tolerance.
        """
        if self._last is not None and self._last[0] == _key(theta):
            return self._last[1]
        self._last = None
        here = self.hyperparameters.at(theta)
        pairs = zip(self.models, self.paths, strict=True)
        return [model.infer(here, path.predict(theta)) for model, path in pairs]

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """The objective and its gradient."""
        key = _key(theta)
        if key not in self._known and self._last is not None and self._last[0] == key:
            self._known[key] = self._differentiated(theta, self._last[1])
        if key not in self._known:
            tol = max(self._exact, min(self._loosest, self._loose * self._steepness))
            soon = self._steepness < _FLAT and not self._leaps
            found = self._evaluate(theta, self._exact if soon else tol)
            if found is None:
                return -_HOPELESS, np.zeros_like(theta)
            self._known[key] = found
            self._steepness = float(np.linalg.norm(found[1]))
        value, slope = self._known[key]
        return value, slope.copy()

    def _differentiated(self, theta: Array, fits: list[Approximation[Start]]) -> tuple[float, Array]:
        """The objective and its gradient where inference has ended; matrices serve the gradient."""
        self._last = None
        total, uphill = self._log_density(theta)
        for model, fit in zip(self.models, fits, strict=True):
            value, gradient = fit.value_and_gradient(_adjoint_accuracy(model, self._exact))
            total, uphill = total + value, uphill + gradient
        return -total, -uphill

    def value(self, theta: Array) -> float:
        """The objective alone, exactly."""
        known = self._known.get(_key(theta))
        found = known or self._evaluate(theta, self._exact, with_gradient=False)
        return -_HOPELESS if found is None else found[0]

    def again(self, theta: Array, loss: float) -> tuple[float, Array] | None:
        """The exact value and slope at a known point, if an error of its value can explain the loss.

        A value that is too good would remain the best: no step from there would seem to succeed.
        """
        key = _key(theta)
        if loss > self._doubts.get(key, 0.0):
            return None
        lowest, self._lowest = self._lowest, np.inf
        found = self._evaluate(theta, self._exact)
        if found is None:
            self._lowest, self._doubts[key] = lowest, 0.0
            return None
        self._known[key] = value, slope = found
        return value, slope.copy()

    def _evaluate(
        self, theta: Array, tol: float, *, with_gradient: bool = True
    ) -> tuple[float, Array] | None:
        """The objective and its gradient, by inference to the tolerance ``tol``.

        None means that there is no posterior at theta, or no finite evidence.
        """
        self._last = None  # before the next takes as much memory
        here = self.hyperparameters.at(theta)
        total, slope, doubt = 0.0, np.zeros(len(theta) if with_gradient else 0), 0.0
        starts: list[Start | None] = []
        fits: list[Approximation[Start]] = []
        for model, path in zip(self.models, self.paths, strict=True):
            try:
                found, value, gradient = self._solve(
                    model, here, path.predict(theta), tol, with_gradient
                )
            except NotPositiveDefiniteError:
                logger.debug("theta %s: no posterior", theta)
                return None
            logger.debug("theta %s: log evidence %.6f (%s)", theta, value, found.effort)
            total -= value
            slope -= gradient
            doubt += abs(value - found.log_evidence)
            starts.append(found.start if found.converged else None)
            if found.is_clean and found.residual <= self._exact:
                fits.append(found)  # the result, if the search ends here
            del found  # before the next takes as much memory
        log_density, by_density = self._log_density(theta)
        value, uphill = total - log_density, slope - by_density[: len(slope)]
        if not (np.isfinite(value) and np.isfinite(uphill).all()):
            logger.debug("theta %s: the evidence or its gradient is not finite", theta)
            return None
        self._remember(theta, value, starts)
        if len(fits) == len(self.models):
            self._last = _key(theta), fits
        self._doubts[_key(theta)] = doubt if tol > self._exact else 0.0
        self._values[_key(theta)] = np.array(theta), value, -total
        self.path.append((np.array(theta), -total))
        if self._callback is not None:
            number, names = len(self.path), self.hyperparameters.names
            by_theta = -slope if with_gradient else None
            seconds = time.perf_counter() - self._began
            self._callback(Evaluation(number, self.path[-1][0], names, -total, by_theta, seconds))
        if self.sought is not None:
            self.sought.evaluated(-total)
        return value, uphill

    def _log_density(self, theta: Array) -> tuple[float, Array]:
        """The log density of the hyperprior at theta and its gradient; it is flat for points."""
        gradient, n = np.zeros(len(theta)), self.hyperparameters.n_logarithms
        if self.hyperprior is None:
            return 0.0, gradient
        found = self.hyperprior(np.array(theta[:n]))
        try:
            value, slope = found
            gradient[:n] = np.asarray(slope, float).reshape(n)
            number = float(value)
        except (TypeError, ValueError):
            number = np.nan
        if not (number < np.inf and np.isfinite(gradient).all()):  # minus infinity is out of support
            raise ValueError(
                f"hyperprior must return a number and a gradient of {n} numbers, one for each of "
                f"{', '.join(self.hyperparameters.names[:n])}; it returned {found!r} at {theta[:n]}."
            )
        return number, gradient

    def _solve(
        self,
        model: Model[Start],
        here: Hyperparameters,
        start: Start | None,
        tol: float,
        with_gradient: bool,
    ) -> tuple[Approximation[Start], float, Array]:
        """The approximation to the tolerance or closer, the log evidence and its gradient.

        A small residual does not prove that there is a fixed point nearby: if the correction of the
        evidence to the fixed point is large, inference is repeated with a smaller tolerance.
        """
        doubtful = _DOUBTFUL * min(1.0, self._steepness)
        while True:
            found = model.infer(here, start, tol)
            if found.is_unusable:
                raise NotPositiveDefiniteError("inference did not converge.")
            if not with_gradient:
                return found, found.log_evidence, np.zeros(0)
            value, gradient = found.value_and_gradient(_adjoint_accuracy(model, tol))
            if tol <= model.tol or abs(value - found.log_evidence) < doubtful:
                return found, value, gradient
            start = found.start if found.converged else None
            tol = max(model.tol, _CLOSER * tol)
            del found  # before the next takes as much memory

    def _remember(self, theta: Array, value: float, solved: list[Start | None]) -> None:
        """Keep what was found for later starts, unless its evidence is worse than the best so far.

        Fixed points need not be unique (noisy threshold); this way the search stays with the better.
        """
        if value > self._lowest:
            return
        self._lowest = value
        for path, start in zip(self.paths, solved, strict=True):
            if start is not None:
                path.add(theta, start)


def _adjoint_accuracy(model: Model[Start], tol: float) -> float:
    return max(model.adjoint_accuracy, _ADJOINT * min(tol, _LOOSE))


def _key(theta: Array) -> bytes:
    return np.asarray(theta, float).tobytes()
