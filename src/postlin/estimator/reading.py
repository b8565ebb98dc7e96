"""From what a user passes to ``fit`` to rows that can be fitted: validated, labelled, weighted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from postlin._typing import Array
from postlin._validation import check_weights, is_dask, is_source
from postlin.linalg.arrays import Place, on_host, place_named, place_of


@dataclass(frozen=True)
class Labelled:
    """The rows that count, with the indices of their classes and their weights (None: one each)."""

    X: np.ndarray
    codes: np.ndarray
    classes: np.ndarray
    weight: Array | None
    kept: np.ndarray  # which of the rows given these are
    place: Place
    n_jobs: int | None

    @property
    def observed(self) -> tuple[np.ndarray, np.ndarray, Array | None]:
        """What is known of the rows after the fit: which they are, their classes and weights."""
        return self.kept, self.codes, self.weight


def read(model: Any, X: Any, y: Any, sample_weight: Any) -> Labelled:
    """The rows that a classifier is given for exact inference, in memory."""
    if is_dask(X) or is_source(X):
        raise ValueError(
            f"exact inference needs all rows in memory, and X is a {type(X).__name__}: set inducing, "
            "for example inducing=500."
        )
    place = place_of(X) if model.device is None else place_named(model.device)
    X, y = validated(model, model.kernel, X, y, reset=True)
    check_classification_targets(y)
    weight = _weights(model.class_weight, X, y, sample_weight)
    kept = np.flatnonzero(weight > 0)
    if len(kept) < len(y):
        X, y, weight = X[kept], y[kept], weight[kept]
    classes, codes = np.unique(y, return_inverse=True)
    ones = (weight == 1.0).all()
    rows = np.copy(X) if model.copy_X_train else X
    return Labelled(rows, codes, classes, None if ones else weight, kept, place, model.n_jobs)


def validated(model: Any, kernel: Kernel | None, *data: Any, reset: bool) -> Any:
    """Rows, and labels if they are given, as scikit-learn validates them for the kernel."""
    data = tuple(map(on_host, data))
    if kernel is None or kernel.requires_vector_input:
        return validate_data(model, *data, reset=reset, dtype=np.float64)
    return validate_data(model, *data, reset=reset, dtype=None, ensure_2d=False)


def _weights(class_weight: Any, X: np.ndarray, y: np.ndarray, sample_weight: Any) -> Array:
    """The weight of each row."""
    weight = np.ones(len(y))
    if sample_weight is not None:
        given = _check_sample_weight(on_host(sample_weight), X, dtype=np.float64)
        weight = check_weights(given, len(y), "sample_weight")
    if class_weight is not None:
        classes, codes = np.unique(y, return_inverse=True)
        of_class = compute_class_weight(class_weight, classes=classes, y=y)
        weight = check_weights(weight * of_class[codes], len(y), "class_weight")
    return weight
