"""Many small problems: each has k labelled rows and one query, its last row, which has no label.

With a root R of a prior covariance K and A = I + RᵀTR = LLᵀ, T = diag(τ), the posterior covariance is
Σ = G Gᵀ with G = R L⁻ᵀ. Its variances are positive by construction, whatever K is. Sites may be
negative as long as A is positive definite. The query is a row with the site τ = 0, ν = 0: its marginal
is the prediction.

All arrays of the problems are in one place, and everything that is computed row by row is computed
there too. What NumPy holds are the few numbers of each problem by which the solver plans its steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood
from postlin.likelihoods.on_host import anywhere
from postlin.linalg.arrays import Matrix, Place, on_host, place_of
from postlin.linalg.functions import functions
from postlin.linalg.stacks import (
    chosen_of,
    diagonals,
    part_of,
    roots,
    row_squares,
    shaped,
    times,
    transposed,
    whitened,
)
from postlin.linalg.threads import in_parts
from postlin.rules.binary import Rule
from postlin.rules.sites import Proposal, Sites, SiteView
from postlin.rules.weights import UNIT, Observations, Weights

#: The number of entries of all matrices of a part of the problems: 48 MiB, on a device 8 GiB a thread
#: or this part of what is free, since Python calls a device some thousand times for a part of any size.
#: A problem has seven matrices of P² entries, and three of (2k)² for Newton's step.
_ENTRIES, _ENTRIES_THERE, _SHARE = 6 * 2**20, 2**30, 1 / 8


@dataclass(frozen=True)
class LocalProblems:
    """n problems of P = k + 1 rows each; the last row is the query.

    ``covariance`` (n, P, P) holds prior covariances with the white noise on their diagonals, in NumPy
    or on a device; ``mean`` (n, P) prior means; ``y`` (n, k) labels ±1. All must be finite, and in one
    place. A row of weight w, ``weights`` (n, k), counts as w rows, and one of weight 0 not at all. If
    the w rows have independent white noise, ``noise`` is its variance, and the diagonal of the
    covariance holds noise/max(w, 1) at that row.
    """

    covariance: Matrix
    mean: Array
    y: Array
    likelihood: BinaryLikelihood
    rule: Rule
    weights: Array | None = None
    noise: float = 0.0

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    def n_neighbors(self) -> int:
        """k, the number of labelled rows of each problem."""
        return int(self.y.shape[1])

    @property
    def place(self) -> Place:
        """Where the arrays are."""
        return place_of(self.covariance)

    def in_parts(self, work: Callable[[slice, "LocalProblems"], None]) -> None:
        """Call ``work`` on parts of the problems that need little memory, in threads on the CPU."""
        place, weights = self.place, self.weights

        def on_part(rows: slice) -> None:
            some = replace(
                self,
                covariance=self.covariance[rows, :, :],
                mean=self.mean[rows, :],
                y=self.y[rows, :],
                weights=None if weights is None else weights[rows, :],
            )
            with np.errstate(all="ignore"):  # a trial may overflow, which the iterates show
                work(rows, some)

        most = most_problems(self.n_neighbors, place)
        in_parts(on_part, len(self), most, parallel=place.is_host)


def most_problems(k: int, place: Place) -> int:
    """The number of problems of k labelled rows that are solved at a time."""
    return max(1, most_entries(place) // (7 * (k + 1) ** 2 + 12 * k**2))


def most_entries(place: Place) -> int:
    """The number of entries that the matrices of some problems may have together."""
    if not place.has_memory:
        return _ENTRIES
    return min(_ENTRIES_THERE, int(_SHARE * place.available_memory() / 8))


@dataclass(frozen=True)
class Iterates:
    """Sites of some problems with their posteriors, and the sites that the rule proposes there.

    All arrays but ``rows`` are where the problems are.
    """

    rows: np.ndarray  # which problems
    sites: Array  # (n, 2, k): τ and ν
    G: Matrix  # (n, P, P), with Σ = G Gᵀ
    mean: Array  # (n, P)
    variance: Array  # (n, P)
    wanted: Array  # (n, 2, k): the proposed sites
    residual: Array  # (n, 2, k): v Δτ and √v (Δν − m Δτ)
    view: SiteView  # of one observation of each labelled row, flat
    proposal: Proposal  # flat

    def jacobian(self) -> Array:
        """The derivatives of the proposed sites, (2, 4, n, k), as in ``Proposal.jacobian``."""
        n, _, k = self.sites.shape
        by: Array = shaped(self.proposal.jacobian(), 2, 4, n, k)
        return by

    def view_of(self, chosen: np.ndarray) -> SiteView:
        """The flat views of the labelled rows of some of these problems."""
        n, _, k = self.sites.shape

        def picked(part: Any) -> Any:
            return flat(chosen_of(shaped(part, n, k), chosen)) if np.ndim(part) else part

        return SiteView(*map(picked, self.view))

    def moved(self, steps: Array, chosen: np.ndarray) -> Array:
        """The sites of some of these problems after steps in the residual's units.

        Where neither the present nor the proposed precision is negative, the new one is at least a
        tenth of the smaller of them.
        """
        sites, wanted, mean, variance = (
            chosen_of(part, chosen) for part in (self.sites, self.wanted, self.mean, self.variance)
        )
        tau, m, v, f = sites[:, 0, :], mean[:, :-1], variance[:, :-1], functions(sites)
        least = f.minimum(tau, wanted[:, 0, :])
        new = f.maximum(tau + steps[:, 0, :] / v, f.where(least >= 0, 0.1 * least, -np.inf))
        nu = sites[:, 1, :] + steps[:, 1, :] / f.sqrt(v) + m * (new - tau)
        moved: Array = f.stack([new, nu], axis=1)
        return moved


class Batch:
    """A part of the problems, with roots of their covariances; ``sound`` is in NumPy's memory."""

    def __init__(self, problems: LocalProblems) -> None:
        self.problems, self.place = problems, problems.place
        self.likelihood = anywhere(problems.likelihood, self.place)
        self.root, self.sound = roots(problems.covariance)
        self.prior_variance: Array = diagonals(problems.covariance)

    def __len__(self) -> int:
        return len(self.problems)

    def part(self, values: Matrix, rows: np.ndarray) -> Matrix:
        """The values of some problems, given for each; not a copy if they are all, in their order."""
        part: Array = values if len(rows) == len(self) else part_of(values, self.place.give(rows))
        return part

    def labels(self, rows: np.ndarray) -> Array:
        """The labels of some problems, flat."""
        labels: Array = flat(self.part(self.problems.y, rows))
        return labels

    def weights(self, rows: np.ndarray) -> Weights:
        """The weights of the labelled rows of some problems, flat."""
        weights, noise = self.problems.weights, self.problems.noise
        return UNIT if weights is None else Observations(flat(self.part(weights, rows)), noise)

    def proposal(self, rows: np.ndarray, one: SiteView) -> Proposal:
        """The rule's proposal at the flat views of one observation of each labelled row."""
        proposal = self.problems.rule.propose(self.likelihood, self.labels(rows), one)
        return self.weights(rows).propose(proposal, one.tau)

    def cautious_sites(self, rows: np.ndarray, one: SiteView) -> Array:
        """Sites for the first steps from the prior, (n, 2, k), which are never far too weak."""
        sites = self.problems.rule.propose_cautiously(self.likelihood, self.labels(rows), one)
        return self.stacked(self.weights(rows).total(sites), len(rows))

    def prior_view(self, rows: np.ndarray) -> SiteView:
        """The flat views of one observation of each labelled row at the prior."""
        mean, variance = (
            flat(self.part(part, rows)[:, :-1]) for part in (self.problems.mean, self.prior_variance)
        )
        f = functions(mean)
        zero = f.zeros_like(mean)
        return self.weights(rows).one(SiteView(mean, variance, zero, zero, f.ones_like(mean)))

    def iterates(self, rows: np.ndarray, sites: Array) -> Iterates:
        """The iterates at the sites (n, 2, k) of some problems.

        Those of which no posterior or no proper cavity exists are left out.
        """
        f = functions(sites)
        finite = f.isfinite(sites)
        tau, nu = (with_query(f.where(finite, sites, 0.0)[:, i, :]) for i in (0, 1))
        G, found = whitened(self.part(self.root, rows), tau)
        prior_mean = self.part(self.problems.mean, rows)
        mean = prior_mean + times(G, times(transposed(G), nu - tau * prior_mean))
        variance = row_squares(G)
        found = found & f.all(f.all(finite, axis=2), axis=1)
        found = found & f.all(f.isfinite(mean) & f.isfinite(variance), axis=1)
        found = found & f.all(variance[:, :-1] > 0.0, axis=1)
        view = self._one(rows, sites, mean, variance)
        if self.problems.rule.needs_cavity:
            found = found & f.all(shaped(view.gap > 0.0, len(rows), sites.shape[2]), axis=1)
        good = np.asarray(on_host(found))
        if not good.all():
            sites, mean, variance, G = (chosen_of(part, good) for part in (sites, mean, variance, G))
            rows = rows[good]
            view = self._one(rows, sites, mean, variance)
        proposal = self.proposal(rows, view)
        wanted = self.stacked(proposal.sites, len(rows))
        residual = moves(sites, wanted, mean[:, :-1]) * units(variance[:, :-1])
        return Iterates(rows, sites, G, mean, variance, wanted, residual, view, proposal)

    def stacked(self, sites: Sites, n: int) -> Array:
        """Flat sites of n problems as an array (n, 2, k)."""
        parts = [shaped(part, n, self.problems.n_neighbors) for part in sites]
        both: Array = functions(sites.tau).stack(parts, axis=1)
        return both

    def _one(self, rows: np.ndarray, sites: Array, mean: Array, variance: Array) -> SiteView:
        """The flat views of one observation of each labelled row."""
        m, v = flat(mean[:, :-1]), flat(variance[:, :-1])
        tau, nu = flat(sites[:, 0, :]), flat(sites[:, 1, :])
        return self.weights(rows).one(SiteView(m, v, tau, nu, 1.0 - tau * v))


def flat(values: Matrix) -> Any:
    """The values one after another."""
    return shaped(values, -1)


def with_query(values: Array) -> Array:
    """The values of the labelled rows, and 0 for the query."""
    f = functions(values)
    whole: Array = f.concat([values, f.zeros((values.shape[0], 1), values)], axis=1)
    return whole


def units(variance: Array) -> Array:
    """v and √v, (n, 2, k): a move of the sites times these is one in units of the marginal."""
    f = functions(variance)
    both: Array = f.stack([variance, f.sqrt(variance)], axis=1)
    return both


def moves(sites: Array, wanted: Array, mean: Array) -> Array:
    """Δτ and Δν − m Δτ from the present to the wanted sites, (n, 2, k)."""
    change = wanted - sites
    change[:, 1, :] -= mean * change[:, 0, :]
    return change


def sizes(residual: Array) -> Array:
    """The largest entry of each residual, 0 where there are no labelled rows; NaN if one is."""
    f = functions(residual)
    if not residual.shape[2]:
        none: Array = f.zeros((residual.shape[0],), residual)
        return none
    largest: Array = f.max(f.abs(residual), axis=(1, 2))
    return largest
