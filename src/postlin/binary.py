"""What is learned from two classes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._threads import blas_threads
from postlin._typing import Array
from postlin.arrays import Matrix
from postlin.fit import Fit
from postlin.leave_one_out import cavities, left_out
from postlin.likelihoods import BinaryLikelihood
from postlin.posterior import GaussianPosterior
from postlin.sites import Marginals

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
