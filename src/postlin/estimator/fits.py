"""Fits: the learned hyperparameters, the posterior there, and the predictions of two classes."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, Marginals, override
from postlin.exceptions import ConvergenceWarning
from postlin.inference.exact.evidence import ExactApproximation, cavities, left_out
from postlin.inference.result import NO_CORRECTION, Approximation
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel, Model
from postlin.learning.training import Training
from postlin.likelihoods import BinaryLikelihood
from postlin.likelihoods.softmax import Softmax
from postlin.linalg.arrays import Matrix
from postlin.linalg.threads import blas_threads

if TYPE_CHECKING:
    from postlin.learning.sparse_model import SparseModel

#: Entries of the covariances with new rows that are held at a time: 8 MiB; on a device 512 MiB.
_BLOCK, _LARGE_BLOCK = 2**20, 2**26
#: Rows are predicted in multiples of this many. At the edge of a matrix BLAS adds up in another order,
#: and where terms of 1e12 cancel the prediction of a row would depend on the rows beside it.
_TILE = 16

#: With more parameters than this, as with learned inducing points, no curvature is kept.
_MANY = 200


class Fit(ABC):
    """A posterior over latent values at learned hyperparameters.

    A fit is stored without its matrices: a copy from a file or from another process computes them
    again from the sites when they are first needed.
    """

    model: Model[Any]
    #: The kind of inference: "exact", "sparse" or "local".
    method: ClassVar[str] = "exact"
    #: The Hessian of minus the log evidence there, if the search has modelled it.
    curvature: Array | None = None
    #: Whether answers about single training rows take a pass over the data.
    takes_passes: ClassVar[bool] = False
    #: What ``log_marginal_likelihood_value_`` is, in words.
    criterion: ClassVar[str] = "log evidence"

    def __init__(
        self, name: str, rows: np.ndarray | range, model: Model[Any], training: Training[Any], k: int
    ) -> None:
        """``rows`` are the rows of the data that are used; the model is the k-th that was trained."""
        found = training.best[k]
        model.forget()
        self.name = name
        self.rows = rows
        self.n_rows = model.n_rows
        self.model = model
        self.hyperparameters = training.at
        known = training.curvature
        self.curvature = None if known is None or len(known) > _MANY else known
        self.log_marginal_likelihood_value_: float = found.log_evidence
        self.evidence_path_ = training.path
        self.remarks = training.remarks()
        self.constant = training.constant
        self.interrupted = training.interrupted
        self.record = found.record
        self._kept = found.kept
        self._approximation: Approximation[Any] | None = found.without_gradient()
        self._loo: Array | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_approximation": None}

    def release(self) -> None:
        """Drop the matrices; they are computed again when they are needed."""
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

    def warnings(self) -> list[Warning]:
        """What a user must be told about the fit."""
        return self.model.warnings(self.record) + [ConvergenceWarning(text) for text in self.remarks]

    @property
    def size(self) -> int:
        """The number of rows of the largest matrix: one for each entry of ν."""
        return self._kept[1].size

    @property
    def effort(self) -> str:
        """The cost of the last inference, in words."""
        return f"{'passes' if self.takes_passes else 'factorisations'}: {self.record.n_factorisations}"

    @property
    def kind(self) -> str:
        """How the posterior was computed, in words."""
        return self.model.schedule.name

    @property
    def deviations(self) -> Array:
        """The standard deviations of the features; empty if rows are no vectors of numbers."""
        X = self.X_train_
        return np.std(np.asarray(X, float), axis=0) if np.ndim(X) == 2 else np.zeros(0)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the learned parameters."""
        return self.hyperparameters.kernel

    @property
    def likelihood_(self) -> BinaryLikelihood | Softmax:
        """The likelihood with the learned parameters."""
        return cast(BinaryLikelihood | Softmax, self.hyperparameters.likelihood)

    @property
    def X_train_(self) -> np.ndarray:  # noqa: N802
        """The training rows that the fit uses."""
        return self.model.X

    @property
    def y_train_(self) -> np.ndarray:
        """The labels of ``X_train_``: −1 and +1, or indices of classes in a joint fit."""
        return self.model.y

    @property
    def inducing_points_(self) -> Array:
        """The inducing points of a fit that has them."""
        raise AttributeError("exact inference has no inducing points: inducing is None.")

    def row_numbers(self, kept: np.ndarray | None) -> np.ndarray:
        """The indices of the rows used among those passed to ``fit``, of which ``kept`` have weight."""
        assert kept is not None
        return np.asarray(kept[self.rows])

    @property
    def correction(self) -> float:
        """What to add to the log evidence, to second order in what the Gaussian misses."""
        raise AttributeError(NO_CORRECTION)

    @property
    def is_correction_trustworthy(self) -> bool:
        """Whether the corrected evidence and probabilities can be trusted."""
        raise AttributeError(NO_CORRECTION)

    @property
    def is_trustworthy(self) -> bool:
        """Whether evidence and probabilities can be trusted: the corrected ones, if ``corrected``."""
        raise AttributeError(NO_CORRECTION)

    @abstractmethod
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        """Mean and variance of the latent value at each row."""

    @abstractmethod
    def log_probabilities(self, X: np.ndarray) -> Array:
        """Log probabilities of the labels at each row; one column for each label."""

    @abstractmethod
    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState) -> Array:
        """Draws from the joint posterior of the latent values at the rows of X, along the last axis."""

    @property
    def codes(self) -> np.ndarray:
        """For each row used, the column of ``log_probabilities`` that belongs to its label."""
        return np.asarray(np.maximum(self.y_train_, 0), int)  # −1 and +1 become 0 and 1

    @abstractmethod
    def site_strengths(self) -> tuple[Array, Array]:
        """The precision of each row's site, and the size of its pull ν − τ m."""

    def loo_log_probabilities(self) -> Array:
        """Leave-one-out ``log_probabilities`` of the rows used, computed once."""
        if self._loo is None:
            with blas_threads(self.size):
                self._loo = self._left_out()
        return self._loo

    @abstractmethod
    def _left_out(self) -> Array:
        """Compute ``loo_log_probabilities``."""

    def _in_blocks(
        self, X: np.ndarray, width: int, predict: Callable[[np.ndarray], tuple[Array, ...]]
    ) -> list[Array]:
        """The joined results of ``predict`` for blocks of ``width`` rows; ``ValueError`` if not finite.

        Kernels such as the dot product overflow far from the data.
        """
        width = max(_TILE, width - width % _TILE)
        with blas_threads(self.size), np.errstate(over="ignore", invalid="ignore"):
            parts = [predict(_tiled(X[first : first + width])) for first in range(0, len(X), width)]
        joined = [np.concatenate(part)[: len(X)] for part in zip(*parts, strict=True)]
        for part in joined:
            if not np.isfinite(part).all():
                row = np.argwhere(~np.isfinite(part))[0, 0]
                raise ValueError(
                    f"the latent value at row {row} of X is not finite: its features are out of the "
                    "kernel's range; rescale or drop such rows."
                )
        return joined

    @abstractmethod
    def cavity_log_probabilities(self) -> Array:
        """Approximate ``loo_log_probabilities``, for which all other sites are held fixed."""

    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """The log evidence at ``theta`` (None: the learned parameters), and its gradient on request.

        With ``clone_kernel=False`` the fit moves to ``theta``: ``kernel_``, the posterior, the evidence
        and all predictions are those at ``theta`` from then on.
        """
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        theta = np.asarray(self.hyperparameters.theta if theta is None else theta, float)
        names = self.hyperparameters.names
        if theta.shape != (len(names),) or not np.isfinite(theta).all():
            raise ValueError(
                f"theta must hold {len(names)} finite log-parameters ({', '.join(names)}), got {theta}."
            )
        here = self.hyperparameters.at(theta)
        with blas_threads(self.size):
            found = self.model.infer(here, self.approximation_.start)
            for warning in self.model.warnings(found.record):
                warnings.warn(warning, stacklevel=5)
            value = found.log_evidence
            gradient = found.value_and_gradient()[1] if eval_gradient else None
        self.model.forget()
        if not clone_kernel:
            self._move(here, found)
        return value if gradient is None else (value, gradient)

    def _move(self, here: Hyperparameters, found: Approximation[Any]) -> None:
        """Go to other hyperparameters and the approximation there."""
        self.hyperparameters, self.record, self._kept = here, found.record, found.kept
        self.log_marginal_likelihood_value_, self._loo = found.log_evidence, None
        self._approximation = found.without_gradient()


def one_warning(remarks: Sequence[str], fits: Sequence[Fit]) -> Warning | None:
    """One warning that says everything about the fits, each sentence once; None if all is well."""
    kinds: set[type[Warning]] = {ConvergenceWarning} if remarks else set()
    about: dict[str, list[str]] = {remark: [] for remark in remarks}
    for fit in fits:
        for warning in fit.warnings():
            kinds.add(type(warning))
            about.setdefault(str(warning), []).append(fit.name)
    if not about:
        return None
    named = len(fits) > 1
    texts = [f"{', '.join(who)}: {text}" if named and who else text for text, who in about.items()]
    if len(texts) > 1:
        texts = [f"({k}) {text}" for k, text in enumerate(texts, 1)]
    kind = kinds.pop() if len(kinds) == 1 else ConvergenceWarning
    return kind(" ".join(texts))


def _tiled(X: np.ndarray) -> np.ndarray:
    """The rows, of which the last is repeated up to a multiple of ``_TILE``."""
    missing = -len(X) % _TILE
    return np.concatenate([X, np.repeat(X[-1:], missing, axis=0)]) if missing else X


def starts_from(before: Sequence[Fit | None], models: Sequence[Model[Any]]) -> list[Any]:
    """What inference can start from: the solutions of earlier fits of as many rows, else None."""
    pairs = zip(before, models, strict=True)
    return [b.approximation_.start if b and b.n_rows == m.n_rows else None for b, m in pairs]


class BinaryFit(Fit):
    """A posterior over latent values given labels −1 and +1."""

    model: "ExactModel | SparseModel"

    @property
    @abstractmethod
    def latent_likelihood(self) -> BinaryLikelihood:
        """p(y|f) for the predicted latent values f; it includes the white noise that was folded in."""

    @property
    def sign_decides(self) -> bool:
        """Whether the more probable label is the sign of the latent mean."""
        return self.latent_likelihood.symmetric

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
    approximation_: ExactApproximation

    @property
    @override
    def latent_likelihood(self) -> BinaryLikelihood:
        return cast(BinaryLikelihood, self.approximation_.problem.likelihood)

    @property
    def latent_kernel(self) -> Kernel:
        """The kernel of the predicted latent values, from which folded white noise is left out."""
        return self.model.latent_kernel(self.kernel_)

    @property
    @override
    def correction(self) -> float:
        return self.approximation_.correction

    @property
    @override
    def is_correction_trustworthy(self) -> bool:
        return self.approximation_.is_correction_trustworthy

    @property
    @override
    def is_trustworthy(self) -> bool:
        found = self.approximation_
        return found.is_correction_trustworthy if self.model.corrected else found.is_trustworthy

    @property
    @override
    def sign_decides(self) -> bool:
        return super().sign_decides and not self.model.corrected

    @override
    def log_probabilities(self, X: np.ndarray) -> Array:
        return self.corrected_log_probabilities(X) if self.model.corrected else self.plain(X)

    def plain(self, X: np.ndarray) -> Array:
        """Log probabilities of both labels without the correction."""
        return super().log_probabilities(X)

    def corrected_log_probabilities(self, X: np.ndarray) -> Array:
        """Log probabilities of both labels with the correction."""
        kernel, approximation = self.latent_kernel, self.approximation_

        def predict(cross: Matrix, rows: np.ndarray) -> tuple[Array, ...]:
            mean = self.model.mean_at(rows)
            return (approximation.corrected_log_probabilities(cross, kernel.diag(rows), mean).T,)

        (log_p,) = self._crossed(X, predict)
        return log_p

    @override
    def site_strengths(self) -> tuple[Array, Array]:
        view = self.approximation_.iterate.posterior.view
        return view.tau, np.abs(view.pull)

    @override
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        kernel, posterior = self.latent_kernel, self.approximation_.iterate.posterior

        def predict(cross: Matrix, rows: np.ndarray) -> Marginals:
            return posterior.predict(cross, kernel.diag(rows), self.model.mean_at(rows))

        return Marginals(*self._crossed(X, predict))

    @override
    def latent_mean(self, X: np.ndarray) -> Array:
        posterior = self.approximation_.iterate.posterior
        mean_at = self.model.mean_at
        (mean,) = self._crossed(X, lambda cross, rows: (posterior.predict_mean(cross, mean_at(rows)),))
        return mean

    def _crossed(
        self, X: np.ndarray, predict: Callable[[Matrix, np.ndarray], tuple[Array, ...]]
    ) -> list[Array]:
        """The joined results of ``predict`` for blocks of rows and their covariances with the data."""
        kernel, model = self.latent_kernel, self.model
        width = max(16, (_BLOCK if model.place.is_host else _LARGE_BLOCK) // self.size)
        return self._in_blocks(X, width, lambda rows: predict(model.cross(kernel, rows), rows))

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
            return draws(mean + self.model.mean_at(X), covariance, n_samples, rng)


def draws(mean: Array, covariance: Array, n_samples: int, rng: np.random.RandomState) -> Array:
    """Draws from a Gaussian; negative eigenvalues of its covariance are taken for rounding."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(mean[:, None] + root @ rng.standard_normal((len(mean), n_samples)))
