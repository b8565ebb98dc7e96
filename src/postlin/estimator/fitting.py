"""From labelled rows to fits: the one place where data, parameters and models meet."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from postlin._validation import MATRICES, check_memory
from postlin.estimator.fits import ExactFit, Fit
from postlin.estimator.joint_fit import Joint, JointFit
from postlin.estimator.parameters import Plan
from postlin.estimator.reading import Labelled
from postlin.estimator.strategies import REGISTRY, BinaryTask, Decomposition
from postlin.kernels import check_kernel, matrices_held
from postlin.learning.joint_model import JointModel
from postlin.learning.models import ExactModel, Model
from postlin.learning.search import shown_log, train
from postlin.linalg.threads import blas_threads
from postlin.rules.weights import UNIT, Observations

#: Matrices of (n (C − 1))² doubles alive at the same time in a joint fit: one, and what is smaller.
_JOINT_MATRICES = 2


def fit_classes(
    plan: Plan, data: Labelled, rng: np.random.RandomState, before: Sequence[Fit]
) -> Decomposition | Joint:
    """Fit all classes jointly, or split into binary problems; from earlier fits, if there are any.

    Results do not depend on ``n_jobs``: several problems are solved with one BLAS thread each, whether
    in this process or in others, and random numbers are drawn beforehand. On a device the problems
    are solved one after another.
    """
    if plan.joint is not None:
        return _fit_jointly(plan, data, rng, before)
    plan.schedule.check(data.place)
    check_kernel(plan.start.kernel, data.place)
    check_memory(len(data.codes), MATRICES + matrices_held(plan.start.kernel), data.place)
    strategy = REGISTRY[plan.multi_class]
    tasks = strategy.tasks(data.classes, data.codes)
    earlier = list(before) if len(before) == len(tasks) else [None] * len(tasks)
    if plan.shared or len(tasks) == 1:
        return strategy(len(data.classes), _fit(plan, data, tasks, rng, earlier))
    seeds = rng.randint(np.iinfo(np.int32).max, size=len(tasks))
    jobs = list(zip(tasks, seeds, earlier, strict=True))
    side_by_side = Parallel(n_jobs=data.n_jobs)
    if side_by_side.n_jobs > 1 and data.place.is_host:
        fits = list(side_by_side(delayed(_fit_alone)(plan, data, *job) for job in jobs))
    else:
        fits = []
        for job in jobs:
            fits.append(_fit_alone(plan, data, *job))
            if fits[-1].interrupted:  # the rest keep their starting hyperparameters
                plan = plan.without_search()
    return strategy(len(data.classes), fits)


def _fit_alone(plan: Plan, data: Labelled, task: BinaryTask, seed: int, before: Fit | None) -> ExactFit:
    """Fit one of several problems, with one BLAS thread; no matrices are kept."""
    with blas_threads(1):
        (fit,) = _fit(plan, data, [task], np.random.RandomState(seed), [before])
    fit.release()
    return fit


def _fit(
    plan: Plan,
    data: Labelled,
    tasks: Sequence[BinaryTask],
    rng: np.random.RandomState,
    before: Sequence[Fit | None],
) -> list[ExactFit]:
    """Fit problems that share their hyperparameters."""
    with blas_threads(len(data.codes)), shown_log(plan.verbose):
        models = [_model(plan, data, task) for task in tasks]
        training = train(models, rng=rng, **_options(plan, models, before))
    return [
        ExactFit(task.name, task.rows, model, training, k)
        for k, (task, model) in enumerate(zip(tasks, models, strict=True))
    ]


def _model(plan: Plan, data: Labelled, task: BinaryTask) -> ExactModel:
    """The model of one binary problem, checked."""
    everything = len(task.rows) == len(data.codes)
    model = ExactModel(
        data.X if everything else data.X[task.rows],
        np.where(task.positive, 1.0, -1.0),
        plan.rule,
        plan.schedule,
        plan.tol,
        plan.max_iter,
        plan.fold_noise,
        UNIT if data.weight is None else Observations(data.weight[task.rows]),
        data.place,
    )
    model.check(plan.start.kernel)
    return model


def _options(plan: Plan, models: Sequence[Model[Any]], before: Sequence[Fit | None]) -> dict[str, Any]:
    """The arguments of ``train``; a search begins where an earlier fit ended, if there is one."""
    return {
        "at": plan.start_after(before[0].hyperparameters.theta if before[0] else None),
        "optimizer": plan.optimizer,
        "restarts": plan.n_restarts,
        "starts": [b and b.start_for(m.n_rows) for b, m in zip(before, models, strict=True)],
        "callback": plan.callback,
        "keep_on_interrupt": plan.keep_on_interrupt,
    }


def _fit_jointly(
    plan: Plan, data: Labelled, rng: np.random.RandomState, before: Sequence[Fit]
) -> Joint:
    """Fit all classes jointly."""
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
    with blas_threads(size), shown_log(plan.verbose):
        options = _options(plan, [model], [before[0] if before else None])
        training = train([model], rng=rng, **options)
    return Joint(n, [JointFit("all classes", np.arange(len(data.codes)), model, training, 0)])
