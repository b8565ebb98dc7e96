"""Learning hyperparameters from many rows: first from a few of them, then from all.

A search on all rows costs tens of passes for each of its evaluations. The optimum is nearly known from
a sample: the search on all rows begins there, with the curvature that the evidence has on the sample
and with sites in proportion, and few evaluations are left.
"""

from collections.abc import Sequence

import numpy as np

from postlin._typing import Array
from postlin.inference.sparse.posterior import State
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.search import Callback, Search, Training, logger, train
from postlin.learning.sparse_model import SparseModel
from postlin.linalg.minimise import Optimizer

#: The step of a log-parameter by which curvatures are measured, and the least that is believed.
_STEP, _LEAST = 0.1, 0.3
#: With more parameters than this (inducing points among them) curvature would cost more than it saves.
_MANY = 40


def train_sparse(
    models: Sequence[SparseModel],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    coarse_rows: int | None = None,
    seed: int = 0,
    restarts: int = 0,
    rng: np.random.RandomState,
    starts: Sequence[State | None],
    callback: Callback | None = None,
    keep_on_interrupt: bool = False,
) -> Training[State]:
    """Maximise the evidence, as ``train`` does.

    With ``coarse_rows`` below the number of rows, a search on that many rows, drawn at random by the
    ``seed``, comes first, with all the restarts. The callback is told of the second search alone, whose
    evidence is that of all rows.
    """
    largest = max(model.n_rows for model in models)
    if optimizer is None or coarse_rows is None or coarse_rows >= largest:
        return train(
            models,
            at,
            optimizer,
            restarts=restarts,
            rng=rng,
            starts=starts,
            callback=callback,
            keep_on_interrupt=keep_on_interrupt,
        )
    some = [model.on(model.rows.sample(coarse_rows, seed)) for model in models]
    logger.info("searching on %d of %d rows first (coarse_rows, seed %d)", coarse_rows, largest, seed)
    coarse = train(
        some,
        at,
        optimizer,
        restarts=restarts,
        rng=rng,
        starts=[None] * len(some),
        keep_on_interrupt=keep_on_interrupt,
    )
    more = [model.n_rows / few.n_rows for model, few in zip(models, some, strict=True)]
    logger.info("continuing on all rows from %s", coarse.at.kernel)
    fine = train(
        models,
        coarse.at,
        None if coarse.interrupted else optimizer,
        rng=rng,
        starts=[found.start.repeated(times) for found, times in zip(coarse.best, more, strict=True)],
        callback=callback,
        keep_on_interrupt=keep_on_interrupt,
        curvature=None if coarse.interrupted else _curvature(some, coarse, max(more)),
    )
    return fine._replace(interrupted=coarse.interrupted or fine.interrupted)


def _curvature(some: Sequence[SparseModel], coarse: Training[State], times: float) -> Array | None:
    """The curvature of minus the log evidence where the first search ended, scaled to all rows."""
    theta, (_, high) = coarse.at.theta, coarse.at.bounds.T
    if len(theta) > _MANY:
        return None
    objective = Search(some, coarse.at, [found.start for found in coarse.best], True)
    steps = np.diag(np.where(theta + _STEP < high, _STEP, -_STEP))
    here = objective(theta)[1]
    rows = [(objective(theta + step)[1] - here) / step.sum() for step in steps]
    values, vectors = np.linalg.eigh(0.5 * (np.array(rows) + np.array(rows).T))
    curvature: Array = (vectors * np.maximum(times * values, _LEAST)) @ vectors.T
    return curvature
