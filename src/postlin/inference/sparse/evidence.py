"""What sparse inference leaves: small, picklable, and all that predictions need."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from postlin._typing import Array, Marginals
from postlin.exceptions import ConvergenceWarning
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
from postlin.inference.sparse.solver import Residual, SparseRecord
from postlin.linalg.krylov import gmres
from postlin.streaming.chunks import Chunk, Rows

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


@dataclass(frozen=True, eq=False)
class SparseApproximation:
    """A sparse approximation of the posterior, small enough to be kept: no row is part of it."""

    posterior: SparsePosterior
    state: State
    method: Method
    record: SparseRecord
    log_evidence: float
    improper: int  # rows without a proper cavity: while there are any, the evidence means nothing

    @property
    def converged(self) -> bool:
        """Whether the residual is below the tolerance, and every row's own equation solved."""
        return self.record.converged

    @property
    def residual(self) -> float:
        """The largest change, relative, that one more pass could make to any marginal."""
        return self.record.residual

    @property
    def is_clean(self) -> bool:
        """Whether it converged."""
        return self.converged

    @property
    def n_passes(self) -> int:
        """Passes over all rows."""
        return self.record.n_passes

    @property
    def start(self) -> State:
        """From where a similar problem may start."""
        return self.state

    @property
    def effort(self) -> str:
        """What it took, in words."""
        return f"{self.n_passes} passes"

    def predict(self, X: Array) -> Marginals:
        """Means and variances of the latent values of new rows, all at a time."""
        return self.posterior.predict(X)

    def predict_jointly(self, X: Array) -> tuple[Array, Array]:
        """Mean and covariance of the latent values of new rows."""
        return self.posterior.predict_jointly(X)

    def marginals(self, chunk: Chunk) -> Marginals:
        """Means and variances of the latent values of training rows, which know their labels."""
        return marginals(self.posterior, self.method, chunk)

    def cavities(self, chunk: Chunk) -> Marginals:
        """The same as if each row's own label were not known, all other sites held."""
        return cavities(self.posterior, self.method, chunk)

    def complaints(self, tol: float, max_passes: int) -> list[ConvergenceWarning]:
        """What must be known about it, each with what to do."""
        if self.converged:
            return []
        remedy = (
            f"raise max_iter_predict, the most passes (now {max_passes})"
            if self.n_passes >= max_passes
            else "add white noise to the kernel or use other inducing points"
        )
        return [
            ConvergenceWarning(
                f"sparse inference stopped after {self.n_passes} passes with residual "
                f"{self.residual:.2g}, above tol={tol:g} ({self.record.unsolved} rows unsolved); the "
                f"result is approximate. To remedy it, {remedy}. Extreme kernel parameters are the "
                "usual cause."
            )
        ]

    def warn(self, tol: float, max_passes: int, stacklevel: int) -> None:
        """Say it."""
        for message in self.complaints(tol, max_passes):
            warnings.warn(message, stacklevel=stacklevel)
