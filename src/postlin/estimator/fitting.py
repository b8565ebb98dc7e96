"""From labelled rows to fits: the one place where data, parameters and models meet."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from postlin._typing import Array
from postlin._validation import MATRICES, check_memory
from postlin.estimator.fits import ExactFit, Fit, starts_from
from postlin.estimator.joint_fit import JointFit
from postlin.estimator.parameters import Plan
from postlin.estimator.reading import Labelled
from postlin.estimator.strategies import REGISTRY, Strategy, Task
from postlin.kernels import check_kernel, kernels_of, matrices_held
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.joint_model import JointModel, train_joint
from postlin.learning.models import ExactModel
from postlin.learning.parts import train_distinct
from postlin.learning.progress import shown_log, watched
from postlin.learning.starts import constant_evidence
from postlin.linalg.threads import blas_threads
from postlin.rules.weights import UNIT, Observations

#: Where the first of several problems has its optimum, and the curvature there for each of its rows.
Lead = tuple[Hyperparameters, Array | None]

#: Matrices of (n (C − 1))² doubles alive at the same time in a joint fit: one, and smaller ones.
_JOINT_MATRICES = 2


def fit_classes(
    plan: Plan, data: Labelled, rng: np.random.RandomState, before: Sequence[Fit]
) -> Strategy:
    """Fit all classes jointly, or split into binary problems; from earlier fits, if there are any.

    Results do not depend on ``n_jobs``: several problems are solved with one BLAS thread each, whether
    in this process or in others, and random numbers are drawn beforehand. On a device the problems
    are solved one after another.
    """
    _check(plan, data)
    strategy = REGISTRY[plan.multi_class]
    tasks = strategy.tasks(data.classes, data.codes)
    earlier = list(before) if len(before) == len(tasks) else [None] * len(tasks)
    if plan.shared or len(tasks) == 1:
        return strategy(len(data.classes), _fit(plan, data, tasks, rng, earlier))
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(tasks))
    job, *jobs = zip(tasks, seeds, earlier, strict=True)
    side_by_side = Parallel(n_jobs=data.n_jobs, return_as="generator")
    progress = watched()
    progress.problems(len(tasks))
    progress.problem(tasks[0].name)
    fits = [first := _fit_alone(plan, data, *job)]
    progress.finished()
    if first.interrupted:  # the rest keep their starting hyperparameters
        plan = replace(plan, optimizer=None)
    lead = first.hyperparameters, _curvature(first, 1, len(first.hyperparameters.theta))
    if side_by_side.n_jobs > 1 and data.place.is_host:
        if progress.is_shown:
            each = _model(plan, data, tasks[0]).costs(len(plan.start.theta)).seconds
            progress.problems(len(jobs), side_by_side.n_jobs, each)
        for fit in side_by_side(delayed(_fit_alone)(plan, data, *job, lead) for job in jobs):
            fits.append(fit)
            progress.finished()
    else:
        for job in jobs:
            progress.problem(job[0].name)
            fits.append(_fit_alone(plan, data, *job, lead))
            progress.finished()
            if fits[-1].interrupted:
                plan = replace(plan, optimizer=None)
    return strategy(len(data.classes), fits)


def _size(plan: Plan, data: Labelled) -> int:
    """The number of rows of the largest matrix."""
    return len(data.codes) * (len(data.classes) - 1 if plan.joint else 1)


def _check(plan: Plan, data: Labelled) -> None:
    """Raise an error where the fit cannot work with the weights, on the device or in its memory."""
    if plan.corrected and data.weight is not None:
        Observations(data.weight).check_correction()
    plan.schedule.check(data.place)
    for kernel in kernels_of(plan.start.kernel):
        check_kernel(kernel, data.place)
    matrices = _JOINT_MATRICES if plan.joint else MATRICES + matrices_held(plan.start.kernel)
    check_memory(_size(plan, data), matrices, data.place)


def _fit_alone(
    plan: Plan, data: Labelled, task: Task, seed: int, before: Fit | None, lead: Lead | None = None
) -> Fit:
    """Fit one of several problems with one BLAS thread, and keep no matrices."""
    with blas_threads(1):
        (fit,) = _fit(plan, data, [task], np.random.RandomState(seed), [before], lead)
    fit.release()
    return fit


def _fit(
    plan: Plan,
    data: Labelled,
    tasks: Sequence[Task],
    rng: np.random.RandomState,
    before: Sequence[Fit | None],
    lead: Lead | None = None,
) -> list[Fit]:
    """Fit problems that share their hyperparameters.

    The search begins where an earlier fit of the same problem ended, or the first of several problems.
    """
    with blas_threads(_size(plan, data)), shown_log(plan.verbose):
        models = [_model(plan, data, task) for task in tasks]
        for model in models:
            model.check(plan.start.kernel)
        at, starts = plan.start_after(before[0]), starts_from(before, models)
        name = tasks[0].name if len(tasks) == 1 else ""
        weights = data.weight if data.weight is not None else np.ones(len(data.codes))
        constant = [constant_evidence(task.labels, weights[task.rows]) for task in tasks]
        guided = plan.guided(at, data.X, constant, warm=before[0] is not None)
        if before[0] is not None:
            guided["curvature"] = _curvature(before[0], models[0].n_rows, len(at.theta))
        elif lead is not None and plan.optimizer is not None:
            at, per_row = lead
            guided["curvature"] = None if per_row is None else per_row * models[0].n_rows
        learn: Callable[..., Any] = train_joint if plan.joint else train_distinct
        training = learn(models, at, rng=rng, starts=starts, name=name, **guided, **plan.search)
    kind = JointFit if plan.joint else ExactFit
    return [kind(t.name, t.rows, models[k], training, k) for k, t in enumerate(tasks)]


def _curvature(before: Fit, n: int, n_parameters: int) -> Array | None:
    """The curvature of the log evidence of n rows, as an earlier fit knows it."""
    known = before.curvature
    return known * (n / before.n_rows) if known is not None and len(known) == n_parameters else None


def _model(plan: Plan, data: Labelled, task: Task) -> ExactModel | JointModel:
    """The model of one problem."""
    method = plan.schedule, plan.tol, plan.max_iter
    if plan.joint:
        return JointModel(
            data.X,
            task.labels,
            len(data.classes),
            plan.joint,
            *method,
            weight=data.weight,
            place=data.place,
        )
    return ExactModel(
        data.X if len(task.rows) == len(data.codes) else data.X[task.rows],
        task.labels,
        plan.rule,
        *method,
        fold_noise=plan.fold_noise,
        weights=UNIT if data.weight is None else Observations(data.weight[task.rows]),
        corrected=plan.corrected,
        prior_mean=plan.prior_mean,
        place=data.place,
    )
