"""``GPClassifier``: the scikit-learn estimator. Validation, labels and plumbing; no mathematics."""

import warnings
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from postlin import likelihoods, rules, schedules
from postlin._threads import blas_threads
from postlin._typing import Array
from postlin._validation import MATRICES, as_object, check_memory, check_tolerance
from postlin.exceptions import ConvergenceWarning
from postlin.inference import MAX_ITER, TOL
from postlin.kernels import matrices_held, split_white
from postlin.likelihoods import BinaryLikelihood
from postlin.model import Model
from postlin.posterior import GaussianPosterior
from postlin.rules import Rule
from postlin.schedules import Schedule
from postlin.sites import Marginals, Sites
from postlin.training import OPTIMIZERS, Optimizer, Training, shown_log, train

#: Entries of the covariances with new points that are held at a time: 8 MiB.
_BLOCK = 2**20


def default_kernel() -> Kernel:
    """The paper's kernel at its start: 10 RBF(1), learned, plus white noise of 0.1, fixed."""
    return ConstantKernel(10.0, (1e-5, 1e10)) * RBF(1.0, (1e-5, 1e5)) + WhiteKernel(0.1, "fixed")


class GPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process classification by posterior linearisation, EP or Laplace.

    Parameters
    ----------
    kernel : scikit-learn kernel, default ``10.0 * RBF(1.0) + WhiteKernel(0.1, "fixed")``
        The covariance function; its free parameters are learned by maximising the evidence.
    likelihood : {"probit", "logit", "noisy_threshold"} or a likelihood object
    inference : {"pl", "ep", "laplace"} or a rule object with options
    schedule : {"parallel", "sequential", "hybrid"} or a schedule object with options
    optimizer : "bfgs", "fmin_l_bfgs_b", "bfgs_finite_differences", callable or None
        BFGS within bounds with the fewest evaluations; SciPy's L-BFGS-B, as in scikit-learn; the
        paper's, without bounds. A callable has scikit-learn's signature; None keeps the kernel as it
        is.
    n_restarts_optimizer : int, default 0
        Further starts, drawn log-uniformly within the kernel's bounds.
    fold_noise : bool, default False
        Move the kernel's white noise into the likelihood. The model stays the same, the latent
        function becomes the noise-free one, and PL with the noisy threshold becomes more accurate.
    tol, max_iter : float, int
        Inference is iterated until no site moves by more than ``tol`` in units of its marginal,
        or ``max_iter`` factorisations are spent.
    warm_start : bool, default False
        Start the next fit from the kernel parameters and the sites of the last one.
    copy_X_train : bool, default True
        Keep a copy of the training data rather than a reference.
    random_state : int, RandomState or None
        For the restarts.
    verbose : int, default 0
        1 shows a line a fit, 2 a line an evaluation of the evidence, on standard error, through
        the logger ``postlin``.

    Attributes
    ----------
    kernel_ : the kernel with the parameters learned
    classes_ : the two labels, sorted; probabilities are in this order
    n_features_in_ : int
    log_marginal_likelihood_value_ : float, the log evidence at ``kernel_.theta``
    approximation_ : the ``Approximation`` of the posterior over latent values
    converged_ : bool, whether inference converged at ``kernel_``
    n_iter_ : int, the iterations that inference took there
    evidence_path_ : list of (theta, log evidence), every evaluation of the optimiser in order
    X_train_, y_train_ : the training data, and labels as −1 and +1

    Examples
    --------
    >>> from postlin import GPClassifier
    >>> from postlin.datasets import load, whiten
    >>> crab = load("crab")
    >>> X = whiten(crab.X)
    >>> model = GPClassifier().fit(X[::2], crab.y[::2])
    >>> print(round(model.score(X[1::2], crab.y[1::2]), 2))
    0.97

    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str | BinaryLikelihood = "probit",
        inference: str | Rule = "pl",
        schedule: str | Schedule = "parallel",
        optimizer: Optimizer | str | None = "bfgs",
        n_restarts_optimizer: int = 0,
        fold_noise: bool = False,
        tol: float = TOL,
        max_iter: int = MAX_ITER,
        warm_start: bool = False,
        copy_X_train: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.inference = inference
        self.schedule = schedule
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.fold_noise = fold_noise
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the kernel's parameters and the posterior from data with two classes."""
        kernel = self._check_parameters()
        start = None
        if self.warm_start and hasattr(self, "approximation_") and _alike(kernel, self.kernel_):
            kernel = kernel.clone_with_theta(np.clip(self.kernel_.theta, *kernel.bounds.T))
            start = self.approximation_.sites
        return self._fit(kernel, X, y, start)

    def _fit(self, kernel: Kernel, X: Any, y: Any, start: Sites | None) -> Self:
        """Fit from these parameters and, where they belong to as many points, these sites."""
        X, y = self._check_data(kernel, X, y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) == 1:
            raise ValueError(
                f"y holds one class only, {classes[0]}; a classifier needs examples of two."
            )
        rule, likelihood, schedule = self._parts()
        model = Model(
            np.copy(X) if self.copy_X_train else X,
            np.where(codes == 1, 1.0, -1.0),
            likelihood,
            rule,
            schedule,
            self.tol,
            self.max_iter,
            self.fold_noise,
        )
        with blas_threads(len(y)), shown_log(self.verbose):
            model.check(kernel)
            training = train(
                model,
                kernel,
                self.optimizer,
                restarts=self.n_restarts_optimizer,
                rng=check_random_state(self.random_state),
                start=start if start is not None and len(start.tau) == len(y) else None,
            )
        model.forget()
        self._store(model, classes, training)
        return self

    def predict(self, X: Any) -> Array:
        """The more probable label of each row."""
        check_is_fitted(self)
        if self._likelihood.symmetric:  # then the sign of the mean decides
            X = self._validate(self.kernel_, X, reset=False)
            positive = np.concatenate([p.predict_mean(c) for p, c, _ in self._crossed(X)]) > 0
        else:
            positive = np.argmax(self.predict_proba(X), axis=1) > 0
        labels: Array = self.classes_[positive.astype(int)]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the labels, in the order of ``classes_``."""
        latent = self.latent_mean_and_variance(X)
        plus, minus = self._likelihood.jets(*latent)
        probabilities: Array = np.exp(np.stack([minus.log_z, plus.log_z], axis=1))
        return probabilities

    def latent_mean_and_variance(self, X: Any) -> Marginals:
        """Mean and variance of the latent value at each row."""
        check_is_fitted(self)
        X = self._validate(self.kernel_, X, reset=False)
        with blas_threads(len(self.y_train_)):
            parts = [
                posterior.predict(cross, self._latent_kernel.diag(rows))
                for posterior, cross, rows in self._crossed(X)
            ]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Marginals(mean, variance)

    def _crossed(self, X: Any) -> Iterator[tuple[GaussianPosterior, Array, Any]]:
        """Covariances of the training rows with those of X, a block at a time."""
        posterior = self.approximation_.solution.iterate.posterior
        width = max(16, _BLOCK // len(self.y_train_))
        for first in range(0, len(X), width):
            rows = X[first : first + width]
            yield posterior, self._latent_kernel(self.X_train_, rows), rows

    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """The log evidence at ``theta``, with its gradient on request; fitted parameters if None.

        With ``clone_kernel=False`` the parameters are written into ``kernel_``.
        """
        check_is_fitted(self)
        if theta is None:
            if not eval_gradient:
                return self.log_marginal_likelihood_value_
            theta = self.kernel_.theta
        theta = np.asarray(theta, float)
        if theta.shape != self.kernel_.theta.shape or not np.isfinite(theta).all():
            raise ValueError(
                f"theta must hold {self.kernel_.n_dims} finite log-parameters, as kernel_.theta does, "
                f"got {theta}."
            )
        if clone_kernel:
            kernel = self.kernel_.clone_with_theta(theta)
        else:
            kernel = self.kernel_
            kernel.theta = theta
        fitted = self._model.infer(kernel, self.approximation_.sites)
        fitted.approximation.warn(self._model.schedule, self.tol, self.max_iter, stacklevel=3)
        value = fitted.approximation.log_evidence
        gradient = fitted.gradient() if eval_gradient else None
        self._model.forget()
        return value if gradient is None else (value, gradient)

    def _check_parameters(self) -> Kernel:
        """Everything that can be wrong without looking at data."""
        if not (self.kernel is None or isinstance(self.kernel, Kernel)):
            raise ValueError(f"kernel must be a scikit-learn kernel or None, got {self.kernel!r}.")
        kernel = default_kernel() if self.kernel is None else clone(self.kernel)
        rule, likelihood, _ = self._parts()
        if self.fold_noise:  # which makes every likelihood differentiable
            split_white(kernel)
        else:
            rule.check(likelihood)
        check_tolerance(self.tol, self.max_iter)
        if not (self.optimizer is None or callable(self.optimizer) or self.optimizer in OPTIMIZERS):
            names = ", ".join(map(repr, OPTIMIZERS))
            raise ValueError(f"optimizer must be {names}, a callable or None, got {self.optimizer!r}.")
        if self.n_restarts_optimizer < 0:
            raise ValueError(
                f"n_restarts_optimizer must be 0 or more, got {self.n_restarts_optimizer}."
            )
        if self.optimizer is not None and kernel.n_dims:
            _check_bounds(kernel, finite=self.n_restarts_optimizer > 0)
        return kernel

    def _parts(self) -> tuple[Rule, BinaryLikelihood, Schedule]:
        return (
            as_object(self.inference, rules.REGISTRY, Rule, "inference"),
            as_object(self.likelihood, likelihoods.REGISTRY, BinaryLikelihood, "likelihood"),
            as_object(self.schedule, schedules.REGISTRY, Schedule, "schedule"),
        )

    def _check_data(self, kernel: Kernel, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = self._validate(kernel, X, y)
        check_classification_targets(y)
        if type_of_target(y) != "binary":
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}: y must hold two classes."
            )
        check_memory(len(y), MATRICES + matrices_held(kernel))
        return X, y

    def _validate(self, kernel: Kernel, *data: Any, reset: bool = True) -> Any:
        if kernel.requires_vector_input:
            return validate_data(self, *data, reset=reset, dtype=np.float64)
        return validate_data(self, *data, reset=reset, dtype=None, ensure_2d=False)

    def _store(self, model: Model, classes: Array, training: Training) -> None:
        """Keep what was learned, all at once, and say what must be known about it."""
        fitted = training.best
        approximation = fitted.approximation
        self.classes_ = classes
        self.X_train_, self.y_train_ = model.X, model.y
        self.kernel_ = fitted.kernel
        self.approximation_ = approximation
        self.evidence_path_ = training.path
        self.log_marginal_likelihood_value_ = approximation.log_evidence
        self.converged_ = approximation.converged
        self.n_iter_ = approximation.n_iter
        self._model = model
        self._latent_kernel = fitted.latent_kernel
        self._likelihood = fitted.likelihood
        approximation.warn(model.schedule, self.tol, self.max_iter, stacklevel=5)
        if training.message is not None:
            warnings.warn(
                f"the optimiser did not converge ({training.message}); give it another start with "
                "n_restarts_optimizer, or scale the features.",
                ConvergenceWarning,
                stacklevel=4,
            )


def _alike(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels have the same structure, so that parameters carry over."""
    parts = ("k1", "k2", "kernel")
    if type(one) is not type(other) or one.n_dims != other.n_dims:
        return False
    pairs = [(getattr(one, p), getattr(other, p)) for p in parts if hasattr(one, p)]
    return all(_alike(a, b) for a, b in pairs)


def _check_bounds(kernel: Kernel, *, finite: bool) -> None:
    """The start must lie within the bounds, and restarts need bounds to draw from."""
    outside = (kernel.theta < kernel.bounds[:, 0]) | (kernel.theta > kernel.bounds[:, 1])
    names = [
        h.name if h.n_elements == 1 else f"{h.name}[{k}]"
        for h in kernel.hyperparameters
        if not h.fixed
        for k in range(h.n_elements)
    ]
    for k in np.flatnonzero(outside):
        low, high = np.exp(kernel.bounds[k])
        raise ValueError(
            f"the bounds of {names[k]}, ({low:g}, {high:g}), exclude its start "
            f"{np.exp(kernel.theta[k]):g}: widen them or change the start."
        )
    if finite and not np.isfinite(kernel.bounds).all():
        raise ValueError("restarts need finite bounds on every kernel parameter to draw starts from.")
