"""From what a user passes to ``fit`` to a source whose rows are surveyed."""

from typing import Any

import numpy as np
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import validate_data

from postlin._typing import Array
from postlin.arrays import on_host
from postlin.sparse.dask import DaskSource, is_dask
from postlin.sparse.fitting import Surveyed, engine_for, look
from postlin.sparse.sources import ArraySource, Source
from postlin.sparse.survey import Survey


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
