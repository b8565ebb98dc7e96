"""The sparse approximation: its evidence, and the exact gradient by one adjoint solve.

Each product of that solve is a pass. At a fixed point x = F(x, θ) of the passes the evidence 𝓔(x, θ)
has the total derivative 𝓔_θ + x̄ᵀF_θ with (I − F_xᵀ) x̄ = 𝓔_x. The part (−½I + ½hhᵀ, h) of x̄ comes
from the Gaussian integral and is known in closed form. The rest comes from the mismatch between sites
and likelihood at the cavity alone, and vanishes for EP.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

from postlin._typing import Array, override
from postlin.inference.result import EXACT, Approximation
from postlin.inference.sparse.passes import AdjointPass, Evidence, GradientPass, Pulled, Slopes
from postlin.inference.sparse.posterior import SparsePosterior, State
from postlin.inference.sparse.row_sites import Method
from postlin.inference.sparse.solver import residual_of
from postlin.linalg.arrays import Matrix, norm, on_host
from postlin.linalg.functions import functions
from postlin.linalg.krylov import gmres
from postlin.linalg.stacks import part_of, shaped
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
    packing = _Packing.of(posterior.h)

    def product(flat: Matrix) -> Matrix:
        pulled: Pulled = rows.total(AdjointPass(posterior, method, *packing.unpacked(flat)))
        return flat - packing.packed(*pulled)

    seed = packing.packed(evidence.by_precision, evidence.by_pull)
    size, solution = norm(seed), 0.0 * seed
    if size > accuracy:  # (E, e) of size one is a large change of the state
        rtol = accuracy * max(1.0, 1.0 / size)
        solution, _ = gmres(product, seed, rtol=rtol, dimension=_KRYLOV)
    E_bar, e_bar = packing.unpacked(solution)
    slopes: Slopes = rows.total(GradientPass(posterior, method, E_bar, e_bar, points))
    by_theta, by_points = posterior.basis.pull_back(slopes.by_basis, points=points)
    h, (E, e, *_) = posterior.h, residual_of(posterior, evidence)
    correction = (E_bar * E).sum() + e_bar @ e + h @ e + 0.5 * (h @ E @ h - E.trace())
    by_theta, by_points = slopes.by_theta + by_theta, slopes.by_points + by_points
    return Gradient(by_theta, by_points, slopes.by_parameters, float(correction))


class _Packing(NamedTuple):
    """A symmetric matrix (m, m) and a vector (m,) as one vector with the same inner product.

    It holds the lower triangle, with √2 for entries that count twice, and then the vector.
    """

    source: Any  # of each entry of the triangle, in the matrix row by row
    factors: Matrix
    place_in: Any  # of each entry of the matrix, in the triangle

    @classmethod
    def of(cls, e: Matrix) -> "_Packing":
        """The packing for vectors like e."""
        m, f = e.shape[0], functions(e)
        one = f.arange(m, e)
        row, column = one[:, None], one[None, :]
        low, high = f.minimum(row, column), f.maximum(row, column)
        source = f.flatnonzero(shaped(row >= column, -1))
        ones = f.zeros((source.shape[0],), e) + 1.0
        factors = f.where(source // m == source % m, ones, sqrt(2.0) * ones)
        return cls(source, factors, shaped(high * (high + 1) // 2 + low, -1))

    def packed(self, E: Matrix, e: Matrix) -> Matrix:
        """The vector."""
        return functions(e).concat([part_of(shaped(E, -1), self.source) * self.factors, e])

    def unpacked(self, flat: Matrix) -> tuple[Matrix, Matrix]:
        """The matrix and the vector."""
        size = self.source.shape[0]
        e = flat[size:]
        triangle = flat[:size] / self.factors
        return shaped(part_of(triangle, self.place_in), e.shape[0], e.shape[0]), e


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
