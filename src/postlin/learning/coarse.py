"""Learning from many rows: a first search uses a sample of them, the second all.

On all rows every evaluation of a search costs tens of passes. A sample, whose rows have the weights of
all that they stand for, nearly determines the optimum: the search on all rows begins there, with the
curvature of the sample's evidence and with its sites, and needs few evaluations.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.inference.sparse.posterior import State
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.search import Callback, Search, logger
from postlin.learning.sparse_model import SparseModel
from postlin.learning.starts import Guide
from postlin.learning.training import Training, train
from postlin.linalg.minimise import Optimizer

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
