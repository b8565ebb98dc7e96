"""``GPClassifier``, the scikit-learn estimator: parameters, labels and validation; no mathematics."""

import os
import warnings
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from postlin._typing import Array
from postlin._validation import is_dask, is_source
from postlin.estimator.findings import Findings, Observed
from postlin.estimator.fits import Fit, one_warning
from postlin.estimator.fitting import fit_classes
from postlin.estimator.parameters import Plan, plan_of
from postlin.estimator.reading import read, validated
from postlin.estimator.scaling import with_remark
from postlin.estimator.strategies import Strategy
from postlin.inference.infer import TOL
from postlin.inference.prior_mean import PriorMean
from postlin.kernels import alike
from postlin.learning.hyperprior import ARDPrior, Hyperprior
from postlin.learning.progress import reported
from postlin.learning.search import Callback
from postlin.likelihoods import BinaryLikelihood
from postlin.linalg.arrays import like, on_host
from postlin.linalg.minimise import Optimizer
from postlin.rules.binary import Rule
from postlin.rules.joint import JointRule
from postlin.schedules import Schedule

#: The attributes that scikit-learn's validation sets.
_FEATURES = ("n_features_in_", "feature_names_in_")


class GPClassifier(Findings, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process classification by posterior or cavity linearisation, EP or Laplace.

    Parameters of scikit-learn's ``GaussianProcessClassifier`` have the same meaning here.

    Parameters
    ----------
    kernel : scikit-learn kernel, default ``10.0 * RBF(√d) + WhiteKernel(0.1, "fixed")``
        The covariance function; its free parameters are learned by maximising the evidence. The
        default starts at the length scale √d, for d standardised features.
    likelihood : {"probit", "logit", "noisy_threshold"} or a likelihood object
        How a label depends on its latent value: p(y|f). ``NoisyThreshold(epsilon_bounds=(low, high))``
        learns its label-noise rate too.
    inference : {"pl", "cl", "ep", "laplace"} or a rule object with options
        How the Gaussian site of each label is set: by posterior linearisation (statistical linear
        regression at the posterior marginal), cavity linearisation (the same at the cavity),
        expectation propagation (moment matching at the cavity) or Laplace's method (curvature at the
        mode).
    schedule : {"parallel", "sequential", "hybrid"} or a schedule object with options
        In which order sites are updated: all from one posterior, one after another with the posterior
        updated in between, or first one after another and then all at once.
    optimizer : {"bfgs", "fmin_l_bfgs_b", "bfgs_finite_differences"}, callable or None
        How the evidence is maximised: "bfgs" is BFGS within bounds and needs the fewest evaluations,
        "fmin_l_bfgs_b" is scikit-learn's default and "bfgs_finite_differences" the paper's optimiser,
        without bounds. A callable has scikit-learn's signature. None keeps the kernel as it is.
    n_restarts_optimizer : int, default 0
        The number of further starts of the optimiser, drawn log-uniformly within the bounds.
    hyperprior : "auto", None, ``ARDPrior`` or callable, default "auto"
        A prior of the hyperparameters, which the search maximises together with the evidence; the
        reported evidence does not contain it. A callable maps the log-parameters to a log density and
        its gradient. "auto" is ``ARDPrior()`` for kernels with a length scale for each feature, which
        the evidence alone overfits, and none for others. With it, the search begins with equal length
        scales.
    fold_noise : bool or "auto", default "auto"
        Move the kernel's white noise into the likelihood. The model stays the same, the latent
        function becomes the noise-free one, and PL with the noisy threshold becomes more accurate.
        "auto" does so if the likelihood has a parameter to learn, whose estimate needs the accuracy.
    corrected : bool, default False
        Whether to correct probabilities to second order towards those of the exact posterior, which PL,
        CL and EP approximate. It takes a few per cent of a fit, and is for exact inference only.
    tol : float, default 1e-8
        Inference has converged when no site moves by more than ``tol`` in units of its marginal. With
        inducing points it has converged when no marginal can change by more than ``tol`` or 1e-6,
        whichever is larger.
    max_iter_predict : int, default 100
        The most Cholesky factorisations of one inference; with inducing points, the most passes.
    warm_start : bool, default False
        Start the next fit from the parameters and the sites of the last one, and from what its search
        has learned of the evidence, which suits other folds of the same data too.
    copy_X_train : bool, default True
        Keep a copy of the training data rather than a reference.
    random_state : int, RandomState or None
        The source of random numbers for the restarts, the inducing points and the coarse rows.
    multi_class : {"one_vs_rest", "one_vs_one", "joint"}, default "one_vs_rest"
        How more than two classes are fitted: split into binary problems of each class against the rest
        or against each other class, or jointly with a softmax likelihood. "joint" works with PL and
        Laplace, and its cost grows with the cube of rows times classes.
    shared_kernel : bool or None
        Whether all classes share their hyperparameters; if not, each binary problem, or with "joint"
        each class, learns its own. None means that they are shared with "joint" only.
    class_weight : dict, "balanced" or None
        Weights of the classes; "balanced" gives every class the same total weight.
    n_jobs : int or None
        The number of binary problems that are fitted in parallel; with inducing points, the number of
        chunks of rows that are processed in parallel, by default as many as BLAS has threads. Results
        do not depend on it.
    device : str or None, default None
        Where matrices are stored and computed with. None follows X: NumPy's memory, or the device of a
        PyTorch tensor or a CuPy array. "cuda", "cuda:1" and other names of PyTorch devices, and "cpu"
        for NumPy's memory, hold for any X. Predictions are arrays of the same type as X.
    callback : callable or None
        A function that is called with an ``Evaluation`` after every evaluation of the evidence.
    keep_on_interrupt : bool, default False
        Whether Ctrl-C ends the search for hyperparameters at the best found so far, with a warning,
        rather than the fit.
    verbose : int, default 0
        1 logs a line for each fit and, at least every ten seconds, how far it is and how long it will
        still take; 2 also a line for each evaluation of the evidence and, with inducing
        points, for each pass over the data. The logger ``postlin`` writes to standard error.
    n_neighbors : int, "auto" or None, default None
        Predict every row by exact inference on so many of its nearest rows, in the metric of the length
        scales: for tables of five thousand to many millions of rows. The hyperparameters maximise the
        leave-one-out score, and the kernel, if None, is the best of an RBF and of Matérn kernels with ν
        of ½ and 1½, with a length scale for each feature. "auto" chooses the number by the score among
        64, 128 and 192. The rows are kept; data are as for ``inducing``.
    inducing : int, array of shape (m, n_features), "auto" or None, default None
        The inducing points, or the number of them to choose among the data by k-means. Data are then
        read one chunk at a time, and may be memory maps, streams (``postlin.stream``), Parquet files
        (``postlin.parquet``) or Dask collections. None means exact inference. Together with
        ``n_neighbors`` inducing points are what a prediction knows of the rows that are no neighbours,
        and "auto" uses them if the leave-one-out score is better with them.
    learn_inducing : bool, default False
        Whether to move the inducing points to raise the evidence, which can overfit.
    coarse_rows : "auto", int or None, default "auto"
        The rows on which hyperparameters (and learned points) are searched for with inducing points.
        "auto": of more than 20,000 rows a random 20,000, then 100,000 while that lowers the log-loss of
        rows held back by .001, and only inference reads all. An integer: so many random rows first,
        and then all. None: all.
    checkpoint : path or None, default None
        A file that records the progress of a fit with inducing points or neighbours, so that the same
        fit continues from there after the process was killed.
    prior_mean : float or callable, default 0.0
        The mean of the latent function before any label is seen: a number, or a function that maps rows
        of X, as ``fit`` sees them, to an array of one number for each. With two classes a positive mean
        favours ``classes_[1]``; with ``multi_class="one_vs_rest"`` it is that of each class against the
        rest. "joint" and "one_vs_one" have none with more than two classes. A model file holds a number
        only.

    Attributes
    ----------
    classes_, n_classes_ : the sorted labels, in the order of the probabilities, and their number
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn
    kernel_, likelihood_ : with the learned parameters; several kernels make a ``CompoundKernel``
    log_marginal_likelihood_value_ : float, the log evidence; the mean over several binary problems
    log_marginal_likelihood_corrected_ : the same, corrected towards the truth; for exact inference
    base_estimator_ : the fit, if there is one problem; else all fits in ``base_estimator_.estimators_``
    approximation_ : the ``Approximation`` of the posterior over latent values, if there is one problem
    converged_, n_iter_ : whether inference converged, and the number of iterations
    evidence_path_ : list of (theta, log evidence), one for every evaluation of the optimiser in order
    loo_predict_proba_, loo_log_score_ : leave-one-out predictions, without refitting
    diagnostics_ : how inference went, and which rows are hard
    relevance_ : features by relevance, for kernels with a length scale for each
    inducing_points_ : the inducing points, if there is one problem
    n_neighbors_, recall_ : the number of neighbours, and the share of them that the search finds

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
        hyperprior: str | ARDPrior | Hyperprior | None = "auto",
        fold_noise: bool | Literal["auto"] = "auto",
        corrected: bool = False,
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
        n_neighbors: int | str | None = None,
        inducing: int | ArrayLike | str | None = None,
        learn_inducing: bool = False,
        coarse_rows: int | str | None = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        prior_mean: PriorMean = 0.0,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.inference = inference
        self.schedule = schedule
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.hyperprior = hyperprior
        self.fold_noise = fold_noise
        self.corrected = corrected
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
        self.n_neighbors = n_neighbors
        self.inducing = inducing
        self.learn_inducing = learn_inducing
        self.coarse_rows = coarse_rows
        self.checkpoint = checkpoint
        self.prior_mean = prior_mean

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Learn the hyperparameters and the posterior from labelled rows.

        A row of weight w counts as w rows; a row of weight zero is ignored. A stream or Parquet files
        are passed as X alone, because they hold labels and weights too.
        """
        plan = plan_of(self)
        rng = check_random_state(self.random_state)
        about = {name: getattr(self, name) for name in _FEATURES if hasattr(self, name)}
        try:
            with reported(self.verbose):
                plan, classes, observed, strategy = self._fitted(plan, rng, X, y, sample_weight)
        except BaseException:
            for name in _FEATURES:  # a fit that fails leaves the last one whole, features included
                self.__dict__.pop(name, None)
            self.__dict__.update(about)
            raise
        self.classes_, self.n_classes_ = classes, len(classes)
        self._observed = observed
        self._decomposition = strategy
        alone = len(strategy.estimators_) == 1
        self.base_estimator_ = strategy.estimators_[0] if alone else strategy
        warning = one_warning(plan.remarks, strategy.estimators_)
        if warning is not None:
            warnings.warn(warning, stacklevel=2)
        return self

    def _fitted(
        self, plan: Plan, rng: np.random.RandomState, X: object, y: object, sample_weight: object
    ) -> tuple[Plan, np.ndarray, Observed | None, Strategy]:
        """The plan for these data, their classes and kept rows, and the fits."""
        observed: Observed | None
        if plan.local is not None:
            from postlin.estimator.local_fitting import fit_local, read_rows  # only when needed

            near = read_rows(self, X, y, sample_weight)
            classes, observed = near.classes, near.observed
            plan = plan.suited(classes, near.sample, None)
            strategy = fit_local(plan, near, rng, self._before(plan, classes))
        elif plan.sparse is None:
            data = read(self, X, y, sample_weight)
            classes, observed = data.classes, (data.kept, data.codes, data.weight)
            plan = plan.suited(classes, data.X, data.weight)
            strategy = fit_classes(plan, data, rng, self._before(plan, classes))
            plan = _with_remark(plan, strategy, data.X, data.codes)
        else:
            from postlin.estimator.sparse_fitting import fit_sparse, read_source  # only when needed

            rows = read_source(self, X, y, sample_weight)
            classes, observed = rows.survey.classes, None
            plan = plan.suited(classes, rows.survey.sample, rows.survey.sample_weight)
            strategy = fit_sparse(plan, rows, rng, self._before(plan, classes))
            plan = _with_remark(plan, strategy, rows.survey.sample, rows.survey.sample_codes)
        return plan, classes, observed, strategy

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_decomposition")

    def predict(self, X: object) -> Array:
        """The most probable label of each row; a Dask array if X is a Dask collection."""
        check_is_fitted(self)
        if is_dask(X):
            from postlin.streaming.dask import lazily

            if self._is_on_cluster:
                p, labels = self.predict_proba(X), _MostProbable(self.classes_)
                return cast(Array, lazily(labels, p, self.classes_.dtype, None))
            return cast(Array, lazily(self.predict, X, self.classes_.dtype, None))
        return cast(Array, like(X, self.classes_[self._decomposition.predict(self._new(X))]))

    def predict_proba(self, X: object) -> Array:
        """Probabilities of the labels, in the order of ``classes_``; a Dask array if X is Dask's."""
        check_is_fitted(self)
        if is_dask(X):
            from postlin.streaming.dask import lazily

            if self._is_on_cluster:
                rows = lazily(self._new, X, float, self.n_features_in_)
                near: Any = getattr(self._estimators[0], "near")  # noqa: B009, it is a local fit
                return cast(Array, near.lazily(self._decomposition, rows))
            return cast(Array, lazily(self.predict_proba, X, float, self.n_classes_))
        return cast(Array, like(X, self._decomposition.predict_proba(self._new(X))))

    @property
    def _is_on_cluster(self) -> bool:
        """Whether the rows among which neighbours are searched are on a Dask cluster."""
        near = getattr(self._estimators[0], "near", None)
        return near is not None and near.on_cluster

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """The weighted share of rows whose label is predicted correctly."""
        return float(super().score(on_host(X), on_host(y), on_host(sample_weight)))

    def _before(self, plan: Plan, classes: Array) -> list[Fit]:
        """The fits of an earlier call to start from, if they are of the same kind."""
        if not (self.warm_start and hasattr(self, "base_estimator_")):
            return []
        first = self._estimators[0]
        same = np.array_equal(classes, self.classes_) and first.method == plan.method
        return self._estimators if same and alike(plan.start.kernel, first.kernel_) else []

    def _new(self, X: object) -> np.ndarray:
        kernel = self._estimators[0].kernel_
        if is_source(X):
            raise TypeError(
                "predictions are made of arrays, and X is a stream: predict chunk by chunk."
            )
        return cast(np.ndarray, validated(self, kernel, X, reset=False))


def _with_remark(plan: Plan, strategy: Strategy, rows: np.ndarray, codes: np.ndarray | None) -> Plan:
    """The plan, with a remark if the features should be scaled; a search that was stopped has none."""
    fits = strategy.estimators_
    if plan.joint or codes is None or any(fit.interrupted for fit in fits):
        return plan
    return with_remark(plan, fits[0].hyperparameters, rows, codes)


class _MostProbable:
    """The labels of the largest probabilities."""

    def __init__(self, classes: Array) -> None:
        self.classes = classes

    def __call__(self, p: Array) -> Array:
        return np.asarray(self.classes[np.argmax(p, axis=1)])
