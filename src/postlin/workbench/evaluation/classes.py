"""How the classes fare one by one: what is taken for what, and what is found of each."""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.workbench.evaluation.scores import by_class, log_densities


class ClassScore(NamedTuple):
    """Of one class; None where there is nothing to divide by."""

    rows: int
    recall: float | None  # share of its rows that were recognised
    precision: float | None  # share of the rows taken for it that are of it
    nlpd: float | None  # mean negative log probability of the label, over its rows


def confusion(y: Array, p: Array) -> np.ndarray:
    """Counts (C, C): rows of class i whose most probable class is j."""
    p = by_class(p)
    n = p.shape[1]
    pairs = np.asarray(y, int) * n + np.argmax(p, axis=1)
    return np.bincount(pairs, minlength=n * n).reshape(n, n)


def class_scores(y: Array, p: Array) -> list[ClassScore]:
    """One for every class."""
    counts = confusion(y, p)
    surprise = np.bincount(np.asarray(y, int), weights=-log_densities(y, p), minlength=len(counts))
    return [
        ClassScore(
            int(rows),
            _share(right, rows),
            _share(right, taken),
            _share(total, rows),
        )
        for rows, taken, right, total in zip(
            counts.sum(axis=1), counts.sum(axis=0), counts.diagonal(), surprise, strict=True
        )
    ]


def _share(part: float, whole: int) -> float | None:
    return float(part / whole) if whole else None
