"""What is learned from two classes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, Marginals
from postlin.exceptions import ConvergenceWarning
from postlin.inference.exact.leave_one_out import cavities, left_out
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.inference.result import complaints
from postlin.inference.solver import Record
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.search import Training
from postlin.likelihoods import BinaryLikelihood
from postlin.linalg.arrays import Matrix
from postlin.linalg.threads import blas_threads
from postlin.rules.sites import Sites


class Fit(ABC):
    """A posterior over latent values at learned hyperparameters.

    Matrices are not part of its state: a copy from a file or from another process makes them again
    from the sites when they are first asked for.
    """

    def __init__(self, name: str, rows: np.ndarray, model: Any, training: Training, k: int) -> None:
        """``rows`` are those of the data that were used, ``k`` this model's place in the training."""
        fitted = training.best[k]
        approximation = fitted.approximation
        model.forget()
        self.name = name
        self.rows = rows
        self.model = model
        self.hyperparameters: Hyperparameters = fitted.at
        self.log_marginal_likelihood_value_: float = approximation.log_evidence
        self.evidence_path_ = training.path
        self.complaint = training.message
        self.interrupted = training.interrupted
        self.record: Record = self._record_of(approximation)
        self._sites = self._kept_of(approximation)
        self._approximation: Any = approximation
        self._loo: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_approximation": None}

    def _record_of(self, approximation: Any) -> Record:
        """How inference went."""
        record: Record = approximation.solution.record
        return record

    def _kept_of(self, approximation: Any) -> tuple[Array, ...]:
        """What the approximation can be made again from: its sites."""
        return tuple(approximation.sites)

    def complaints(self) -> list[Warning]:
        """What must be known about the fit."""
        found: list[Warning] = list(self._inference_complaints())
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
        return found + [ConvergenceWarning(text) for text in texts]

    @property
    def can_sweep(self) -> bool:
        """Whether the sequential schedule can solve such problems."""
        return False

    def _inference_complaints(self) -> Sequence[Warning]:
        """What must be known about its inference."""
        model = self.model
        return complaints(
            self.record,
            model.rule,
            model.schedule,
            model.tol,
            model.max_iter,
            "max_iter_predict",
            can_sweep=self.can_sweep,
        )

    @property
    def n_rows(self) -> int:
        """How many rows were used."""
        return len(self.y_train_)

    def spectral_radius(self) -> float:
        """Of the undamped map at the solution."""
        return float(self.approximation_.spectral_radius())

    def row_numbers(self, kept: Any) -> np.ndarray:
        """The rows used, as they were passed to ``fit``, where those kept of them count."""
        numbers: np.ndarray = kept[self.rows]
        return numbers

    #: Whether what is asked of single rows takes a pass over the data.
    takes_passes: ClassVar[bool] = False

    @property
    def effort(self) -> str:
        """What the last inference took, in words."""
        return f"factorisations: {self.record.n_factorisations}"

    def release(self) -> None:
        """Drop the matrices until they are asked for."""
        self._approximation = None

    @property
    def approximation_(self) -> Any:
        """The approximation of the posterior over latent values."""
        if self._approximation is None:
            with blas_threads(self.size):
                self._approximation = self.model.revive(self.hyperparameters, self.sites, self.record)
            self.model.forget()
        return self._approximation

    @property
    def sites(self) -> Sites:
        """The Gaussian factors."""
        return Sites(*self._sites)

    @property
    def start(self) -> Any:
        """From where a similar problem may start."""
        return self.sites

    def _warn(self, approximation: Any) -> None:
        """Say what must be known about an inference that a user has asked for."""
        approximation.warn(self.model.schedule, self.model.tol, self.model.max_iter, 6)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the parameters learned."""
        return self.hyperparameters.kernel

    @property
    def likelihood_(self) -> Any:
        """The likelihood with the parameters learned."""
        return self.hyperparameters.likelihood

    @property
    def X_train_(self) -> Any:  # noqa: N802
        """The rows used."""
        return self.model.X

    @property
    def y_train_(self) -> Array:
        """Their labels, as the model has them."""
        labels: Array = self.model.y
        return labels

    @property
    def size(self) -> int:
        """Rows of the largest matrix."""
        return self.n_rows

    @property
    @abstractmethod
    def remark(self) -> str:
        """What is to be said of the method beside its parts; nothing, mostly."""

    @abstractmethod
    def latent_mean_and_variance(self, X: Any) -> Marginals:
        """Mean and variance of the latent values at each row."""

    @abstractmethod
    def log_probabilities(self, X: Any) -> Array:
        """Logarithms of the probabilities of the labels at each row."""

    @abstractmethod
    def sample(self, X: Any, n_samples: int, rng: np.random.RandomState) -> Array:
        """Joint draws of the latent values at the rows of X; the last axis is that of the draws."""

    @property
    @abstractmethod
    def codes(self) -> np.ndarray:
        """The labels of the rows used, as columns of the probabilities."""

    @abstractmethod
    def site_strengths(self) -> tuple[Array, Array]:
        """How strongly each row's label holds its latent value, and how strongly it pulls."""

    def loo_log_probabilities(self) -> Array:
        """``log_probabilities`` of the rows used, each as if it had not been."""
        if self._loo is None:
            with blas_threads(self.size):
                self._loo = self._left_out()
        return self._loo

    @abstractmethod
    def _left_out(self) -> Array:
        """The predictions for rows that are left out."""

    @property
    def has_left_out(self) -> bool:
        """Whether ``loo_log_probabilities`` are there already."""
        return self._loo is not None

    @abstractmethod
    def cavity_log_probabilities(self) -> Array:
        """A rough and cheap ``loo_log_probabilities``: all other sites are held."""

    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """The log evidence at ``theta``, with its gradient on request; fitted parameters if None.

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
            fitted = self.model.infer(here, self.start)
            self._warn(fitted.approximation)
            value = fitted.approximation.log_evidence
            gradient = fitted.gradient() if eval_gradient else None
        self.model.forget()
        return value if gradient is None else (value, gradient)


#: Entries of the covariances with new points that are held at a time: 8 MiB; on a device 512 MiB.
_BLOCK, _LARGE_BLOCK = 2**20, 2**26


class BinaryFit(Fit):
    """A posterior over latent values given labels −1 and +1."""

    @property
    def latent_kernel(self) -> Kernel:
        """The kernel of the latent values that predictions are about."""
        return self.model.latent_kernel(self.kernel_)

    @property
    def latent_likelihood(self) -> BinaryLikelihood:
        """The likelihood as these latent values see it."""
        likelihood = self.approximation_.problem.likelihood
        assert isinstance(likelihood, BinaryLikelihood)
        return likelihood

    @property
    def remark(self) -> str:
        """Where the white noise is."""
        return "white noise in the likelihood" if self.model.fold_noise else ""

    @property
    def can_sweep(self) -> bool:
        """Whether the sequential schedule can solve such problems: with NumPy's matrices."""
        return self.model.place is None

    @property
    def codes(self) -> np.ndarray:
        """0 and 1 for −1 and +1."""
        return (self.y_train_ > 0).astype(int)

    def site_strengths(self) -> tuple[Array, Array]:
        """τ, and ν − τ m without its sign."""
        view = self.approximation_.solution.iterate.posterior.view
        return view.tau, np.abs(view.pull)

    def latent_mean_and_variance(self, X: Any) -> Marginals:
        """Mean and variance of the latent value at each row."""
        kernel = self.latent_kernel
        with blas_threads(len(self.y_train_)), np.errstate(over="ignore", invalid="ignore"):
            parts = [
                posterior.predict(cross, kernel.diag(rows))
                for posterior, cross, rows in self._crossed(X)
            ]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return within_range(Marginals(mean, variance))

    def latent_mean(self, X: Any) -> Array:
        """Mean of the latent value at each row."""
        with blas_threads(len(self.y_train_)), np.errstate(over="ignore", invalid="ignore"):
            mean = np.concatenate(
                [posterior.predict_mean(cross) for posterior, cross, _ in self._crossed(X)]
            )
        return within_range(Marginals(mean, np.zeros_like(mean))).mean

    def log_probabilities(self, X: Any) -> Array:
        """Logarithms of the probabilities of −1 and +1 at each row, an array (n, 2)."""
        return self._log_probabilities(self.latent_mean_and_variance(X))

    def _left_out(self) -> Array:
        return self._log_probabilities(
            left_out(self.approximation_, self.model.schedule, self.model.max_iter)
        )

    def cavity_log_probabilities(self) -> Array:
        """From the cavities alone."""
        return self._log_probabilities(cavities(self.approximation_))

    def _log_probabilities(self, latent: Marginals) -> Array:
        plus, minus = self.latent_likelihood.jets(*latent)
        return np.stack([minus.log_z, plus.log_z], axis=1)

    def sample(self, X: Any, n_samples: int, rng: np.random.RandomState) -> Array:
        """Joint draws of the latent values at the rows of X, an array (n, n_samples)."""
        kernel = self.latent_kernel
        posterior = self.approximation_.solution.iterate.posterior
        with blas_threads(len(self.y_train_)):
            mean, covariance = posterior.predict_jointly(self.model.cross(kernel, X), kernel(X))
            return draws(mean, covariance, n_samples, rng)

    def _crossed(self, X: Any) -> Iterator[tuple[GaussianPosterior, Matrix, Any]]:
        """Covariances of the training rows with those of X, a block at a time."""
        posterior, kernel = self.approximation_.solution.iterate.posterior, self.latent_kernel
        entries = _BLOCK if self.model.place is None else _LARGE_BLOCK
        width = max(16, entries // len(self.y_train_))
        for first in range(0, len(X), width):
            rows = X[first : first + width]
            yield posterior, self.model.cross(kernel, rows), rows


def within_range(latent: Marginals) -> Marginals:
    """Them, if they are finite; kernels such as the dot product overflow far from the data."""
    bad = np.flatnonzero(~(np.isfinite(latent.mean) & np.isfinite(latent.variance)))
    if len(bad):
        raise ValueError(
            f"the latent value at row {bad[0]} of X is not finite: its features are out of the "
            "kernel's range; rescale or drop such rows."
        )
    return latent


def draws(mean: Array, covariance: Array, n_samples: int, rng: np.random.RandomState) -> Array:
    """Of a Gaussian whose covariance was computed by subtraction: what is negative is rounding."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn: Array = mean[:, None] + root @ rng.standard_normal((len(mean), n_samples))
    return drawn
