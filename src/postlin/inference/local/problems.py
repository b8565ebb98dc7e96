"""Many small problems: each has k labelled rows and one query, its last row, which has no label.

With a root R of a prior covariance K and A = I + RᵀTR = LLᵀ, T = diag(τ), the posterior covariance is
Σ = G Gᵀ with G = R L⁻ᵀ. Its variances are positive by construction, whatever K is. Sites may be
negative as long as A is positive definite. The query is a row with the site τ = 0, ν = 0: its marginal
is the prediction.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood
from postlin.linalg.arrays import Matrix, place_of
from postlin.linalg.stacks import diagonals, part_of, roots, row_squares, times, transposed, whitened
from postlin.linalg.threads import in_parts
from postlin.rules.binary import Rule
from postlin.rules.sites import Proposal, Sites, SiteView
from postlin.rules.weights import UNIT, Observations, Weights

#: The number of entries of all matrices of a part of the problems: 48 MiB, on a device 1 GiB a thread.
#: A problem has seven matrices of P² entries, and three of (2k)² for Newton's step.
_ENTRIES, _ENTRIES_THERE = 6 * 2**20, 2**27


@dataclass(frozen=True)
class LocalProblems:
    """n problems of P = k + 1 rows each; the last row is the query.

    ``covariance`` (n, P, P) holds prior covariances with the white noise on their diagonals, in NumPy
    or on a device; ``mean`` (n, P) prior means; ``y`` (n, k) labels ±1. All must be finite. A row of
    weight w, ``weights`` (n, k), counts as w rows, and one of weight 0 not at all. If the w rows have
    independent white noise, ``noise`` is its variance, and the diagonal of the covariance holds
    noise/max(w, 1) at that row.
    """

    covariance: Matrix
    mean: Array
    y: Array
    likelihood: BinaryLikelihood
    rule: Rule
    weights: Array | None = None
    noise: float = 0.0

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_neighbors(self) -> int:
        """k, the number of labelled rows of each problem."""
        return int(self.y.shape[1])

    def in_parts(self, work: Callable[[slice, "LocalProblems"], None]) -> None:
        """Call ``work`` on parts of the problems that need little memory, in threads on the CPU."""
        k, place = self.n_neighbors, place_of(self.covariance)

        def on_part(rows: slice) -> None:
            some = replace(
                self,
                covariance=self.covariance[rows, :, :],
                mean=self.mean[rows],
                y=self.y[rows],
                weights=None if self.weights is None else self.weights[rows],
            )
            with np.errstate(all="ignore"):  # a trial may overflow, which the iterates show
                work(rows, some)

        most = most_problems(k, there=place.has_memory)
        in_parts(on_part, len(self), most, parallel=place.is_host)


def most_problems(k: int, *, there: bool = False) -> int:
    """The number of problems of k labelled rows that are solved at a time, on the CPU or a device."""
    return max(1, (_ENTRIES_THERE if there else _ENTRIES) // (7 * (k + 1) ** 2 + 12 * k**2))


@dataclass(frozen=True)
class Iterates:
    """Sites of some problems with their posteriors, and the sites that the rule proposes there."""

    rows: np.ndarray  # which problems
    sites: Array  # (n, 2, k): τ and ν
    G: Matrix  # (n, P, P), with Σ = G Gᵀ
    mean: Array  # (n, P)
    variance: Array  # (n, P)
    wanted: Array  # (n, 2, k): the proposed sites
    residual: Array  # (n, 2, k): v Δτ and √v (Δν − m Δτ)
    view: SiteView  # of one observation of each labelled row, flat
    proposal: Proposal  # flat

    @property
    def size(self) -> Array:
        """The largest entry of each residual, (n,)."""
        return sizes(self.residual)

    def jacobian(self) -> Array:
        """The derivatives of the proposed sites, (2, 4, n, k), as in ``Proposal.jacobian``."""
        n, _, k = self.sites.shape
        return self.proposal.jacobian().reshape(2, 4, n, k)

    def view_of(self, chosen: np.ndarray) -> SiteView:
        """The flat views of the labelled rows of some of these problems."""
        rows = np.repeat(chosen, self.sites.shape[2])
        return SiteView(*(np.broadcast_to(part, rows.shape)[rows] for part in self.view))

    def moved(self, steps: Array, chosen: np.ndarray) -> Array:
        """The sites of some of these problems after steps in the residual's units.

        Where neither the present nor the proposed precision is negative, the new one is at least a
        tenth of the smaller of them.
        """
        (tau, nu), wanted = (np.moveaxis(s[chosen], 1, 0) for s in (self.sites, self.wanted))
        m, v = self.mean[chosen, :-1], self.variance[chosen, :-1]
        least = np.minimum(tau, wanted[0])
        new = np.maximum(tau + steps[:, 0] / v, np.where(least >= 0, 0.1 * least, -np.inf))
        return np.stack([new, nu + steps[:, 1] / np.sqrt(v) + m * (new - tau)], axis=1)


class Batch:
    """A part of the problems, with roots of their covariances."""

    def __init__(self, problems: LocalProblems) -> None:
        self.problems = problems
        self.root, self.sound = roots(problems.covariance)
        self.prior_variance = diagonals(problems.covariance)

    def __len__(self) -> int:
        return len(self.problems)

    def weights(self, rows: np.ndarray) -> Weights:
        """The weights of the labelled rows of some problems, flat."""
        weights = self.problems.weights
        return UNIT if weights is None else Observations(weights[rows].ravel(), self.problems.noise)

    def proposal(self, rows: np.ndarray, one: SiteView) -> Proposal:
        """The rule's proposal at the flat views of one observation of each labelled row."""
        p = self.problems
        proposal = p.rule.propose(p.likelihood, p.y[rows].ravel(), one)
        return self.weights(rows).propose(proposal, one.tau)

    def cautious_sites(self, rows: np.ndarray, one: SiteView) -> Array:
        """Sites for the first steps from the prior, (n, 2, k), which are never far too weak."""
        p = self.problems
        sites = p.rule.propose_cautiously(p.likelihood, p.y[rows].ravel(), one)
        return stacked(self.weights(rows).total(sites), p.y[rows])

    def prior_view(self, rows: np.ndarray) -> SiteView:
        """The flat views of one observation of each labelled row at the prior."""
        mean, variance = (part[rows, :-1].ravel() for part in (self.problems.mean, self.prior_variance))
        zero = np.zeros_like(mean)
        return self.weights(rows).one(SiteView(mean, variance, zero, zero, np.ones_like(mean)))

    def iterates(self, rows: np.ndarray, sites: Array) -> Iterates:
        """The iterates at the sites (n, 2, k) of some problems.

        Those of which no posterior, no proper cavity or no finite residual exists are left out.
        """
        finite = np.isfinite(sites).all(axis=(1, 2))
        rows, sites = rows[finite], sites[finite]
        tau, nu = with_query(sites[:, 0]), with_query(sites[:, 1])
        G, found = whitened(part_of(self.root, rows), tau)
        prior_mean = self.problems.mean[rows]
        mean = prior_mean + times(G, times(transposed(G), nu - tau * prior_mean))
        variance = row_squares(G)
        found &= (np.isfinite(mean) & np.isfinite(variance)).all(axis=1)
        found &= (variance[:, :-1] > 0.0).all(axis=1)
        view = self._one(rows, sites, mean, variance)
        if self.problems.rule.needs_cavity:
            found &= (view.gap > 0.0).reshape(sites[:, 0].shape).all(axis=1)
        if not found.all():
            rows, sites, mean, variance = rows[found], sites[found], mean[found], variance[found]
            G = part_of(G, np.flatnonzero(found))
            view = self._one(rows, sites, mean, variance)
        proposal = self.proposal(rows, view)
        wanted = stacked(proposal.sites, self.problems.y[rows])
        residual = moves(sites, wanted, mean[:, :-1]) * units(variance[:, :-1])
        iterates = Iterates(rows, sites, G, mean, variance, wanted, residual, view, proposal)
        usable = np.isfinite(iterates.size)
        return iterates if usable.all() else self.iterates(rows[usable], sites[usable])

    def _one(self, rows: np.ndarray, sites: Array, mean: Array, variance: Array) -> SiteView:
        """The flat views of one observation of each labelled row."""
        m, v = mean[:, :-1].ravel(), variance[:, :-1].ravel()
        tau, nu = sites[:, 0].ravel(), sites[:, 1].ravel()
        return self.weights(rows).one(SiteView(m, v, tau, nu, 1.0 - tau * v))


def with_query(values: Array) -> Array:
    """The values of the labelled rows, and 0 for the query."""
    return np.concatenate([values, np.zeros((len(values), 1))], axis=1)


def stacked(sites: Sites, like: Array) -> Array:
    """Flat sites as an array (n, 2, k), for an array (n, k) like theirs."""
    return np.stack([part.reshape(like.shape) for part in sites], axis=1)


def units(variance: Array) -> Array:
    """v and √v, (n, 2, k): a move of the sites times these is one in units of the marginal."""
    return np.stack([variance, np.sqrt(variance)], axis=1)


def moves(sites: Array, wanted: Array, mean: Array) -> Array:
    """Δτ and Δν − m Δτ from the present to the wanted sites, (n, 2, k)."""
    change = wanted - sites
    change[:, 1] -= mean * change[:, 0]
    return change


def sizes(residual: Array) -> Array:
    """The largest entry of each residual, 0 where there are no labelled rows; NaN if one is."""
    largest: Array = np.abs(residual).max(axis=(1, 2), initial=0.0)
    return largest
