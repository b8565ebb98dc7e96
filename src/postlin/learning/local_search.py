"""Hyperparameters of neighbours: the leave-one-out score is climbed over random batches of rows.

Every row is predicted from its neighbours without itself, and the mean log probability of the labels is
the score. Its gradient by the log-parameters is exact for the neighbours at hand; these are found anew
in the metric of the present length scales at the beginning of every round of steps. After each round
the score of rows that are held back decides what is kept and when the climb ends.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.kernels.stacks import metric
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import Hyperprior
from postlin.learning.local_model import LocalModel, LocalScore
from postlin.learning.progress import watched
from postlin.learning.search import Callback, Evaluation
from postlin.streaming.surroundings import Queries, Surroundings

logger = logging.getLogger("postlin")

#: Rows that are held back, at most, and the largest part of all rows.
HELD, _HELD_PART = 2000, 0.2
#: Rows of a step, steps of a round, and rounds at most.
BATCH, STEPS, ROUNDS = 256, 20, 10
#: Of Adam: the first rate, which falls linearly over the rounds, and the decay of both means.
_RATE, _MEAN, _SQUARE = 0.1, 0.9, 0.98
#: Above so many rows, whose search takes seconds to prepare, every other round keeps the neighbours.
_MANY_ROWS = 200_000
#: The longest gradient; a batch of few hard rows would lead far away.
_LONGEST = 1.0
#: A climb ends after so many rounds in which the score did not rise by this much.
_PATIENCE, _RISE = 4, 1e-4
#: The number of rows that the prior of the log-parameters counts for. On the mean score of thousands it
#: matters only where the rows say nothing.
_PRIOR_ROWS = 2000.0
#: The prior's standard deviations of log length scales and of the other log-parameters.
_LENGTH_SD, _OTHER_SD = 2.0, 3.0


class Pool(NamedTuple):
    """Rows that are drawn for learning: those that are held back, and those of the batches."""

    held: Queries
    others: Queries

    @classmethod
    def of(cls, rows: Surroundings, seed: int, rounds: int = ROUNDS) -> "Pool":
        """Draw rows with a seed."""
        held = max(1, min(HELD, int(_HELD_PART * rows.n)))
        drawn = rows.drawn(held + rounds * STEPS * BATCH, seed)
        order = np.random.default_rng([seed, 1]).permutation(len(drawn))
        drawn = drawn.where(order)
        others = drawn.where(slice(held, None)) if len(drawn) > held else drawn
        return cls(drawn.where(slice(0, held)), others)

    def batch(self, step: int) -> Queries:
        """The rows of a step; where all were used, they are used again."""
        n = len(self.others)
        return self.others.where(
            np.arange(step * BATCH, (step + 1) * BATCH) % n if n > BATCH else slice(None)
        )


@dataclass
class ClimbState:
    """All that a climb needs to go on: it is what a checkpoint keeps."""

    theta: Array
    mean: Array  # of gradients, and of their squares
    square: Array
    step: int = 0
    best: Array = field(default_factory=lambda: np.zeros(0))
    score: float = -np.inf  # of the held rows at the best
    looked: int = -1  # the last round after which the held rows were scored
    searched: Array = field(default_factory=lambda: np.zeros(0))  # whose metric has the neighbours
    stale: int = 0  # rounds without a rise
    path: list[tuple[Array, float]] = field(default_factory=list)  # log-parameters and held scores
    finished: bool = False

    @classmethod
    def at(cls, theta: Array) -> "ClimbState":
        """The beginning of a climb."""
        return cls(theta.copy(), np.zeros_like(theta), np.zeros_like(theta), best=theta.copy())

    def stored(self) -> dict[str, Any]:
        """The state as arrays, numbers and lists, for a file."""
        return {**vars(self), "path": [list(step) for step in self.path]}

    @classmethod
    def restored(cls, kept: dict[str, Any]) -> "ClimbState":
        """The inverse of ``stored``."""
        state = cls(**kept)
        state.path = [(theta, score) for theta, score in kept["path"]]
        return state


class WeakPrior:
    """A normal density about the start, for log-parameters of which the rows say nothing."""

    def __init__(self, at: Hyperparameters) -> None:
        self._centre = at.theta.copy()
        self._sd = np.full(len(self._centre), _OTHER_SD)
        for where in at.where("length_scale"):
            self._sd[where] = _LENGTH_SD

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """The log density up to a constant, and its gradient."""
        off = (theta - self._centre) / self._sd
        return float(-0.5 * off @ off), -off / self._sd


@dataclass
class Climb:
    """Adam on the leave-one-out score, from one start."""

    model: LocalModel
    at: Hyperparameters
    rows: Surroundings  # in any metric
    pool: Pool
    k: int
    state: ClimbState
    hyperprior: Hyperprior | None = None
    callback: Callback | None = None
    save: Callable[[ClimbState], object] = lambda state: None
    label: str = ""
    _built: Array = field(default_factory=lambda: np.zeros(0))

    def run(self, rounds: int) -> ClimbState:
        """Climb until the score no longer rises, for so many rounds at most."""
        state, began, first = self.state, time.perf_counter(), self.state.step // STEPS
        while not state.finished:
            number = state.step // STEPS
            if state.looked < number:
                if self.rows.n <= _MANY_ROWS or number % 2 == 0:
                    state.searched = state.theta.copy()
                self._search_at(state.searched)
                self._look(self.at.at(state.theta), began, number, rounds, first)
            if number >= rounds:
                break
            if not state.finished:
                self._search_at(state.searched)
                self._round()
        return state

    def _search_at(self, theta: Array) -> None:
        """Search for neighbours in the metric of these log-parameters."""
        if not np.array_equal(self._built, theta):
            d = self.pool.held.X.shape[1]
            self.rows, self._built = (
                self.rows.rescaled(metric(self.at.at(theta).kernel, d)),
                theta.copy(),
            )

    def _look(self, here: Hyperparameters, began: float, number: int, rounds: int, first: int) -> None:
        """Compute the score of the held rows, and keep what is best."""
        state = self.state
        score = scored(self.model, here, self.rows, self.pool.held, self.k).mean
        state.path.append((state.theta.copy(), score))
        state.stale = 0 if score > state.score + _RISE else state.stale + 1
        if score > state.score:
            state.best, state.score = state.theta.copy(), score
        state.looked, state.finished = number, state.stale >= _PATIENCE
        seconds = time.perf_counter() - began
        done = number - first
        left = f", about {seconds / done * (rounds - number):.0f} s left at most" if done else ""
        watched().say(f"{self.label}leave-one-out score {score:.5f} after {number} of {rounds} rounds")
        logger.info(
            "%sleave-one-out score %.5f after %d of %d rounds%s",
            self.label,
            score,
            number,
            rounds,
            left,
        )
        if self.callback is not None:
            names = here.names
            self.callback(Evaluation(len(state.path), state.theta.copy(), names, score, None, seconds))
        self.save(state)

    def _round(self) -> None:
        """Take the steps of a round, with the neighbours in the metric where it begins."""
        state, bounds = self.state, self.at.bounds
        for _ in range(STEPS):
            slope = self._slope(self.at.at(state.theta), self.pool.batch(state.step))
            state.step += 1
            state.mean = _MEAN * state.mean + (1.0 - _MEAN) * slope
            state.square = _SQUARE * state.square + (1.0 - _SQUARE) * slope**2
            mean = state.mean / (1.0 - _MEAN**state.step)
            square = state.square / (1.0 - _SQUARE**state.step)
            rate = _RATE * max(1.0 - state.step / (ROUNDS * STEPS), 0.02)
            step = rate * mean / (np.sqrt(square) + 1e-8)
            state.theta = np.clip(state.theta + step, *bounds.T)

    def _slope(self, here: Hyperparameters, batch: Queries) -> Array:
        """The gradient of the mean score of a batch with the prior, cut to a length."""
        found = scored(self.model, here, self.rows, batch, self.k, gradient=True)
        slope = found.gradient / found.weight
        if self.hyperprior is not None:
            slope = slope + self.hyperprior(here.theta)[1] / _PRIOR_ROWS
        length = float(np.linalg.norm(slope))
        return slope * min(1.0, _LONGEST / length) if length > 0 else slope


def scored(
    model: LocalModel,
    at: Hyperparameters,
    rows: Surroundings,
    queries: Queries,
    k: int,
    *,
    gradient: bool = False,
    total: int = 0,
) -> LocalScore:
    """The leave-one-out score of some rows, whose neighbours are searched in the metric of ``rows``.

    If ``total`` is larger than k, the labels of so many rows around each are known.
    """
    look, total = ScoreLook(model, at, k, gradient), max(k, total)
    return LocalScore.total(rows.each(look, queries, total, model.width(k, total)))


@dataclass(frozen=True, eq=False)
class ScoreLook:
    """The score of a block of queries, which can be sent to where the rows are."""

    model: LocalModel
    at: Hyperparameters
    k: int
    gradient: bool

    def __call__(self, near: Any, queries: Queries) -> LocalScore:
        """The score of the block."""
        return self.model.score(self.at, near, queries, self.k, gradient=self.gradient)
