"""Verification of a fit: runs of Monte Carlo for each binary problem, within a time limit."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.utils import check_random_state

from postlin._typing import Array
from postlin._validation import MATRICES, available_memory, check_memory, check_order, is_real
from postlin.estimator.fits import ExactFit
from postlin.estimator.strategies import Strategy
from postlin.estimator.verification import Verification, VerifiedProblem, spread
from postlin.inference.exact.bridge import Bridge
from postlin.inference.exact.tempering import Run, tempered
from postlin.kernels import can_split, split_white
from postlin.learning.progress import shown_log
from postlin.linalg.arrays import on_host
from postlin.linalg.threads import blas_threads, threads
from postlin.rules.binary import Rule

if TYPE_CHECKING:
    from postlin.estimator.findings import Findings
import logging
from time import perf_counter

logger = logging.getLogger("postlin")

#: Seconds between two lines of progress within a run.
_EVERY = 10.0


class Watch:
    """Tells when the time is up, and logs how far the runs of the problems are."""

    def __init__(self, time_limit: float | None, n_runs: int, names: list[str]) -> None:
        self._began = self._run_began = self._told = perf_counter()
        self._limit = float("inf") if time_limit is None else time_limit
        self._n_runs, self._names = n_runs, names
        self._done, self._title = 0, ""
        #: Why not all runs were made: "time_limit" or "interrupt"; "" if they were.
        self.stopped_by = ""

    @property
    def seconds(self) -> float:
        """The seconds since the beginning."""
        return perf_counter() - self._began

    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.seconds > self._limit

    def begin(self, problem: int, run: int) -> None:
        """A run of a problem begins; the problems take their runs in turns."""
        self._run_began = perf_counter()
        self._title = f"run {run + 1} of {self._n_runs}"
        if len(self._names) > 1:
            self._title += f", {self._names[problem]}"

    def tell(self, exponents: Array) -> None:
        """Log that a level has ended, at debug level, and now and then for everyone."""
        now = perf_counter()
        level = logging.INFO if now - self._told > _EVERY else logging.DEBUG
        if not logger.isEnabledFor(level):
            return
        self._told = now if level == logging.INFO else self._told
        taken, n = now - self._run_began, len(exponents)
        rise = exponents[-1] - (exponents[-2] if n > 1 else 0.0)
        this = taken / n * (1.0 - exponents[-1]) / rise  # levels rise less at first than later
        left = self._left(taken + this, this)
        logger.log(level, "%s: exponent %.3g after %d levels%s", self._title, exponents[-1], n, left)

    def end(self, run: Run) -> None:
        """Log that a run has ended."""
        self._done += 1
        left = self._left(self.seconds / self._done, 0.0)
        logger.info(
            "%s: log evidence %.3f after %d levels%s", self._title, run.log_evidence, run.n_levels, left
        )

    def _left(self, each: float, this: float) -> str:
        """The time left in words, if a run takes the seconds ``each`` and the present one ``this``."""
        more = self._n_runs * len(self._names) - self._done - (this > 0)
        seconds = min(this + more * each, self._limit - self.seconds)
        return f", about {max(seconds, 0.0):.0f} s left" if this or more else ""


#: Fewer particles tell nothing about the accuracy of a run.
_FEWEST = 50
#: The arrays [particle, row] that a run holds, and the entries of one for predictions: 8 MiB.
_ARRAYS, _ENTRIES = 12, 2**20


def verified(
    model: "Findings",
    rows: np.ndarray,
    *,
    n_particles: int,
    n_runs: int,
    random_state: int | np.random.RandomState | None,
    time_limit: float | None,
    verbose: int,
) -> Verification:
    """Compare a fit with the exact posterior, and its probabilities at these rows."""
    fits, strategy = model._estimators, model._decomposition
    _check_options(n_particles, n_runs, time_limit)
    _check_memory(n_particles, max(fit.n_rows for fit in fits))
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    seeds = [child.spawn(n_runs) for child in np.random.SeedSequence(seed).spawn(len(fits))]
    own = strategy.combine(np.stack([cast(ExactFit, fit).plain(rows) for fit in fits], axis=1))
    watch = Watch(time_limit, n_runs, [fit.name for fit in fits])
    problem = lru_cache(maxsize=1)(lambda k: _Problem(cast(ExactFit, fits[k]), rows))  # one in memory
    n_jobs = threads()

    def run(k: int, r: int) -> tuple[Run, Array]:
        watch.begin(k, r)
        answer = problem(k).run(n_particles, seeds[k][r], n_jobs, watch)
        watch.end(answer[0])
        return answer

    # blocks of particles share the threads, and BLAS has one: no result depends on their number
    with blas_threads(1), shown_log(verbose):
        runs, log_p = _collected(run, len(fits), n_runs, watch)
    each = np.stack([strategy.combine(part) for part in log_p])
    problems = (
        VerifiedProblem(fit.name, fit.log_marginal_likelihood_value_, tuple(part[k] for part in runs))
        for k, fit in enumerate(fits)
    )
    return Verification(
        model.classes_,
        own,
        each.mean(axis=0),
        spread(each),
        tuple(problems),
        n_particles,
        n_runs,
        watch.stopped_by,
        watch.seconds,
        *_corrected(cast(list[ExactFit], fits), strategy, rows),
    )


def _corrected(
    fits: list[ExactFit], strategy: Strategy, rows: np.ndarray
) -> tuple[float | None, Array | None]:
    """The fit's log evidence and probabilities with the correction, where there is one."""
    try:
        for fit in fits:
            fit.approximation_.check_correction()
    except ValueError:  # which says why; the verification does without
        return None, None
    log_z = np.mean([fit.log_marginal_likelihood_value_ + fit.correction for fit in fits])
    log_p = np.stack([fit.corrected_log_probabilities(rows) for fit in fits], axis=1)
    return float(log_z), strategy.combine(log_p)


def _collected(
    run: Any, n_problems: int, n_runs: int, watch: Watch
) -> tuple[list[list[Run]], list[Array]]:
    """The runs of all problems and their log probabilities, run after run; at least the first.

    A run that the time limit cuts short counts if there is no other. Ctrl-C ends the runs, too, once
    one is complete.
    """
    runs, log_p = list[list[Run]](), list[Array]()
    try:
        for r in range(n_runs):
            parts = [run(k, r) for k in range(n_problems)]
            complete = all(part.is_complete for part, _ in parts)
            if complete or not runs:
                runs.append([part for part, _ in parts])
                log_p.append(np.stack([part for _, part in parts], axis=1))
            if not complete or (watch.is_late() and r + 1 < n_runs):
                watch.stopped_by = "time_limit"
                break
    except KeyboardInterrupt:
        if not runs:
            raise
        watch.stopped_by = "interrupt"
    return runs, log_p


class _Problem:
    """A binary problem with its white noise in the likelihood, and rows to predict."""

    def __init__(self, fit: ExactFit, rows: np.ndarray) -> None:
        self._model, problem, sites = fit.model.with_folded_noise(
            fit.hyperparameters, fit.approximation_.sites
        )
        self._kernel, self._rows = self._model.latent_kernel(fit.kernel_), rows
        self._bridge = Bridge(problem, sites)

    def run(self, n: int, seed: np.random.SeedSequence, n_jobs: int, watch: Watch) -> tuple[Run, Array]:
        """One run with n particles, and the log probabilities of both labels at the rows."""
        run, d, log_weights = tempered(
            self._bridge, n, seed, n_jobs=n_jobs, is_late=watch.is_late, tell=watch.tell
        )
        (z, score), width = self._bridge.whitened(d), max(1, _ENTRIES // n)
        parts = []
        for first in range(0, len(self._rows), width):
            some = self._rows[first : first + width]
            cross = on_host(self._model.cross(self._kernel, some))
            variance, mean = self._kernel.diag(some), self._model.mean_at(some)
            predictor = self._bridge.predictor(cross, variance, mean)
            parts.append(predictor.log_probabilities(z, score, log_weights))
        return run, np.concatenate(parts)


def _check_options(n_particles: object, n_runs: object, time_limit: object) -> None:
    """Raise ``ValueError`` where an option is out of range."""
    if check_order(n_particles, "n_particles") < _FEWEST:
        raise ValueError(
            f"n_particles must be {_FEWEST} or more, got {n_particles!r}: fewer tell nothing about the "
            "exact posterior."
        )
    check_order(n_runs, "n_runs")
    if time_limit is not None and not (is_real(time_limit) and cast(float, time_limit) > 0):
        raise ValueError(
            f"time_limit must be a positive number of seconds or None, got {time_limit!r}."
        )


def _check_memory(n_particles: int, n: int) -> None:
    """Raise ``MemoryError`` if the matrices or the particles do not fit into the memory."""
    check_memory(n, MATRICES + 1)
    needed, available = 8.0 * _ARRAYS * n_particles * n, available_memory()
    if needed > available:
        raise MemoryError(
            f"{n_particles:,} particles at {n:,} rows need about {needed / 2**30:.1f} GiB, and "
            f"{available / 2**30:.1f} GiB are available: use a smaller n_particles."
        )


def check_verifiable(strategy: Strategy) -> None:
    """Raise ``ValueError`` where there is no exact posterior that the fits can be compared with."""
    fits = strategy.estimators_
    if strategy.name == "joint":
        raise ValueError(
            "verify compares binary problems, and this fit treats all classes jointly: fit with "
            "multi_class='one_vs_rest'."
        )
    other = {"sparse": "has inducing points", "local": "predicts from neighbours"}.get(fits[0].method)
    if other:
        raise ValueError(
            f"verify needs exact inference, and this fit {other}: fit some hundred or thousand rows "
            "with inducing=None and n_neighbors=None."
        )
    for fit in fits:
        cast(Rule, fit.model.rule).check_verifiable()
        _check_noise(cast(ExactFit, fit))


def _check_noise(fit: ExactFit) -> None:
    """Raise ``ValueError`` where the likelihood is a step, or fractions of rows have white noise."""
    noise = split_white(fit.kernel_).noise if can_split(fit.kernel_) else 0.0
    if not (noise > 0 or getattr(fit.likelihood_, "differentiable", True)):
        raise ValueError(
            f"verify cannot follow the {fit.likelihood_.name} likelihood, a step, where the kernel has "
            "no white noise to smooth it: add + WhiteKernel(...) to the kernel and fit again."
        )
    counts = fit.model.weights.count
    if noise > 0 and not fit.model.fold_noise and np.any(counts != np.round(counts)):
        raise ValueError(
            "verify needs whole numbers for weights where the kernel has white noise, since a part of "
            "an observation has no noise of its own: fit with fold_noise=True."
        )
