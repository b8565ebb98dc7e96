"""From labelled rows to fits with neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from joblib import effective_n_jobs

from postlin._typing import Array
from postlin.estimator.findings import Observed
from postlin.estimator.fits import Fit
from postlin.estimator.local_fit import LocalFit, LocalRows, Neighbourhood
from postlin.estimator.parameters import Parameters, Plan, local_kernels
from postlin.estimator.sparse_fitting import Surveyed, fingerprint, read_source
from postlin.estimator.strategies import REGISTRY, Strategy
from postlin.kernels.stacks import metric
from postlin.learning.global_fit import Passes
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.local_checkpoint import Memo, MemoFile, Task
from postlin.learning.local_model import LocalModel
from postlin.learning.local_training import Learner
from postlin.learning.progress import shown_log
from postlin.learning.sparse_model import TOL
from postlin.linalg.arrays import HOST, Place, place_named, place_of
from postlin.streaming import engines, views
from postlin.streaming.sources import ArraySource
from postlin.streaming.surroundings import Surroundings
from postlin.streaming.survey import encode


@dataclass(frozen=True, eq=False)
class Near:
    """Rows to search among: in memory, in a memory map, or on a cluster."""

    data: Surveyed
    rows: LocalRows | None  # None on a cluster
    observed: Observed | None
    place: Place
    n_jobs: int | None

    @property
    def classes(self) -> np.ndarray:
        """The labels."""
        return self.data.survey.classes

    @property
    def sample(self) -> Array:
        """Some of the rows."""
        return self.data.survey.sample


def read_rows(model: Parameters, X: object, y: object, sample_weight: object) -> Near:
    """Read the data for the first time, and keep their rows unless they are on a cluster."""
    place = place_of(X) if model.device is None else place_named(model.device)
    data = read_source(model, X, y, sample_weight)
    n_jobs = None if model.n_jobs is None else effective_n_jobs(model.n_jobs)
    if data.source.is_on_dask or not isinstance(data.engine, engines.Threads):
        return Near(data, None, None, HOST, n_jobs)
    observed, rows = _kept(data, copy=model.copy_X_train)
    return Near(data, rows, observed, place, n_jobs)


def _kept(data: Surveyed, *, copy: bool) -> tuple[Observed, LocalRows]:
    """The rows of positive weight with the codes of their classes, and where they were in the data."""
    found, factor = data.survey, data.factor
    small = np.min_scalar_type(-len(found.classes))
    code, weight, used = [], [], []
    whole = isinstance(data.source, ArraySource)
    parts = []
    for load in data.source.loads():
        chunk = load()
        codes, has_weight = encode(chunk, found.classes)
        code.append(codes[has_weight].astype(small))
        weight.append((chunk.weight if factor is None else chunk.weight * factor[codes])[has_weight])
        used.append(chunk.first + np.flatnonzero(has_weight))
        if not whole:
            parts.append(chunk.X[has_weight])
    kept = np.concatenate(used)
    if isinstance(data.source, ArraySource):
        X = data.source.X
        if len(kept) < len(X):
            X = X[kept]
        elif copy and not isinstance(X, np.memmap):
            X = X.copy()
    else:
        X = np.concatenate(parts)
    codes, weights = np.concatenate(code), np.concatenate(weight)
    ones = None if (weights == 1.0).all() else weights
    return (kept, codes, ones), LocalRows(X, codes, ones)


def fit_local(plan: Plan, near: Near, rng: np.random.RandomState, before: Sequence[Fit]) -> Strategy:
    """Fit the problems of all classes, which share their hyperparameters and neighbours."""
    assert plan.local is not None
    data, k = near.data, plan.local.k
    n = int(data.survey.used.sum())
    if k is not None and k > n:
        raise ValueError(
            f"n_neighbors={k} asks for more neighbours than there are rows, {n}: use fewer, 'auto', or "
            "None for exact inference, which suits so few rows."
        )
    strategy = REGISTRY[plan.multi_class]
    names, signs = _problems(strategy, near.classes)
    path = plan.local.checkpoint
    memo = Memo() if path is None else MemoFile(path, fingerprint(plan, data))
    seed = int(memo.get("seed", lambda: int(rng.randint(np.iinfo(np.int32).max))))
    method = plan.rule, max(plan.tol, TOL), plan.max_iter, plan.fold_noise
    normalised = plan.multi_class == "one_vs_rest"
    base = LocalModel(signs, normalised, *method, prior_mean=plan.prior_mean)
    starts = _starts(plan, before)
    around = _surroundings(near, metric(starts[0].kernel, data.survey.n_features), k or 64, seed)
    with shown_log(plan.verbose):
        task = _task(plan, starts, seed, memo, is_warm=bool(before))
        learned = Learner(replace(base, place=near.place), around, _passes(data), task).run()
    best = learned.variant
    how = learned.k, learned.total, seed, near.n_jobs, plan.verbose, near.place
    shared = Neighbourhood(near.rows, best.at, base, best.whole, *how, _around=best.rows)
    fits = [LocalFit(name, t, shared, learned, plan.deviations) for t, name in enumerate(names)]
    shared.fits = fits
    return strategy(len(near.classes), fits)


def _problems(strategy: type[Strategy], classes: np.ndarray) -> tuple[list[str], Array]:
    """The names of the binary problems, and the labels (problems, classes) of the classes in them."""
    tasks = strategy.tasks(classes, np.arange(len(classes)))  # as if there were one row of each class
    signs = np.zeros((len(tasks), len(classes)))
    for t, task in enumerate(tasks):
        signs[t, task.rows] = task.labels
    return [task.name for task in tasks], signs


def _passes(data: Surveyed) -> Passes:
    """Passes over the rows of the data, by the labels of the classes in a problem."""

    def passes(sign: Array) -> views.Rows:
        return views.SourceRows(data.source, data.engine, views.View(data.survey, sign, data.factor))

    return passes


def _task(
    plan: Plan, starts: tuple[Hyperparameters, ...], seed: int, memo: Memo, *, is_warm: bool
) -> Task:
    """What the plan asks for."""
    assert plan.local is not None
    return Task(
        starts,
        plan.optimizer is not None,
        plan.local.k,
        plan.local.inducing,
        plan.deviations,
        plan.hyperprior,
        seed,
        evidence=not is_warm,
        callback=plan.callback,
        keep_on_interrupt=plan.keep_on_interrupt,
        memo=memo,
    )


def _starts(plan: Plan, before: Sequence[Fit]) -> tuple[Hyperparameters, ...]:
    """The starts: of an earlier fit, of the kernel that is given, or of the kernels to compare."""
    if before:
        return (before[0].hyperparameters,)
    if not plan.default:
        return (plan.start,)
    return tuple(Hyperparameters(k, plan.start.likelihood) for k in local_kernels(plan.deviations))


def _surroundings(near: Near, lengths: Array, k: int, seed: int) -> Surroundings:
    if near.rows is not None:
        return near.rows.surroundings(lengths, k, seed, near.n_jobs, near.place)
    from postlin.streaming.dask_surroundings import DaskSurroundings

    data = near.data
    client = getattr(data.engine, "client", None)
    view = views.View(data.survey, np.ones(len(near.classes)), data.factor)
    return DaskSurroundings.of(data.source, view, lengths, client, k=k, seed=seed)
