"""``GPClassifier``: the scikit-learn estimator. Validation, labels and plumbing; no mathematics."""

import warnings
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, Kernel, WhiteKernel
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from postlin import likelihoods, multiclass, rules, schedules
from postlin._typing import Array
from postlin._validation import MATRICES, as_object, check_memory, check_tolerance, check_weights
from postlin.findings import Findings
from postlin.fitting import Plan, fit_jointly, fit_tasks
from postlin.hyperparameters import Hyperparameters
from postlin.inference import TOL
from postlin.joint.fit import Joint
from postlin.joint.rules import JointRule, Softmax, check_joint, joint_rule
from postlin.kernels import can_split, matrices_held, split_white
from postlin.likelihoods import BinaryLikelihood
from postlin.multiclass import Decomposition, OneVsOne
from postlin.optimisers import OPTIMIZERS, Optimizer
from postlin.rules import Rule
from postlin.schedules import Schedule
from postlin.search import Callback

#: Matrices of (n (C − 1))² doubles alive at the same time in a joint fit.
_JOINT_MATRICES = 6


def default_kernel() -> Kernel:
    """The paper's kernel at its start: 10 RBF(1), learned, plus white noise of 0.1, fixed."""
    return ConstantKernel(10.0, (1e-5, 1e10)) * RBF(1.0, (1e-5, 1e5)) + WhiteKernel(0.1, "fixed")


class GPClassifier(Findings, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process classification by posterior linearisation, EP or Laplace.

    Parameters that scikit-learn's ``GaussianProcessClassifier`` has too mean the same here.

    Parameters
    ----------
    kernel : scikit-learn kernel, default ``10.0 * RBF(1.0) + WhiteKernel(0.1, "fixed")``
        The covariance function; its free parameters are learned by maximising the evidence.
    likelihood : {"probit", "logit", "noisy_threshold"} or a likelihood object
        ``NoisyThreshold(epsilon_bounds=(low, high))`` learns its label-noise rate too.
    inference : {"pl", "ep", "laplace"} or a rule object with options
    schedule : {"parallel", "sequential", "hybrid"} or a schedule object with options
    optimizer : "bfgs", "fmin_l_bfgs_b", "bfgs_finite_differences", callable or None
        BFGS within bounds with the fewest evaluations; SciPy's L-BFGS-B, as in scikit-learn; the
        paper's, without bounds. A callable has scikit-learn's signature; None keeps the kernel as it
        is.
    n_restarts_optimizer : int, default 0
        Further starts, drawn log-uniformly within the bounds.
    fold_noise : bool or "auto", default "auto"
        Move the kernel's white noise into the likelihood. The model stays the same, the latent
        function becomes the noise-free one, and PL with the noisy threshold becomes more accurate.
        "auto" does so where the likelihood has a parameter to learn: its estimate needs that accuracy.
    tol, max_iter_predict : float, int
        Inference is iterated until no site moves by more than ``tol`` in units of its marginal,
        or ``max_iter_predict`` factorisations are spent.
    warm_start : bool, default False
        Start the next fit from the parameters and the sites of the last one.
    copy_X_train : bool, default True
        Keep a copy of the training data rather than a reference.
    random_state : int, RandomState or None
        For the restarts.
    multi_class : {"one_vs_rest", "one_vs_one", "joint"}, default "one_vs_rest"
        How more than two classes are taken apart, or that they are not: "joint" is softmax over all of
        them, by PL or Laplace, at a cost that grows with the cube of rows times classes.
    shared_kernel : bool or None
        Whether classes share their hyperparameters, or each problem, and with "joint" each class,
        learns its own. None: shared with "joint" and not else.
    class_weight : dict, "balanced" or None
        Weights of the classes; "balanced" gives all of them the same in sum.
    n_jobs : int or None
        How many of the problems are fitted side by side. Results do not depend on it.
    callback : callable or None
        Called with an ``Evaluation`` after every evaluation of the evidence.
    keep_on_interrupt : bool, default False
        Whether Ctrl-C ends the search for hyperparameters at the best found so far, with a warning,
        rather than the fit.
    verbose : int, default 0
        1 shows a line a fit, 2 a line an evaluation of the evidence, on standard error, through
        the logger ``postlin``.

    Attributes
    ----------
    classes_, n_classes_ : the labels, sorted; probabilities are in this order
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn
    kernel_, likelihood_ : with the parameters learned; a ``CompoundKernel`` of many classes
    log_marginal_likelihood_value_ : float, the log evidence; of many classes its mean
    base_estimator_ : the fit of two classes, or all of them in ``base_estimator_.estimators_``
    approximation_ : of two classes, the ``Approximation`` of the posterior over latent values
    converged_, n_iter_ : whether inference converged, and the iterations that it took
    evidence_path_ : list of (theta, log evidence), every evaluation of the optimiser in order
    loo_predict_proba_, loo_log_score_ : leave-one-out predictions, without refitting
    diagnostics_ : how inference went, and which rows are hard
    relevance_ : features by relevance, for kernels with a length scale for each

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
        inference: str | Rule | JointRule = "pl",
        schedule: str | Schedule = "parallel",
        optimizer: Optimizer | str | None = "bfgs",
        n_restarts_optimizer: int = 0,
        fold_noise: bool | Literal["auto"] = "auto",
        tol: float = TOL,
        max_iter_predict: int = 100,
        warm_start: bool = False,
        copy_X_train: bool = True,
        random_state: int | np.random.RandomState | None = None,
        multi_class: str = "one_vs_rest",
        shared_kernel: bool | None = None,
        class_weight: dict[Any, float] | str | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
        keep_on_interrupt: bool = False,
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
        self.max_iter_predict = max_iter_predict
        self.warm_start = warm_start
        self.copy_X_train = copy_X_train
        self.random_state = random_state
        self.multi_class = multi_class
        self.shared_kernel = shared_kernel
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.callback = callback
        self.keep_on_interrupt = keep_on_interrupt
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the hyperparameters and the posterior from labelled rows.

        A row of weight w counts as w rows; one of weight zero is not looked at.
        """
        plan = self._plan()
        X, y = self._validate(plan.start.kernel, X, y)
        check_classification_targets(y)
        X, y, weight, kept = self._weighted(X, y, sample_weight)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) == 1:
            raise ValueError(
                f"y holds one class only, {classes[0]}; a classifier needs examples of two classes."
            )
        if self.multi_class == "joint" and len(classes) > 2:
            return self._fit_jointly(plan, X, codes, classes, weight, kept)
        check_memory(len(y), MATRICES + matrices_held(plan.start.kernel))
        kind = OneVsOne if len(classes) == 2 else multiclass.REGISTRY[self.multi_class]
        tasks = kind.tasks(classes, codes)
        fits = fit_tasks(
            plan,
            np.copy(X) if self.copy_X_train else X,
            weight,
            tasks,
            check_random_state(self.random_state),
            self._before(plan.start, classes, len(tasks)),
            shared=bool(self.shared_kernel),
            n_jobs=self.n_jobs,
        )
        return self._store(kind(len(classes), fits), classes, codes, weight, kept)

    def _fit_jointly(
        self,
        plan: Plan,
        X: Any,
        codes: np.ndarray,
        classes: Array,
        weight: Array | None,
        kept: np.ndarray,
    ) -> Self:
        """All classes at a time."""
        n = len(classes)
        check_memory(len(codes) * (n - 1), _JOINT_MATRICES)
        kernel = plan.start.kernel
        if self.shared_kernel is False:
            kernel = CompoundKernel([clone(kernel) for _ in classes])
        start = Hyperparameters(kernel, Softmax())
        plan = replace(plan, start=start, rule=joint_rule(self.inference))
        fit = fit_jointly(
            plan,
            np.copy(X) if self.copy_X_train else X,
            weight,
            codes,
            n,
            check_random_state(self.random_state),
            self._before(start, classes, 1)[0],
        )
        return self._store(Joint(n, [fit]), classes, codes, weight, kept)

    def _store(
        self,
        strategy: Decomposition | Joint,
        classes: Array,
        codes: np.ndarray,
        weight: Array | None,
        kept: np.ndarray,
    ) -> Self:
        """Keep what was learned, all at once, and say what must be known about it."""
        self.classes_, self.n_classes_ = classes, len(classes)
        self._kept, self._codes, self._weight = kept, codes, weight
        self._decomposition: Decomposition | Joint = strategy
        alone = len(strategy.estimators_) == 1
        self.base_estimator_ = strategy.estimators_[0] if alone else strategy
        for fit in strategy.estimators_:
            about = "" if alone else f"{fit.name}: "
            for warning in fit.complaints():
                warnings.warn(type(warning)(f"{about}{warning}"), stacklevel=3)
        return self

    def predict(self, X: Any) -> Array:
        """The most probable label of each row."""
        X = self._new(X)
        labels: Array = self.classes_[self._decomposition.predict(X)]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the labels, in the order of ``classes_``."""
        X = self._new(X)
        return self._decomposition.predict_proba(X)

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the parameters learned; of many classes one with all of theirs."""
        kernels = [estimator.kernel_ for estimator in self._estimators]
        return kernels[0] if len(kernels) == 1 else CompoundKernel(kernels)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log evidence; of many classes its mean over the problems with two."""
        return float(np.mean([e.log_marginal_likelihood_value_ for e in self._estimators]))

    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """The log evidence at ``theta``, with its gradient on request; fitted parameters if None.

        Of many classes it is the mean over the problems with two, and ``theta`` holds the parameters
        of one kernel for all of them or those of all of them. With ``clone_kernel=False`` the
        parameters are written into ``kernel_``.
        """
        check_is_fitted(self)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        estimators = self._estimators
        n = len(estimators[0].hyperparameters.theta)
        if theta is None:
            theta = np.concatenate([e.hyperparameters.theta for e in estimators])
        theta = np.asarray(theta, float)
        if len(estimators) > 1 and theta.shape not in ((n,), (n * len(estimators),)):
            raise ValueError(
                f"theta must hold {n} log-parameters, or {n * len(estimators)} for all "
                f"{len(estimators)} kernels, got shape {theta.shape}."
            )
        whole = len(estimators) > 1 and theta.shape != (n,)
        each = np.split(theta, len(estimators)) if whole else [theta] * len(estimators)
        answers: list[Any] = [
            estimator.log_marginal_likelihood(part, eval_gradient, clone_kernel)
            for estimator, part in zip(estimators, each, strict=True)
        ]
        if not eval_gradient:
            return float(np.mean(answers))
        values, gradients = zip(*answers, strict=True)
        together = np.concatenate(gradients) / len(estimators) if whole else np.mean(gradients, axis=0)
        return float(np.mean(values)), together

    def _plan(self) -> Plan:
        """All parameters, checked as far as they can be without data."""
        if isinstance(self.kernel, CompoundKernel):
            raise ValueError("kernel cannot be a CompoundKernel")
        if not (self.kernel is None or isinstance(self.kernel, Kernel)):
            raise ValueError(f"kernel must be a scikit-learn kernel or None, got {self.kernel!r}.")
        kernel = default_kernel() if self.kernel is None else clone(self.kernel)
        inference = self.inference.binary if isinstance(self.inference, JointRule) else self.inference
        rule = as_object(inference, rules.REGISTRY, Rule, "inference")
        likelihood = as_object(self.likelihood, likelihoods.REGISTRY, BinaryLikelihood, "likelihood")
        if self.fold_noise not in (True, False, "auto"):
            raise ValueError(f"fold_noise must be True, False or 'auto', got {self.fold_noise!r}.")
        fold_noise = self.fold_noise is True or (
            self.fold_noise == "auto" and bool(likelihood.free) and can_split(kernel)
        )
        if fold_noise:  # which makes every likelihood differentiable
            split_white(kernel)
        else:
            rule.check(likelihood)
        self._check_options()
        if self.multi_class == "joint":
            check_joint(likelihood, self.inference, self.schedule, fold_noise)
        start = Hyperparameters(kernel, likelihood)
        if self.optimizer is not None and len(start.theta):
            start.check_bounds(finite=self.n_restarts_optimizer > 0)
        return Plan(
            start,
            rule,
            as_object(self.schedule, schedules.REGISTRY, Schedule, "schedule"),
            self.optimizer,
            self.n_restarts_optimizer,
            fold_noise,
            self.tol,
            self.max_iter_predict,
            self.callback,
            self.keep_on_interrupt,
            self.verbose,
        )

    def _check_options(self) -> None:
        check_tolerance(self.tol, self.max_iter_predict, "max_iter_predict")
        if not (self.optimizer is None or callable(self.optimizer) or self.optimizer in OPTIMIZERS):
            names = ", ".join(map(repr, OPTIMIZERS))
            raise ValueError(f"optimizer must be {names}, a callable or None, got {self.optimizer!r}.")
        restarts = self.n_restarts_optimizer
        if isinstance(restarts, bool) or not isinstance(restarts, Integral) or restarts < 0:
            raise ValueError(f"n_restarts_optimizer must be 0 or more, got {restarts!r}.")
        if self.multi_class not in (*multiclass.REGISTRY, "joint"):
            names = ", ".join(map(repr, (*multiclass.REGISTRY, "joint")))
            raise ValueError(f"multi_class must be one of {names}, got {self.multi_class!r}.")

    def _weighted(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Any, Any, Array | None, np.ndarray]:
        """The rows that count, their weights (None: one each), and which rows they are."""
        weight = np.ones(len(y))
        if sample_weight is not None:
            weight = check_weights(
                _check_sample_weight(sample_weight, X, dtype=np.float64), len(y), "sample_weight"
            )
        if self.class_weight is not None:
            classes, codes = np.unique(y, return_inverse=True)
            of_class = compute_class_weight(self.class_weight, classes=classes, y=y)
            weight = check_weights(weight * of_class[codes], len(y), "class_weight")
        kept = np.flatnonzero(weight > 0)
        if len(kept) < len(y):
            X, y, weight = X[kept], y[kept], weight[kept]
        return X, y, None if (weight == 1.0).all() else weight, kept

    def _before(self, start: Hyperparameters, classes: Array, n_tasks: int) -> list[Any]:
        """The fits to start from, if there are any of the same kind."""
        if self.warm_start and hasattr(self, "base_estimator_"):
            fits = self._estimators
            same = len(fits) == n_tasks and np.array_equal(classes, self.classes_)
            if same and _alike(start.kernel, fits[0].kernel_):
                return list(fits)
        return [None] * n_tasks

    def _validate(self, kernel: Kernel, *data: Any, reset: bool = True) -> Any:
        if kernel.requires_vector_input:
            return validate_data(self, *data, reset=reset, dtype=np.float64)
        return validate_data(self, *data, reset=reset, dtype=None, ensure_2d=False)

    def _new(self, X: Any) -> Any:
        """Rows to predict, validated."""
        check_is_fitted(self)
        return self._validate(self._estimators[0].kernel_, X, reset=False)


def _alike(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels have the same structure, so that parameters carry over."""
    parts = ("k1", "k2", "kernel")
    if type(one) is not type(other) or one.n_dims != other.n_dims:
        return False
    pairs = [(getattr(one, p), getattr(other, p)) for p in parts if hasattr(one, p)]
    return all(_alike(a, b) for a, b in pairs)
