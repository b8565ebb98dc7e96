"""Passes over the rows: functions of a chunk whose results are added up over all chunks.

In the coordinates V = L_B⁻¹R of the present posterior, with h = L_B⁻¹b, a row has μ = Vᵀh and s = |V|²,
and a change of the state is

    E = L_B⁻¹ dB L_B⁻ᵀ,     e = L_B⁻¹(db − dB w̄),     dμ = Vᵀe,     ds = −VᵀEV.

These units are those of the posterior: max(‖E‖, ‖e‖) bounds the relative change of every marginal.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from postlin._typing import Array, Marginals
from postlin.inference.sparse.posterior import Coordinates, SparsePosterior
from postlin.inference.sparse.row_sites import Method, RowAdjoint, RowMoments, SolvedRows
from postlin.linalg.arrays import Matrix, Place, on_host, row_products
from postlin.linalg.functions import functions
from postlin.streaming.chunks import Chunk


class Update(NamedTuple):
    """Σ τ'VVᵀ and Σ (ν' − τ'μ)V over the rows, and the number of rows that could not be solved."""

    precision: Array
    pull: Array
    unsolved: int


class Evidence(NamedTuple):
    """An update, the rows' terms of the log evidence, and their derivatives by (E, e).

    ``improper`` is the number of rows without a proper cavity; the evidence is valid if it is zero.
    """

    precision: Array
    pull: Array
    unsolved: int
    value: float
    by_precision: Array
    by_pull: Array
    improper: int


class Pulled(NamedTuple):
    """Derivatives by (E, e)."""

    by_precision: Array
    by_pull: Array


class Slopes(NamedTuple):
    """Σ R̄Rᵀ, and derivatives by the kernel's log-parameters, Z, and the likelihood's parameters."""

    by_basis: Array
    by_theta: Array
    by_points: Array
    by_parameters: Array


@dataclass(frozen=True, eq=False)
class _Pass:
    """A function of a chunk, given a posterior of w and a method."""

    posterior: SparsePosterior
    method: Method

    @property
    def place(self) -> Place:
        """Where the pass computes; chunks are moved there."""
        return self.posterior.basis.place

    @property
    def _method(self) -> Method:
        """The method for arrays at that place."""
        return self.method.at(self.place)

    def _whitened(self, chunk: Chunk, keep: bool = False) -> tuple[Matrix, RowMoments, Coordinates]:
        """V and the moments of a chunk's rows, and their coordinates, whose R is overwritten by V."""
        basis, kept = self.posterior.basis, None if keep else chunk.kept
        if kept is None:
            coordinates = basis.checked(basis.coordinates(chunk.X, keep=keep))
            V = self.posterior.factor.solve(coordinates.R)
        else:
            coordinates = kept.get(
                "coordinates", basis, lambda: basis.checked(basis.coordinates(chunk.X))
            )
            V = self.posterior.factor.solve(1.0 * coordinates.R)
        strength = functions(chunk.weight).minimum(chunk.weight, 1.0)
        mu = V @ self.posterior.h + self.method.mean_at(chunk.X)
        return V, RowMoments(mu, row_products(V, V), coordinates.lam, strength), coordinates

    def _solved(self, chunk: Chunk, keep: bool = False) -> tuple[Matrix, SolvedRows, int, Coordinates]:
        """V, the rows with their sites, how many could not be solved, and their coordinates."""
        V, moments, coordinates = self._whitened(chunk, keep)

        def solved() -> tuple[SolvedRows, int]:
            sites, unsolved = self._method.solve(chunk.y, moments)
            mean = self.method.mean_at(chunk.X)
            return SolvedRows(self._method, chunk.y, chunk.weight, moments, sites, mean), unsolved

        if chunk.kept is None:
            return V, *solved(), coordinates
        return V, *chunk.kept.get("sites", self.posterior, solved), coordinates

    def _here(self, chunk: Chunk) -> Chunk:
        """The chunk where the pass computes."""
        if self.place.is_host or not isinstance(chunk.X, np.ndarray):
            return chunk
        return chunk.moved(self.place.put)


class Cautious(_Pass):
    """A pass of the warm-up, with sites that are never far too weak."""

    purpose: ClassVar[str] = "sites, in small steps"

    def __call__(self, chunk: Chunk) -> Update:
        """The chunk's share of the update."""
        chunk = self._here(chunk)
        V, moments, _ = self._whitened(chunk)
        tau, nu = self._method.cautious(chunk.y, moments)
        return Update(*_update(V, chunk.weight, tau, nu - tau * moments.mu), 0)


class Sweep(_Pass):
    """A pass of the iteration, which solves for the site of every row."""

    purpose: ClassVar[str] = "sites"

    def __call__(self, chunk: Chunk) -> Update:
        """The chunk's share of the update."""
        chunk = self._here(chunk)
        V, rows, unsolved, _ = self._solved(chunk)
        return Update(*_update(V, chunk.weight, rows.tau, rows.pull), unsolved)


class EvidencePass(_Pass):
    """The log evidence in the present state, and its derivatives by the state."""

    purpose: ClassVar[str] = "evidence"

    def __call__(self, chunk: Chunk) -> Evidence:
        """The chunk's share of the evidence."""
        chunk = self._here(chunk)
        V, rows, unsolved, _ = self._solved(chunk)
        precision, pull = _update(V, chunk.weight, rows.tau, rows.pull)
        pulled = _pulled(V, rows.pull_back(0.0, 0.0, evidence=True))
        improper = int(rows.improper.sum())
        return Evidence(precision, pull, unsolved, rows.log_evidence(), *pulled, improper)


@dataclass(frozen=True, eq=False)
class AdjointPass(_Pass):
    """The product of (Ē, ē) with the transposed Jacobian of the iteration in the present state."""

    E_bar: Matrix
    e_bar: Matrix
    purpose: ClassVar[str] = "adjoint"

    def __call__(self, chunk: Chunk) -> Pulled:
        """The chunk's share of the product."""
        V, rows, *_ = self._solved(self._here(chunk))
        t = row_products(V @ self.E_bar, V)
        return _pulled(V, rows.pull_back(t, V @ self.e_bar, evidence=False))


@dataclass(frozen=True, eq=False)
class GradientPass(_Pass):
    """Derivatives of the log evidence by everything but the state, given the state's adjoint (Ē, ē).

    The adjoint comes without the part (−½I + ½hhᵀ, h) of the Gaussian integral. This pass adds that
    part in closed form, since it cancels with terms of the rows.
    """

    E_bar: Matrix
    e_bar: Matrix
    points: bool  # whether to return derivatives by Z
    purpose: ClassVar[str] = "gradient"

    def __call__(self, chunk: Chunk) -> Slopes:
        """The chunk's share of the derivatives."""
        chunk, f = self._here(chunk), functions(self.e_bar)
        V, rows, _, (_, _, cross, diagonal) = self._solved(chunk, keep=True)
        copies, h = f.maximum(chunk.weight, 1.0), self.posterior.h
        EV = V @ self.E_bar
        t, u = row_products(EV, V), V @ self.e_bar
        adjoint = rows.pull_back(t, u, evidence=True)
        tau, pull = copies * rows.tau, copies * rows.pull
        # R̄ = L_B⁻ᵀ[2τ'ĒV + (2s̄ − τ')V + pull (ē + h) + (μ̄ − τ'u) h] − 2λ̄R
        EV *= 2.0 * tau[:, None]
        EV += (2.0 * adjoint.s - tau)[:, None] * V
        EV += f.rows([pull, adjoint.mu - tau * u]).T @ f.rows([self.e_bar + h, h])
        R_bar = self.posterior.factor.solve_transposed(EV)
        R = V @ self.posterior.factor.L.T
        R_bar -= (2.0 * adjoint.lam)[:, None] * R
        by_basis = R_bar.T @ R
        K_bar = self.posterior.basis.factor.solve_transposed(R_bar)
        by_theta = np.array(cross.by_theta(K_bar)) + np.array(diagonal.by_theta(adjoint.lam))
        by_points = np.zeros_like(self.posterior.basis.Z)
        if self.points:
            by_points = by_points + on_host(cross.by_right(K_bar))
        return Slopes(by_basis, by_theta, by_points, rows.by_parameters(adjoint))


class RowMarginals(_Pass):
    """The marginals of the latent values of training rows, with and without each row's own site."""

    def __call__(self, chunk: Chunk) -> tuple[Array, Array, Marginals, Marginals]:
        """The labels, weights, marginals and cavities of the rows."""
        _, rows, *_ = self._solved(self._here(chunk))
        marginals = Marginals(*map(on_host, (rows.view.mean, rows.view.variance)))
        cavities = Marginals(*map(on_host, rows.cavity_view.cavity))
        return on_host(chunk.y), on_host(chunk.weight), marginals, cavities


class LogLossPass(_Pass):
    """−Σ weight · log p(y) of rows that are not part of the posterior, and the sum of their weights."""

    purpose: ClassVar[str] = "log-loss"

    def __call__(self, chunk: Chunk) -> tuple[float, float]:
        """The chunk's share of the two sums."""
        chunk = self._here(chunk)
        _, moments, _ = self._whitened(chunk)
        log_z, *_ = self._method.likelihood.log_average(chunk.y, moments.mu, moments.lam + moments.s)
        return -float(chunk.weight @ log_z), float(chunk.weight.sum())


def _update(V: Matrix, weight: Array, tau: Array, pull: Array) -> tuple[Matrix, Matrix]:
    """Σ τ'VVᵀ and Σ pull V, where a row of weight ω counts max(ω, 1) times."""
    f = functions(tau)
    copies = f.maximum(weight, 1.0)
    tau, pull = copies * tau, copies * pull
    if isinstance(tau, np.ndarray) and (tau >= 0).all():  # NumPy computes half of AᵀA
        scaled = np.sqrt(tau)[:, None] * V
        return scaled.T @ scaled, pull @ V
    return (tau[:, None] * V).T @ V, pull @ V


def _pulled(V: Matrix, adjoint: RowAdjoint) -> Pulled:
    """The rows' derivatives by the state, from those by their moments."""
    return Pulled((-adjoint.s[:, None] * V).T @ V, adjoint.mu @ V)
