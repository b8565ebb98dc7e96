"""From labelled rows to fits: one for every problem with two classes, in turn or side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from postlin._threads import blas_threads
from postlin._typing import Array
from postlin.binary import BinaryFit
from postlin.fit import Fit
from postlin.hyperparameters import Hyperparameters
from postlin.joint.fit import JointFit
from postlin.joint.model import JointModel
from postlin.model import Model
from postlin.multiclass import Task
from postlin.optimisers import Optimizer
from postlin.schedules import Schedule
from postlin.search import Callback
from postlin.sites import Sites
from postlin.training import Training, shown_log, train


@dataclass(frozen=True)
class Plan:
    """How to fit: the method, where to start, how to search."""

    start: Hyperparameters
    rule: Any
    schedule: Schedule
    optimizer: Optimizer | str | None
    n_restarts: int
    fold_noise: bool
    tol: float
    max_iter: int
    callback: Callback | None
    keep_on_interrupt: bool
    verbose: int

    def model(self, X: Any, labels: Array, weight: Array | None) -> Model:
        """The data of one problem with the method; checked."""
        model = Model(
            X, labels, self.rule, self.schedule, self.tol, self.max_iter, self.fold_noise, weight
        )
        model.check(self.start.kernel)
        return model

    def train(
        self, models: Sequence[Any], rng: np.random.RandomState, before: Sequence[Fit | None]
    ) -> Training:
        """Search for the hyperparameters of all these models, from where an earlier fit ended."""
        first = before[0]
        with shown_log(self.verbose):
            return train(
                models,
                self.start if first is None else self.start.inside(first.hyperparameters.theta),
                self.optimizer,
                restarts=self.n_restarts,
                rng=rng,
                starts=[_sites(b, len(model.y)) for b, model in zip(before, models, strict=True)],
                callback=self.callback,
                keep_on_interrupt=self.keep_on_interrupt,
            )


def fit_tasks(
    plan: Plan,
    X: Any,
    weight: Array | None,
    tasks: Sequence[Task],
    rng: np.random.RandomState,
    before: Sequence[BinaryFit | None],
    *,
    shared: bool,
    n_jobs: int | None,
) -> list[BinaryFit]:
    """A fit for every task; ``before`` are those of an earlier fit, to start from.

    Results do not depend on ``n_jobs``: several problems are solved with one BLAS thread each, whether
    in this process or in others, and random numbers are drawn beforehand.
    """
    if shared or len(tasks) == 1:
        return _fit(plan, X, weight, tasks, rng, before)
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(tasks))
    jobs = Parallel(n_jobs=n_jobs)
    if jobs.n_jobs > 1:
        return list(
            jobs(
                delayed(_fit_alone)(plan, X, weight, task, seed, earlier)
                for task, seed, earlier in zip(tasks, seeds, before, strict=True)
            )
        )
    fits: list[BinaryFit] = []
    for task, seed, earlier in zip(tasks, seeds, before, strict=True):
        if fits and fits[-1].interrupted:  # what remains is fitted where it stands
            plan = replace(plan, optimizer=None)
        fits.append(_fit_alone(plan, X, weight, task, seed, earlier))
    return fits


def _fit_alone(
    plan: Plan, X: Any, weight: Array | None, task: Task, seed: int, before: BinaryFit | None
) -> BinaryFit:
    """One of several problems: one BLAS thread, and no matrices kept."""
    with blas_threads(1):
        (fit,) = _fit(plan, X, weight, [task], np.random.RandomState(seed), [before])
    fit.release()
    return fit


def _fit(
    plan: Plan,
    X: Any,
    weight: Array | None,
    tasks: Sequence[Task],
    rng: np.random.RandomState,
    before: Sequence[BinaryFit | None],
) -> list[BinaryFit]:
    """All these problems with the same hyperparameters."""
    models = [_model(plan, X, weight, task) for task in tasks]
    with blas_threads(len(X)):
        training = plan.train(models, rng, before)
    return [
        BinaryFit(task.name, task.rows, model, training, k)
        for k, (task, model) in enumerate(zip(tasks, models, strict=True))
    ]


def fit_jointly(
    plan: Plan,
    X: Any,
    weight: Array | None,
    codes: np.ndarray,
    n_classes: int,
    rng: np.random.RandomState,
    before: Fit | None,
) -> JointFit:
    """All classes at a time; the plan's rule is one for that."""
    model = JointModel(X, codes, n_classes, plan.rule, plan.schedule, plan.tol, plan.max_iter, weight)
    model.check(plan.start.kernel)
    with blas_threads(len(X) * (n_classes - 1)):
        training = plan.train([model], rng, [before])
    return JointFit("all classes", np.arange(len(codes)), model, training, 0)


def _sites(before: Fit | None, n: int) -> Sites | None:
    """Where an earlier fit of as many rows ended."""
    return before.sites if before is not None and len(before.rows) == n else None


def _model(plan: Plan, X: Any, weight: Array | None, task: Task) -> Model:
    everything = len(task.rows) == len(X)
    return plan.model(
        X if everything else X[task.rows],
        np.where(task.positive, 1.0, -1.0),
        weight if weight is None or everything else weight[task.rows],
    )
