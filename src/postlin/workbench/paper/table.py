"""Table I of the paper: average classification errors for real data sets."""

from typing import NamedTuple

import numpy as np

from postlin.workbench.evaluation.scores import Score
from postlin.workbench.evaluation.summary import Cell, Summary

#: The paper's order of columns, with the number of points, by which its last column is weighted.
SETS = {
    "breast_cancer": 699,
    "crab": 200,
    "glass": 214,
    "ionosphere": 351,
    "thyroid": 215,
    "housing": 506,
}

#: (likelihood, method): errors in the order of SETS, then the average.
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


class Comparison(NamedTuple):
    """Our error beside the paper's."""

    ours: Score
    paper: float
    points: int | None  # rows of the data set; None for the average

    @property
    def difference(self) -> float:
        """Ours less the paper's."""
        return self.ours.mean - self.paper

    @property
    def in_points(self) -> float | None:
        """The difference as a number of data points."""
        return None if self.points is None else self.difference * self.points

    @property
    def in_standard_errors(self) -> float | None:
        """The difference in units of our standard error."""
        return self.difference / self.ours.error if self.ours.error else None


def compare(summaries: dict[Cell, Summary]) -> dict[tuple[str, str], list[Comparison | None]]:
    """For every row of the table, its cells and the weighted average where all six are there."""
    table = {}
    for (likelihood, method), paper in PAPER.items():
        row: list[Comparison | None] = []
        for (name, points), error in zip(SETS.items(), paper[:-1], strict=True):
            summary = summaries.get(Cell(name, method, likelihood))
            row.append(Comparison(summary.error, error, points) if summary else None)
        cells = [cell for cell in row if cell is not None]
        complete = len(cells) == len(SETS)
        row.append(Comparison(_weighted(cells), paper[-1], None) if complete else None)
        if cells:
            table[likelihood, method] = row
    return table


def _weighted(cells: list[Comparison]) -> Score:
    """The average weighted by the number of points, as in the paper."""
    weights = np.array([cell.points for cell in cells], float)
    weights /= weights.sum()
    mean = float(weights @ [cell.ours.mean for cell in cells])
    errors = [cell.ours.error for cell in cells]
    known = [e for e in errors if e is not None]
    spread = (
        float(np.sqrt(np.sum((weights * np.array(known)) ** 2))) if len(known) == len(errors) else None
    )
    return Score(mean, spread)
