"""From a source of labelled rows to fits with inducing points."""

import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import validate_data

from postlin._typing import Array
from postlin._validation import is_dask
from postlin.estimator.fits import Fit
from postlin.estimator.parameters import Plan
from postlin.estimator.sparse_fit import SparseFit
from postlin.estimator.strategies import REGISTRY, BinaryTask, Decomposition
from postlin.inference.sparse.posterior import inducing_points
from postlin.learning.checkpoint import Checkpoint, RememberingModel
from postlin.learning.coarse import train_sparse
from postlin.learning.hyperparameters import WithPoints
from postlin.learning.search import shown_log, train
from postlin.learning.sparse_model import TOL, SparseModel
from postlin.linalg.arrays import on_host
from postlin.linalg.threads import blas_threads, threads
from postlin.streaming.engines import Engine, Threads
from postlin.streaming.sources import ArraySource, Source
from postlin.streaming.survey import Survey, survey
from postlin.streaming.views import SourceRows, View

#: How far inducing points may be learned to lie outside the data, in ranges of each feature.
_MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class Surveyed:
    """A source after its first pass."""

    source: Source
    engine: Engine
    survey: Survey
    factor: Array | None = None  # the weight of each class

    @property
    def classes(self) -> np.ndarray:
        """The labels, sorted."""
        return self.survey.classes

    def rows(self, sign: Array) -> SourceRows:
        """The rows of two classes, whose signs are given for all classes."""
        return SourceRows(self.source, self.engine, View(self.survey, sign, self.factor))


def read_source(model: Any, X: Any, y: Any, sample_weight: Any) -> Surveyed:
    """The rows that a classifier is given, after a first pass over them."""
    source = _source(model, X, y, sample_weight)
    engine = engine_for(source, model.n_jobs)
    found = survey(source, engine, seed=0)
    if not isinstance(source, ArraySource):  # scikit-learn has seen arrays itself
        model.n_features_in_ = found.n_features
        if found.names is not None:
            model.feature_names_in_ = np.array(found.names, dtype=object)
        elif hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
    return Surveyed(source, engine, found, _class_weights(model.class_weight, found))


def _source(model: Any, X: Any, y: Any, sample_weight: Any) -> Source:
    if isinstance(X, Source):
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
    if isinstance(X, np.memmap):  # with its file's name
        numbers = X
    weight = None if sample_weight is None else np.asarray(sample_weight)
    if weight is not None and weight.ndim == 0:
        weight = np.full(len(labels), weight)
    if weight is not None and weight.shape != labels.shape:
        raise ValueError(
            f"sample_weight must have shape ({len(labels)},), got {weight.shape}: one for every row."
        )
    return ArraySource(numbers, labels, weight)


def _class_weights(class_weight: Any, found: Survey) -> Array | None:
    """The factor of each class by which the weights of its rows are multiplied."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        every: Array = found.counts.sum() / (len(found.counts) * found.counts)
        return every
    weights: Array = np.asarray(
        compute_class_weight(class_weight, classes=found.classes, y=found.classes), float
    )
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(
            f"class_weight must be finite and positive with inducing points, got {weights}."
        )
    return weights


def engine_for(source: Source, n_jobs: int | None) -> Engine:
    """Dask, where the rows are there or a surrounding client can load them; else threads."""
    if hasattr(get_active_backend()[0], "client") or source.is_on_dask:
        from postlin.streaming.dask import DaskEngine, active_client

        client = active_client()
        if source.is_on_dask or (client is not None and source.loads_anywhere() is not None):
            return DaskEngine(client)
    return Threads(threads() if n_jobs is None else effective_n_jobs(n_jobs))


def fit_sparse(
    plan: Plan, data: Surveyed, rng: np.random.RandomState, before: Sequence[Fit]
) -> Decomposition:
    """Fit the binary problems in turn; after Ctrl-C the rest keep their starting hyperparameters.

    With a checkpoint all random numbers come from a seed that is kept there.
    """
    assert plan.sparse is not None
    seed = int(rng.randint(np.iinfo(np.int32).max))
    checkpoint = None
    if plan.sparse.checkpoint is not None:
        checkpoint = Checkpoint(plan.sparse.checkpoint, fingerprint(plan, data))
        seed = checkpoint.choices.setdefault("seed", seed)
    Z = _points(plan, data, seed, checkpoint)
    if checkpoint is not None:
        checkpoint.write()  # now, so that a path that cannot be written to is known before the work
    strategy, classes = REGISTRY[plan.multi_class], data.classes
    tasks = strategy.tasks(classes, np.arange(len(classes)))  # as if there were one row of each
    signs = {task.name: _signs(task, len(classes)) for task in tasks}
    earlier = list(before) if len(before) == len(signs) else [None] * len(signs)
    models = [_model(plan, data.rows(sign), Z) for sign in signs.values()]
    jobs = list(zip(signs, models, earlier, strict=True))
    groups = [jobs] if plan.shared else [[job] for job in jobs]
    fits: list[SparseFit] = []
    with blas_threads(1):
        for k, group in enumerate(groups):
            fits += _fit(plan, data, group, np.random.RandomState(seed + k), checkpoint)
            if fits[-1].interrupted:
                plan = plan.without_search()
    if checkpoint is not None:
        checkpoint.write()
    return strategy(len(classes), fits)


def _points(plan: Plan, data: Surveyed, seed: int, checkpoint: Checkpoint | None) -> Array:
    """The inducing points, from the checkpoint if it has some."""
    assert plan.sparse is not None
    known = {} if checkpoint is None else checkpoint.choices
    if "Z" not in known:
        n = int(data.survey.used.sum())
        known["Z"] = inducing_points(
            plan.sparse.inducing, data.survey.sample, n, seed, data.survey.sample_weight
        )
    Z: Array = known["Z"]
    return Z


def _signs(task: BinaryTask, n_classes: int) -> Array:
    """−1 and +1 for the classes that have a part in a problem."""
    sign = np.zeros(n_classes)
    sign[task.rows] = np.where(task.positive, 1.0, -1.0)
    return sign


def _model(plan: Plan, rows: SourceRows, Z: Array) -> SparseModel:
    assert plan.sparse is not None
    model = SparseModel(
        rows, Z, plan.rule, max(plan.tol, TOL), plan.max_iter, fold_noise=plan.fold_noise
    )
    model.check(plan.start.kernel, learn_points=plan.sparse.learn_inducing)
    return model


def _fit(
    plan: Plan,
    data: Surveyed,
    group: Sequence[tuple[str, SparseModel, Fit | None]],
    rng: np.random.RandomState,
    checkpoint: Checkpoint | None,
) -> list[SparseFit]:
    """Fit problems that share their hyperparameters."""
    assert plan.sparse is not None
    names, models, before = zip(*group, strict=True)
    at = plan.start_after(before[0].hyperparameters.theta if before[0] else None)
    if not all(b is not None and np.array_equal(b.inducing_points_, models[0].Z) for b in before):
        before = (None,) * len(models)  # a state means something with its own inducing points only
    if plan.sparse.learn_inducing:
        at = WithPoints.of(at, models[0].Z, _box(data.survey.sample, models[0].Z))
    seed, few = int(rng.randint(np.iinfo(np.int32).max)), plan.sparse.coarse_rows
    searcher = train if few is None else partial(train_sparse, coarse_rows=few, seed=seed)
    with shown_log(plan.verbose):
        training = searcher(
            [_remembering(m, checkpoint, name) for name, m in zip(names, models, strict=True)],
            at,
            plan.optimizer,
            restarts=plan.n_restarts,
            rng=rng,
            starts=[b and b.start_for(m.n_rows) for b, m in zip(before, models, strict=True)],
            callback=plan.callback,
            keep_on_interrupt=plan.keep_on_interrupt,
        )
    if checkpoint is not None:
        checkpoint.finish(names)
    spread = data.survey.sample.std(axis=0)
    return [SparseFit(name, models[k], training, k, spread) for k, name in enumerate(names)]


def _remembering(model: SparseModel, checkpoint: Checkpoint | None, name: str) -> SparseModel:
    if checkpoint is None:
        return model
    return RememberingModel(**vars(model), checkpoint=checkpoint, name=name)


def _box(sample: Array, Z: Array) -> Array:
    """The box in which inducing points are learned: about the data."""
    both = np.concatenate([sample, Z])
    low, high = both.min(axis=0), both.max(axis=0)
    margin = _MARGIN * (high - low) + np.finfo(float).tiny
    return np.stack([low - margin, high + margin], axis=1)


def fingerprint(plan: Plan, data: Surveyed) -> str:
    """A digest of data and parameters, which a checkpoint belongs to."""
    found = data.survey
    parts = [
        importlib.import_module("postlin").__version__,
        plan.settings,
        found.n,
        found.n_features,
        found.classes.tolist(),
        found.counts.tolist(),
        found.used.tolist(),
        None if data.factor is None else data.factor.tolist(),
    ]
    digest = hashlib.sha256(repr(parts).encode())
    for sampled in (found.sample, found.sample_codes, found.sample_weight):
        if sampled is not None:
            digest.update(np.ascontiguousarray(sampled).tobytes())
    return digest.hexdigest()
