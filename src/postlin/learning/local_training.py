"""Learning with neighbours: the kernel, its parameters, a global part and the number of neighbours.

The parameters that the evidence of some rows prefers, and those to which the leave-one-out score climbs
from there, are compared by the score of rows that are held back. So are kernels, a global part by
inducing points, and numbers of neighbours.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.sparse.posterior import inducing_points
from postlin.inference.sparse.solver import record_of_passes
from postlin.kernels import shown
from postlin.kernels.stacks import metric
from postlin.learning.forecast import factorisation_seconds, local_units
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import ARDPrior, Hyperprior
from postlin.learning.local_model import GlobalPart, LocalModel, LocalScore
from postlin.learning.local_search import ROUNDS, Climb, ClimbState, Pool, WeakPrior, scored
from postlin.learning.models import ExactModel
from postlin.learning.progress import watched
from postlin.learning.search import Callback
from postlin.learning.sparse_model import MAX_PASSES, SparseModel
from postlin.learning.training import train
from postlin.linalg.threads import blas_threads, threads
from postlin.rules.weights import UNIT, Observations
from postlin.schedules import Parallel
from postlin.streaming.engines import Threads
from postlin.streaming.neighbours import low_recall
from postlin.streaming.surroundings import Queries, Surroundings
from postlin.streaming.views import ArrayRows, Rows

logger = logging.getLogger("postlin")

#: Rows whose evidence is maximised, if there is one problem; its tolerance.
_EVIDENCE_ROWS, _EVIDENCE_TOL = 1000, 1e-6
#: The same with inducing points, and the number of these, where a global part improves the score.
_SPARSE_ROWS, _SPARSE_POINTS = 5000, 160
#: Neighbours of a row while parameters are learned, and when models are compared.
_LEARNING, _COMPARING = 32, 64
#: Rounds of a climb, and of each of several kernels before the best of them goes on.
_ROUNDS, _FIRST_ROUNDS = ROUNDS, 3
#: Rows among which the inducing points of ``inducing="auto"`` are chosen and fitted, and their number.
_GLOBAL_ROWS, _GLOBAL_POINTS = 50_000, 256
#: With ``inducing="auto"`` a global part of so many rows must raise the mean score by this much.
_TRIED_ROWS, _WORTH_POINTS = 20_000, 1e-3
#: Where a climb has raised the mean score by this much, the point where it began is not compared again.
_FAR = 0.02
#: Numbers of neighbours that "auto" compares, and by how much a larger one must raise the mean score.
_CHOICES, _WORTH = (64, 128, 192), 1e-4
#: A prediction takes about 3.5 k³ ns of a core. The numbers that are compared predict a tenth as many
#: rows as were learned from, in all problems, within a budget of this many core-seconds.
_SECONDS, _BUDGET = 3.5e-9, 120.0

#: From the labels ±1 of the classes, 0 for none, to the rows of that problem.
Passes = Callable[[Array], Rows]


class Memo:
    """Results by name, which a checkpoint keeps; this one keeps them for the time of the fit."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of this name, computed if it is not known."""
        if name not in self.values:
            self.put(name, compute())
        return self.values[name]

    def put(self, name: str, value: Any) -> None:
        """Keep a result."""
        self.values[name] = value


@dataclass(frozen=True, eq=False)
class Task:
    """What is asked for: starts, one for each kernel that is compared, and what is to be chosen."""

    starts: tuple[Hyperparameters, ...]
    learns: bool
    k: int | None  # None if it is to be chosen
    inducing: int | Array | str | None  # a number, points, "auto" or none
    deviations: Array  # of the features
    hyperprior: ARDPrior | Hyperprior | None
    seed: int
    evidence: bool = True  # whether the evidence moves the start, as it does unless that is warm
    callback: Callback | None = None
    keep_on_interrupt: bool = False
    memo: Memo = field(default_factory=Memo)


@dataclass(frozen=True, eq=False)
class GlobalFit:
    """Inducing points and, for each problem, the posterior of their coefficients (B, b)."""

    Z: Array
    states: tuple[tuple[Array, Array], ...]
    members: np.ndarray | None  # the numbers of the rows that it has seen; None for all


class Variant(NamedTuple):
    """Hyperparameters with or without a global part, and the score of the held rows."""

    at: Hyperparameters
    whole: GlobalFit | None
    model: LocalModel
    rows: Surroundings
    score: LocalScore


class Learned(NamedTuple):
    """The end of learning."""

    variant: Variant
    k: int
    path: list[tuple[Array, float]]  # log-parameters and scores of the held rows
    recall: float
    remarks: list[str]
    interrupted: bool


def with_parts(model: LocalModel, at: Hyperparameters, whole: GlobalFit, n: int) -> LocalModel:
    """The model with the global part that was fitted at these hyperparameters to some of n rows."""
    members = None
    if whole.members is not None:
        members = np.zeros(n, dtype=bool)
        members[whole.members] = True
    none = ArrayRows(np.zeros((0, whole.Z.shape[1])), np.zeros(0))
    record = record_of_passes(True, 0.0, [], 0)
    parts = []
    for state in whole.states:
        found = _sparse(model, whole.Z, none).revive(at, state, record, 0.0)
        parts.append(GlobalPart.of(found.posterior, found.state, found.method, members))
    return replace(model, parts=tuple(parts))


def _sparse(model: LocalModel, Z: Array, rows: Rows) -> SparseModel:
    method = model.rule, model.tol, MAX_PASSES, model.fold_noise, model.prior_mean
    return SparseModel(rows, Z, *method)


class Learner:
    """Learns from the rows around, in the order of the methods of ``run``."""

    def __init__(self, model: LocalModel, rows: Surroundings, passes: Passes, task: Task) -> None:
        self.model, self.rows, self.passes, self.task = model, rows, passes, task
        self.d = len(task.deviations)
        self.pool = Pool.of(rows, task.seed)
        self.path: list[tuple[Array, float]] = []
        self.remarks: list[str] = []
        self.interrupted = False
        self._began = time.perf_counter()

    def run(self) -> Learned:
        """Learn what is to be learned, and choose what is to be chosen."""
        task = self.task
        learns = task.learns and len(task.starts[0].theta) > 0
        if (progress := watched()).is_shown:
            searches = len(task.starts) * len(self.model.signs) if learns else 1
            progress.say("learning", local_units(searches) * factorisation_seconds(1000))
        best = self._learned() if learns else self._chosen(task.starts[:1])
        k = task.k if task.k is not None else self._number(best)
        k = min(k, self.rows.n)
        if k != self._comparing:
            best = best._replace(score=self._score(best.model, best.at, best.rows, k))
        recall = best.rows.recall(k)
        self.remarks += [text for text in (best.rows.advice, low_recall(recall)) if text]
        self._say(f"learned: {shown(best.at.kernel)}, {k} neighbours, score {best.score.mean:.5f}")
        return Learned(best, k, self.path, recall, self.remarks, self.interrupted)

    @property
    def _comparing(self) -> int:
        """The number of neighbours with which models are compared."""
        return min(self.rows.n, self.task.k or _COMPARING)

    @property
    def _learning(self) -> int:
        return min(_LEARNING, self._comparing)

    @property
    def _may_be_alone(self) -> bool:
        return self.task.inducing is None or isinstance(self.task.inducing, str)

    def _say(self, text: str) -> None:
        watched().say(text)
        logger.info("%s (%.0f s)", text, time.perf_counter() - self._began)

    def _learned(self) -> Variant:
        """The best parameters of the best kernel."""
        climbs = [self._climb(i, start) for i, start in enumerate(self.task.starts)]
        best = 0
        try:
            if len(climbs) > 1:
                trials = []
                for i, climb in enumerate(climbs):
                    climb.run(_FIRST_ROUNDS)
                    trials.append(self._chosen(_points(climb)[:2], i))
                best = int(np.argmax([trial.score.mean for trial in trials]))
                self._say(f"the best of {len(climbs)} kernels is {shown(climbs[best].at.kernel)}")
            climbs[best].run(_ROUNDS)
        except KeyboardInterrupt:
            scores = [climb.state.score for climb in climbs]
            if not self.task.keep_on_interrupt or max(scores) == -np.inf:
                raise
            best, self.interrupted = int(np.argmax(scores)), True
            self.remarks.append(
                "interrupted: the hyperparameters are the best found so far; fit again with "
                "warm_start=True to go on."
            )
        climb = climbs[best]
        self.path = climb.state.path
        points = _points(climb)[:1] if self.interrupted else _points(climb)
        return self._chosen(points, best)

    def _climb(self, number: int, start: Hyperparameters) -> Climb:
        """The climb of a kernel, which begins at the better of its start and of the evidence's."""
        task, name = self.task, f"kernel {number}"
        label = f"{shown(start.kernel)}: " if len(task.starts) > 1 else ""
        theta = np.array(task.memo.get(f"{name}: evidence", lambda: self._of_evidence(start)))
        begun = task.memo.values.get(f"{name}: climb")
        state = ClimbState.at(theta) if begun is None else ClimbState.restored(begun)
        prior = task.hyperprior
        if prior is None or isinstance(prior, ARDPrior):
            prior = WeakPrior(start)

        def save(state: ClimbState) -> None:
            task.memo.put(f"{name}: climb", state.stored())

        model, rows, k = self.model, self.rows, self._learning
        return Climb(model, start, rows, self.pool, k, state, prior, task.callback, save, label)

    def _of_evidence(self, start: Hyperparameters) -> Array:
        """The better of the start and of the parameters that maximise the evidence of some rows."""
        if not self.task.evidence:
            return start.theta
        models = self._exact_models()
        prior = self._prior(start)
        try:
            with blas_threads(_EVIDENCE_ROWS):
                found = train(
                    models,
                    start,
                    "bfgs",
                    rng=np.random.RandomState(self.task.seed),
                    starts=[None] * len(models),
                    hyperprior=prior,
                )
        except NotPositiveDefiniteError:
            return start.theta
        scores = [self._held(at, self._learning).mean for at in (start, found.at)]
        self._say(
            f"{shown(start.kernel)}: score {scores[0]:.5f} at the start, {scores[1]:.5f} where the "
            "evidence is largest"
        )
        return found.at.theta if scores[1] > scores[0] else start.theta

    def _exact_models(self) -> list[ExactModel]:
        """Exact models of some rows, one for each problem in which these have both labels."""
        model = self.model
        count = int(_EVIDENCE_ROWS / len(model.signs) ** (1 / 3))
        some = self.rows.drawn(count, self.task.seed + 1)
        models: list[ExactModel] = []
        for sign in model.signs:
            y = sign[some.code]
            used = y != 0
            if len(np.unique(y[used])) < 2 and len(models) + 1 < len(model.signs):
                continue
            weight = some.weight[used]
            models.append(
                ExactModel(
                    some.X[used],
                    y[used],
                    model.rule,
                    Parallel(),
                    _EVIDENCE_TOL,
                    model.max_iter,
                    fold_noise=model.fold_noise,
                    weights=UNIT if (weight == 1.0).all() else Observations(weight),
                    prior_mean=model.prior_mean,
                )
            )
        return models

    def _rescaled(self, at: Hyperparameters) -> Surroundings:
        return self.rows.rescaled(metric(at.kernel, self.d))

    def _held(self, at: Hyperparameters, k: int) -> LocalScore:
        return self._score(self.model, at, self._rescaled(at), k)

    def _score(self, model: LocalModel, at: Hyperparameters, rows: Surroundings, k: int) -> LocalScore:
        return scored(model, at, rows, self.pool.held, k)

    def _chosen(self, points: Sequence[Hyperparameters], kernel: int | None = None) -> Variant:
        """The best of some hyperparameters, with or without a global part.

        Where a global part improves the score, the maximum of the evidence of thousands of rows with
        inducing points is compared too, and the point between it and the first: unless ``kernel``, the
        number of the kernel, is None.
        """
        at = points[0]
        alone = self._alone(at)
        found, whole = [alone], False
        if self.task.inducing is not None:
            found = self._and_with_global(alone)
            whole = found[-1].whole is not None
        others = list(points[1:])
        if whole and kernel is not None and not self.interrupted:
            compute = partial(self._of_all_rows, points[min(1, len(points) - 1)])
            most = np.array(self.task.memo.get(f"kernel {kernel}: all rows", compute))
            others += [at.at(theta) for theta in _distinct(most, 0.5 * (most + at.theta))]
        for other in others:
            each = self._alone(other)
            found.append(self._with_global(each) if whole else each)
        for each in found:
            kind = "alone" if each.whole is None else f"with {len(each.whole.Z)} inducing points"
            self._say(f"score {each.score.mean:.5f} {kind}, {shown(each.at.kernel)}")
            self.path.append((each.at.theta, each.score.mean))
        return max(found, key=lambda each: each.score.mean)

    def _alone(self, at: Hyperparameters) -> Variant:
        """These hyperparameters without a global part."""
        rows = self._rescaled(at)
        return Variant(at, None, self.model, rows, self._score(self.model, at, rows, self._comparing))

    def _of_all_rows(self, at: Hyperparameters) -> Array:
        """The parameters that maximise the evidence of thousands of rows with inducing points."""
        model = self.model
        sample, lengths = self.rows.drawn(_SPARSE_ROWS, self.task.seed + 3), metric(at.kernel, self.d)
        m = min(_SPARSE_POINTS, len(sample) // 20, len(np.unique(sample.X, axis=0)))
        Z = inducing_points(m, sample.X / lengths, len(sample), self.task.seed, sample.weight) * lengths
        problems = [_problem(sample, sign) for sign in model.signs]
        models = [_sparse(model, Z, rows) for rows in problems if len(np.unique(rows.y)) > 1]
        prior = self._prior(at)
        try:
            with blas_threads(1):
                found = train(
                    models,
                    at,
                    "bfgs",
                    rng=np.random.RandomState(self.task.seed),
                    starts=[None] * len(models),
                    hyperprior=prior,
                    look_around=False,
                )
        except NotPositiveDefiniteError:
            return at.theta
        return found.at.theta

    def _prior(self, at: Hyperparameters) -> Hyperprior | None:
        """The prior of the parameters in a search by the evidence."""
        prior = self.task.hyperprior
        return prior.bound(at, self.task.deviations) if isinstance(prior, ARDPrior) else prior

    def _and_with_global(self, alone: Variant) -> list[Variant]:
        """These hyperparameters with a global part, and alone where that is to be chosen."""
        if not self._may_be_alone:
            return [self._with_global(alone)]
        tried = self._with_global(alone, _TRIED_ROWS)
        if tried.score.mean <= alone.score.mean + _WORTH_POINTS:
            return [alone]
        return [alone, tried if self.rows.n <= _TRIED_ROWS else self._with_global(alone)]

    def _with_global(self, alone: Variant, most: int = _GLOBAL_ROWS) -> Variant:
        """The same hyperparameters with a global part, of ``most`` rows where its size is chosen."""
        at, model, task = alone.at, self.model, self.task
        sample = self.rows.drawn(most, task.seed + 2)
        lengths = metric(at.kernel, self.d)
        asked, members = task.inducing, None
        if isinstance(asked, str):
            distinct = len(np.unique(sample.X, axis=0))
            asked = max(1, min(_GLOBAL_POINTS, self.rows.n // 20, distinct))
            members = sample.number if len(sample) < self.rows.n else None
        if isinstance(asked, Integral):  # distances are those of the kernel
            scaled = sample.X / lengths
            Z = inducing_points(asked, scaled, self.rows.n, task.seed, sample.weight) * lengths
        else:
            Z = inducing_points(asked, sample.X, self.rows.n, task.seed)
        states = []
        for sign in model.signs:
            rows = self.passes(sign) if members is None else _problem(sample, sign)
            sparse = _sparse(model, Z, rows)
            sparse.check(at.kernel)
            found = sparse.infer(at)
            if not found.converged:
                self.remarks += [str(warning) for warning in sparse.warnings(found.record)]
            states.append(found.kept)
        whole = GlobalFit(Z, tuple(states), members)
        combined = with_parts(model, at, whole, self.rows.n)
        score = self._score(combined, at, alone.rows, self._comparing)
        return alone._replace(whole=whole, model=combined, score=score)

    def _number(self, best: Variant) -> int:
        """The number of neighbours whose score is best, as far as the budget of predictions allows."""
        rows = max(0.1 * self.rows.n, 1.0) * len(self.model.signs)
        largest = (_BUDGET / (_SECONDS * rows)) ** (1 / 3)
        k, score = self._comparing, best.score.mean
        for more in [c for c in _CHOICES if k < c <= min(largest, self.rows.n)]:
            found = self._score(best.model, best.at, best.rows, more).mean
            self._say(f"score {found:.5f} with {more} neighbours")
            if found > score + _WORTH:
                k, score = more, found
        return k


def _points(climb: Climb) -> list[Hyperparameters]:
    """The end of a climb, its beginning and the point between, unless the beginning is far below."""
    state = climb.state
    (first, score), *_ = state.path
    far = state.score > score + _FAR
    thetas = [state.best] if far else _distinct(state.best, first, 0.5 * (state.best + first))
    return [climb.at.at(theta) for theta in thetas]


def _distinct(*thetas: Array) -> list[Array]:
    """The log-parameters without repetitions."""
    found: list[Array] = []
    for theta in thetas:
        if not any(np.array_equal(theta, other) for other in found):
            found.append(theta)
    return found


def _problem(rows: Queries, sign: Array) -> ArrayRows:
    """The rows of one problem."""
    y = sign[rows.code]
    used = y != 0
    return ArrayRows(rows.X[used], y[used], rows.weight[used], engine=Threads(threads()))
