"""What a fit leaves: hyperparameters, sites, and how they were found."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._threads import blas_threads
from postlin._typing import Array
from postlin.complaints import complaints
from postlin.exceptions import ConvergenceWarning
from postlin.fixed_point import Record
from postlin.hyperparameters import Hyperparameters
from postlin.sites import Marginals, Sites
from postlin.training import Training


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
