"""What a fit of many classes jointly leaves, and its predictions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array, Marginals, override
from postlin.estimator.fits import Fit, draws
from postlin.inference.joint.evidence import JointApproximation, cavity
from postlin.inference.joint.leave_one_out import disturbances, without_one
from postlin.inference.joint.posterior import JointPrior
from postlin.inference.solver import solve
from postlin.kernels import kernels_of
from postlin.learning.joint_model import JointModel
from postlin.likelihoods.softmax import SoftmaxMoments
from postlin.linalg.blocks import root_of, times, transposed
from postlin.linalg.threads import blas_threads

#: Entries of a block of predictions that are held at a time: 64 MiB.
_BLOCK = 2**23
#: Cavities that disturb no other site by more than this are believed; and how exact others are.
_SMALL, _TOL = 0.02, 1e-4


class JointFit(Fit):
    """A posterior over the latent functions of all classes.

    Softmax depends on their contrasts only, so their mean over classes is zero here.
    """

    model: JointModel

    @property
    @override
    def approximation_(self) -> JointApproximation:
        found = super().approximation_
        assert isinstance(found, JointApproximation)
        return found

    @property
    @override
    def remark(self) -> str:
        return "all classes jointly"

    @property
    @override
    def size(self) -> int:
        return self.n_rows * (self.model.n_classes - 1)

    @property
    @override
    def codes(self) -> np.ndarray:
        return np.asarray(self.y_train_)

    @override
    def spectral_radius(self) -> float:
        return self.approximation_.spectral_radius()

    @override
    def site_strengths(self) -> tuple[Array, Array]:
        """The trace of T, and the length of ν − T m."""
        m, _, tau, nu = self.approximation_.iterate.view
        return np.einsum("naa->n", tau), np.linalg.norm(nu - times(tau, m), axis=1)

    @override
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        """Means and variances of the classes' latent values at each row, (n, C) each."""
        mean, covariance = self.latent_mean_and_covariance(X)
        return Marginals(mean, np.einsum("ncc->nc", covariance))

    def latent_mean_and_covariance(self, X: np.ndarray) -> tuple[Array, Array]:
        """Means (n, C) and covariances (n, C, C) of the classes' latent values at each row."""
        mean, covariance = self._contrasts(X)
        H = self.approximation_.problem.H
        return mean @ H.T, H @ covariance @ H.T

    @override
    def log_probabilities(self, X: np.ndarray) -> Array:
        return self._log_probabilities(*self._contrasts(X))

    def _cross(self, X: np.ndarray) -> JointPrior:
        """Covariances of the training rows with those of X."""
        directions = self.approximation_.problem.prior.directions
        return JointPrior([k(self.X_train_, X) for k in kernels_of(self.kernel_)], directions)

    def _contrasts(self, X: np.ndarray) -> tuple[Array, Array]:
        """Means (n, D) and covariances (n, D, D) of the contrasts at each row."""
        posterior = self.approximation_.iterate.posterior
        width = max(1, _BLOCK // (self.size * (self.model.n_classes - 1)))
        parts = []
        with blas_threads(self.size):
            for first in range(0, len(X), width):
                rows = X[first : first + width]
                variances = [k.diag(rows) for k in kernels_of(self.kernel_)]
                parts.append(posterior.predict(self._cross(rows), variances))
        mean, covariance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, covariance

    def _log_probabilities(self, mean: Array, covariance: Array) -> Array:
        try:
            root = root_of(covariance)
        except np.linalg.LinAlgError:
            # no subtraction from a prior variance can resolve what is below its last bits
            values, vectors = np.linalg.eigh(covariance)
            least = 64 * np.finfo(float).eps * np.abs(values).max(axis=1, keepdims=True)
            root = root_of((vectors * np.maximum(values, least)[:, None, :]) @ transposed(vectors))
        return self._softmax(mean, root)

    def _softmax(self, mean: Array, root: Array) -> Array:
        log_p = SoftmaxMoments.at(mean, root, self.approximation_.problem.nodes).log_mean
        normalised: Array = log_p - logsumexp(log_p, axis=1, keepdims=True)
        return normalised

    @override
    def cavity_log_probabilities(self) -> Array:
        _, mean, root = cavity(self.approximation_.problem, self.approximation_.iterate)
        return self._softmax(mean, root)

    @override
    def _left_out(self) -> Array:
        found = self.cavity_log_probabilities()
        for i in np.flatnonzero(disturbances(self.approximation_) > _SMALL):
            found[i] = self._softmax(*self._without(int(i)))[0]
        return found

    def _without(self, i: int) -> tuple[Array, Array]:
        """Mean and root of row i without one observation of it, all other sites being solved anew."""
        problem, start = without_one(self.approximation_, i)
        schedule = replace(self.model.schedule, iterations=None)
        iterate, _ = solve(problem, schedule, start=start, tol=_TOL, max_iter=self.model.max_iter)
        posterior = iterate.posterior
        mean, variance = problem.weights.new(
            i, posterior.mean[i], posterior.variance[i], posterior.sites
        )
        return mean[None], root_of(variance[None])

    @override
    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState) -> Array:
        """Joint draws of the classes' latent values, (n, C, n_samples)."""
        cross, H = self._cross(X), self.approximation_.problem.H
        new = cross._replace(covariances=[k(X) for k in kernels_of(self.kernel_)])
        with blas_threads(self.size):
            mean, covariance = self.approximation_.iterate.posterior.predict_jointly(cross, new)
            drawn = draws(mean.ravel(), covariance, n_samples, rng)
        result: Array = np.einsum("cd,nds->ncs", H, drawn.reshape(*mean.shape, n_samples))
        return result


class Joint:
    """One fit of all classes."""

    name: ClassVar[str] = "joint"

    def __init__(self, n_classes: int, estimators: Sequence[Fit]) -> None:
        self.n_classes = n_classes
        self.estimators_ = estimators

    def predict_proba(self, X: np.ndarray) -> Array:
        """Class probabilities at the rows of X."""
        return np.asarray(np.exp(self.estimators_[0].log_probabilities(X)))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Indices of the most probable classes."""
        return np.asarray(np.argmax(self.predict_proba(X), axis=1))

    def loo_predict_proba(self, X: np.ndarray) -> Array:
        """Leave-one-out class probabilities of the training rows."""
        return np.asarray(np.exp(self.estimators_[0].loo_log_probabilities()))
