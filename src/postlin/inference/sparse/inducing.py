"""Inducing points: chosen among the data by k-means, or given and checked."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from postlin._typing import Array
from postlin.exceptions import ConvergenceWarning

#: Rows that k-means looks at, for every point that it is to find.
_ROWS_A_POINT = 40
#: Rounds of k-means; more do not move the evidence.
_ROUNDS = 20


def inducing_points(
    inducing: Any, sample: Array, n: int, seed: int, weight: Array | None = None
) -> Array:
    """The points that ``inducing`` asks for, (m, d), given a sample of the n rows of the data.

    A row of weight w counts as w rows.
    """
    if isinstance(inducing, Integral) and not isinstance(inducing, bool):
        weight = np.ones(len(sample)) if weight is None else weight
        return _k_means(int(inducing), sample, weight, n, seed)
    return _given(inducing, sample.shape[1], n)


def check_inducing(inducing: Any) -> None:
    """Raise ``ValueError`` for what can be neither a number of points nor an array of them."""
    is_number = isinstance(inducing, Integral) and not isinstance(inducing, bool)
    try:
        shape = np.shape(inducing)
    except ValueError:  # rows of different lengths
        shape = ()
    if not (inducing >= 1 if is_number else len(shape) == 2):
        shown = f"shape {shape}" if shape else repr(inducing)
        raise ValueError(
            "inducing must be None, a positive number of points or an array (points, features), got "
            f"{shown}."
        )


def _k_means(m: int, sample: Array, weight: Array, n: int, seed: int) -> Array:
    """Centres of clusters: spread as the data are, and inside them."""
    if m > n:
        raise ValueError(
            f"inducing={m} asks for more points than there are rows, {n}: use fewer, or None for "
            "exact inference."
        )
    chosen = np.random.default_rng(seed).permutation(len(sample))[: _ROWS_A_POINT * m]
    rows, counts = _distinct(sample[chosen], weight[chosen])
    if m > len(rows):
        rows, counts = _distinct(sample, weight)
    if m > len(rows):
        raise ValueError(
            f"inducing={m} asks for more points than X has distinct rows, {len(rows)}"
            f"{'' if len(sample) == n else f' in {len(sample):,} drawn at random'}: use fewer."
        )
    if m == len(rows):
        return rows
    means = KMeans(m, n_init=1, max_iter=_ROUNDS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last rounds hardly move them
        centres: Array = means.fit(rows, sample_weight=counts).cluster_centers_
    return centres


def _distinct(rows: Array, weight: Array) -> tuple[Array, Array]:
    """Each row once, and its weight in sum."""
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    total: Array = np.bincount(place.ravel(), weight).astype(np.float64)
    return distinct, total


def _given(inducing: Any, d: int, n: int) -> Array:
    try:
        if np.iscomplexobj(inducing):
            raise TypeError
        Z = np.array(inducing, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("inducing must hold numbers: it is an array (points, features).") from None
    if Z.shape[1] != d:
        raise ValueError(f"inducing has {Z.shape[1]} features and X has {d}.")
    if not 0 < len(Z) <= n:
        raise ValueError(
            f"inducing holds {len(Z)} points and X {n} rows: at least one point is needed, and no more "
            "than there are rows."
        )
    bad = np.flatnonzero(~np.isfinite(Z).all(axis=1))
    if len(bad):
        raise ValueError(f"inducing must be finite, but its row {bad[0]} holds NaN or infinity.")
    _, first, inverse = np.unique(Z, axis=0, return_index=True, return_inverse=True)
    original = first[inverse.ravel()]
    for i in np.flatnonzero(original != np.arange(len(Z)))[:1]:
        raise ValueError(
            f"inducing must hold distinct points, but its row {i} repeats row {original[i]}."
        )
    return Z
