"""From what a user passes to ``fit`` to rows that can be fitted: validated, labelled, weighted."""

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from postlin._typing import Array
from postlin._validation import check_weights
from postlin.estimator.fitting import Labelled
from postlin.estimator.parameters import Plan
from postlin.estimator.sparse_fitting import Surveyed, refuse_source, survey_of
from postlin.linalg.arrays import on_host, place_named, place_of


def read(model: Any, plan: Plan, X: Any, y: Any, sample_weight: Any) -> Labelled | Surveyed:
    """The rows that a classifier is given: in memory, or with inducing points after a first pass."""
    reader = _labelled if plan.sparse is None else survey_of
    data: Labelled | Surveyed = reader(model, X, y, sample_weight)
    if len(data.classes) == 1:
        raise ValueError(
            f"y holds one class only, {data.classes[0]}; a classifier needs examples of two classes."
        )
    return data


def validated(model: Any, kernel: Kernel | None, *data: Any, reset: bool) -> Any:
    """Rows, and labels if they are given, as scikit-learn would have them for the kernel."""
    data = tuple(map(on_host, data))
    if kernel is None or kernel.requires_vector_input:
        return validate_data(model, *data, reset=reset, dtype=np.float64)
    return validate_data(model, *data, reset=reset, dtype=None, ensure_2d=False)


def _labelled(model: Any, X: Any, y: Any, sample_weight: Any) -> Labelled:
    refuse_source(X)
    place = place_of(X) if model.device is None else place_named(model.device)
    X, y = validated(model, model.kernel, X, y, reset=True)
    check_classification_targets(y)
    weight = _weights(model.class_weight, X, y, sample_weight)
    kept = np.flatnonzero(weight > 0)
    if len(kept) < len(y):
        X, y, weight = X[kept], y[kept], weight[kept]
    classes, codes = np.unique(y, return_inverse=True)
    return Labelled(
        np.copy(X) if model.copy_X_train else X,
        codes,
        classes,
        None if (weight == 1.0).all() else weight,
        kept,
        place,
        model.n_jobs,
    )


def _weights(class_weight: Any, X: Any, y: Any, sample_weight: Any) -> Array:
    """What each row counts."""
    weight = np.ones(len(y))
    if sample_weight is not None:
        given = _check_sample_weight(on_host(sample_weight), X, dtype=np.float64)
        weight = check_weights(given, len(y), "sample_weight")
    if class_weight is not None:
        classes, codes = np.unique(y, return_inverse=True)
        of_class = compute_class_weight(class_weight, classes=classes, y=y)
        weight = check_weights(weight * of_class[codes], len(y), "class_weight")
    return weight
