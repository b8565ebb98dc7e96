"""From folds to figures: one row a (data set, method, likelihood)."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.workbench.evaluation.folds import FoldResult, Task
from postlin.workbench.evaluation.runner import Results
from postlin.workbench.evaluation.scores import (
    Score,
    brier,
    calibration_score,
    error_rate,
    event,
    negative_log_density,
    over_folds,
)


class Cell(NamedTuple):
    """What a row is about."""

    data: str
    method: str
    likelihood: str
    multi_class: str | None = None  # of two classes None


@dataclass(frozen=True)
class Summary:
    """Scores of one method on one data set."""

    error: Score
    nlpd: Score
    brier: Score
    calibration: Score
    log_evidence: Score
    seconds: Score
    converged: int
    folds: int


#: The scores of a summary, in the order in which tables show them, with headings.
COLUMNS = {
    "error": "error",
    "nlpd": "NLPD",
    "brier": "Brier",
    "calibration": "calibration error",
    "log_evidence": "log evidence",
    "seconds": "seconds",
}


def group(results: Results) -> dict[Cell, dict[Task, FoldResult]]:
    """Results by cell, in order of first appearance."""
    cells: dict[Cell, dict[Task, FoldResult]] = defaultdict(dict)
    for task, result in results.items():
        cells[Cell(task.data, task.method, task.likelihood, task.multi_class)][task] = result
    return dict(cells)


def pooled(folds: dict[Task, FoldResult]) -> tuple[Array, Array]:
    """Labels, as indices of classes, and probabilities of all held-out rows."""
    y = np.concatenate([np.array(r.y, float) for r in folds.values()])
    p = np.concatenate([np.array(r.p) for r in folds.values()])
    return y, p


def summarise(folds: dict[Task, FoldResult]) -> Summary:
    """Means over folds with standard errors; over seeds where there are several."""
    return Summary(
        error=_over_seeds(folds, lambda r: error_rate(np.array(r.y), np.array(r.p))),
        nlpd=_over_seeds(folds, lambda r: negative_log_density(np.array(r.y), np.array(r.p))),
        brier=_over_seeds(folds, lambda r: brier(np.array(r.y), np.array(r.p))),
        calibration=calibration_score(*event(*pooled(folds))),
        log_evidence=_over_seeds(folds, lambda r: r.log_evidence),
        seconds=_over_seeds(folds, lambda r: r.seconds),
        converged=sum(r.converged for r in folds.values()),
        folds=len(folds),
    )


def _over_seeds(folds: dict[Task, FoldResult], score: Callable[[FoldResult], float]) -> Score:
    """Mean of the fold values. With several shuffles their means are the sample."""
    by_seed: dict[int, list[float]] = defaultdict(list)
    for task, result in folds.items():
        by_seed[task.seed].append(score(result))
    if len(by_seed) == 1:
        return over_folds(next(iter(by_seed.values())))
    return over_folds([float(np.mean(values)) for values in by_seed.values()])
