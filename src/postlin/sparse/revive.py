"""An approximation made again from what was kept of it."""

from postlin._typing import Array
from postlin.hyperparameters import Hyperparameters
from postlin.kernels import split_white
from postlin.likelihoods import Likelihood, WithNoise
from postlin.sparse.approximation import SparseApproximation
from postlin.sparse.basis import Basis
from postlin.sparse.hyperparameters import WithPoints
from postlin.sparse.local import Method
from postlin.sparse.model import SparseModel
from postlin.sparse.posterior import SparsePosterior, State
from postlin.sparse.solver import SparseRecord


def points_at(model: SparseModel, at: Hyperparameters) -> Array:
    """The inducing points: learned, or as they were chosen."""
    return at.points if isinstance(at, WithPoints) else model.Z


def revived(
    model: SparseModel,
    at: Hyperparameters,
    state: tuple[Array, Array] | None,
    record: SparseRecord,
    log_evidence: float,
    improper: int,
) -> SparseApproximation:
    """The approximation with the state (B, b) at these hyperparameters; None for the prior's."""
    split = split_white(at.kernel) if model.fold_noise else None
    basis = Basis.of(split.smooth if split else at.kernel, points_at(model, at), model.jitter)
    likelihood: Likelihood = WithNoise(at.likelihood, split.noise) if split else at.likelihood
    here = State.prior(basis) if state is None else State(*state, basis.factor.L)
    method = Method(likelihood, model.rule)
    posterior = SparsePosterior.of(basis, here)
    return SparseApproximation(posterior, here, method, record, log_evidence, improper)
