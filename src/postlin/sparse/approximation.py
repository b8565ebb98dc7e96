"""What sparse inference leaves: small, picklable, and all that predictions need."""

import warnings
from dataclasses import dataclass

from postlin._typing import Array
from postlin.exceptions import ConvergenceWarning
from postlin.sites import Marginals
from postlin.sparse.local import Method
from postlin.sparse.passes import cavities, marginals
from postlin.sparse.posterior import SparsePosterior, State
from postlin.sparse.rows import Chunk
from postlin.sparse.solver import SparseRecord


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
