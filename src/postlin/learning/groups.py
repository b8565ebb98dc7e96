"""Groups of rows that lie near each other, of equal size."""

import numpy as np

from postlin._typing import Array

#: Steps towards the direction in which rows differ most; it need not be exact.
_STEPS = 10


def neighbourhoods(X: np.ndarray, count: int) -> list[np.ndarray]:
    """The numbers of the rows in each of ``count`` groups, a power of two.

    Rows are halved again and again, where their coordinate along the longest direction has its median.
    """
    groups = [np.arange(len(X))]
    while len(groups) < count:
        groups = [half for group in groups for half in _halves(X, group)]
    return groups


def _halves(X: np.ndarray, group: np.ndarray) -> list[np.ndarray]:
    rows = np.asarray(X[group], float)
    centred = rows - rows.mean(axis=0)
    centred /= np.abs(centred).max() or 1.0  # whose squares do not overflow
    order = np.argsort(centred @ _longest_direction(centred), kind="stable")
    middle = len(group) // 2
    return [np.sort(group[order[:middle]]), np.sort(group[order[middle:]])]


def _longest_direction(centred: Array) -> Array:
    direction: Array = (centred**2).sum(axis=0)
    for _ in range(_STEPS):
        direction = direction / (np.linalg.norm(direction) or 1.0)
        direction = centred.T @ (centred @ direction)
    return direction
