"""The paper's experiments: Table I, the timings and the supplement's example with two latent values."""

import time
import warnings
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.datasets import load, whiten
from postlin.exceptions import ImproperCavityError
from postlin.inference.exact.evidence import ExactApproximation
from postlin.inference.infer import infer
from postlin.likelihoods import NoisyThreshold
from postlin.rules.binary import EP, Rule
from postlin.schedules import Parallel, Schedule, Sequential
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


PRIOR_MEAN = np.array([-0.5, -3.0])
PRIOR_COVARIANCE = np.array([[1.0, 0.8], [0.8, 1.0]])
LABELS = np.ones(2)
EPSILON = 0.01
Order = tuple[int, int]


class Example(NamedTuple):
    """The true posterior density on a grid, PL's approximation and what becomes of EP.

    ``path`` holds the means of undamped parallel PL; ``ep`` says for each order how plain EP ends.
    """

    axis1: Array
    axis2: Array
    density: Array
    mean: Array
    covariance: Array
    path: Array
    ep: dict[str, str]


def example(iterations: int = 12, points: int = 401) -> Example:
    """Compute everything that the supplement's figure shows."""
    solution, plain = _infer(Parallel()), _infer(Parallel(iterations=iterations))
    axis1, axis2 = np.linspace(-4.5, 5.0, points), np.linspace(-7.0, 4.0, points)
    ep = {
        "order 1, 2": _end_of_ep((0, 1), Sequential()),
        "order 2, 1": _end_of_ep((1, 0), Sequential()),
        "parallel": _end_of_ep((0, 1), Parallel()),
    }
    path = np.vstack([PRIOR_MEAN, *plain.history.means])
    density, mean, covariance = true_density(axis1, axis2), solution.mean, solution.covariance
    return Example(axis1, axis2, density, mean, covariance, path, ep)


def true_density(axis1: Array, axis2: Array) -> Array:
    """The posterior density on a grid, normalised so that it integrates to 1 over the grid."""
    f = np.stack(np.meshgrid(axis1, axis2, indexing="ij"), axis=-1)
    d = f - PRIOR_MEAN
    prior = np.exp(-0.5 * np.einsum("...i,ij,...j->...", d, np.linalg.inv(PRIOR_COVARIANCE), d))
    likelihood = np.prod(EPSILON + (1 - 2 * EPSILON) * (f > 0), axis=-1)
    cell = (axis1[1] - axis1[0]) * (axis2[1] - axis2[0])
    return np.asarray(prior * likelihood / (np.sum(prior * likelihood) * cell))


def _infer(schedule: Schedule, rule: Rule | str = "pl", order: Order = (0, 1)) -> ExactApproximation:
    rows, noisy = list(order), NoisyThreshold(EPSILON)
    K, mean = PRIOR_COVARIANCE[np.ix_(rows, rows)], PRIOR_MEAN[rows]
    return infer(K, LABELS, likelihood=noisy, prior_mean=mean, inference=rule, schedule=schedule)


def _end_of_ep(order: Order, schedule: Schedule) -> str:
    """How plain undamped EP ends when it visits the points in this order."""
    try:
        result = _infer(schedule, EP(negative_sites="raise"), order)
    except ImproperCavityError as error:
        return f"breaks: cavity variance {error.cavity_variance:.1f} at point {order[error.site] + 1}"
    return f"converges after {result.n_iter} iterations"
