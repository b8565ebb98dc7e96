"""What is learned from several classes at a time."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array, Marginals
from postlin.estimator.fits import Fit
from postlin.inference.joint.evidence import cavity
from postlin.inference.joint.jacobian import joint_newton_step
from postlin.inference.joint.leave_one_out import disturbances, without_one
from postlin.inference.joint.posterior import Prior
from postlin.inference.solver import solve
from postlin.learning.joint_model import kernels_of
from postlin.likelihoods.softmax import SoftmaxMoments
from postlin.linalg.blocks import root_of
from postlin.linalg.threads import blas_threads

#: Entries of a block of predictions that are held at a time: 64 MiB.
_BLOCK = 2**23
#: Cavities that disturb no other site by more than this are believed; and how exact others are.
_SMALL, _TOL = 0.02, 1e-4


class JointFit(Fit):
    """A posterior over the latent functions of all classes.

    Softmax sees their contrasts only, so their mean over classes is zero here.
    """

    @property
    def remark(self) -> str:
        """That there is one problem only."""
        return "all classes jointly"

    @property
    def size(self) -> int:
        """Rows of the largest matrix."""
        return len(self.y_train_) * (int(self.model.n_classes) - 1)

    @property
    def codes(self) -> np.ndarray:
        """Indices of classes."""
        return np.asarray(self.y_train_)

    def site_strengths(self) -> tuple[Array, Array]:
        """The trace of T, and the length of ν − T m."""
        m, _, tau, nu = self.approximation_.solution.iterate.view
        pull = nu - np.einsum("nde,ne->nd", tau, m)
        return np.einsum("naa->n", tau), np.linalg.norm(pull, axis=1)

    def latent_mean_and_variance(self, X: Any) -> Marginals:
        """Means and variances of the classes' latent values at each row, (n, C) each."""
        mean, covariance = self.latent_mean_and_covariance(X)
        return Marginals(mean, np.einsum("ncc->nc", covariance))

    def latent_mean_and_covariance(self, X: Any) -> tuple[Array, Array]:
        """Means (n, C) and covariances (n, C, C) of the classes' latent values at each row."""
        mean, covariance = self._contrasts(X)
        H = self.approximation_.problem.H
        return mean @ H.T, H @ covariance @ H.T

    def log_probabilities(self, X: Any) -> Array:
        """Logarithms of the class probabilities at each row, (n, C)."""
        return self._log_probabilities(*self._contrasts(X))

    def _contrasts(self, X: Any) -> tuple[Array, Array]:
        """Means (n, D) and covariances (n, D, D) of the contrasts at each row."""
        posterior = self.approximation_.solution.iterate.posterior
        kernels, n, D = kernels_of(self.kernel_), len(self.y_train_), self.model.n_classes - 1
        width = max(1, _BLOCK // (n * D**2))
        parts = []
        with blas_threads(self.size):
            for first in range(0, len(X), width):
                rows = X[first : first + width]
                cross = Prior([k(self.X_train_, rows) for k in kernels], posterior.prior.directions)
                parts.append(posterior.predict(cross, [k.diag(rows) for k in kernels]))
        mean, covariance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return mean, covariance

    def _log_probabilities(self, mean: Array, covariance: Array) -> Array:
        try:
            root = root_of(covariance)
        except np.linalg.LinAlgError:
            # no subtraction from a prior variance can resolve what is below its last bits
            values, vectors = np.linalg.eigh(covariance)
            least = 64 * np.finfo(float).eps * np.abs(values).max(axis=1, keepdims=True)
            raised = (vectors * np.maximum(values, least)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
            root = root_of(raised)
        return self._softmax(mean, root)

    def _softmax(self, mean: Array, root: Array) -> Array:
        problem = self.approximation_.problem
        log_p = SoftmaxMoments.at(mean, root, problem.H, *problem.nodes).log_mean
        normalised: Array = log_p - logsumexp(log_p, axis=1, keepdims=True)
        return normalised

    def cavity_log_probabilities(self) -> Array:
        """From the cavities alone."""
        approximation = self.approximation_
        _, mean, root = cavity(approximation.problem, approximation.solution.iterate)
        return self._softmax(mean, root)

    def _left_out(self) -> Array:
        found = self.cavity_log_probabilities()
        for i in np.flatnonzero(disturbances(self.approximation_) > _SMALL):
            found[i] = self._softmax(*self._without(int(i)))[0]
        return found

    def _without(self, i: int) -> tuple[Array, Array]:
        """Mean and root of row i without one observation of it, all other sites where they go."""
        problem, start = without_one(self.approximation_, i)
        solution = solve(
            problem,  # type: ignore[arg-type]  # it has the methods that are asked of a Problem
            replace(self.model.schedule, iterations=None),
            start=start,
            tol=_TOL,
            max_iter=self.model.max_iter,
            newton=joint_newton_step,
        )
        posterior, sites = solution.iterate.posterior, solution.iterate.posterior.sites
        mean, variance = posterior.mean[i], posterior.variance[i]
        if problem.observations is not None:
            mean, variance = problem.observations.new(i, mean, variance, sites.tau[i], sites.nu[i])
        return mean[None], root_of(variance[None])

    def sample(self, X: Any, n_samples: int, rng: np.random.RandomState) -> Array:
        """Joint draws of the classes' latent values, (n, C, n_samples)."""
        posterior = self.approximation_.solution.iterate.posterior
        kernels, H = kernels_of(self.kernel_), self.approximation_.problem.H
        directions = posterior.prior.directions
        cross = Prior([k(self.X_train_, X) for k in kernels], directions)
        with blas_threads(self.size):
            mean, covariance = posterior.predict_jointly(
                cross, Prior([k(X) for k in kernels], directions)
            )
            values, vectors = np.linalg.eigh(covariance)
        # of a covariance computed by subtraction: what is negative is rounding
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = mean.ravel()[:, None] + root @ rng.standard_normal((mean.size, n_samples))
        result: Array = np.einsum("cd,nds->ncs", H, draws.reshape(*mean.shape, n_samples))
        return result


class Joint:
    """All classes at a time."""

    name: ClassVar[str] = "joint"

    def __init__(self, n_classes: int, estimators: list[Fit]) -> None:
        self.n_classes = n_classes
        self.estimators_ = estimators

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities at the rows of X."""
        return np.asarray(np.exp(self.estimators_[0].log_probabilities(X)))

    def predict(self, X: Any) -> np.ndarray:
        """Indices of the most probable classes."""
        return np.asarray(np.argmax(self.predict_proba(X), axis=1))

    def loo_predict_proba(self, X: Any) -> Array:
        """Class probabilities at the rows that were learned from, each as if it had not been."""
        return np.asarray(np.exp(self.estimators_[0].loo_log_probabilities()))
