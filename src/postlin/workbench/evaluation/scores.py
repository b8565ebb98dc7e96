"""Scores of predicted probabilities: by fold, by class, and summarised with standard errors."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from postlin._typing import Array
from postlin.workbench.evaluation.folds import FoldResult, Results, Task

_BINS, _RESAMPLES = 10, 200


class Score(NamedTuple):
    """A mean and its standard error, which is None for a single value."""

    mean: float
    error: float | None


class ClassScore(NamedTuple):
    """Scores of one class; None where there is nothing to divide by."""

    rows: int
    recall: float | None  # share of its rows that were recognised
    precision: float | None  # share of the rows predicted as this class that belong to it
    nlpd: float | None  # mean negative log probability of the label, over its rows


class Cell(NamedTuple):
    """The data set, method, likelihood and multi-class strategy that a row of the table is about."""

    data: str
    method: str
    likelihood: str = ""  # empty for baselines
    multi_class: str | None = None  # None for two classes


@dataclass(frozen=True)
class Summary:
    """Scores of one method on one data set."""

    error: Score
    nlpd: Score
    brier: Score
    calibration: Score
    log_evidence: Score | None  # None for baselines, as is the number of converged fits
    seconds: Score
    converged: int | None
    folds: int
    evidence_gap: Score | None = None  # to the exact posterior, where all folds were verified
    probability_gap: Score | None = None


#: The scores of a summary, in the order in which tables show them, with headings.
COLUMNS = {
    "error": "error",
    "nlpd": "log-loss",
    "brier": "Brier",
    "calibration": "calibration error",
    "log_evidence": "log evidence",
    "seconds": "seconds",
}
#: The scores that a summary has where fits were verified.
GAPS = {"evidence_gap": "Δ evidence", "probability_gap": "|Δp|"}


def by_class(p: Array) -> Array:
    """Probabilities of all classes, (n, C), also where p holds only those of the second of two."""
    return p if p.ndim == 2 else np.stack([1.0 - p, p], axis=1)


def error_rate(y: Array, p: Array) -> float:
    """The share of rows whose most probable class is wrong; y holds class indices."""
    return float(np.mean(np.argmax(by_class(p), axis=1) != y))


def log_densities(y: Array, p: Array) -> Array:
    """The log probability of the observed label, for each row."""
    of_label = by_class(p)[np.arange(len(y)), np.asarray(y, int)]
    return np.asarray(np.log(np.maximum(of_label, np.finfo(float).tiny)))


def negative_log_density(y: Array, p: Array) -> float:
    """The mean negative log probability of the observed labels (NLPD)."""
    return float(-np.mean(log_densities(y, p)))


def brier(y: Array, p: Array) -> float:
    """The mean squared difference of probability and outcome, summed over classes if p is (n, C)."""
    if p.ndim == 1:
        return float(np.mean((p - y) ** 2))
    outcome = np.arange(p.shape[1]) == np.asarray(y)[:, None]
    return float(np.mean(np.sum((p - outcome) ** 2, axis=1)))


def event(y: Array, p: Array) -> tuple[Array, Array]:
    """The event whose calibration is measured: whether it occurred in each row, and its probability.

    With two classes the event is that the label is the second class; with many, that the most probable
    class is right.
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
    """The calibration error of pooled predictions, with its standard error by the bootstrap."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(y), size=(_RESAMPLES, len(y)))
    spread = np.std([calibration_error(y[r], p[r]) for r in rows])
    return Score(calibration_error(y, p), float(spread))


def confusion(y: Array, p: Array) -> np.ndarray:
    """Counts (C, C): the number of rows of class i whose most probable class is j."""
    p = by_class(p)
    counts = confusion_matrix(np.asarray(y, int), np.argmax(p, axis=1), labels=range(p.shape[1]))
    return np.asarray(counts)


def class_scores(y: Array, p: Array) -> list[ClassScore]:
    """The scores of every class, in the order of the columns of p."""
    y, p = np.asarray(y, int), by_class(p)
    precision, recall, _, rows = precision_recall_fscore_support(
        y, np.argmax(p, axis=1), labels=range(p.shape[1]), zero_division=np.nan
    )
    surprise = np.bincount(y, weights=-log_densities(y, p), minlength=p.shape[1])
    nlpd = [total / n if n else np.nan for total, n in zip(surprise, rows, strict=True)]
    return [
        ClassScore(int(n), *(None if np.isnan(value) else float(value) for value in values))
        for n, *values in zip(rows, recall, precision, nlpd, strict=True)
    ]


def cell_of(task: Task) -> Cell:
    """The row of the table to which the result of a task belongs."""
    return Cell(task.data, task.method, task.likelihood, task.multi_class)


def group(results: Results) -> dict[Cell, Results]:
    """Results by cell, in the order in which the cells first occur."""
    cells: dict[Cell, Results] = defaultdict(dict)
    for task, result in results.items():
        cells[cell_of(task)][task] = result
    return dict(cells)


def pooled(folds: Results) -> tuple[Array, Array]:
    """The class indices and probabilities of the held-out rows of all folds."""
    y = np.concatenate([np.array(r.y, float) for r in folds.values()])
    p = np.concatenate([np.array(r.p) for r in folds.values()])
    return y, p


def summarise(folds: Results) -> Summary:
    """Means over folds with standard errors; with several seeds, over the means of the seeds."""

    def mean(score: Callable[[Array, Array], float]) -> Score:
        return _over_seeds(folds, lambda r: score(np.array(r.y), np.array(r.p)))

    return Summary(
        error=mean(error_rate),
        nlpd=mean(negative_log_density),
        brier=mean(brier),
        calibration=calibration_score(*event(*pooled(folds))),
        log_evidence=_where_known(folds, "log_evidence"),
        seconds=_over_seeds(folds, lambda r: r.seconds),
        converged=_number_converged(folds),
        folds=len(folds),
        **{name: gap for name in GAPS if (gap := _where_known(folds, name)) is not None},
    )


def _number_converged(folds: Results) -> int | None:
    known = [result.converged for result in folds.values() if result.converged is not None]
    return sum(known) if known else None


def _where_known(folds: Results, name: str) -> Score | None:
    """The mean of a value that some methods lack, or whose folds were not all verified."""
    if any(getattr(result, name) is None for result in folds.values()):
        return None
    return _over_seeds(folds, lambda result: float(getattr(result, name)))


def _over_seeds(folds: Results, score: Callable[[FoldResult], float]) -> Score:
    by_seed: dict[int, list[float]] = defaultdict(list)
    for task, result in folds.items():
        by_seed[task.seed].append(score(result))
    one, *others = by_seed.values()
    return over_folds([float(np.mean(values)) for values in (one, *others)] if others else one)


def over_folds(values: list[float]) -> Score:
    """The mean of values, with the standard error of that mean."""
    spread = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
    return Score(float(np.mean(values)), None if spread is None else float(spread))
