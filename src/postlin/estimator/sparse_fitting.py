"""From a source of labelled rows to fits with inducing points."""

import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import validate_data

from postlin._typing import Array
from postlin.estimator.fits import Fit
from postlin.estimator.parameters import Plan, start_of
from postlin.estimator.sparse_fit import SparseFit
from postlin.estimator.strategies import Decomposition
from postlin.inference.sparse.inducing import inducing_points
from postlin.learning.checkpoint import Checkpoint, RememberingModel
from postlin.learning.coarse import train_sparse
from postlin.learning.hyperparameters import WithPoints
from postlin.learning.search import shown_log
from postlin.learning.sparse_model import TOL, SparseModel
from postlin.linalg.arrays import on_host
from postlin.linalg.threads import blas_threads, threads
from postlin.streaming.dask import DaskEngine, DaskSource, active_client, is_dask
from postlin.streaming.engines import Engine, Threads
from postlin.streaming.sources import ArraySource, Source
from postlin.streaming.survey import Survey, survey
from postlin.streaming.views import SourceRows, View


@dataclass(frozen=True, eq=False)
class Surveyed:
    """A source after its first pass."""

    source: Source
    engine: Engine
    survey: Survey
    factor: Array | None = None  # the weight of each class
    observed: ClassVar[None] = None  # rows are not kept

    @property
    def classes(self) -> Array:
        """The labels, sorted."""
        return self.survey.classes

    def fitted(self, plan: Plan, rng: np.random.RandomState, before: Sequence[Fit]) -> Decomposition:
        """Classes taken apart; from the fits of an earlier time, if there are any."""
        return _fit_apart(plan, self, rng, before)

    def rows(self, sign: Array) -> SourceRows:
        """The rows of two classes."""
        return SourceRows(self.source, self.engine, View(self.survey, sign, self.factor))


def refuse_source(X: Any) -> None:
    """Raise ``ValueError`` for what only fits with inducing points can read."""
    if isinstance(X, Source) or is_dask(X):
        raise ValueError(
            f"exact inference needs all rows in memory, and X is a {type(X).__name__}: set inducing, "
            "for example inducing=500."
        )


def survey_of(model: Any, X: Any, y: Any, sample_weight: Any) -> Surveyed:
    """The rows that a classifier is given, after a first pass over them."""
    source = _source(model, X, y, sample_weight)
    engine = engine_for(source, model.n_jobs)
    found = look(source, engine)
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
    """What rows of each class count, times their own weights."""
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


#: How far inducing points may be learned to lie outside the data, in ranges of each feature.
_MARGIN = 0.1


def engine_for(source: Source, n_jobs: int | None) -> Engine:
    """Dask, where the rows are there or a surrounding client can load them; else threads."""
    client = active_client()
    if isinstance(source, DaskSource):
        return DaskEngine(client)
    if client is not None and source.loads_anywhere() is not None:
        return DaskEngine(client)
    return Threads(threads() if n_jobs is None else effective_n_jobs(n_jobs))


def _fit_apart(
    plan: Plan, data: Surveyed, rng: np.random.RandomState, before: Sequence[Fit]
) -> Decomposition:
    """A fit for every problem that the classes are taken apart into, one after the other.

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
        checkpoint.write()  # now, so that a path that cannot be written to is known before any work
    kind, classes = plan.decomposition, data.classes
    tasks = kind.tasks(classes, np.arange(len(classes)))  # as if there were one row of each
    signs = {task.name: _signs(task, len(classes)) for task in tasks}
    earlier = list(before) if len(before) == len(signs) else [None] * len(signs)
    models = [_model(plan, data.rows(sign), Z) for sign in signs.values()]
    jobs = list(zip(signs, models, earlier, strict=True))
    groups = [jobs] if plan.shared else [[job] for job in jobs]
    fits: list[SparseFit] = []
    with blas_threads(1):
        for k, group in enumerate(groups):
            fits += _fit(plan, data, group, np.random.RandomState(seed + k), checkpoint)
            if fits[-1].interrupted:  # what remains is fitted where it stands
                plan = plan.without_search()
    if checkpoint is not None:
        checkpoint.write()
    return kind(len(classes), fits)


def _points(plan: Plan, data: Surveyed, seed: int, checkpoint: Checkpoint | None) -> Array:
    """The inducing points, those of the checkpoint if it has some."""
    assert plan.sparse is not None
    known = {} if checkpoint is None else checkpoint.choices
    if "Z" not in known:
        n = int(data.survey.used.sum())
        known["Z"] = inducing_points(
            plan.sparse.inducing, data.survey.sample, n, seed, data.survey.sample_weight
        )
    Z: Array = known["Z"]
    return Z


def _signs(task: Any, n_classes: int) -> Array:
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
    """All these problems with the same hyperparameters."""
    assert plan.sparse is not None
    names, models, before = zip(*group, strict=True)
    at = plan.start_after(before[0])
    if not all(b is not None and np.array_equal(b.inducing_points_, models[0].Z) for b in before):
        before = (None,) * len(models)  # a state means something with its own inducing points only
    if plan.sparse.learn_inducing:
        at = WithPoints.of(at, models[0].Z, _box(data.survey.sample, models[0].Z))
    with shown_log(plan.verbose):
        training = train_sparse(
            [_remembering(m, checkpoint, name) for name, m in zip(names, models, strict=True)],
            at,
            plan.optimizer,
            coarse_rows=plan.sparse.coarse_rows,
            seed=int(rng.randint(np.iinfo(np.int32).max)),
            restarts=plan.n_restarts,
            rng=rng,
            starts=[start_of(b, model.n_rows) for b, model in zip(before, models, strict=True)],
            callback=plan.callback,
            keep_on_interrupt=plan.keep_on_interrupt,
        )
    if checkpoint is not None:
        checkpoint.finish(names)
    spread = data.survey.sample.std(axis=0)
    return [SparseFit(name, models[k], training, k, spread) for k, name in enumerate(names)]


def _remembering(model: SparseModel, checkpoint: Checkpoint | None, name: str) -> SparseModel:
    return model if checkpoint is None else RememberingModel.of(model, checkpoint, name)


def _box(sample: Array, Z: Array) -> Array:
    """Where inducing points may be learned to lie: about the data."""
    both = np.concatenate([sample, Z])
    low, high = both.min(axis=0), both.max(axis=0)
    margin = _MARGIN * (high - low) + np.finfo(float).tiny
    return np.stack([low - margin, high + margin], axis=1)


def fingerprint(plan: Plan, data: Surveyed) -> str:
    """Of data and parameters: what a checkpoint belongs to."""
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


def look(source: Source, engine: Engine) -> Survey:
    """The first pass."""
    return survey(source, engine, seed=0)
