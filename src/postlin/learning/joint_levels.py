"""Joint fits of many rows: searches on a part of them first, which all later ones begin from.

The time of an evaluation grows with the cube of the number of rows, and a search needs some twenty.
Halves of the rows, of halves and so on determine the optimum better and better: the first search is on
the smallest part, and every further one begins at the optimum and with the curvature of that before
it, so that three to eight evaluations on all rows are left. Between two parts the optimum moves about
half as far as between the two before them (on 75, 150 and 300 rows of digits length scales of 9.7, 14.3
and 17.5 are best).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.inference.joint.evidence import JointApproximation
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.joint_model import JointModel
from postlin.learning.search import Callback, logger
from postlin.learning.starts import Guide
from postlin.learning.training import Training, train
from postlin.linalg.minimise import Optimizer, Worth
from postlin.rules.sites import Sites

#: The fewest latent values of a part, rows × (classes − 1), and its fewest rows for every class.
_FEWEST, _EACH = 500, 4
#: The part of its last move that the optimum is expected to move again, and the farthest.
_AGAIN, _FARTHEST = 0.5, 0.3
#: How far below its start a variance may begin in a larger part. One that vanishes in few rows would
#: have no slope by which to grow again.
_VANISHED = 1.5
#: When a search between the first and the last ends.
_PASSING = Worth(least=0.02, slope=0.3)
#: The tolerance of the inference from which sites of further rows are predicted.
_ROUGH = 1e-2


def train_joint(
    models: Sequence[JointModel],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    starts: Sequence[Sites | None],
    callback: Callback | None = None,
    guide: Guide | None = None,
    look_around: bool = True,
    **options: Any,
) -> Training[Sites]:
    """Maximise the evidence of one joint model, as ``train`` does.

    From a thousand latent values on, searches on parts of the rows come first. The first of them makes
    all the restarts and looks around. The callback is called in the search on all rows only.
    """
    (model,) = models
    search: Callable[..., Training[Sites]] = partial(train, **options)
    parts = _parts(model) if model.is_large and len(at.theta) else []
    if optimizer != "bfgs" or not look_around or not parts:
        return search(
            models,
            at,
            optimizer,
            restarts=restarts,
            starts=starts,
            callback=callback,
            guide=guide,
            look_around=look_around,
        )
    how: dict[str, Any] = {"restarts": restarts, "guide": guide}
    ends: list[Array] = []
    least = _least(at)
    for rows, larger in zip(parts, [*parts[1:], np.arange(model.n_rows)], strict=True):
        part = model.on(rows)
        logger.info("searching on %d of %d rows first", len(rows), model.n_rows)
        coarse = search([part], at, optimizer, starts=starts, **how)
        part.forget()
        if coarse.interrupted:
            at = coarse.at
            del coarse  # and its matrices
            return search(models, at, None, starts=[None], guide=guide)._replace(interrupted=True)
        ends.append(coarse.at.theta)
        at = at.inside(np.maximum(_expected(ends), least))
        starts = [_start(model, part, coarse, at, rows, larger)]
        curvature = None if coarse.curvature is None else len(larger) / len(rows) * coarse.curvature
        how = {"guide": guide, "look_around": False, "curvature": curvature}
        how["worth"] = _PASSING if len(larger) < model.n_rows else None
        del coarse
    logger.info("continuing on all rows from %s", at.kernel)
    return search(models, at, optimizer, starts=starts, callback=callback, **how)


def _parts(model: JointModel) -> list[np.ndarray]:
    """The rows of each part, from few to a half of them; each holds those before it.

    They are drawn, always alike, with as many rows of every class as it has in all.
    """
    shuffled = np.random.default_rng(0).permutation(model.n_rows)
    dealt = shuffled[np.argsort(model.y[shuffled], kind="stable")]
    fewest = max(_FEWEST / (model.n_classes - 1), _EACH * model.n_classes)
    found, step = [], 2
    while len(dealt) // step >= fewest:
        found.append(np.sort(dealt[::step]))
        step *= 2
    return found[::-1]


def _expected(ends: list[Array]) -> Array:
    """Where the optimum of the next part is expected, from those of the parts before it."""
    if len(ends) < 2:
        return ends[-1]
    return np.asarray(ends[-1] + np.clip(_AGAIN * (ends[-1] - ends[-2]), -_FARTHEST, _FARTHEST))


def _least(at: Hyperparameters) -> Array:
    """The least log-parameters at which searches in larger parts begin."""
    least = np.full(len(at.theta), -np.inf)
    for name in ("constant_value", "noise_level"):
        for where in at.where(name):
            least[where] = at.theta[where] - _VANISHED
    return least


def _start(
    model: JointModel,
    part: JointModel,
    coarse: Training[Sites],
    at: Hyperparameters,
    rows: np.ndarray,
    larger: np.ndarray,
) -> Sites:
    """Sites for a larger part of the rows, from inference on a part at these hyperparameters."""
    found: JointApproximation = part.infer(at, coarse.best[0].start, max(model.tol, _ROUGH))
    known = np.isin(larger, rows)
    further = model.predicted_sites(found, at, part, larger[~known])
    tau = np.empty((len(larger), *further.tau.shape[1:]))
    nu = np.empty((len(larger), further.nu.shape[1]))
    tau[known], nu[known] = found.sites
    tau[~known], nu[~known] = further
    return Sites(tau, nu)
