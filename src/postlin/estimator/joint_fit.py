"""The fit of all classes jointly, and its predictions."""

from dataclasses import replace

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array, Marginals, override
from postlin.estimator.fits import Fit, draws
from postlin.inference.joint.evidence import JointApproximation, cavity, disturbances, without_one
from postlin.inference.joint.posterior import JointPrior
from postlin.inference.solver import solve
from postlin.kernels import kernels_of
from postlin.learning.joint_model import JointModel
from postlin.likelihoods.softmax import SoftmaxMoments
from postlin.linalg.blocks import root_of, times, transposed
from postlin.linalg.threads import blas_threads

#: Entries of a block of predictions that are held at a time: 64 MiB.
_BLOCK = 2**23
#: A cavity is used as the leave-one-out prediction if leaving the row out moves no other site by more
#: than this; other rows are left out by inference to this tolerance, in at most so many factorisations.
_SMALL, _TOL, _EFFORT = 0.02, 1e-4, 30


class JointFit(Fit):
    """A posterior over the latent functions of all classes.

    Softmax depends on their contrasts only, so their mean over the classes is set to zero.
    """

    model: JointModel
    approximation_: JointApproximation

    @override
    def site_strengths(self) -> tuple[Array, Array]:
        """The trace of each site's precision T, and the length of ν − T m."""
        m, _, tau, nu = self.approximation_.iterate.view
        return np.einsum("naa->n", tau), np.linalg.norm(nu - times(tau, m), axis=1)

    @override
    def latent_mean_and_variance(self, X: np.ndarray) -> Marginals:
        """Means (n, C) and variances (n, C) of the classes' latent values at each row."""
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
        """Covariances of the training rows with the rows of X."""
        return self.model.cross(self.approximation_, self.kernel_, X)

    def _contrasts(self, X: np.ndarray) -> tuple[Array, Array]:
        """Means (n, D) and covariances (n, D, D) of the contrasts at each row."""
        predict, kernels = self.approximation_.iterate.posterior.predict, kernels_of(self.kernel_)
        width = max(1, _BLOCK // (self.size * (self.model.n_classes - 1)))
        mean, covariance = self._in_blocks(
            X, width, lambda rows: predict(self._cross(rows), [k.diag(rows) for k in kernels])
        )
        return mean, covariance

    def _log_probabilities(self, mean: Array, covariance: Array) -> Array:
        try:
            root = root_of(covariance)
        except np.linalg.LinAlgError:
            # rounding of prior minus explained covariance can exceed the smallest eigenvalues
            values, vectors = np.linalg.eigh(covariance)
            least = 64 * np.finfo(float).eps * np.abs(values).max(axis=1, keepdims=True)
            root = root_of((vectors * np.maximum(values, least)[:, None, :]) @ transposed(vectors))
        return self._softmax(mean, root)

    def _softmax(self, mean: Array, root: Array) -> Array:
        log_p = SoftmaxMoments.at(mean, root, self.approximation_.problem.nodes).log_mean
        return np.asarray(log_p - logsumexp(log_p, axis=1, keepdims=True))

    @override
    def cavity_log_probabilities(self) -> Array:
        _, mean, root = cavity(self.approximation_.problem, self.approximation_.iterate)
        return self._softmax(mean, root)

    @override
    def _left_out(self) -> Array:
        found, schedule = self.cavity_log_probabilities(), replace(self.model.schedule, iterations=None)
        if not self.record.converged:  # there is no fixed point from which to solve the other sites
            return found
        effort = min(self.model.max_iter, _EFFORT)
        for i in map(int, np.flatnonzero(disturbances(self.approximation_) > _SMALL)):
            problem, start = without_one(self.approximation_, i)
            iterate, record = solve(problem, schedule, start=start, tol=_TOL, max_iter=effort)
            if not record.converged:
                continue
            after = iterate.posterior
            mean, variance = problem.weights.new(i, after.mean[i], after.variance[i], after.sites)
            found[i] = self._softmax(mean[None], root_of(variance[None]))[0]
        return found

    @override
    def sample(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState) -> Array:
        """Draws (n, C, n_samples) from the joint posterior of the classes' latent values at X."""
        cross, H = self._cross(X), self.approximation_.problem.H
        new = cross._replace(covariances=[k(X) for k in kernels_of(self.kernel_)])
        with blas_threads(self.size):
            mean, covariance = self.approximation_.iterate.posterior.predict_jointly(cross, new)
            drawn = draws(mean.ravel(), covariance, n_samples, rng)
        return np.asarray(np.einsum("cd,nds->ncs", H, drawn.reshape(*mean.shape, n_samples)))
