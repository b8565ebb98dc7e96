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


def error_rate(y: Array, p: Array) -> float:
    """Share of rows whose more probable label is wrong; y in {0, 1}, p the probability of 1."""
    return float(np.mean((p > 0.5) != (y > 0.5)))


def negative_log_density(y: Array, p: Array) -> float:
    """Mean of −log probability of the label that came (NLPD)."""
    of_label = np.where(y > 0.5, p, 1.0 - p)
    return float(-np.mean(np.log(np.maximum(of_label, np.finfo(float).tiny))))


def brier(y: Array, p: Array) -> float:
    """Mean squared difference of probability and outcome."""
    return float(np.mean((p - y) ** 2))


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
