"""The sparse approximation: its evidence, and the exact gradient by one adjoint solve.

Each product of that solve is a pass. At a fixed point x = F(x, θ) of the passes the evidence 𝓔(x, θ)
has the total derivative 𝓔_θ + x̄ᵀF_θ with (I − F_xᵀ) x̄ = 𝓔_x. The part (−½I + ½hhᵀ, h) of x̄ comes
from the Gaussian integral and is known in closed form. The rest comes from the mismatch between sites
and likelihood at the cavity alone, and vanishes for EP.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from postlin._typing import Array, override
from postlin.inference.result import EXACT, Approximation
from postlin.inference.sparse.passes import AdjointPass, Evidence, GradientPass, Pulled, Slopes
from postlin.inference.sparse.posterior import SparsePosterior, State
from postlin.inference.sparse.row_sites import Method
from postlin.inference.sparse.solver import residual_of
from postlin.linalg.arrays import Matrix, on_host
from postlin.linalg.krylov import gmres
from postlin.streaming.views import Rows

#: The largest residual of an iteration without convergence whose evidence is still usable.
_LOST = 0.1
#: The most passes of an adjoint solve.
_KRYLOV = 60


class Gradient(NamedTuple):
    """Derivatives of the log evidence, and its change, to first order, up to the fixed point."""

    by_theta: Array  # by the kernel's free log-parameters
    by_points: Array
    by_parameters: Array  # by the likelihood's parameters
    correction: float


def gradient_at(
    rows: Rows,
    posterior: SparsePosterior,
    method: Method,
    evidence: Evidence,
    *,
    accuracy: float,
    points: bool,
) -> Gradient:
    """The gradient at a posterior, from the evidence there; ``points`` asks for derivatives by Z.

    ``accuracy`` is that of the adjoint: relative to its right-hand side where that is larger than one,
    else absolute.
    """
    put = posterior.basis.place.put

    def unpacked(flat: Array) -> tuple[Matrix, Matrix]:
        E, e = _unpacked(flat, len(posterior.h))
        return put(E), put(e)

    def product(flat: Array) -> Array:
        pulled: Pulled = rows.total(AdjointPass(posterior, method, *unpacked(flat)))
        return flat - _packed(*pulled)

    seed = _packed(evidence.by_precision, evidence.by_pull)
    size = float(np.linalg.norm(seed))
    solution = np.zeros_like(seed)
    if size > accuracy:  # (E, e) of size one is a large change of the state
        rtol = accuracy * max(1.0, 1.0 / size)
        solution, _ = gmres(product, seed, rtol=rtol, dimension=_KRYLOV)
    E_bar, e_bar = unpacked(solution)
    slopes: Slopes = rows.total(GradientPass(posterior, method, E_bar, e_bar, points))
    by_theta, by_points = posterior.basis.pull_back(slopes.by_basis, points=points)
    h, (E, e, *_) = posterior.h, residual_of(posterior, evidence)
    correction = (E_bar * E).sum() + e_bar @ e + h @ e + 0.5 * (h @ E @ h - E.trace())
    by_theta, by_points = slopes.by_theta + by_theta, slopes.by_points + by_points
    return Gradient(by_theta, by_points, slopes.by_parameters, float(correction))


def _packed(E: Matrix, e: Matrix) -> Array:
    """A symmetric matrix and a vector as one vector in NumPy with the same inner product."""
    E, e = on_host(E), on_host(e)
    rows, columns = np.tril_indices(len(e), -1)
    return np.concatenate([E.diagonal(), np.sqrt(2.0) * E[rows, columns], e])


def _unpacked(flat: Array, m: int) -> tuple[Array, Array]:
    """The inverse of ``_packed``, for m inducing points."""
    E = np.diag(flat[:m])
    rows, columns = np.tril_indices(m, -1)
    E[rows, columns] = E[columns, rows] = flat[m:-m] / np.sqrt(2.0)
    return E, flat[-m:]


#: Returns the log evidence and its gradient for an approximation and an accuracy.
Differentiate = Callable[["SparseApproximation", float], tuple[float, Array]]


@dataclass(frozen=True, eq=False, repr=False)
class SparseApproximation(Approximation[State]):
    """The approximation with inducing points. No row is part of it, so it is small."""

    posterior: SparsePosterior
    state: State
    method: Method
    evidence: float
    improper: int  # the number of rows without a proper cavity; the evidence is valid if it is zero
    differentiate: Differentiate

    @property
    @override
    def log_evidence(self) -> float:
        return self.evidence

    @property
    @override
    def start(self) -> State:
        return self.state

    @property
    @override
    def kept(self) -> tuple[Array, Array]:
        return on_host(self.state.B), on_host(self.state.b)

    @override
    def value_and_gradient(self, accuracy: float = EXACT) -> tuple[float, Array]:
        return self.differentiate(self, accuracy)

    @property
    @override
    def is_unusable(self) -> bool:
        return self.improper > 0 or (not self.converged and self.residual > _LOST)

    @property
    @override
    def effort(self) -> str:
        return f"{self.n_iter} passes"
