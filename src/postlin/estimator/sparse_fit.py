"""The fit of two classes with inducing points, and its predictions."""

from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from postlin._typing import Array, Marginals, override
from postlin.estimator.fits import BinaryFit, draws
from postlin.inference.result import Approximation
from postlin.inference.sparse.evidence import SparseApproximation
from postlin.inference.sparse.passes import RowMarginals
from postlin.inference.sparse.posterior import State
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.sparse_model import SparseModel
from postlin.learning.training import Training
from postlin.likelihoods import BinaryLikelihood
from postlin.linalg.arrays import HOST
from postlin.linalg.threads import blas_threads
from postlin.streaming.chunks import CHUNK
from postlin.streaming.views import PlacedRows, SourceRows


class Each(NamedTuple):
    """What one more pass finds for each row that was used, in the order of the rows."""

    row: np.ndarray  # its index in the data
    y: Array
    weight: Array
    marginal: Marginals
    cavity: Marginals  # the marginal without the row's own label


class SparseFit(BinaryFit):
    """A posterior of two classes with inducing points, which holds no training rows.

    Answers about single training rows take a pass over the data. A copy from a file or from another
    process cannot give them, because it does not know where the data are.
    """

    model: SparseModel
    approximation_: SparseApproximation
    method: ClassVar[str] = "sparse"
    takes_passes: ClassVar[bool] = True

    def __init__(
        self, name: str, model: SparseModel, training: Training[State], k: int, spread: Array
    ) -> None:
        """``spread`` holds the standard deviations of the features."""
        self.spread = spread
        self._each: Each | None = None
        super().__init__(name, range(model.n_rows), model, training, k)

    def __getstate__(self) -> dict[str, object]:
        model = {f.name: getattr(self.model, f.name) for f in fields(SparseModel)}
        alone = SparseModel(**model | {"rows": None, "after_pass": None, "place": HOST})
        return super().__getstate__() | {"model": alone, "_each": None, "rows": None, "_loo": None}

    @property
    @override
    def kind(self) -> str:
        return f"{len(self.inducing_points_)} inducing points"

    @property
    @override
    def deviations(self) -> Array:
        return self.spread

    @property
    @override
    def inducing_points_(self) -> Array:
        return self.model.points_at(self.hyperparameters)

    @property
    @override
    def latent_likelihood(self) -> BinaryLikelihood:
        return cast(BinaryLikelihood, self.approximation_.method.likelihood)

    @override
    def row_numbers(self, kept: np.ndarray | None) -> np.ndarray:
        return self.each().row

    @property
    @override
    def X_train_(self) -> np.ndarray:
        raise AttributeError("a fit with inducing points keeps no rows, so it has no X_train_.")

    @property
    @override
    def y_train_(self) -> np.ndarray:
        raise AttributeError("a fit with inducing points keeps no labels, so it has no y_train_.")

    @override
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        predict, mean_at = self.approximation_.posterior.predict, self.model.mean_at

        def predicted(rows: np.ndarray) -> Marginals:
            mean, variance = predict(rows)
            return Marginals(mean + mean_at(rows), variance)

        return Marginals(*self._in_blocks(X, CHUNK, predicted))

    @override
    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState) -> Array:
        with blas_threads(len(X)):
            mean, covariance = self.approximation_.posterior.predict_jointly(X)
            return draws(mean + self.model.mean_at(X), covariance, n_samples, rng)

    @override
    def log_marginal_likelihood(self, *args: Any, **kwargs: Any) -> float | tuple[float, Array]:
        if args or kwargs:
            self._rows()  # inference at other hyperparameters needs them
        return super().log_marginal_likelihood(*args, **kwargs)

    @override
    def _move(self, here: Hyperparameters, found: Approximation[Any]) -> None:
        super()._move(here, found)
        self._each = None

    def each(self) -> Each:
        """The marginals and cavities of the rows used, from one pass over the data."""
        if self._each is None:
            found = self.approximation_
            self._each = Each(*self._rows().gather(RowMarginals(found.posterior, found.method)))
        return self._each

    def _rows(self) -> SourceRows:
        rows = self.model.rows
        if isinstance(rows, PlacedRows):
            rows = rows.rows
        if not isinstance(rows, SourceRows):
            raise AttributeError(
                "the rows are no part of a model with inducing points that was saved or sent to "
                "another process: ask where it was fitted, or fit again."
            )
        return rows

    @property
    @override
    def codes(self) -> np.ndarray:
        return (self.each().y > 0).astype(int)

    @override
    def site_strengths(self) -> tuple[Array, Array]:
        """τ and the size of ν − τ m, from the differences between marginals and cavities."""
        (m, v), (m_c, v_c) = self.each().marginal, self.each().cavity
        tau = 1.0 / v - 1.0 / v_c
        return tau, np.abs(m / v - m_c / v_c - tau * m)

    @override
    def cavity_log_probabilities(self) -> Array:
        return self._log_probabilities(self.each().cavity)

    @override
    def _left_out(self) -> Array:
        return self.cavity_log_probabilities()  # one row among very many moves no other site
