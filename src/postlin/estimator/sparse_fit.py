"""What is learned from two classes by way of inducing points."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from postlin._typing import Array, Marginals
from postlin.estimator.fits import BinaryFit, draws, within_range
from postlin.inference.solver import History, Record
from postlin.inference.sparse.evidence import SparseApproximation
from postlin.inference.sparse.posterior import State
from postlin.inference.sparse.solver import SparseRecord
from postlin.learning.search import Training
from postlin.learning.sparse_model import SparseModel, points_at, revived
from postlin.likelihoods import BinaryLikelihood
from postlin.linalg.threads import blas_threads
from postlin.streaming.chunks import CHUNK, Chunk


class Each(NamedTuple):
    """What is known of each row that was used: by one more pass, and in their order."""

    row: np.ndarray  # of the data
    y: Array
    weight: Array
    marginal: Marginals
    cavity: Marginals


@dataclass(frozen=True, eq=False)
class OfChunk:
    """What an approximation says of the rows of a chunk."""

    approximation: SparseApproximation

    def __call__(self, chunk: Chunk) -> tuple[Any, ...]:
        """Labels, weights, and marginals with and without a row's own label."""
        found = self.approximation
        weight = np.ones(len(chunk.y)) if chunk.weight is None else chunk.weight
        return chunk.y, weight, found.marginals(chunk), found.cavities(chunk)


class SparseFit(BinaryFit):
    """A posterior over latent values given labels −1 and +1; no row is part of it.

    Rows can be asked about as long as the fit knows where they are: not in a copy from a file or from
    another process.
    """

    def __init__(
        self, name: str, model: SparseModel, training: Training, k: int, spread: Array
    ) -> None:
        """``spread`` are the features' standard deviations."""
        self._n = model.n_rows
        self.spread = spread
        self._each: Each | None = None
        super().__init__(name, range(model.n_rows), model, training, k)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        model = {f.name: getattr(self.model, f.name) for f in fields(SparseModel)}
        alone = SparseModel(**model | {"rows": None, "after_pass": None})
        return super().__getstate__() | {"model": alone, "_each": None, "rows": None, "_loo": None}

    def _record_of(self, approximation: Any) -> Record:
        record: SparseRecord = approximation.record
        n, history = record.n_passes, History(record.residuals, [])
        return Record(record.converged, record.residual, n, n, history, np.zeros(0, bool))

    def _kept_of(self, approximation: Any) -> tuple[Array, ...]:
        """The state."""
        return approximation.state.B, approximation.state.b

    def _inference_complaints(self) -> Sequence[Warning]:
        found: Sequence[Warning] = self.approximation_.complaints(self.model.tol, self.model.max_passes)
        return found

    def _warn(self, approximation: Any) -> None:
        approximation.warn(self.model.tol, self.model.max_passes, 6)

    @property
    def approximation_(self) -> SparseApproximation:
        """The approximation of the posterior over latent values."""
        if self._approximation is None:
            record = self.record
            self._approximation = revived(
                self.model,
                self.hyperparameters,
                (self._sites[0], self._sites[1]),
                SparseRecord(
                    record.converged, record.residual, record.n_iter, record.history.residuals, 0
                ),
                self.log_marginal_likelihood_value_,
                0,
            )
        found: SparseApproximation = self._approximation
        return found

    @property
    def inducing_points_(self) -> Array:
        """The inducing points: learned, or as they were chosen."""
        return points_at(self.model, self.hyperparameters)

    @property
    def latent_likelihood(self) -> BinaryLikelihood:
        """The likelihood as these latent values see it."""
        likelihood = self.approximation_.method.likelihood
        assert isinstance(likelihood, BinaryLikelihood)
        return likelihood

    @property
    def start(self) -> State:
        """From where a similar problem may start."""
        return self.approximation_.start

    @property
    def n_rows(self) -> int:
        """How many rows were used."""
        return self._n

    takes_passes: ClassVar[bool] = True

    def row_numbers(self, kept: Any) -> np.ndarray:
        """The rows used, as they were passed to ``fit``."""
        return self.each().row

    @property
    def effort(self) -> str:
        """What the last inference took, in words."""
        return f"passes: {self.record.n_iter}"

    @property
    def remark(self) -> str:
        """How many inducing points, and where the white noise is."""
        folded = super().remark
        return f"{len(self.inducing_points_)} inducing points{', ' if folded else ''}{folded}"

    @property
    def X_train_(self) -> Any:  # noqa: N802
        """Not kept."""
        raise AttributeError("a fit with inducing points keeps no rows: X_train_ is not there.")

    @property
    def y_train_(self) -> Array:
        """Not kept."""
        raise AttributeError("a fit with inducing points keeps no labels: y_train_ is not there.")

    def latent_mean_and_variance(self, X: Any) -> Marginals:
        """Mean and variance of the latent value at each row."""
        with blas_threads(len(self._sites[1])), np.errstate(over="ignore", invalid="ignore"):
            parts = [self.approximation_.predict(X[i : i + CHUNK]) for i in range(0, len(X), CHUNK)]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return within_range(Marginals(mean, variance))

    def latent_mean(self, X: Any) -> Array:
        """Mean of the latent value at each row."""
        return self.latent_mean_and_variance(X).mean

    def sample(self, X: Any, n_samples: int, rng: np.random.RandomState) -> Array:
        """Joint draws of the latent values at the rows of X, an array (n, n_samples)."""
        with blas_threads(len(X)):
            return draws(*self.approximation_.predict_jointly(X), n_samples, rng)

    def spectral_radius(self) -> float:
        """Not known."""
        raise AttributeError("the spectral radius is not known with inducing points.")

    def log_marginal_likelihood(self, *args: Any, **kwargs: Any) -> Any:
        """The log evidence at other hyperparameters, which takes passes over the rows."""
        if args or kwargs:
            self._rows()
        return super().log_marginal_likelihood(*args, **kwargs)

    def each(self) -> Each:
        """Of each row that was used, what the model makes of it, with and without its label."""
        if self._each is None:
            self._each = Each(*self._rows().gather(OfChunk(self.approximation_)))
        return self._each

    def _rows(self) -> Any:
        if self.model.rows is None:
            raise AttributeError(
                "the rows are no part of a model with inducing points that was saved or sent to "
                "another process: ask where it was fitted, or fit again."
            )
        return self.model.rows

    @property
    def codes(self) -> np.ndarray:
        """0 and 1 for −1 and +1."""
        return (self.each().y > 0).astype(int)

    def site_strengths(self) -> tuple[Array, Array]:
        """τ, and ν − τ m without its sign, by what the row's own label adds to its cavity."""
        (m, v), (m_c, v_c) = self.each().marginal, self.each().cavity
        tau = 1.0 / v - 1.0 / v_c
        return tau, np.abs(m / v - m_c / v_c - tau * m)

    def cavity_log_probabilities(self) -> Array:
        """From the cavities alone."""
        return self._log_probabilities(self.each().cavity)

    def _left_out(self) -> Array:
        """One row of very many moves no other: its cavity is all there is to it."""
        return self.cavity_log_probabilities()
