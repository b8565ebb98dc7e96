"""What an evaluation concludes: which method is best, how sure that is, and what it gets wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from postlin._typing import Array
from postlin.plotting.reliability import wilson
from postlin.workbench.evaluation.folds import Data, FoldResult, Results, Task, held_out
from postlin.workbench.evaluation.scores import (
    Cell,
    by_class,
    group,
    log_densities,
    negative_log_density,
)

#: The level of all intervals.
LEVEL = 0.95
#: Methods whose probabilities differ nowhere by more than this are drawn as one.
_ALIKE = 0.02


class Interval(NamedTuple):
    """A mean and the interval around it; without an interval, both ends are the mean."""

    mean: float
    low: float
    high: float


class Mistake(NamedTuple):
    """A held-out row whose most probable class is wrong, with the indices of both classes."""

    row: int  # counted from 0 in the data
    label: int
    predicted: int
    of_label: float  # probability
    of_predicted: float


class Predictions(NamedTuple):
    """The held-out rows of a method: their numbers, class indices and probabilities of all classes."""

    rows: np.ndarray
    y: np.ndarray
    p: Array

    @property
    def wrong(self) -> int:
        """The number of rows whose most probable class is wrong."""
        return int(np.sum(np.argmax(self.p, axis=1) != self.y))

    @property
    def error(self) -> Interval:
        """The share of wrong rows, with Wilson's interval."""
        n = len(self.y)
        share = np.array([self.wrong / n])
        low, high = (float(end[0]) for end in wilson(share, np.array([n]), LEVEL))
        return Interval(float(share[0]), max(low, 0.0), high)

    def mistakes(self) -> list[Mistake]:
        """The wrong rows, those first whose own class was thought least probable."""
        guess = np.argmax(self.p, axis=1)
        order = np.argsort(log_densities(self.y, self.p), kind="stable")
        return [
            Mistake(
                int(self.rows[i]),
                int(self.y[i]),
                int(guess[i]),
                float(self.p[i, self.y[i]]),
                float(self.p[i, guess[i]]),
            )
            for i in order
            if guess[i] != self.y[i]
        ]


@dataclass(frozen=True)
class Conclusion:
    """The methods from the best to the worst by log-loss, those with failed folds last.

    ``excess`` is the log-loss of each other method minus that of the best one, paired over the folds
    that both have; ``alike`` has the methods in groups whose predictions are practically the same.
    """

    ranking: list[Cell]
    log_loss: dict[Cell, Interval]
    excess: dict[Cell, Interval]
    predictions: dict[Cell, Predictions]
    alike: list[list[Cell]]

    @property
    def best(self) -> Cell:
        """The method with the lowest log-loss among those without failed folds."""
        return self.ranking[0]


def interval_over_folds(values: Sequence[float]) -> Interval:
    """The mean over folds with its interval, by Student's t with the variance for repeated training.

    The rows to learn from are nearly the same in all folds, so the scores of folds are not independent;
    with K folds the variance of their mean is taken as s² (1/K + 1/(K − 1)) instead of s²/K (Nadeau and
    Bengio, 2003).
    """
    k, mean = len(values), float(np.mean(values))
    if k < 2:
        return Interval(mean, mean, mean)
    spread = float(np.std(values, ddof=1) * np.sqrt(1 / k + 1 / (k - 1)))
    half = float(student.ppf(0.5 + LEVEL / 2, k - 1)) * spread
    return Interval(mean, mean - half, mean + half)


def conclude(data: Data, results: Results) -> Conclusion:
    """The conclusion from results of one data set, cross-validated with one shuffle."""
    cells = group(results)
    losses = {cell: _by_fold(folds) for cell, folds in cells.items()}
    most = max(map(len, losses.values()))
    log_loss = {cell: interval_over_folds([*by_fold.values()]) for cell, by_fold in losses.items()}
    # A tie goes to the method that was named first.
    ranking = sorted(cells, key=lambda cell: (len(losses[cell]) < most, log_loss[cell].mean))
    first = losses[ranking[0]]
    excess = {}
    for cell in ranking[1:]:
        common = [fold for fold in losses[cell] if fold in first]
        if common:
            excess[cell] = interval_over_folds([losses[cell][f] - first[f] for f in common])
    predictions = {cell: _predictions(data, folds) for cell, folds in cells.items()}
    alike = _groups(ranking, predictions)
    return Conclusion(ranking, log_loss, excess, predictions, alike)


def _by_fold(folds: Results) -> dict[int, float]:
    """The log-loss of each fold."""

    def loss(result: FoldResult) -> float:
        return negative_log_density(np.array(result.y), np.array(result.p))

    return {task.fold: loss(result) for task, result in folds.items()}


def _predictions(data: Data, folds: dict[Task, FoldResult]) -> Predictions:
    rows = np.concatenate([held_out(data, task) for task in folds])
    y = np.concatenate([np.array(result.y, int) for result in folds.values()])
    p = np.concatenate([by_class(np.array(result.p)) for result in folds.values()])
    order = np.argsort(rows)
    return Predictions(rows[order], y[order], p[order])


def _groups(ranking: list[Cell], predictions: dict[Cell, Predictions]) -> list[list[Cell]]:
    """The methods in groups, the best of each first, with whose probabilities the others agree."""
    groups: list[list[Cell]] = []
    for cell in ranking:
        p = predictions[cell].p
        for other in groups:
            first = predictions[other[0]].p
            if first.shape == p.shape and float(np.max(np.abs(first - p))) <= _ALIKE:
                other.append(cell)
                break
        else:
            groups.append([cell])
    return groups
