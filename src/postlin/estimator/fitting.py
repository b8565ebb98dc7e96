"""From labelled rows to fits: problems with two classes, in turn or side by side, or all at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from postlin._typing import Array
from postlin._validation import MATRICES, check_memory
from postlin.estimator.fits import BinaryFit, Fit
from postlin.estimator.joint_fit import Joint, JointFit
from postlin.estimator.parameters import Plan
from postlin.estimator.strategies import Decomposition, Task
from postlin.kernels import check_kernel, matrices_held
from postlin.learning.joint_model import JointModel
from postlin.learning.models import Model
from postlin.linalg.arrays import Place
from postlin.linalg.threads import blas_threads

#: Matrices of (n (C − 1))² doubles alive at the same time in a joint fit: one, and what is smaller.
_JOINT_MATRICES = 2


@dataclass(frozen=True)
class Labelled:
    """Rows that count, with indices of their classes and weights (None: one each)."""

    X: Any
    codes: np.ndarray
    classes: Array
    weight: Array | None
    kept: np.ndarray  # which of the rows given these are
    place: Place
    n_jobs: int | None

    @property
    def observed(self) -> tuple[np.ndarray, np.ndarray, Array | None]:
        """What can be said of the rows after the fit: which, their classes and weights."""
        return self.kept, self.codes, self.weight

    def fitted(
        self, plan: Plan, rng: np.random.RandomState, before: Sequence[Fit]
    ) -> Decomposition | Joint:
        """All classes at a time or taken apart; from the fits of an earlier time, if there are any."""
        if plan.joint is not None:
            return _fit_jointly(plan, self, rng, before)
        return _fit_apart(plan, self, rng, before)

    def model(self, plan: Plan, task: Task) -> Model:
        """One problem with two classes; checked."""
        everything = len(task.rows) == len(self.codes)
        model = Model(
            self.X if everything else self.X[task.rows],
            np.where(task.positive, 1.0, -1.0),
            plan.rule,
            plan.schedule,
            plan.tol,
            plan.max_iter,
            plan.fold_noise,
            self.weight if self.weight is None or everything else self.weight[task.rows],
            None if self.place.is_host else self.place,
        )
        model.check(plan.start.kernel)
        return model


def _fit_apart(
    plan: Plan, data: Labelled, rng: np.random.RandomState, before: Sequence[Fit]
) -> Decomposition:
    """A fit for every problem that the classes are taken apart into.

    Results do not depend on ``n_jobs``: several problems are solved with one BLAS thread each, whether
    in this process or in others, and random numbers are drawn beforehand. A device has one problem
    after another.
    """
    plan.schedule.check(data.place)
    check_kernel(plan.start.kernel, data.place)
    check_memory(len(data.codes), MATRICES + matrices_held(plan.start.kernel), data.place)
    kind = plan.decomposition
    tasks = kind.tasks(data.classes, data.codes)
    earlier = list(before) if len(before) == len(tasks) else [None] * len(tasks)
    if plan.shared or len(tasks) == 1:
        return kind(len(data.classes), _fit(plan, data, tasks, rng, earlier))
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(tasks))
    jobs = list(zip(tasks, seeds, earlier, strict=True))
    side_by_side = Parallel(n_jobs=data.n_jobs)
    if side_by_side.n_jobs > 1 and data.place.is_host:
        fits = list(side_by_side(delayed(_fit_alone)(plan, data, *job) for job in jobs))
    else:
        fits = _in_turn(plan, data, jobs)
    return kind(len(data.classes), fits)


def _in_turn(plan: Plan, data: Labelled, jobs: list[Any]) -> list[BinaryFit]:
    """After an interrupt, what remains is fitted where it stands."""
    fits: list[BinaryFit] = []
    for job in jobs:
        fits.append(_fit_alone(plan, data, *job))
        if fits[-1].interrupted:
            plan = replace(plan, optimizer=None)
    return fits


def _fit_alone(plan: Plan, data: Labelled, task: Task, seed: int, before: Fit | None) -> BinaryFit:
    """One of several problems: one BLAS thread, and no matrices kept."""
    with blas_threads(1):
        (fit,) = _fit(plan, data, [task], np.random.RandomState(seed), [before])
    fit.release()
    return fit


def _fit(
    plan: Plan,
    data: Labelled,
    tasks: Sequence[Task],
    rng: np.random.RandomState,
    before: Sequence[Fit | None],
) -> list[BinaryFit]:
    """All these problems with the same hyperparameters."""
    models = [data.model(plan, task) for task in tasks]
    with blas_threads(len(data.codes)):
        training = plan.train(models, rng, before)
    return [
        BinaryFit(task.name, task.rows, model, training, k)
        for k, (task, model) in enumerate(zip(tasks, models, strict=True))
    ]


def _fit_jointly(
    plan: Plan, data: Labelled, rng: np.random.RandomState, before: Sequence[Fit]
) -> Joint:
    """One fit for all classes at a time."""
    assert plan.joint is not None
    if not data.place.is_host:
        raise ValueError(
            f"multi_class='joint' works on the CPU with NumPy only, not with {data.place}: use "
            "multi_class='one_vs_rest', or pass NumPy arrays and device=None."
        )
    n, size = len(data.classes), len(data.codes) * (len(data.classes) - 1)
    check_memory(size, _JOINT_MATRICES)
    model = JointModel(
        data.X, data.codes, n, plan.joint, plan.schedule, plan.tol, plan.max_iter, data.weight
    )
    model.check(plan.start.kernel)
    with blas_threads(size):
        training = plan.train([model], rng, [before[0] if before else None])
    return Joint(n, [JointFit("all classes", np.arange(len(data.codes)), model, training, 0)])
