"""The exact gradient of a score of the queries by all that defines the problems.

A score depends on the marginals at the queries, and these on the covariance, the prior mean and the
likelihood: directly, and through the fixed point of the sites. By the implicit function theorem one
adjoint solve a problem accounts for the fixed point.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.inference.local.linearised import LinearMaps
from postlin.inference.local.problems import Batch, Iterates, LocalProblems, units, with_query
from postlin.inference.local.solver import LocalPosteriors
from postlin.likelihoods.base import BinaryLikelihood
from postlin.linalg.arrays import Matrix, on_host, place_of
from postlin.linalg.stacks import entries, part_of, row_squares, spread, times, transposed, zeros


class Score(NamedTuple):
    """log p(y) of new labels, and its direct derivatives, one entry a label."""

    value: Array  # (n,)
    by_mean: Array  # (n,)
    by_variance: Array  # (n,)
    by_parameters: Array  # (n, number of the likelihood's parameters)


def log_scores(likelihood: BinaryLikelihood, y: Array, mean: Array, variance: Array) -> Score:
    """The log probabilities of labels ±1 whose latent values are N(mean, variance)."""
    jet = likelihood.jet(y, mean, variance)
    changes = [change.log_z for change in likelihood.density_changes(y, mean, variance)]
    by_parameters = np.array(changes, dtype=np.float64).reshape(len(changes), len(y)).T
    return Score(jet.log_z, jet.g, jet.log_z_by_v, by_parameters)


@dataclass(frozen=True)
class LocalGradients:
    """The derivatives of the score of each problem's query.

    A change dK changes the score by the sum of dK times ``covariance``, which is symmetric and where
    the covariance of the problems is. ``parameters`` has a column for each of the likelihood's
    parameters and ``noise`` is the derivative by ``LocalProblems.noise``; both are at a fixed
    covariance, and the direct derivatives of the score are not in them. Where ``found`` is False
    there is no gradient, and the numbers are 0.
    """

    covariance: Matrix  # (n, P, P)
    mean: Array  # (n, P)
    parameters: Array  # (n, number of parameters)
    noise: Array  # (n,)
    found: np.ndarray  # (n,)


def gradients(
    problems: LocalProblems, posteriors: LocalPosteriors, by_mean: Array, by_variance: Array
) -> LocalGradients:
    """The gradients of scores with these derivatives by the mean and variance at each query, (n,)."""
    n, size = problems.mean.shape
    n_parameters = len(problems.likelihood.parameters)
    result = LocalGradients(
        zeros(n, size, problems.covariance),
        np.zeros((n, size)),
        np.zeros((n, n_parameters)),
        np.zeros(n),
        np.zeros(n, dtype=bool),
    )

    def work(part: slice, some: LocalProblems) -> None:
        sites, batch = np.stack([posteriors.tau[part], posteriors.nu[part]], axis=1), Batch(some)
        iterates = batch.iterates(np.arange(len(batch)), sites)
        rows = part.start + iterates.rows
        _write(result, rows, _Adjoints(batch, iterates, by_mean[rows], by_variance[rows]))

    problems.in_parts(work)
    return result


def _write(result: LocalGradients, rows: np.ndarray, adjoints: "_Adjoints") -> None:
    """Copy the gradients of these problems, as far as they are finite, to the result."""
    covariance, mean = adjoints.by_prior()
    parameters, noise = adjoints.by_parameters(), adjoints.by_noise()
    found = (
        adjoints.found
        & np.isfinite(mean).all(axis=1)
        & np.isfinite(row_squares(covariance)).all(axis=1)
    )
    found &= np.isfinite(parameters).all(axis=1) & np.isfinite(noise)
    good, rows = np.flatnonzero(found), rows[found]
    result.covariance[place_of(covariance).give(rows)] = part_of(covariance, good)
    result.mean[rows], result.found[rows] = mean[good], True
    result.parameters[rows], result.noise[rows] = parameters[good], noise[good]


class _Adjoints:
    """The adjoints of the marginals and of the sites at some iterates."""

    def __init__(self, batch: Batch, iterates: Iterates, by_mean: Array, by_variance: Array) -> None:
        self._batch, self._iterates = batch, iterates
        G = iterates.G
        maps = LinearMaps(iterates, np.ones(len(iterates.rows), dtype=bool))
        # what (p, q) of the labelled rows do to the query: dm = c·q and dv = −(c∘c)·p
        query = G[:, -1:, :] @ transposed(G[:, :-1, :])
        c = np.asarray(on_host(query), float)[:, 0, :] / maps.sigma
        seed = np.stack([-by_variance[:, None] * c**2, by_mean[:, None] * c], axis=1)
        solution, self.found = maps.solve_transposed(seed)
        #: on Δτ and Δν − m Δτ of the proposed sites, (n, 2, k)
        self._sites = units(iterates.variance[:, :-1]) * solution
        through = np.einsum("rcnk,nrk->cnk", maps.local[:, :2], solution)
        #: total derivatives by all marginals, (n, P)
        self._mean = np.concatenate([through[0] / maps.sigma, by_mean[:, None]], axis=1)
        self._variance = np.concatenate([through[1] / maps.sigma**2, by_variance[:, None]], axis=1)

    def by_prior(self) -> tuple[Matrix, Array]:
        """Derivatives by the covariance and by the prior mean.

        With H = I − ΣT = (I + KT)⁻¹ and a = ν − τm they are ½(x aᵀ + a xᵀ) + Hᵀ diag(v̄) H and
        x = Hᵀ m̄.
        """
        G, mean = self._iterates.G, self._iterates.mean
        tau, nu = (with_query(part) for part in np.moveaxis(self._iterates.sites, 1, 0))
        x = self._mean - tau * times(G, times(transposed(G), self._mean))
        H = -(G @ transposed(G)) * transposed(spread(G, tau))
        diagonal = entries(H, 0, 0, H.shape[1])
        diagonal += 1.0
        outer = spread(G, 0.5 * x) @ transposed(spread(G, nu - tau * mean))
        square = transposed(H) @ (spread(G, self._variance) * H)
        return square + outer + transposed(outer), x

    def by_parameters(self) -> Array:
        """Derivatives by the likelihood's parameters through the sites, (n, number of parameters)."""
        problems, iterates = self._batch.problems, self._iterates
        y, proposal = problems.y[iterates.rows], iterates.proposal
        columns = [
            np.sum(self._sites[:, i] * proposal.by_parameter(change)[i].reshape(y.shape), axis=1)
            for change in problems.rule.changes(problems.likelihood, y.ravel(), proposal.at)
            for i in (0, 1)
        ]
        by: Array = np.array(columns, dtype=np.float64).reshape(-1, 2, len(y)).sum(axis=1).T
        return by

    def by_noise(self) -> Array:
        """Derivatives by the white noise of single observations, through their variances, (n,)."""
        iterates = self._iterates
        change = self._batch.weights(iterates.rows).variance_by_noise(iterates.view.tau)
        by: Array = np.sum(self._variance[:, :-1] * change.reshape(iterates.sites[:, 0].shape), axis=1)
        return by
