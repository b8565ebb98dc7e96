"""Where the evidence of some rows is largest: by exact inference, and with inducing points.

A search by the leave-one-out score of neighbours begins there.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.sparse.posterior import inducing_points
from postlin.kernels.stacks import metric
from postlin.learning.global_fit import problem_of, sparse_model
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import ARDPrior
from postlin.learning.local_checkpoint import Task
from postlin.learning.local_model import LocalModel
from postlin.learning.models import ExactModel, Model, Start
from postlin.learning.sparse_model import SparseModel
from postlin.learning.training import train
from postlin.linalg.threads import blas_threads
from postlin.rules.weights import UNIT, Observations
from postlin.schedules import Parallel
from postlin.streaming.surroundings import Surroundings

Result = TypeVar("Result")

#: Rows whose evidence is maximised, if there is one problem; its tolerance.
_ROWS, _TOL = 1000, 1e-6
#: The same with inducing points, and the number of these.
_SPARSE_ROWS, _SPARSE_POINTS = 5000, 160


class Evidence:
    """The evidence of some of the rows around."""

    def __init__(self, model: LocalModel, rows: Surroundings, task: Task) -> None:
        self.model, self.rows, self.task = model, rows, task

    def maximum(
        self, start: Hyperparameters, meanwhile: Callable[[], Result]
    ) -> tuple[Hyperparameters, Result]:
        """Where exact evidence is largest, or the start where the kernel's matrix has no root there.

        This keeps the processor busy. A device does ``meanwhile`` what is returned second: its first
        call takes seconds, in which it loads its kernels.
        """
        models = self._exact_models()
        with blas_threads(_ROWS):
            if not self.model.place.has_memory:
                return self._maximum(models, start, look_around=True), meanwhile()
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(meanwhile)
                return self._maximum(models, start, look_around=True), other.result()

    def sparse_maximum(self, start: Hyperparameters) -> Hyperparameters:
        """The same for thousands of rows with inducing points."""
        models = self._sparse_models(start)
        with blas_threads(1):
            return self._maximum(models, start, look_around=False)

    def _maximum(
        self,
        models: Sequence[Model[Start]],
        start: Hyperparameters,
        *,
        look_around: bool,
    ) -> Hyperparameters:
        prior = self.task.hyperprior
        if isinstance(prior, ARDPrior):
            prior = prior.bound(start, self.task.deviations)
        try:
            return train(
                models,
                start,
                "bfgs",
                rng=np.random.RandomState(self.task.seed),
                starts=[None] * len(models),
                hyperprior=prior,
                look_around=look_around,
            ).at
        except NotPositiveDefiniteError:
            return start

    def _exact_models(self) -> list[ExactModel]:
        """Exact models of some rows, one for each problem in which these have both labels."""
        model = self.model
        count = int(_ROWS / len(model.signs) ** (1 / 3))
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
                    _TOL,
                    model.max_iter,
                    fold_noise=model.fold_noise,
                    weights=UNIT if (weight == 1.0).all() else Observations(weight),
                    prior_mean=model.prior_mean,
                )
            )
        return models

    def _sparse_models(self, at: Hyperparameters) -> list[SparseModel]:
        """Models with inducing points of some rows, one for each problem that has both labels."""
        seed, sample = self.task.seed, self.rows.drawn(_SPARSE_ROWS, self.task.seed + 3)
        lengths = metric(at.kernel, sample.X.shape[1])
        m = max(1, min(_SPARSE_POINTS, len(sample) // 20, len(np.unique(sample.X, axis=0))))
        Z = inducing_points(m, sample.X / lengths, len(sample), seed, sample.weight) * lengths
        problems = [problem_of(sample, sign) for sign in self.model.signs]
        return [sparse_model(self.model, Z, rows) for rows in problems if len(np.unique(rows.y)) > 1]
