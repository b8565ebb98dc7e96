"""The sparse approximation: its evidence, and the exact gradient by one adjoint solve.

Each product of that solve is a pass. At a fixed point x = F(x, θ) of the passes the evidence 𝓔(x, θ)
has the total derivative 𝓔_θ + x̄ᵀF_θ with (I − F_xᵀ) x̄ = 𝓔_x. Of x̄ the part (−½I + ½hhᵀ, h), which
the Gaussian integral contributes, is known in closed form; what is left is driven by the mismatch
between sites and likelihood at the cavity alone, and vanishes for EP.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from postlin._typing import Array, Marginals, override
from postlin.inference.result import EXACT, Approximation
from postlin.inference.sparse.passes import (
    AdjointPass,
    Evidence,
    GradientPass,
    Pulled,
    Slopes,
    cavities,
    marginals,
)
from postlin.inference.sparse.posterior import SparsePosterior, State
from postlin.inference.sparse.row_sites import Method
from postlin.inference.sparse.solver import Residual
from postlin.linalg.krylov import gmres
from postlin.streaming.chunks import Chunk, Rows

#: An iteration that has not converged and still moves by more than this is lost.
_LOST = 0.1
#: The most passes spent on an adjoint.
_KRYLOV = 60


class Gradient(NamedTuple):
    """Derivatives of the log evidence, and its gain, to first order, on the way to the fixed point."""

    by_theta: Array  # the kernel's free log-parameters
    by_points: Array
    by_parameters: Array  # the likelihood's
    correction: float
    n_passes: int


def gradient_at(
    rows: Rows,
    posterior: SparsePosterior,
    method: Method,
    evidence: Evidence,
    residual: Residual,
    *,
    accuracy: float,
    points: bool,
) -> Gradient:
    """The gradient at a state, from the evidence there.

    ``accuracy`` is that of the adjoint: absolute, or relative where it is larger than one.
    """
    m, passes = len(posterior.h), 0

    def product(flat: Array) -> Array:
        nonlocal passes
        passes += 1
        E_bar, e_bar = _unpacked(flat, m)
        pulled: Pulled = rows.total(AdjointPass(posterior, method, E_bar, e_bar))
        return flat - _packed(*pulled)

    seed = _packed(evidence.by_precision, evidence.by_pull)
    size = float(np.linalg.norm(seed))
    solution = np.zeros_like(seed)
    if size > accuracy:  # a change of the state by one is a large one
        rtol = accuracy * max(1.0, 1.0 / size)
        solution, _ = gmres(product, seed, rtol=rtol, dimension=_KRYLOV)
    E_bar, e_bar = _unpacked(solution, m)
    slopes: Slopes = rows.total(GradientPass(posterior, method, E_bar, e_bar, points))
    by_theta, by_points = posterior.basis.pull_back(slopes.by_basis, points=points)
    h, (E, e, *_) = posterior.h, residual
    correction = np.sum(E_bar * E) + e_bar @ e + h @ e + 0.5 * (h @ E @ h - E.trace())
    return Gradient(
        slopes.by_theta + by_theta,
        slopes.by_points + by_points,
        slopes.by_parameters,
        float(correction),
        passes + 1,
    )


def _packed(E: Array, e: Array) -> Array:
    """A symmetric matrix and a vector as one vector with the same inner product."""
    rows, columns = np.tril_indices(len(e), -1)
    return np.concatenate([E.diagonal(), np.sqrt(2.0) * E[rows, columns], e])


def _unpacked(flat: Array, m: int) -> tuple[Array, Array]:
    E = np.diag(flat[:m])
    rows, columns = np.tril_indices(m, -1)
    E[rows, columns] = E[columns, rows] = flat[m:-m] / np.sqrt(2.0)
    return E, flat[-m:]


#: From an approximation and an accuracy to the log evidence and its gradient by the free parameters.
Differentiate = Callable[["SparseApproximation", float], tuple[float, Array]]


@dataclass(frozen=True, eq=False, repr=False)
class SparseApproximation(Approximation[State]):
    """The approximation with inducing points, small enough to be kept: no row is part of it."""

    posterior: SparsePosterior
    state: State
    method: Method
    evidence: float
    improper: int  # rows without a proper cavity: while there are any, the evidence means nothing
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
        return self.state.B, self.state.b

    @override
    def value_and_gradient(self, accuracy: float = EXACT) -> tuple[float, Array]:
        return self.differentiate(self, accuracy)

    @property
    @override
    def is_unusable(self) -> bool:
        return self.improper > 0 or (not self.converged and self.residual > _LOST)

    @property
    def n_passes(self) -> int:
        """The number of passes over all rows."""
        return self.record.n_iter

    @property
    @override
    def effort(self) -> str:
        return f"{self.n_passes} passes"

    def predict(self, X: Array) -> Marginals:
        """Means and variances of the latent values of new rows."""
        return self.posterior.predict(X)

    def predict_jointly(self, X: Array) -> tuple[Array, Array]:
        """Mean and covariance of the latent values of new rows."""
        return self.posterior.predict_jointly(X)

    def marginals(self, chunk: Chunk) -> Marginals:
        """Means and variances of the latent values of training rows, given their labels too."""
        return marginals(self.posterior, self.method, chunk)

    def cavities(self, chunk: Chunk) -> Marginals:
        """Means and variances as if each row's own label were not known, all other sites held."""
        return cavities(self.posterior, self.method, chunk)
