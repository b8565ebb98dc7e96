"""Learning hyperparameters from many rows: first from a few of them, then from all.

A search on all rows costs tens of passes for each of its evaluations. What it looks for is known to a
fraction of its width from a sample: there it begins, with the curvature found on the sample and sites
in proportion, and few evaluations are left.
"""

from collections.abc import Sequence

import numpy as np

from postlin.hyperparameters import Hyperparameters
from postlin.optimisers import Optimizer
from postlin.search import Callback, logger
from postlin.sparse.model import SparseModel
from postlin.sparse.posterior import State
from postlin.training import Training, train


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
) -> Training:
    """Maximise the evidence, as ``training.train`` does.

    With ``coarse_rows`` below the number of rows, a search on so many of them, drawn at random by the
    ``seed``, comes first, with all the restarts; the callback is told of the second search alone, whose
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
    logger.info("continuing on all rows from %s", coarse.best[0].at.kernel)
    fine = train(
        models,
        coarse.best[0].at,
        None if coarse.interrupted else optimizer,
        rng=rng,
        starts=[
            fitted.approximation.state.repeated(times)
            for fitted, times in zip(coarse.best, more, strict=True)
        ],
        callback=callback,
        keep_on_interrupt=keep_on_interrupt,
        curvature=None if coarse.curvature is None else max(more) * coarse.curvature,
    )
    return fine._replace(interrupted=coarse.interrupted or fine.interrupted)
