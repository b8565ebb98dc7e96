"""Learning with neighbours: the kernel, its parameters, a global part and the number of neighbours.

The parameters that the evidence of some rows prefers, and those to which the leave-one-out score climbs
from there, are compared by the score of rows that are held back. So are kernels, a global part by
inducing points, and numbers of neighbours.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.kernels import shown
from postlin.kernels.stacks import metric
from postlin.learning.global_fit import GlobalFit, Passes, fitted, with_parts
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import ARDPrior
from postlin.learning.local_checkpoint import Task
from postlin.learning.local_evidence import Evidence
from postlin.learning.local_model import Latent, LocalModel, LocalScore, reach
from postlin.learning.local_search import ROUNDS, Climb, ClimbState, Pool, WeakPrior, scored
from postlin.learning.progress import factorisation_seconds, local_units, watched
from postlin.learning.starts import FAINT, NOTHING
from postlin.learning.training import BLIND
from postlin.linalg.arrays import on_host
from postlin.streaming.neighbours import low_recall
from postlin.streaming.surroundings import Neighbourhoods, Queries, Surroundings

logger = logging.getLogger("postlin")

#: Neighbours of a row while parameters are learned, and when models are compared.
_LEARNING, _COMPARING = 32, 64
#: Rounds of a climb, and of each of several kernels before the best of them goes on.
_ROUNDS, _FIRST_ROUNDS = ROUNDS, 3
#: Rows among which the inducing points of ``inducing="auto"`` are chosen and fitted.
_GLOBAL_ROWS = 50_000
#: With ``inducing="auto"`` a global part must raise the mean score by this much, first one of so many
#: rows, if there is one problem.
_TRIED_ROWS, _WORTH_POINTS = 20_000, 1e-3
#: Where a climb has raised the mean score by this much, the point where it began is not compared again.
_FAR = 0.02
#: Numbers of neighbours that "auto" compares, and by how much a larger one must raise the mean score.
_CHOICES, _WORTH = (64, 128, 192), 1e-4
#: A prediction takes about 3.5 k³ ns of a core. The numbers that are compared predict a tenth as many
#: rows as were learned from, in all problems, within a budget of this many core-seconds.
_SECONDS, _BUDGET = 3.5e-9, 120.0


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
    total: int  # the rows whose labels a prediction knows, the k neighbours included
    path: list[tuple[Array, float]]  # log-parameters and scores of the held rows
    recall: float
    remarks: list[str]
    interrupted: bool
    constant: bool  # whether all new rows get nearly the same probability


#: Rows that are looked at, and others with which they are compared beside their neighbours: where many
#: rows are equal, all neighbours of a row may be equal to it.
_ROWS, _OTHERS = 50, 1000


@dataclass(frozen=True)
class Sight:
    """The largest covariance of two rows that differ, and the largest variance.

    Where no row has a covariance with another one, new rows are predicted by the prior, whatever the
    labels of their neighbours.
    """

    shared: float
    variance: float

    @classmethod
    def at(cls, kernel: Kernel, rows: Surroundings, k: int, seed: int) -> "Sight":
        """What a kernel without white noise has among rows that are searched in its metric."""
        look = _Look(kernel, rows.drawn(_OTHERS, seed + 4).X)
        found = rows.each(look, rows.drawn(_ROWS, seed), k, _ROWS)
        return cls(max(each.shared for each in found), max(each.variance for each in found))

    @property
    def is_none(self) -> bool:
        """Whether no probability can differ by more than a few thousandths."""
        return self.shared <= NOTHING

    @property
    def informs(self) -> bool:
        """Whether the matrix of the kernel is far from diagonal."""
        return self.shared > FAINT * self.variance


@dataclass(frozen=True, eq=False)
class _Look:
    """The sight of a block of queries, which can be sent to where the rows are."""

    kernel: Kernel
    others: Array

    def __call__(self, near: Neighbourhoods, queries: Queries) -> Sight:
        shared = 0.0
        for x, rows in zip(queries.X, np.asarray(on_host(near.X)), strict=True):
            several = np.concatenate([rows, self.others])
            different = several[(several != x).any(axis=1)]
            if len(different):
                shared = max(shared, float(np.abs(self.kernel(x[None], different)).max()))
        return Sight(shared, float(np.abs(self.kernel.diag(queries.X)).max()))


class Learner:
    """Learns from the rows around, in the order of the methods of ``run``."""

    def __init__(self, model: LocalModel, rows: Surroundings, passes: Passes, task: Task) -> None:
        self.model, self.rows, self.passes, self.task = model, rows, passes, task
        self.evidence = Evidence(model, rows, task)
        self.d = len(task.deviations)
        self.pool = Pool.of(rows, task.seed)
        self.path: list[tuple[Array, float]] = []
        self.remarks: list[str] = []
        self.interrupted = False
        self._looks_farther = False  # whether scores know the labels of distant rows
        self._began = time.perf_counter()

    def run(self) -> Learned:
        """Learn what is to be learned, and choose what is to be chosen."""
        task = self.task
        learns = task.learns and len(task.starts[0].theta) > 0
        if (progress := watched()).is_shown:
            searches = len(task.starts) * len(self.model.signs) if learns else 1
            progress.say("learning", local_units(searches, self.rows.n) * factorisation_seconds(1000))
        self._looks_farther = not learns
        best = self._farther(self._learned()) if learns else self._chosen(task.starts[:1])
        k = task.k if task.k is not None else self._number(best)
        k = min(k, self.rows.n)
        if k != self._comparing:
            best = best._replace(score=self._score(best.model, best.at, best.rows, k))
        recall = best.rows.recall(k)
        self.remarks += [text for text in (best.rows.advice, low_recall(recall)) if text]
        has_mean = callable(self.model.prior_mean)  # which gives rows different probabilities
        constant = not has_mean and self._sight(best.at, best.rows).is_none
        if constant and not any(self._sight(at, self._rescaled(at)).informs for at in task.starts):
            self.remarks.append(BLIND)
        self._say(f"learned: {k} neighbours, score {best.score.mean:.5f}", best.at)
        ends = self.path, recall, self.remarks, self.interrupted, constant
        return Learned(best, k, self._total(k), *ends)

    def _sight(self, at: Hyperparameters, rows: Surroundings) -> Sight:
        """What the kernel makes of the rows, which are searched in its metric."""
        return Sight.at(Latent.at(at, fold_noise=False).smooth, rows, self._learning, self.task.seed)

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

    def _say(self, text: str, at: Hyperparameters | None = None) -> None:
        """Tell those who watch, and the log with hyperparameters."""
        watched().say(text)
        more = "" if at is None else f", {shown(at.kernel)}"
        logger.info("%s%s (%.0f s)", text, more, time.perf_counter() - self._began)

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
                self._say(f"the best of {len(climbs)} kernels is number {best + 1}", climbs[best].at)
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
        label = f"kernel {number + 1} of {len(task.starts)}: " if len(task.starts) > 1 else ""
        theta = np.array(task.memo.get(f"{name}: evidence", lambda: self._of_evidence(start, label)))
        begun = task.memo.values.get(f"{name}: climb")
        state = ClimbState.at(theta) if begun is None else ClimbState.restored(begun)
        prior = task.hyperprior
        if prior is None or isinstance(prior, ARDPrior):
            prior = WeakPrior(start)

        def save(state: ClimbState) -> None:
            task.memo.put(f"{name}: climb", state.stored())

        model, rows, k = self.model, self.rows, self._learning
        return Climb(model, start, rows, self.pool, k, state, prior, task.callback, save, label)

    def _of_evidence(self, start: Hyperparameters, label: str) -> Array:
        """The better of the start and of the parameters that maximise the evidence of some rows."""
        if not self.task.evidence:
            return start.theta
        found, first = self.evidence.maximum(start, meanwhile=lambda: self._held(start, self._learning))
        scores = [first.mean, self._held(found, self._learning).mean]
        self._say(
            f"{label}score {scores[0]:.5f} at the start, {scores[1]:.5f} where the evidence is largest",
            start,
        )
        return found.theta if scores[1] > scores[0] else start.theta

    def _rescaled(self, at: Hyperparameters) -> Surroundings:
        return self.rows.rescaled(metric(at.kernel, self.d))

    def _held(self, at: Hyperparameters, k: int) -> LocalScore:
        return scored(self.model, at, self._rescaled(at), self.pool.held, k)

    def _score(self, model: LocalModel, at: Hyperparameters, rows: Surroundings, k: int) -> LocalScore:
        return scored(model, at, rows, self.pool.held, k, total=self._total(k))

    def _total(self, k: int) -> int:
        return reach(k) if self._looks_farther else k

    def _farther(self, best: Variant) -> Variant:
        """What was learned, with the labels of distant rows if the score is better with them.

        They lead to exact inference, and hyperparameters that were learned without them may predict
        better than that: on Covertype they raise the log-loss from .030 to .033.
        """
        k, self._looks_farther = self._comparing, True
        if reach(k) > k and not self.interrupted:
            score = self._score(best.model, best.at, best.rows, k)
            self._say(f"score {score.mean:.5f} with the labels of {min(reach(k), self.rows.n)} rows")
            if score.mean > best.score.mean + _WORTH:
                return best._replace(score=score)
        self._looks_farther = False
        return best

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
            begin, name = points[min(1, len(points) - 1)], f"kernel {kernel}: all rows"
            most = np.array(self.task.memo.get(name, lambda: self.evidence.sparse_maximum(begin).theta))
            others += [at.at(theta) for theta in _distinct(most, 0.5 * (most + at.theta))]
        for other in others:
            each = self._alone(other)
            found.append(self._with_global(each) if whole else each)
        for each in found:
            kind = "alone" if each.whole is None else f"with {len(each.whole.Z)} inducing points"
            self._say(f"score {each.score.mean:.5f} {kind}", each.at)
            self.path.append((each.at.theta, each.score.mean))
        return max(found, key=lambda each: each.score.mean)

    def _alone(self, at: Hyperparameters) -> Variant:
        """These hyperparameters without a global part."""
        rows = self._rescaled(at)
        return Variant(at, None, self.model, rows, self._score(self.model, at, rows, self._comparing))

    def _and_with_global(self, alone: Variant) -> list[Variant]:
        """These hyperparameters with a global part, and alone where that is to be chosen.

        A global part helps most where neighbours are few, and is first tried there, with some rows.
        """
        if not self._may_be_alone:
            return [self._with_global(alone)]
        at, rows, k = alone.at, alone.rows, self._learning
        few = int(_TRIED_ROWS / len(self.model.signs) ** (1 / 3))
        part = self._global(at, few)
        models = self.model, with_parts(self.model, at, part, self.rows.n)
        without, tried = (self._score(model, at, rows, k).mean for model in models)
        self._say(f"score {tried:.5f} with inducing points and {k} neighbours, {without:.5f} without")
        if tried <= without + _WORTH_POINTS:
            return [alone]
        whole = self._with_global(alone, part if self.rows.n <= few else None)
        return [alone, whole] if whole.score.mean > alone.score.mean + _WORTH_POINTS else [alone]

    def _with_global(self, alone: Variant, whole: GlobalFit | None = None) -> Variant:
        """The same hyperparameters with a global part, which is fitted if it is not given."""
        whole = whole or self._global(alone.at, _GLOBAL_ROWS)
        model = with_parts(self.model, alone.at, whole, self.rows.n)
        score = self._score(model, alone.at, alone.rows, self._comparing)
        return alone._replace(whole=whole, model=model, score=score)

    def _global(self, at: Hyperparameters, most: int) -> GlobalFit:
        """A global part, of ``most`` rows where its size is chosen."""
        asked, seed = self.task.inducing, self.task.seed
        sample = self.rows.drawn(most, seed + 2)
        whole, said = fitted(self.model, at, asked, sample, self.passes, self.rows.n, seed)
        self.remarks += said
        return whole

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
