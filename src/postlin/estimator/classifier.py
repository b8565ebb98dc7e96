"""``GPClassifier``: the scikit-learn estimator. Parameters, labels and plumbing; no mathematics."""

import os
import warnings
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from postlin._typing import Array
from postlin._validation import is_dask, is_source
from postlin.estimator.findings import Findings
from postlin.estimator.fits import Fit
from postlin.estimator.fitting import fit_classes
from postlin.estimator.joint_fit import Joint
from postlin.estimator.parameters import Plan, plan_of
from postlin.estimator.reading import read, validated
from postlin.estimator.strategies import Decomposition
from postlin.inference.infer import TOL
from postlin.learning.search import Callback
from postlin.likelihoods import BinaryLikelihood
from postlin.linalg.arrays import like, on_host
from postlin.linalg.minimise import Optimizer
from postlin.rules.binary import Rule
from postlin.rules.joint import JointRule
from postlin.schedules import Schedule

if TYPE_CHECKING:
    pass

#: What validation leaves about features.
_FEATURES = ("n_features_in_", "feature_names_in_")


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
        or ``max_iter_predict`` factorisations are spent. With inducing points: until no marginal can
        change by more than ``tol``, or 1e-6 if that is more, or ``max_iter_predict`` passes are spent.
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
        How many of the problems are fitted side by side; with inducing points, how many chunks of rows
        are worked on side by side, by default as many as BLAS has threads. Results do not depend on it.
    device : str or None, default None
        Where matrices are kept and worked on: None is where X is, NumPy's memory or the device of a
        PyTorch tensor or of a CuPy array; "cuda", "cuda:1" and other devices of PyTorch's
        whatever X is; "cpu" NumPy's memory. Predictions come back as arrays of the kind that is passed.
    callback : callable or None
        Called with an ``Evaluation`` after every evaluation of the evidence.
    keep_on_interrupt : bool, default False
        Whether Ctrl-C ends the search for hyperparameters at the best found so far, with a warning,
        rather than the fit.
    verbose : int, default 0
        1 shows a line a fit, 2 a line an evaluation of the evidence and, with inducing points, a pass
        over the data, on standard error, through the logger ``postlin``.
    inducing : int, array of shape (m, n_features) or None, default None
        Inducing points: how many are to be chosen among the data by k-means, or where they are. Data
        are then read a chunk at a time, and may be memory maps, streams (``postlin.stream``), Parquet
        files (``postlin.parquet``) or Dask collections. None: exact inference.
    learn_inducing : bool, default False
        Move the inducing points too where that raises the evidence, which can overfit.
    coarse_rows : int or None, default None
        Search for the hyperparameters on so many rows, drawn at random, before all rows are used.
    checkpoint : path or None, default None
        A file from which a fit with inducing points that was killed goes on, if it is fitted again.

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
    inducing_points_ : of two classes, the inducing points, where there are some

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
        device: str | None = None,
        callback: Callback | None = None,
        keep_on_interrupt: bool = False,
        verbose: int = 0,
        inducing: Any = None,
        learn_inducing: bool = False,
        coarse_rows: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
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
        self.device = device
        self.callback = callback
        self.keep_on_interrupt = keep_on_interrupt
        self.verbose = verbose
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.coarse_rows = coarse_rows
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the hyperparameters and the posterior from labelled rows.

        A row of weight w counts as w rows; one of weight zero is not looked at. A stream or Parquet
        files, which hold labels and weights too, are given as X alone.
        """
        plan = plan_of(self)
        rng = check_random_state(self.random_state)
        about = {name: getattr(self, name) for name in _FEATURES if hasattr(self, name)}
        try:
            strategy: Decomposition | Joint
            if plan.sparse is None:
                data = read(self, X, y, sample_weight)
                classes, observed, plan = data.classes, data.observed, plan.among(data.classes)
                strategy = fit_classes(plan, data, rng, self._before(plan, classes))
            else:
                from postlin.estimator.sparse_fitting import fit_sparse, read_source  # only when needed

                rows = read_source(self, X, y, sample_weight)
                classes, observed, plan = rows.classes, None, plan.among(rows.classes)
                strategy = fit_sparse(plan, rows, rng, self._before(plan, classes))
        except BaseException:
            for name in _FEATURES:  # back to what validation found in the data of the last fit
                self.__dict__.pop(name, None)
            self.__dict__.update(about)
            raise
        # all at once, so that a fit that fails leaves the last one whole
        self.classes_, self.n_classes_ = classes, len(classes)
        self._observed = observed
        self._decomposition = strategy
        alone = len(strategy.estimators_) == 1
        self.base_estimator_ = strategy.estimators_[0] if alone else strategy
        for fit in strategy.estimators_:
            which = "" if alone else f"{fit.name}: "
            for warning in fit.warnings():
                warnings.warn(type(warning)(f"{which}{warning}"), stacklevel=2)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_decomposition")

    def predict(self, X: Any) -> Array:
        """The most probable label of each row; of a Dask collection a Dask array of them."""
        check_is_fitted(self)
        if is_dask(X):
            return _lazily(self.predict, X, self.classes_.dtype, None)
        rows = self._new(X)
        labels: Array = like(X, self.classes_[self._decomposition.predict(rows)])
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the labels, in the order of ``classes_``; of Dask data a Dask array."""
        check_is_fitted(self)
        if is_dask(X):
            return _lazily(self.predict_proba, X, np.dtype(float), self.n_classes_)
        rows = self._new(X)
        probabilities: Array = like(X, self._decomposition.predict_proba(rows))
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows, by weight, whose label is predicted."""
        return float(super().score(on_host(X), on_host(y), on_host(sample_weight)))

    def _before(self, plan: Plan, classes: Array) -> list[Fit]:
        """The fits of an earlier call to start from, if they are of the same kind."""
        if self.warm_start and hasattr(self, "base_estimator_"):
            same = np.array_equal(classes, self.classes_)
            same &= self._estimators[0].takes_passes == (plan.sparse is not None)
            if same and _alike(plan.start.kernel, self._estimators[0].kernel_):
                return self._estimators
        return []

    def _new(self, X: Any) -> Any:
        """Rows to predict, validated."""
        check_is_fitted(self)
        if is_source(X):
            raise TypeError(
                "predictions are made of arrays, and X is a stream: predict chunk by chunk."
            )
        return validated(self, self._estimators[0].kernel_, X, reset=False)


def _lazily(function: Any, X: Any, dtype: np.dtype[Any], width: int | None) -> Array:
    """A Dask array of predictions."""
    from postlin.streaming.dask import lazily

    lazy: Array = lazily(function, X, dtype, width)
    return lazy


def _alike(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels have the same structure, so that parameters carry over."""
    parts = ("k1", "k2", "kernel")
    if type(one) is not type(other) or one.n_dims != other.n_dims:
        return False
    pairs = [(getattr(one, p), getattr(other, p)) for p in parts if hasattr(one, p)]
    return all(_alike(a, b) for a, b in pairs)
