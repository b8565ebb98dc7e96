"""From labelled rows that are read in passes to fits with inducing points."""

import hashlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import validate_data

from postlin._typing import Array
from postlin._validation import HEAVIEST, is_dask
from postlin.estimator.fits import Fit, starts_from
from postlin.estimator.parameters import Parameters, Plan
from postlin.estimator.sparse_fit import SparseFit
from postlin.estimator.strategies import REGISTRY, Strategy
from postlin.inference.sparse.posterior import State, inducing_points
from postlin.kernels import check_kernel
from postlin.learning.checkpoint import Checkpoint, RememberingModel, check_path
from postlin.learning.hyperparameters import WithPoints
from postlin.learning.progress import shown_log, watched
from postlin.learning.sampled import train_sampled, train_sparse
from postlin.learning.sparse_model import TOL, SparseModel
from postlin.learning.starts import constant_evidence
from postlin.learning.training import Training, train
from postlin.linalg.arrays import HOST, Place, on_host, place_named, place_of
from postlin.linalg.threads import blas_threads, threads
from postlin.streaming import engines, sources, survey, views

#: The name of a binary problem, its model, an earlier fit to start from, and the log evidence of
#: constant probabilities.
Job = tuple[str, SparseModel, Fit | None, float]

#: How far outside the data learned inducing points may lie, in ranges of each feature.
_MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class Surveyed:
    """A source of rows, and what the first pass over it has found."""

    source: sources.Source
    engine: engines.Engine
    survey: survey.Survey
    factor: Array | None = None  # the weight of each class; None if all are one
    place: Place = HOST


def read_source(model: Parameters, X: object, y: object, sample_weight: object) -> Surveyed:
    """Make a source of what is passed to ``fit``, and read it for the first time."""
    if model.checkpoint is not None:
        check_path(model.checkpoint)
    place = place_of(X) if model.device is None else place_named(model.device)
    source = _source(model, X, y, sample_weight)
    engine = engine_for(source, model.n_jobs)
    found = survey.survey(source, engine, seed=0)
    if not isinstance(source, sources.ArraySource):  # for arrays scikit-learn has set these attributes
        model.n_features_in_ = found.n_features
        if found.names is not None:
            model.feature_names_in_ = np.array(found.names, dtype=object)
        elif hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
    return Surveyed(source, engine, found, _class_weights(model.class_weight, found), place)


def _source(model: Parameters, X: object, y: object, sample_weight: object) -> sources.Source:
    if isinstance(X, sources.Source):
        if y is not None or sample_weight is not None:
            raise ValueError(
                "a stream holds labels and weights itself: pass neither y nor sample_weight with it."
            )
        return X
    if is_dask(X):
        from postlin.streaming.dask import DaskSource

        return DaskSource.of(X, y, sample_weight)
    X, y, sample_weight = on_host(X), on_host(y), on_host(sample_weight)
    numbers, labels = validate_data(model, X, y, dtype="numeric", ensure_all_finite=False)
    if isinstance(X, np.memmap):  # scikit-learn returns it without the name of its file
        numbers = X
    if sample_weight is None:
        return sources.ArraySource(numbers, labels, None)
    weight = np.asarray(sample_weight)
    if weight.ndim == 0:
        weight = np.full(len(labels), weight)
    if weight.shape != labels.shape:
        raise ValueError(
            f"sample_weight must have shape ({len(labels)},), got {weight.shape}: one for every row."
        )
    return sources.ArraySource(numbers, labels, weight)


def _class_weights(class_weight: object, found: survey.Survey) -> Array | None:
    """The factors that multiply the weights of the rows of each class; None if all are one."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        return np.asarray(found.counts.sum() / (len(found.counts) * found.counts))
    every = compute_class_weight(class_weight, classes=found.classes, y=found.classes)
    weights: Array = np.asarray(every, float)
    if not ((weights > 0) & (weights <= HEAVIEST)).all():
        raise ValueError(
            "class_weight must be finite and positive with inducing points, and at most "
            f"{HEAVIEST:g}, got {weights}."
        )
    return weights


def engine_for(source: sources.Source, n_jobs: int | None) -> engines.Engine:
    """Dask if the rows are there or an active client can load them, and threads if not."""
    if hasattr(get_active_backend()[0], "client") or source.is_on_dask:
        from postlin.streaming.dask import DaskEngine, active_client

        client = active_client()
        if source.is_on_dask or (client is not None and source.loads_anywhere() is not None):
            return DaskEngine(client)
    return engines.Threads(threads() if n_jobs is None else effective_n_jobs(n_jobs))


def fit_sparse(
    plan: Plan, data: Surveyed, rng: np.random.RandomState, before: Sequence[Fit]
) -> Strategy:
    """Fit the binary problems in turn; after Ctrl-C the rest keep their starting hyperparameters.

    With a checkpoint all random numbers come from a seed that is kept there.
    """
    assert plan.sparse is not None
    _check_place(plan, data)
    path = plan.sparse.checkpoint
    checkpoint = None if path is None else Checkpoint(path, fingerprint(plan, data))
    choices = {} if checkpoint is None else checkpoint.choices
    seed = choices.setdefault("seed", int(rng.randint(np.iinfo(np.int32).max)))
    if "Z" not in choices:
        found, n = data.survey, int(data.survey.used.sum())
        choices["Z"] = inducing_points(plan.sparse.inducing, found.sample, n, seed, found.sample_weight)
    if checkpoint is not None:
        checkpoint.write()  # now, so that a fit that is killed soon keeps its seed
    strategy, classes = REGISTRY[plan.multi_class], data.survey.classes
    jobs = _jobs(plan, data, strategy, choices["Z"], before)
    fits: list[SparseFit] = []
    with blas_threads(1):
        groups = [jobs] if plan.shared else [[job] for job in jobs]
        progress = watched()
        progress.problems(len(groups))
        for k, group in enumerate(groups):
            progress.problem(group[0][0])
            fits += _fit(plan, data, group, np.random.RandomState(seed + k), checkpoint)
            progress.finished()
            if fits[-1].interrupted:
                plan = replace(plan, optimizer=None)
    if checkpoint is not None:
        checkpoint.write()
    return strategy(len(classes), fits)


def _check_place(plan: Plan, data: Surveyed) -> None:
    """Raise ``ValueError`` for a kernel or a cluster that cannot be used on a device."""
    check_kernel(plan.start.kernel, data.place)
    if not data.place.is_host and not isinstance(data.engine, engines.Threads):
        raise ValueError(
            f"the rows are read by Dask's workers, and {data.place} is a device of this process: leave "
            "device out, or pass arrays, a stream or Parquet files without a Dask client."
        )


def _jobs(
    plan: Plan, data: Surveyed, strategy: type[Strategy], Z: Array, before: Sequence[Fit]
) -> list[Job]:
    """The jobs of all binary problems, whose models are checked."""
    assert plan.sparse is not None
    classes = data.survey.classes
    tasks = strategy.tasks(classes, np.arange(len(classes)))  # as if there were one row of each class
    jobs: list[Job] = []
    for k, task in enumerate(tasks):
        sign = np.zeros(len(classes))  # 0 for a class that has no part in the problem
        sign[task.rows] = task.labels
        rows = views.SourceRows(data.source, data.engine, views.View(data.survey, sign, data.factor))
        tol, latent = max(plan.tol, TOL), (plan.fold_noise, plan.prior_mean)
        model = SparseModel(rows, Z, plan.rule, tol, plan.max_iter, *latent, place=data.place)
        model.check(plan.start.kernel, learn_points=plan.sparse.learn_inducing)
        earlier = before[k] if len(before) == len(tasks) else None
        jobs.append((task.name, model, earlier, _baseline(data, sign)))
    return jobs


def _baseline(data: Surveyed, sign: Array) -> float:
    """The log evidence of constant probabilities, if classes have these labels."""
    used, factor = sign != 0, 1.0 if data.factor is None else data.factor
    return constant_evidence(sign[used], (data.survey.used * factor)[used])


def _fit(
    plan: Plan,
    data: Surveyed,
    group: Sequence[Job],
    rng: np.random.RandomState,
    checkpoint: Checkpoint | None,
) -> list[SparseFit]:
    """Fit problems that share their hyperparameters."""
    assert plan.sparse is not None
    names, models, before, baselines = zip(*group, strict=True)
    at, Z = plan.start_after(before[0]), models[0].Z
    warm = before[0] is not None
    if not all(b is not None and np.array_equal(b.inducing_points_, Z) for b in before):
        before = (None,) * len(models)  # a state is of use with its own inducing points only
    if plan.sparse.learn_inducing:
        at = WithPoints.of(at, Z, _box(data.survey.sample, Z))
    seed, few = int(rng.randint(np.iinfo(np.int32).max)), plan.sparse.coarse_rows
    search = _search(few, seed)
    watched: list[SparseModel] = list(models)
    if checkpoint is not None:
        watched = [RememberingModel(**vars(m), checkpoint=checkpoint, name=n) for n, m, *_ in group]
    with shown_log(plan.verbose):
        starts = starts_from(before, models)
        guided = plan.guided(at, data.survey.sample, baselines, warm=warm)
        name = names[0] if len(names) == 1 else ""
        training: Training[State] = search(
            watched, at, rng=rng, starts=starts, name=name, **guided, **plan.search
        )
    if checkpoint is not None:
        checkpoint.finish(names)
    spread = data.survey.sample.std(axis=0)
    return [SparseFit(name, models[k], training, k, spread) for k, name in enumerate(names)]


def _search(coarse_rows: int | str | None, seed: int) -> Callable[..., Training[State]]:
    """How to search: on samples, on a sample and then on all rows, or on all rows alone."""
    if isinstance(coarse_rows, str):  # "auto"
        return partial(train_sampled, seed=seed)
    return train if coarse_rows is None else partial(train_sparse, coarse_rows=coarse_rows, seed=seed)


def _box(sample: Array, Z: Array) -> Array:
    """The box (features, 2) in which inducing points are learned: the data with a margin."""
    both = np.concatenate([sample, Z])
    low, high = both.min(axis=0), both.max(axis=0)
    margin = _MARGIN * (high - low) + np.finfo(float).tiny
    return np.stack([low - margin, high + margin], axis=1)


def fingerprint(plan: Plan, data: Surveyed) -> str:
    """A digest of data and parameters, by which a checkpoint is known to belong to this fit."""
    found, factor = data.survey, data.factor
    arrays = found.classes, found.counts, found.used, np.array([] if factor is None else factor)
    version = importlib.import_module("postlin").__version__
    parts = [version, plan.settings, found.n, found.n_features, *(array.tolist() for array in arrays)]
    digest = hashlib.sha256(repr(parts).encode())
    for sampled in (found.sample, found.sample_codes, found.sample_weight):
        if sampled is not None:
            digest.update(np.ascontiguousarray(sampled).tobytes())
    return digest.hexdigest()
