"""Data that are passed to ``fit`` are validated and become labelled, weighted rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from postlin._typing import Array
from postlin._validation import check_features, check_weights, is_dask, is_source
from postlin.estimator.parameters import Parameters
from postlin.linalg.arrays import Place, on_host, place_named, place_of


@dataclass(frozen=True)
class Labelled:
    """The rows of positive weight."""

    X: np.ndarray
    codes: np.ndarray  # for each row the index of its label in ``classes``
    classes: np.ndarray
    weight: Array | None  # None if all weights are one
    kept: np.ndarray  # the indices of the rows among those passed to ``fit``
    place: Place
    n_jobs: int | None


def read(model: Parameters, X: object, y: object, sample_weight: object) -> Labelled:
    """Validate the data passed to ``fit`` for exact inference, and drop rows of weight zero."""
    if is_dask(X) or is_source(X):
        raise ValueError(
            f"exact inference needs all rows in memory, and X is a {type(X).__name__}: set "
            "n_neighbors='auto' or inducing, for example inducing=500."
        )
    place = place_of(X) if model.device is None else place_named(model.device)
    rows, labels = validated(model, model.kernel, X, y, reset=True)
    if model.kernel is None or model.kernel.requires_vector_input:
        check_features(rows)
    check_classification_targets(labels)
    weight = _weights(model.class_weight, rows, labels, sample_weight)
    kept = np.flatnonzero(weight > 0)
    if len(kept) < len(labels):
        rows, labels, weight = rows[kept], labels[kept], weight[kept]
    classes, codes = np.unique(labels, return_inverse=True)
    ones = (weight == 1.0).all()
    rows = np.copy(rows) if model.copy_X_train else rows
    return Labelled(rows, codes, classes, None if ones else weight, kept, place, model.n_jobs)


def validated(model: object, kernel: Kernel | None, *data: object, reset: bool) -> Any:
    """Rows, and labels if they are given, as scikit-learn validates them for the kernel."""
    vectors = kernel is None or kernel.requires_vector_input
    options = {"dtype": np.float64} if vectors else {"dtype": None, "ensure_2d": False}
    with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn adds up the entries, near 1e308
        return validate_data(model, *map(on_host, data), reset=reset, **options)


def _weights(class_weight: object, X: np.ndarray, y: np.ndarray, sample_weight: object) -> Array:
    """The weight of each row: that of the row itself, times that of its class."""
    weight = np.ones(len(y))
    if sample_weight is not None:
        given = _check_sample_weight(on_host(sample_weight), X, dtype=np.float64)
        weight = check_weights(given, len(y), "sample_weight")
    if class_weight is not None:
        classes, codes = np.unique(y, return_inverse=True)
        of_class = compute_class_weight(class_weight, classes=classes, y=y)
        weight = check_weights(weight * of_class[codes], len(y), "class_weight")
    return weight
