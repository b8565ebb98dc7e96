"""Learning from samples: hyperparameters for very many rows, all of which only inference reads.

On all rows every evaluation of a search costs tens of passes. A search on all rows begins where that on
a sample has ended, with the curvature of the sample's evidence and with its sites, and needs few.

A sample of ``FEW`` rows nearly determines the optimum; fewer rows, ``FIRST``, tell where to begin. The
search goes on with ``MANY`` rows for as long as better points lower the log-loss of rows held back.

Every row of a sample counts as several. Without such weights the m coefficients would be learned from
few rows, and hyperparameters that suit fewer coefficients would win: on 100,000 rows with 64 points,
the held-out log-loss after a search on 5,000 rows is .012 above that after a search on all, and .0003
above it with weights of 20. To second order the evidence of s rows of weight w is too large by ½ for
each coefficient, which fits these rows, and too small by log(1 + wsκ)/2w, the price of learning it; at
w = 10 the two nearly cancel.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.inference.sparse.posterior import State
from postlin.learning.hyperparameters import Hyperparameters, WithPoints
from postlin.learning.hyperprior import Hyperprior
from postlin.learning.search import Callback, Evaluation, Search, logger
from postlin.learning.sparse_model import SparseModel
from postlin.learning.starts import Guide
from postlin.learning.training import Climb, Training, train
from postlin.linalg.minimise import Optimizer
from postlin.streaming.views import ArrayRows

#: The step of a log-parameter in the differences that measure curvature, and the least curvature used.
_STEP, _LEAST = 0.1, 0.3
#: With more parameters than this, as with learned inducing points, curvature costs more than it saves.
_MANY = 40


def train_sparse(
    models: Sequence[SparseModel],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    coarse_rows: int | None = None,
    seed: int = 0,
    restarts: int = 0,
    starts: Sequence[State | None],
    callback: Callback | None = None,
    guide: Guide | None = None,
    **options: Any,
) -> Training[State]:
    """Maximise the evidence, as ``train`` does.

    If ``coarse_rows`` is below the number of rows, a search on so many rows, drawn with the ``seed``,
    comes first and makes all the restarts. The callback is called in the second search only, whose
    evidence is that of all rows. Both searches have the other ``options`` of ``train``.
    """
    search: Callable[..., Training[State]] = partial(train, **options)
    n = max(model.n_rows for model in models)
    if optimizer is None or coarse_rows is None or coarse_rows >= n:
        return search(
            models, at, optimizer, restarts=restarts, starts=starts, callback=callback, guide=guide
        )
    some = [
        model.on(model.rows.sample(coarse_rows, seed).standing_for(model.n_rows)) for model in models
    ]
    logger.info("searching on %d of %d rows first (coarse_rows, seed %d)", coarse_rows, n, seed)
    cold = [None] * len(some)
    coarse = search(some, at, optimizer, restarts=restarts, starts=cold, guide=guide)
    logger.info("continuing on all rows from %s", coarse.at.kernel)
    fine = search(
        models,
        coarse.at,
        None if coarse.interrupted else optimizer,
        starts=[found.start for found in coarse.best],
        callback=callback,
        guide=guide,
        look_around=False,
        curvature=None if coarse.interrupted else curvature_at(some, coarse),
    )
    return fine._replace(interrupted=coarse.interrupted or fine.interrupted)


def curvature_at(some: Sequence[SparseModel], coarse: Training[State]) -> Array | None:
    """The Hessian of minus the log evidence at the end of a search; None for too many parameters."""
    theta, (_, high) = coarse.at.theta, coarse.at.bounds.T
    if len(theta) > _MANY:
        return None
    objective = Search(some, coarse.at, [found.start for found in coarse.best], True)
    steps = np.diag(np.where(theta + _STEP < high, _STEP, -_STEP))
    here = objective(theta)[1]
    rows = np.array([(objective(theta + step)[1] - here) / step.sum() for step in steps])
    values, vectors = np.linalg.eigh(0.5 * (rows + rows.T))
    curvature: Array = (vectors * np.maximum(values, _LEAST)) @ vectors.T
    return curvature


#: Rows of the searches, the first only with so many rows a point, and rows held back, a tenth of all
#: at most.
_A_POINT = 16
FIRST, FEW, MANY, HELD = 5_000, 20_000, 100_000, 10_000
#: A later search ends where so many better points together lower the held-back log-loss by less.
GAIN, PATIENCE = 1e-3, 2
#: The most rows that a row counts as; one where inducing points are learned, which fit the rows too.
_WEIGHT = 10
#: The most numbers of the rows of the last search, 128 MiB.
_ENTRIES = 2**24
#: A sample with fewer rows of a class than this tells too little about it.
_RARE = 50


class Sample(NamedTuple):
    """The rows of each search, fewest first, and rows held back."""

    stages: list[ArrayRows]
    held: ArrayRows

    @classmethod
    def of(cls, model: SparseModel, seed: int, weight: int = _WEIGHT) -> "Sample":
        """The rows that a seed draws, with a weight; no stages if a class is too rare."""
        n, (m, width) = model.n_rows, model.Z.shape
        held = min(HELD, n // 10)
        few = min(FEW, n - held)
        many = min(MANY, n - held, _ENTRIES // width)
        sizes = [FIRST] * (_A_POINT * m <= FIRST) + [few] + [many] * (many >= 2 * few)
        drawn = model.rows.sample(held + sizes[-1], seed)
        order = np.random.default_rng(seed).permutation(drawn.n)
        parts = [drawn.where(order[held : held + size]) for size in sizes]
        stages = [part.standing_for(min(n, weight * part.n)) for part in parts if _tells(part)]
        return cls(stages, drawn.where(order[:held]))


def _tells(rows: ArrayRows) -> bool:
    """Whether there are enough rows of both classes."""
    return min(int((rows.y == label).sum()) for label in (-1, 1)) >= _RARE


class Told:
    """Hands the evaluations of several searches on as those of one, and keeps their path."""

    def __init__(self, callback: Callback | None) -> None:
        self.callback = callback
        self.path: list[tuple[Array, float]] = []
        self._began = time.perf_counter()

    def __call__(self, here: Evaluation) -> None:
        """Keep an evaluation and hand it on."""
        self.path.append((here.theta, here.log_evidence))
        if self.callback is not None:
            seconds = time.perf_counter() - self._began
            self.callback(here._replace(number=len(self.path), seconds=seconds))


class EnoughError(Exception):
    """Further points would not predict noticeably better."""


class Judge:
    """Ends a search, as its callback, when better points no longer lower the held-back log-loss."""

    def __init__(self, models: Sequence[SparseModel], held: Sequence[ArrayRows], told: Told) -> None:
        self.models, self.held, self.told = models, held, told
        #: The log-loss at each better point, with the point and the states there.
        self.losses: list[tuple[float, Array, list[State]]] = []
        self.interrupted = False

    def follow(
        self,
        at: Hyperparameters,
        starts: Sequence[State],
        optimizer: Optimizer | str,
        curvature: Array | None,
        *,
        keep_on_interrupt: bool,
        hyperprior: Hyperprior | None = None,
        ceiling: float = np.inf,
    ) -> None:
        """Search from a point, with an optimizer and the curvature there if it is known."""
        self._search = Search(self.models, at, starts, optimizer == "bfgs", self, hyperprior)
        try:
            Climb(self._search, optimizer, ceiling).run(at.theta, curvature)
        except EnoughError:
            pass
        except KeyboardInterrupt:
            if not keep_on_interrupt:
                raise
            self.interrupted = True

    def __call__(self, here: Evaluation) -> None:
        """Judge a point if it is the best so far; raise ``EnoughError`` to end the search."""
        self.told(here)
        near = [path.nearest(here.theta)[:1] for path in self._search.paths]
        if not all(known and np.array_equal(known[0][0], here.theta) for known in near):
            return  # it is worse, or inference did not converge
        at, states = self._search.hyperparameters.at(here.theta), [known[0][1] for known in near]
        each = zip(self.models, states, self.held, strict=True)
        loss = float(np.mean([model.log_loss(at, state, rows) for model, state, rows in each]))
        logger.info("log-loss of %d rows held back: %.5f", self.held[0].n, loss)
        self.losses.append((loss, here.theta, states))
        before = self.losses[:-PATIENCE]
        if before and before[-1][0] - loss < GAIN:
            raise EnoughError


def train_sampled(
    models: Sequence[SparseModel],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    seed: int = 0,
    restarts: int = 0,
    starts: Sequence[State | None],
    callback: Callback | None = None,
    keep_on_interrupt: bool = False,
    hyperprior: Hyperprior | None = None,
    ceiling: float = np.inf,
    guide: Guide | None = None,
    **options: Any,
) -> Training[State]:
    """Maximise the evidence of samples drawn with the ``seed``, and infer from all rows at the end.

    Up to ``FEW`` rows, and where a class is too rare for a sample, the search is on all rows. The
    evaluations of the path and of the callback are those on samples. The other ``options`` are those of
    ``train``.
    """
    n = max(model.n_rows for model in models)
    search: dict[str, Any] = {"hyperprior": hyperprior, "ceiling": ceiling}
    search["keep_on_interrupt"] = keep_on_interrupt
    learn: Callable[..., Training[State]] = partial(train, restarts=restarts, **search, **options)
    if optimizer is None or len(at.theta) == 0 or n <= FEW:
        return learn(models, at, optimizer, starts=starts, callback=callback, guide=guide)
    weight = 1 if isinstance(at, WithPoints) else _WEIGHT
    samples = [Sample.of(model, seed, weight) for model in models]
    stages = list(zip(*(sample.stages for sample in samples), strict=False))
    if not stages:
        logger.info("searching on all %d rows: a class is too rare in %d of them", n, FEW)
        return learn(models, at, optimizer, starts=starts, callback=callback, guide=guide)
    some = [model.on(rows) for model, rows in zip(models, stages[0], strict=True)]
    logger.info("searching on %d of %d rows (coarse_rows='auto', seed %d)", some[0].n_rows, n, seed)
    told, smaller = Told(callback), None if guide is None else guide.scaled(_times(some, models))
    cold = [None] * len(some)
    found = learn(some, at, optimizer, starts=cold, callback=told, guide=smaller)
    here, interrupted = found.at, found.interrupted
    states, larger = [one.start for one in found.best], some
    try:
        curvature = None if interrupted or not stages[1:] else curvature_at(some, found)
        for stage in () if interrupted else stages[1:]:
            larger = [model.on(rows) for model, rows in zip(larger, stage, strict=True)]
            logger.info("continuing on %d rows from %s", larger[0].n_rows, here.kernel)
            curvature = None if curvature is None else curvature * _times(some, larger)
            judge = Judge(larger, [sample.held for sample in samples], told)
            judge.follow(here, _repeated(states, some, larger), optimizer, curvature, **search)
            if judge.losses:
                _, theta, states = min(judge.losses, key=lambda judged: judged[0])
                here, some = here.at(theta), larger
            if judge.interrupted:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not keep_on_interrupt:
            raise
        interrupted = True
    logger.info("inference from all %d rows", n)
    begun = _repeated(states, some, models)
    last = train(models, here, None, starts=begun, guide=guide, **options)
    narrow = _still_narrow(found, here)
    return found._replace(
        at=last.at, best=last.best, path=told.path, interrupted=interrupted, narrow=narrow
    )


def _still_narrow(found: Training[State], here: Hyperparameters) -> tuple[str, ...]:
    """Those bounds among the narrow ones of a search that hyperparameters found later are at too."""
    names = here.names
    at = tuple(f"{('lower', 'upper')[side]} bound of {names[k]}," for k, side in here.at_bounds())
    return tuple(bound for bound in found.narrow if bound.startswith(at))


def _times(some: Sequence[SparseModel], models: Sequence[SparseModel]) -> float:
    """How many times as many rows models stand for in all."""
    return sum(m.stands_for for m in models) / sum(m.stands_for for m in some)


def _repeated(
    states: Sequence[State], some: Sequence[SparseModel], models: Sequence[SparseModel]
) -> list[State]:
    """States of models, as starts for models that stand for more rows."""
    each = zip(states, some, models, strict=True)
    return [state.repeated(model.stands_for / few.stands_for) for state, few, model in each]
