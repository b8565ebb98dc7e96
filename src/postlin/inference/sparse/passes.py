"""What a pass over the rows adds up: pure functions of a chunk, which carry all else that they need.

In the coordinates V = L_B⁻¹R of the present posterior μ = Vᵀh and s = |V|², and a change of the
state is

    E = L_B⁻¹ dB L_B⁻ᵀ,     e = L_B⁻¹(db − dB w̄),     dμ = Vᵀe,     ds = −VᵀEV,

which is in units of the posterior itself: max(‖E‖, ‖e‖) bounds the relative change of every marginal.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from postlin._typing import Array, Marginals
from postlin.inference.sparse.posterior import Coordinates, SparsePosterior
from postlin.inference.sparse.row_sites import Linearised, Method, Seen
from postlin.streaming.chunks import Chunk


class Update(NamedTuple):
    """Σ τ'VVᵀ and Σ (ν' − τ'μ)V over the rows, and how many rows had no solution."""

    precision: Array
    pull: Array
    unsolved: int


class Evidence(NamedTuple):
    """An update, the rows' terms of the log evidence, and their derivatives by (E, e).

    ``improper`` counts rows without a proper cavity: the evidence means nothing while there are any.
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


class _Rows(NamedTuple):
    """A chunk as the posterior sees it."""

    V: Array
    seen: Seen
    weight: Array
    coordinates: Coordinates  # without R, which V is written over

    @property
    def copies(self) -> Array:
        """max(w, 1)."""
        copies: Array = self.weight / self.seen.strength
        return copies


@dataclass(frozen=True, eq=False)
class _Pass:
    """A posterior and a method, which a chunk meets."""

    posterior: SparsePosterior
    method: Method

    def _rows(self, chunk: Chunk, keep: bool = False) -> _Rows:
        coordinates = self.posterior.basis.coordinates(chunk.X, keep=keep)
        V = self.posterior.whitened(coordinates)
        weight = chunk.weight
        s = np.einsum("ij,ij->i", V, V)
        seen = Seen(V @ self.posterior.h, s, coordinates.lam, np.minimum(weight, 1.0))
        return _Rows(V, seen, weight, coordinates)

    def _solved(self, chunk: Chunk, keep: bool = False) -> tuple[_Rows, Linearised, int]:
        rows = self._rows(chunk, keep)
        sites, unsolved = self.method.solve(chunk.y, rows.seen)
        return rows, Linearised.at(self.method, chunk.y, rows.seen, sites), unsolved


class Cautious(_Pass):
    """A pass of the warm-up."""

    purpose: ClassVar[str] = "sites, in small steps"

    def __call__(self, chunk: Chunk) -> Update:
        """The chunk's share."""
        rows = self._rows(chunk)
        tau, nu = self.method.cautious(chunk.y, rows.seen)
        return Update(*_update(rows, tau, nu - tau * rows.seen.mu), 0)


class Sweep(_Pass):
    """A pass of the iteration: every row's site is set."""

    purpose: ClassVar[str] = "sites"

    def __call__(self, chunk: Chunk) -> Update:
        """The chunk's share."""
        rows = self._rows(chunk)
        (tau, nu), unsolved = self.method.solve(chunk.y, rows.seen)
        d = 1.0 / (1.0 + rows.seen.lam * tau)
        return Update(*_update(rows, tau * d, (nu - tau * rows.seen.mu) * d), unsolved)


class EvidencePass(_Pass):
    """The log evidence at the present state, and its derivative by the state."""

    purpose: ClassVar[str] = "evidence"

    def __call__(self, chunk: Chunk) -> Evidence:
        """The chunk's share."""
        rows, at, unsolved = self._solved(chunk)
        precision, pull = _update(rows, at.felt.tau, at.pull)
        value = np.sum(rows.copies * at.normalisers()) + np.sum(rows.weight * at.scales.value)
        zero = np.zeros_like(rows.weight)
        pulled = _pulled(rows, at, zero, zero, evidence=True)
        improper = int(at.improper.sum())
        return Evidence(precision, pull, unsolved, float(value), *pulled, improper)


@dataclass(frozen=True, eq=False)
class AdjointPass(_Pass):
    """The transposed derivative of the iteration at the present state, on (Ē, ē)."""

    E_bar: Array
    e_bar: Array
    purpose: ClassVar[str] = "adjoint"

    def __call__(self, chunk: Chunk) -> Pulled:
        """The chunk's share."""
        rows, at, _ = self._solved(chunk)
        t = np.einsum("ij,ij->i", rows.V @ self.E_bar, rows.V)
        return _pulled(rows, at, t, rows.V @ self.e_bar, evidence=False)


@dataclass(frozen=True, eq=False)
class GradientPass(_Pass):
    """Derivatives of the log evidence by all but the state, whose adjoint is (Ē, ē).

    The adjoint is without what the Gaussian integral contributes by itself, (−½I + ½hhᵀ, h): that
    is added here in closed form, where it cancels with what the rows contribute.
    """

    E_bar: Array
    e_bar: Array
    points: bool  # whether derivatives by Z are wanted
    purpose: ClassVar[str] = "gradient"

    def __call__(self, chunk: Chunk) -> Slopes:
        """The chunk's share."""
        rows, at, _ = self._solved(chunk, keep=True)
        V, copies, h = rows.V, rows.copies, self.posterior.h
        EV = V @ self.E_bar
        t, u = np.einsum("ij,ij->i", EV, V), V @ self.e_bar
        adjoint = at.pull_back(rows.weight, t, u, evidence=True)
        tau, pull = copies * at.felt.tau, copies * at.pull
        # R̄ = L_B⁻ᵀ[2τ'ĒV + (2s̄ − τ')V + pull (ē + h) + (μ̄ − τ'u) h] − 2λ̄R
        EV *= 2.0 * tau[:, None]
        EV += (2.0 * adjoint.s - tau)[:, None] * V
        EV += np.stack([pull, adjoint.mu - tau * u], axis=1) @ np.stack([self.e_bar + h, h])
        R_bar = self.posterior.factor.solve_transposed(EV)
        R = V @ self.posterior.factor.L.T
        R_bar -= (2.0 * adjoint.lam)[:, None] * R
        by_basis = R_bar.T @ R
        K_bar = self.posterior.basis.factor.solve_transposed(R_bar)
        rectangle, variances = rows.coordinates.cross, rows.coordinates.diagonal
        by_theta = np.array(rectangle.by_theta(K_bar)) + np.array(variances.by_theta(adjoint.lam))
        Z = self.posterior.basis.Z
        by_points = np.zeros_like(Z) + (rectangle.by_right(K_bar) if self.points else 0.0)
        return Slopes(by_basis, by_theta, by_points, at.by_parameters(rows.weight, adjoint))


def _update(rows: _Rows, tau: Array, pull: Array) -> tuple[Array, Array]:
    """Σ τ'VVᵀ and Σ pull V, each row as often as it counts."""
    return _weighted_square(rows.V, rows.copies * tau), (rows.copies * pull) @ rows.V


def _weighted_square(V: Array, weight: Array) -> Array:
    """Σ weight VVᵀ: half the work where no weight is negative."""
    if (weight >= 0).all():
        scaled = np.sqrt(weight)[:, None] * V
        return scaled.T @ scaled
    return (weight[:, None] * V).T @ V


def _pulled(rows: _Rows, at: Linearised, t: Array, u: Array, *, evidence: bool) -> Pulled:
    """Derivatives by the state, from those by what the rows add to it."""
    adjoint = at.pull_back(rows.weight, t, u, evidence)
    return Pulled((-adjoint.s[:, None] * rows.V).T @ rows.V, adjoint.mu @ rows.V)


def marginals(posterior: SparsePosterior, method: Method, chunk: Chunk) -> Marginals:
    """Means and variances of the latent values of training rows, their own sites included."""
    _, at, _ = _Pass(posterior, method)._solved(chunk)
    return at.marginals


def cavities(posterior: SparsePosterior, method: Method, chunk: Chunk) -> Marginals:
    """The same without each row's own site: what the others say of it."""
    _, at, _ = _Pass(posterior, method)._solved(chunk)
    return at.cavity.cavity
