"""The supplement's example with two latent values, where EP breaks and PL does not."""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ImproperCavityError
from postlin.inference.exact.evidence import ExactApproximation
from postlin.inference.infer import infer
from postlin.likelihoods import NoisyThreshold
from postlin.rules.binary import EP, Rule
from postlin.schedules import Parallel, Schedule, Sequential

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
