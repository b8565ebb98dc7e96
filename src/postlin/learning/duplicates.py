"""Learning from rows that occur more than once: the search sees each row with its weight.

A row of weight w counts as w rows, each with white noise of its own, so that the evidence is the same,
by matrices of the distinct rows alone. In the end inference is made for all rows, since every row has a
latent value of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import Model, Start
from postlin.learning.parts import train_in_parts
from postlin.learning.search import logger
from postlin.learning.training import Training
from postlin.linalg.minimise import Optimizer

#: With fewer rows there is nothing to save, nor where more than this part of the rows is distinct.
_FEW, _MOST = 100, 0.9


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct ones among labelled rows: where each occurs first, and how often."""

    firsts: np.ndarray
    number: np.ndarray  # for every row, the number of its distinct row
    count: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray) -> "Distinct | None":
        """The distinct rows; None if they are nearly as many as there are rows."""
        if len(y) < _FEW or np.ndim(X) != 2 or X.dtype.kind not in "fiu":
            return None
        both = np.column_stack([X, y])
        _, firsts, number, count = np.unique(
            both, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        return cls(firsts, number.ravel(), count) if len(firsts) <= _MOST * len(y) else None


def train_distinct(
    models: Sequence[Model[Start]],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    starts: Sequence[Start | None],
    **options: Any,
) -> Training[Start]:
    """Maximise the evidence, as ``train_in_parts`` does, with a weight in place of each repetition."""
    found = [Distinct.of(model.X, model.y) if model.can_merge(at.kernel) else None for model in models]
    distinct = [each for each in found if each is not None]
    if optimizer is None or not len(at.theta) or len(distinct) < len(models):
        return train_in_parts(models, at, optimizer, starts=starts, **options)
    pairs = list(zip(models, distinct, strict=True))
    logger.info("searching with the distinct rows, %d of %d", len(distinct[0].firsts), models[0].n_rows)
    few = [model.merged(each.firsts, each.count) for model, each in pairs]
    begins = [
        None if start is None else model.gathered(start, each.number)
        for (model, each), start in zip(pairs, starts, strict=True)
    ]
    training: Training[Start] = train_in_parts(few, at, optimizer, starts=begins, **options)
    spread = [
        model.spread(result.start, each.number, each.count)
        for (model, each), result in zip(pairs, training.best, strict=True)
    ]
    training = training._replace(best=[], search=None)  # frees their matrices
    best = [model.infer(training.at, start) for model, start in zip(models, spread, strict=True)]
    return training._replace(best=best)
