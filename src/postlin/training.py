"""Learning hyperparameters: maximise the evidence over the kernel's free log-parameters."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin._validation import check_covariance
from postlin.exceptions import NotPositiveDefiniteError
from postlin.fixed_point import solve
from postlin.inference import Approximation
from postlin.kernels import Gram, Term, WhiteSplit, bind, full_gram, split_white
from postlin.likelihoods import BinaryLikelihood, WithNoise
from postlin.problem import Problem
from postlin.rules import Rule
from postlin.schedules import Schedule
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
#: The tolerance of inference during a search, and per unit of slope.
_LOOSE = 1e-4
#: A step that gains less than this, relatively, is the last.
_LEAST_GAIN = 2.2e-9
#: Steps of finite differences, wide enough for an evidence that is iterated to a tolerance.
_DIFFERENCE = 1e-4


@dataclass
class Model:
    """Data, likelihood and rule; everything about a fit but the hyperparameters."""

    X: Any
    y: Array
    likelihood: BinaryLikelihood
    rule: Rule
    schedule: Schedule
    tol: float
    max_iter: int
    fold_noise: bool = False
    _term: Term | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Distances are made again where they are needed again."""
        return {**self.__dict__, "_term": None}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` where the kernel makes no covariance of the data."""
        latent = split_white(kernel).smooth if self.fold_noise else kernel
        try:
            self._term = bind(latent, self.X)
            K = full_gram(self._term.gram(latent), len(self.y)).K
        except (TypeError, ValueError) as error:
            raise ValueError(f"the kernel {kernel} cannot be evaluated on X: {error}") from error
        try:
            check_covariance(K)
        except ValueError as error:
            raise ValueError(f"the kernel {kernel} makes no covariance of X: {error}") from None

    def infer(self, kernel: Kernel, start: Sites | None = None, tol: float | None = None) -> "Fitted":
        """The approximation at the parameters of ``kernel``."""
        split = split_white(kernel) if self.fold_noise else None
        latent_kernel = split.smooth if split else kernel
        if self._term is None:
            self._term = bind(latent_kernel, self.X)
        gram = full_gram(self._term.gram(latent_kernel), len(self.y))
        likelihood = WithNoise(self.likelihood, split.noise) if split else self.likelihood
        problem = Problem(gram.K, np.zeros_like(self.y), self.y, likelihood, self.rule)
        solution = solve(
            problem, self.schedule, start=start, tol=tol or self.tol, max_iter=self.max_iter
        )
        return Fitted(kernel, latent_kernel, gram, split, likelihood, Approximation(problem, solution))


class Fitted(NamedTuple):
    """An approximation with the kernel it belongs to."""

    kernel: Kernel
    latent_kernel: Kernel
    gram: Gram
    split: WhiteSplit | None
    likelihood: BinaryLikelihood
    approximation: Approximation

    def gradient(self) -> Array:
        """∂ log evidence by the kernel's free log-parameters, in scikit-learn's order."""
        by_kernel = self.gram.pull_back(self.approximation.evidence_gradient())
        if self.split is None:
            return np.array(by_kernel)
        by_noise = self.approximation.evidence_gradient_by_noise()
        levels = iter(np.exp(self.kernel.theta[list(self.split.is_white)]))
        rest = iter(by_kernel)
        return np.array(
            [by_noise * next(levels) if white else next(rest) for white in self.split.is_white]
        )


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
    search = _Search(model, kernel, start)
    starts = [kernel.theta]
    starts += [rng.uniform(kernel.bounds[:, 0], kernel.bounds[:, 1]) for _ in range(restarts)]
    messages: dict[int, str | None] = {}
    bests = []
    for k, theta in enumerate(starts):
        if k > 0:
            search.restart()
        optimum, value, messages[k] = _optimise(search, theta, kernel.bounds, optimizer)
        bests.append((value, optimum))
    winner = int(np.argmin([value for value, _ in bests]))
    best = search.at(bests[winner][1])
    logger.info(
        "%s: log evidence %.6f after %d evaluations",
        best.kernel,
        best.approximation.log_evidence,
        len(search.path),
    )
    return Training(best, messages[winner], search.path)


class _Search:
    """The objective of the optimisers: minus log evidence, warm-started along the path."""

    def __init__(self, model: Model, kernel: Kernel, start: Sites | None) -> None:
        self.model = model
        self.kernel = kernel
        self.sites = SitePath(start)
        self.path: list[tuple[Array, float]] = []
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
        tol = max(self.model.tol, min(_LOOSE, _LOOSE * self._steepness)) if eval_gradient else None
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
        return -approximation.corrected_log_evidence, -fitted.gradient()


def _optimise(
    search: _Search, theta: Array, bounds: Array, optimizer: Optimizer | str
) -> tuple[Array, float, str | None]:
    """Run one optimiser from one start."""
    if callable(optimizer):
        optimum, value = optimizer(search, theta, bounds=bounds)
        return np.asarray(optimum, float), float(value), None
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
OPTIMIZERS = ("fmin_l_bfgs_b", "bfgs_finite_differences")
