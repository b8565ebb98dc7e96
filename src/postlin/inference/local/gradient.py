"""The exact gradient of a score of the queries by all that defines the problems.

A score depends on the marginals at the queries, and these on the covariance, the prior mean and the
likelihood: directly, and through the fixed point of the sites. By the implicit function theorem one
adjoint solve a problem accounts for the fixed point.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.inference.local.linearised import LinearMaps
from postlin.inference.local.problems import Batch, Iterates, LocalProblems, units, with_query
from postlin.inference.local.solver import LocalPosteriors
from postlin.likelihoods.base import BinaryLikelihood
from postlin.linalg.arrays import Matrix
from postlin.linalg.functions import functions
from postlin.linalg.stacks import entries, row_squares, shaped, times, transposed, write


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
    return Score(jet.log_z, jet.g, jet.log_z_by_v, _columns(changes, mean))


def _columns(parts: list[Array], like: Array) -> Array:
    """The vectors as columns of an array, which may have none."""
    f = functions(like)
    columns: Array = f.stack(parts, axis=1) if parts else f.zeros((like.shape[0], 0), like)
    return columns


@dataclass(frozen=True)
class LocalGradients:
    """The derivatives of the score of each problem's query; all arrays are where the problems are.

    A change dK changes the score by the sum of dK times ``covariance``, which is symmetric.
    ``parameters`` has a column for each of the likelihood's parameters and ``noise`` is the derivative
    by ``LocalProblems.noise``; both are at a fixed covariance, and the direct derivatives of the score
    are not in them. Where ``found`` is False there is no gradient, and the numbers are 0.
    """

    covariance: Matrix  # (n, P, P)
    mean: Array  # (n, P)
    parameters: Array  # (n, number of parameters)
    noise: Array  # (n,)
    found: Any  # (n,)


def gradients(
    problems: LocalProblems, posteriors: LocalPosteriors, by_mean: Array, by_variance: Array
) -> LocalGradients:
    """The gradients of scores with these derivatives by the mean and variance at each query, (n,)."""
    (n, size), blank = problems.mean.shape, problems.place.zeros
    result = LocalGradients(
        blank(n, size, size),
        blank(n, size),
        blank(n, len(problems.likelihood.parameters)),
        blank(n),
        blank(n) > 0,
    )

    def work(part: slice, some: LocalProblems) -> None:
        f, batch = functions(by_mean), Batch(some)
        sites = f.stack([posteriors.tau[part, :], posteriors.nu[part, :]], axis=1)
        iterates = batch.iterates(np.arange(len(batch)), sites)
        here = batch.part(by_mean[part], iterates.rows), batch.part(by_variance[part], iterates.rows)
        _write(result, part.start + iterates.rows, _Adjoints(batch, iterates, *here))

    problems.in_parts(work)
    return result


def _write(result: LocalGradients, rows: np.ndarray, adjoints: "_Adjoints") -> None:
    """Copy the gradients of these problems, as far as they are finite, to the result."""
    f = functions(adjoints.found)
    covariance, mean = adjoints.by_prior()
    parameters, noise = adjoints.by_parameters(), adjoints.by_noise()
    found = adjoints.found & f.isfinite(noise)
    for part in (mean, parameters, row_squares(covariance)):
        found = found & f.all(f.isfinite(part), axis=1)
    there = adjoints.batch.place.give(rows)
    pairs = (
        (result.covariance, f.where(found[:, None, None], covariance, 0.0)),
        (result.mean, f.where(found[:, None], mean, 0.0)),
        (result.parameters, f.where(found[:, None], parameters, 0.0)),
        (result.noise, f.where(found, noise, 0.0)),
        (result.found, found),
    )
    for array, values in pairs:
        write(array, there, values)


class _Adjoints:
    """The adjoints of the marginals and of the sites at some iterates."""

    def __init__(self, batch: Batch, iterates: Iterates, by_mean: Array, by_variance: Array) -> None:
        self.batch, self._iterates = batch, iterates
        G, f = iterates.G, functions(by_mean)
        maps = LinearMaps(iterates, np.ones(len(iterates.rows), dtype=bool))
        # what (p, q) of the labelled rows do to the query: dm = c·q and dv = −(c∘c)·p
        c = (G[:, -1:, :] @ transposed(G[:, :-1, :]))[:, 0, :] / maps.sigma
        seed = f.stack([-by_variance[:, None] * c**2, by_mean[:, None] * c], axis=1)
        solution, self.found = maps.solve_transposed(seed)
        #: on Δτ and Δν − m Δτ of the proposed sites, (n, 2, k)
        self._sites = units(iterates.variance[:, :-1]) * solution
        through = f.einsum("rcnk,nrk->cnk", maps.local[:, :2, :, :], solution)
        #: total derivatives by all marginals, (n, P)
        self._mean = f.concat([through[0, ...] / maps.sigma, by_mean[:, None]], axis=1)
        self._variance = f.concat([through[1, ...] / maps.sigma**2, by_variance[:, None]], axis=1)

    def by_prior(self) -> tuple[Matrix, Array]:
        """Derivatives by the covariance and by the prior mean.

        With H = I − ΣT = (I + KT)⁻¹ and a = ν − τm they are ½(x aᵀ + a xᵀ) + Hᵀ diag(v̄) H and
        x = Hᵀ m̄.
        """
        G, mean, sites = self._iterates.G, self._iterates.mean, self._iterates.sites
        tau, nu = (with_query(sites[:, i, :]) for i in (0, 1))
        x = self._mean - tau * times(G, times(transposed(G), self._mean))
        H = -(G @ transposed(G)) * tau[:, None, :]
        diagonal = entries(H, 0, 0, H.shape[1])
        diagonal += 1.0
        outer = (0.5 * x)[:, :, None] @ (nu - tau * mean)[:, None, :]
        square = transposed(H) @ (self._variance[:, :, None] * H)
        return square + outer + transposed(outer), x

    def by_parameters(self) -> Array:
        """Derivatives by the likelihood's parameters through the sites, (n, number of parameters)."""
        problem, batch, proposal = self.batch.problems, self.batch, self._iterates.proposal
        n, _, k = self._sites.shape
        f, columns = functions(self._sites), []
        labels = batch.labels(self._iterates.rows)
        for change in problem.rule.changes(batch.likelihood, labels, proposal.at):
            by = shaped(proposal.by_parameter(change), 2, n, k)
            parts = (self._sites[:, i, :] * by[i, ...] for i in (0, 1))
            columns.append(f.sum(sum(parts), axis=1))
        return _columns(columns, self._iterates.mean)

    def by_noise(self) -> Array:
        """Derivatives by the white noise of single observations, through their variances, (n,)."""
        iterates = self._iterates
        change = self.batch.weights(iterates.rows).variance_by_noise(iterates.view.tau)
        variance = self._variance[:, :-1]
        by: Array = functions(variance).sum(variance * shaped(change, *variance.shape), axis=1)
        return by
