"""The paper's results and ours beside them: the errors of Table I, and the seconds that a fit takes."""

import time
import warnings
from typing import NamedTuple

import numpy as np

from postlin.datasets import load, whiten
from postlin.workbench.evaluation.methods import METHODS, Protocol, make_classifier
from postlin.workbench.evaluation.scores import Cell, Score, Summary

#: The paper's data sets in the order of its columns, with their numbers of points, which weight the
#: average in its last column.
SETS = {
    "breast_cancer": 699,
    "crab": 200,
    "glass": 214,
    "ionosphere": 351,
    "thyroid": 215,
    "housing": 506,
}

#: Table I by (likelihood, method): errors in the order of SETS, then the average.
PAPER: dict[tuple[str, str], tuple[float, ...]] = {
    ("probit", "L"): (0.051, 0.050, 0.067, 0.108, 0.061, 0.069, 0.067),
    ("probit", "PEP"): (0.034, 0.045, 0.067, 0.088, 0.062, 0.064, 0.057),
    ("probit", "SEP"): (0.034, 0.045, 0.067, 0.088, 0.062, 0.064, 0.057),
    ("probit", "PPL"): (0.037, 0.035, 0.076, 0.083, 0.071, 0.069, 0.059),
    ("probit", "SPL"): (0.034, 0.045, 0.067, 0.091, 0.057, 0.069, 0.058),
    ("logit", "L"): (0.036, 0.045, 0.071, 0.105, 0.057, 0.067, 0.061),
    ("logit", "PEP"): (0.251, 0.045, 0.071, 0.083, 0.062, 0.070, 0.127),
    ("logit", "SEP"): (0.034, 0.045, 0.067, 0.083, 0.062, 0.070, 0.057),
    ("logit", "PPL"): (0.039, 0.040, 0.071, 0.088, 0.071, 0.067, 0.060),
    ("logit", "SPL"): (0.034, 0.045, 0.067, 0.083, 0.057, 0.067, 0.056),
    ("noisy_threshold", "PEP"): (0.202, 0.085, 0.071, 0.384, 0.454, 0.124, 0.214),
    ("noisy_threshold", "SEP"): (0.034, 0.045, 0.067, 0.086, 0.062, 0.069, 0.058),
    ("noisy_threshold", "PPL"): (0.043, 0.025, 0.081, 0.091, 0.062, 0.058, 0.058),
    ("noisy_threshold", "SPL"): (0.034, 0.035, 0.067, 0.091, 0.057, 0.070, 0.057),
}

#: Seconds that the paper reports for a fit with hyperparameters on the crab data, probit, in Matlab.
PAPER_SECONDS = {"L": 0.4, "PEP": 0.7, "SEP": 6.1, "PPL": 0.8, "SPL": 5.5}


class Comparison(NamedTuple):
    """Our error beside the paper's."""

    ours: Score
    paper: float
    points: int | None  # rows of the data set; None for the average

    @property
    def difference(self) -> float:
        """Our error minus the paper's."""
        return self.ours.mean - self.paper

    @property
    def in_percentage_points(self) -> float:
        """The difference in percentage points."""
        return 100 * self.difference


#: Table I by (likelihood, method): comparisons in the order of SETS, then that of the average.
TableI = dict[tuple[str, str], list[Comparison | None]]


def compare(summaries: dict[Cell, Summary]) -> TableI:
    """The rows of Table I: a comparison for each data set, and for the average if all six are there.

    Cells without results are None; rows without any are left out.
    """
    table = {}
    for (likelihood, method), paper in PAPER.items():
        row: list[Comparison | None] = []
        for (name, points), error in zip(SETS.items(), paper[:-1], strict=True):
            summary = summaries.get(Cell(name, method, likelihood))
            row.append(Comparison(summary.error, error, points) if summary else None)
        cells = [cell for cell in row if cell is not None]
        all_six = len(cells) == len(SETS)
        row.append(Comparison(_weighted(cells), paper[-1], None) if all_six else None)
        if cells:
            table[likelihood, method] = row
    return table


def _weighted(cells: list[Comparison]) -> Score:
    """The average weighted by the number of points, as in the paper."""
    weights = np.array([cell.points for cell in cells], float)
    weights /= weights.sum()
    mean = float(weights @ [cell.ours.mean for cell in cells])
    errors = [cell.ours.error for cell in cells]
    if None in errors:
        return Score(mean, None)
    return Score(mean, float(np.sqrt(np.sum((weights * np.array(errors, float)) ** 2))))


class Timing(NamedTuple):
    """The median seconds of our fits with a method, and the seconds that the paper reports."""

    method: str
    seconds: float
    paper: float


def timings(protocol: Protocol, repeats: int = 3) -> list[Timing]:
    """Time a fit of each of the five methods on the crab data, in interleaved rounds."""
    crab = load("crab")
    X, y = whiten(crab.X), crab.y
    rounds: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(repeats):
        for method in METHODS:
            model = make_classifier(method, "probit", protocol)
            start = time.perf_counter()
            with warnings.catch_warnings(action="ignore"):
                model.fit(X, y)
            rounds[method].append(time.perf_counter() - start)
    return [Timing(m, float(np.median(rounds[m])), PAPER_SECONDS[m]) for m in METHODS]
