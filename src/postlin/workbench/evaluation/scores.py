"""Scores of predicted probabilities, each with a standard error."""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array

_BINS = 10
_RESAMPLES = 200


class Score(NamedTuple):
    """A figure and its standard error (None where one value is all there is)."""

    mean: float
    error: float | None


def over_folds(values: list[float]) -> Score:
    """Mean of the folds, with the standard error of that mean."""
    if len(values) < 2:
        return Score(float(np.mean(values)), None)
    return Score(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))


def by_class(p: Array) -> Array:
    """Probabilities of all classes, (n, C): as they are, or of two classes from the second's alone."""
    return p if p.ndim == 2 else np.stack([1.0 - p, p], axis=1)


def error_rate(y: Array, p: Array) -> float:
    """Share of rows whose most probable label is wrong; y holds indices of classes."""
    return float(np.mean(np.argmax(by_class(p), axis=1) != y))


def log_densities(y: Array, p: Array) -> Array:
    """Log probability of the label that came, for each row."""
    of_label = by_class(p)[np.arange(len(y)), np.asarray(y, int)]
    logs: Array = np.log(np.maximum(of_label, np.finfo(float).tiny))
    return logs


def negative_log_density(y: Array, p: Array) -> float:
    """Mean of −log probability of the label that came (NLPD)."""
    return float(-np.mean(log_densities(y, p)))


def brier(y: Array, p: Array) -> float:
    """Mean squared difference of probability and outcome, of many classes summed over all of them."""
    if p.ndim == 1:
        return float(np.mean((p - y) ** 2))
    outcome = np.arange(p.shape[1]) == np.asarray(y)[:, None]
    return float(np.mean(np.sum((p - outcome) ** 2, axis=1)))


def event(y: Array, p: Array) -> tuple[Array, Array]:
    """What calibration is about: whether it came, and its probability.

    Of two classes, that the label is the second; of many, that the most probable label is right.
    """
    if p.ndim == 1:
        return y, p
    return (np.argmax(p, axis=1) == y).astype(float), np.max(p, axis=1)


def calibration_error(y: Array, p: Array) -> float:
    """Expected calibration error: |frequency − probability| averaged over ten bins of p."""
    bins = np.minimum((p * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, weights=y - p, minlength=_BINS)
    return float(np.abs(gaps).sum() / len(y))


def calibration_score(y: Array, p: Array) -> Score:
    """Calibration error of pooled predictions; its standard error by the bootstrap."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(y), size=(_RESAMPLES, len(y)))
    spread = np.std([calibration_error(y[r], p[r]) for r in rows])
    return Score(calibration_error(y, p), float(spread))
