"""What is learned from several classes at a time."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from postlin._threads import blas_threads
from postlin._typing import Array
from postlin.fit import Fit
from postlin.fixed_point import solve
from postlin.joint.evidence import cavity
from postlin.joint.linearised import joint_newton_step
from postlin.joint.model import kernels_of
from postlin.joint.prior import Prior
from postlin.joint.sites import root_of
from postlin.joint.softmax import SoftmaxMoments
from postlin.sites import Marginals, Sites

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
        with blas_threads(n * D):
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
        for i in np.flatnonzero(self._disturbances() > _SMALL):
            found[i] = self._without(int(i))
        return found

    def _disturbances(self) -> Array:
        """For each row, how much any other site would move without one observation of it."""
        approximation = self.approximation_
        problem, iterate = approximation.problem, approximation.solution.iterate
        n, D = iterate.view.nu.shape
        sigma = iterate.posterior.covariance.reshape(n, D, n, D)
        part = problem.share
        L = iterate.view.root
        eye = np.eye(D)
        found = np.empty(n)
        for i in range(n):
            # the cavity of i: site removed, in matrices
            T = part[i] * iterate.view.tau[i]
            V = L[i] @ L[i].T
            gain = np.linalg.solve(eye - T @ V, T)  # (T⁻¹ − V)⁻¹
            pull = part[i] * (iterate.view.nu[i] - iterate.view.tau[i] @ iterate.view.mean[i])
            push = np.linalg.solve(eye - T @ V, pull)
            across = sigma[:, :, i, :]
            mean = iterate.view.mean - across @ push
            variance = L @ np.swapaxes(L, 1, 2) + across @ gain @ np.swapaxes(across, 1, 2)
            variance[i] = V
            mean[i] = iterate.view.mean[i]
            view = iterate.view._replace(mean=mean, root=np.linalg.cholesky(variance))
            moved = replace(iterate, view=view, proposal=problem.propose(view))
            P, q = moved.move
            size = np.maximum(np.abs(P).max(axis=(1, 2)), np.abs(q).max(axis=1))
            size[i] = 0.0
            found[i] = size.max()
        return found

    def _without(self, i: int) -> Array:
        """Log probabilities of row i without one observation of it, all other sites where they go."""
        approximation = self.approximation_
        problem, (tau, nu) = approximation.problem, approximation.sites
        weight = np.ones(len(nu)) if problem.weight is None else problem.weight.copy()
        fewer = max(weight[i] - 1.0, 0.0)
        start = Sites(tau.copy(), nu.copy())
        start.tau[i] *= fewer / weight[i]
        start.nu[i] *= fewer / weight[i]
        weight[i] = fewer
        solution = solve(
            replace(problem, weight=weight),
            replace(self.model.schedule, iterations=None),
            start=start,
            tol=_TOL,
            max_iter=self.model.max_iter,
            newton=joint_newton_step,
        )
        view = solution.iterate.view
        log_p: Array = self._softmax(view.mean[i : i + 1], view.root[i : i + 1])[0]
        return log_p

    def sample(self, X: Any, n_samples: int, rng: np.random.RandomState) -> Array:
        """Joint draws of the classes' latent values, (n, C, n_samples)."""
        posterior = self.approximation_.solution.iterate.posterior
        kernels, H = kernels_of(self.kernel_), self.approximation_.problem.H
        directions = posterior.prior.directions
        cross = Prior([k(self.X_train_, X) for k in kernels], directions)
        with blas_threads(len(self.y_train_)):
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
