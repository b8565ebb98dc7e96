"""What a fit leaves: hyperparameters, sites, and how they were found; predictions of two classes."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, Marginals, override
from postlin.exceptions import ConvergenceWarning
from postlin.inference.exact.evidence import ExactApproximation
from postlin.inference.exact.leave_one_out import cavities, left_out
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.inference.result import Approximation
from postlin.learning.models import ExactModel, Model
from postlin.learning.search import Training
from postlin.likelihoods import BinaryLikelihood
from postlin.linalg.arrays import Matrix
from postlin.linalg.threads import blas_threads

if TYPE_CHECKING:
    from postlin.learning.sparse_model import SparseModel

#: Entries of the covariances with new points that are held at a time: 8 MiB; on a device 512 MiB.
_BLOCK, _LARGE_BLOCK = 2**20, 2**26


class Fit(ABC):
    """A posterior over latent values at learned hyperparameters.

    Matrices are not part of its state: a copy from a file or from another process makes them again
    from the sites when they are first needed.
    """

    model: Model[Any]
    #: Whether questions about single rows take a pass over the data.
    takes_passes: ClassVar[bool] = False

    def __init__(
        self, name: str, rows: np.ndarray | range, model: Model[Any], training: Training[Any], k: int
    ) -> None:
        """``rows`` are the rows of the data that were used, ``k`` is the place of the model."""
        found = training.best[k]
        model.forget()
        self.name = name
        self.rows = rows
        self.model = model
        self.hyperparameters = training.at
        self.log_marginal_likelihood_value_: float = found.log_evidence
        self.evidence_path_ = training.path
        self.complaint = training.message
        self.interrupted = training.interrupted
        self.record = found.record
        self._kept = found.kept
        self._approximation: Approximation[Any] | None = found.without_gradient()
        self._loo: Array | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_approximation": None}

    def release(self) -> None:
        """Drop the matrices until they are needed."""
        self._approximation = None

    @property
    def approximation_(self) -> Approximation[Any]:
        """The approximation of the posterior over latent values."""
        if self._approximation is None:
            with blas_threads(self.size):
                self._approximation = self.model.revive(
                    self.hyperparameters, self._kept, self.record, self.log_marginal_likelihood_value_
                )
            self.model.forget()
        return self._approximation

    def start_for(self, n: int) -> Any:
        """What a fit of n rows can start from: the sites of this one, if it has as many rows."""
        return self.approximation_.start if self.n_rows == n else None

    def warnings(self) -> list[Warning]:
        """What a user must be told about the fit."""
        texts = self.hyperparameters.at_bounds() if self.evidence_path_ else []
        if self.complaint is not None:
            texts = [
                f"the optimiser did not converge ({self.complaint}); give it another start with "
                "n_restarts_optimizer, or scale the features."
            ]
        if self.interrupted:
            texts = [
                "interrupted: the hyperparameters are the best found so far, after "
                f"{len(self.evidence_path_)} evaluations; fit again with warm_start=True to go on."
            ]
        return self.model.warnings(self.record) + [ConvergenceWarning(text) for text in texts]

    @property
    def n_rows(self) -> int:
        """The number of rows used."""
        return self.model.n_rows

    @property
    def size(self) -> int:
        """The number of rows of the largest matrix."""
        return self.n_rows

    @property
    def effort(self) -> str:
        """What the last inference took, in words."""
        return f"factorisations: {self.record.n_factorisations}"

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the parameters learned."""
        return self.hyperparameters.kernel

    @property
    def likelihood_(self) -> Any:
        """The likelihood with the parameters learned."""
        return self.hyperparameters.likelihood

    @property
    def X_train_(self) -> np.ndarray:  # noqa: N802
        """The rows used."""
        return self.model.X

    @property
    def y_train_(self) -> np.ndarray:
        """The labels of the rows used, as the model has them."""
        return self.model.y

    @property
    def inducing_points_(self) -> Array:
        """The inducing points, where there are some."""
        raise AttributeError("exact inference has no inducing points: inducing is None.")

    @abstractmethod
    def spectral_radius(self) -> float:
        """The spectral radius of the undamped map at the solution."""

    def row_numbers(self, kept: np.ndarray | None) -> np.ndarray:
        """The rows used, as they were passed to ``fit``, of which ``kept`` count."""
        assert kept is not None
        numbers: np.ndarray = kept[self.rows]
        return numbers

    @property
    @abstractmethod
    def remark(self) -> str:
        """What a summary adds about the method; empty mostly."""

    @abstractmethod
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        """Mean and variance of the latent values at each row."""

    @abstractmethod
    def log_probabilities(self, X: np.ndarray) -> Array:
        """Logarithms of the probabilities of the labels at each row."""

    @abstractmethod
    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState) -> Array:
        """Joint draws of the latent values at the rows of X; the last axis is that of the draws."""

    @property
    @abstractmethod
    def codes(self) -> np.ndarray:
        """The labels of the rows used, as columns of the probabilities."""

    @abstractmethod
    def site_strengths(self) -> tuple[Array, Array]:
        """How strongly each row's label holds its latent value, and how strongly it pulls."""

    def loo_log_probabilities(self) -> Array:
        """Leave-one-out ``log_probabilities`` of the rows used."""
        if self._loo is None:
            with blas_threads(self.size):
                self._loo = self._left_out()
        return self._loo

    @abstractmethod
    def _left_out(self) -> Array:
        """Leave-one-out ``log_probabilities`` of the rows used, computed anew."""

    @property
    def has_left_out(self) -> bool:
        """Whether the leave-one-out predictions are known already."""
        return self._loo is not None

    @abstractmethod
    def cavity_log_probabilities(self) -> Array:
        """Approximate and cheap ``loo_log_probabilities``, with all other sites held."""

    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """The log evidence at ``theta`` (None: the parameters learned), with its gradient on request.

        With ``clone_kernel=False`` ``kernel_`` has these parameters from then on.
        """
        if theta is None:
            if not eval_gradient:
                return self.log_marginal_likelihood_value_
            theta = self.hyperparameters.theta
        theta = np.asarray(theta, float)
        names = self.hyperparameters.names
        if theta.shape != (len(names),) or not np.isfinite(theta).all():
            raise ValueError(
                f"theta must hold {len(names)} finite log-parameters ({', '.join(names)}), got {theta}."
            )
        here = self.hyperparameters.at(theta)
        if not clone_kernel:
            self.hyperparameters = here
        with blas_threads(self.size):
            found = self.model.infer(here, self.approximation_.start)
            for warning in self.model.warnings(found.record):
                warnings.warn(warning, stacklevel=5)
            value = found.log_evidence
            gradient = found.value_and_gradient()[1] if eval_gradient else None
        self.model.forget()
        return value if gradient is None else (value, gradient)


class BinaryFit(Fit):
    """A posterior over latent values given labels −1 and +1."""

    model: "ExactModel | SparseModel"

    @property
    @abstractmethod
    def latent_likelihood(self) -> BinaryLikelihood:
        """The likelihood as a function of the latent values that predictions are about."""

    @property
    @override
    def remark(self) -> str:
        return "white noise in the likelihood" if self.model.fold_noise else ""

    def latent_mean(self, X: np.ndarray) -> Array:
        """Mean of the latent value at each row."""
        return self.latent_mean_and_variance(X).mean

    @override
    def log_probabilities(self, X: np.ndarray) -> Array:
        return self._log_probabilities(self.latent_mean_and_variance(X))

    def _log_probabilities(self, latent: Marginals) -> Array:
        plus, minus = self.latent_likelihood.jets(*latent)
        return np.stack([minus.log_z, plus.log_z], axis=1)


class ExactFit(BinaryFit):
    """A posterior of two classes by exact inference."""

    model: ExactModel

    @property
    @override
    def approximation_(self) -> ExactApproximation:
        found = super().approximation_
        assert isinstance(found, ExactApproximation)
        return found

    @property
    @override
    def latent_likelihood(self) -> BinaryLikelihood:
        likelihood = self.approximation_.problem.likelihood
        assert isinstance(likelihood, BinaryLikelihood)
        return likelihood

    @property
    def latent_kernel(self) -> Kernel:
        """The kernel of the latent values that predictions are about."""
        return self.model.latent_kernel(self.kernel_)

    @property
    @override
    def codes(self) -> np.ndarray:
        return (self.y_train_ > 0).astype(int)

    @override
    def spectral_radius(self) -> float:
        return self.approximation_.spectral_radius()

    @override
    def site_strengths(self) -> tuple[Array, Array]:
        view = self.approximation_.iterate.posterior.view
        return view.tau, np.abs(view.pull)

    @override
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        kernel = self.latent_kernel
        with blas_threads(self.size), np.errstate(over="ignore", invalid="ignore"):
            parts = [
                posterior.predict(cross, kernel.diag(rows))
                for posterior, cross, rows in self._crossed(X)
            ]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return within_range(Marginals(mean, variance))

    @override
    def latent_mean(self, X: np.ndarray) -> Array:
        with blas_threads(self.size), np.errstate(over="ignore", invalid="ignore"):
            mean = np.concatenate(
                [posterior.predict_mean(cross) for posterior, cross, _ in self._crossed(X)]
            )
        return within_range(Marginals(mean, np.zeros_like(mean))).mean

    @override
    def _left_out(self) -> Array:
        return self._log_probabilities(
            left_out(self.approximation_, self.model.schedule, self.model.max_iter)
        )

    @override
    def cavity_log_probabilities(self) -> Array:
        return self._log_probabilities(cavities(self.approximation_))

    @override
    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState) -> Array:
        kernel, posterior = self.latent_kernel, self.approximation_.iterate.posterior
        with blas_threads(self.size):
            mean, covariance = posterior.predict_jointly(self.model.cross(kernel, X), kernel(X))
            return draws(mean, covariance, n_samples, rng)

    def _crossed(self, X: np.ndarray) -> Iterator[tuple[GaussianPosterior, Matrix, np.ndarray]]:
        """Covariances of the training rows with those of X, a block at a time."""
        posterior, kernel = self.approximation_.iterate.posterior, self.latent_kernel
        entries = _BLOCK if self.model.place.is_host else _LARGE_BLOCK
        width = max(16, entries // self.size)
        for first in range(0, len(X), width):
            rows = X[first : first + width]
            yield posterior, self.model.cross(kernel, rows), rows


def within_range(latent: Marginals) -> Marginals:
    """The marginals, if they are finite; kernels such as the dot product overflow far from the data."""
    bad = np.flatnonzero(~(np.isfinite(latent.mean) & np.isfinite(latent.variance)))
    if len(bad):
        raise ValueError(
            f"the latent value at row {bad[0]} of X is not finite: its features are out of the "
            "kernel's range; rescale or drop such rows."
        )
    return latent


def draws(mean: Array, covariance: Array, n_samples: int, rng: np.random.RandomState) -> Array:
    """Draws from a Gaussian whose covariance comes from a subtraction: negative parts are rounding."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn: Array = mean[:, None] + root @ rng.standard_normal((len(mean), n_samples))
    return drawn
