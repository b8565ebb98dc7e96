"""The properties of a fitted classifier beyond its predictions."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from postlin._typing import Array, Marginals
from postlin.estimator.diagnostics import Diagnostics, Relevance, relevance
from postlin.estimator.fits import Fit
from postlin.estimator.strategies import Strategy
from postlin.estimator.summary import as_html, as_text
from postlin.estimator.verification import Verification
from postlin.estimator.verifying import check_verifiable, verified
from postlin.inference.result import Approximation
from postlin.likelihoods import BinaryLikelihood
from postlin.likelihoods.softmax import Softmax
from postlin.linalg.arrays import like

if TYPE_CHECKING:
    from postlin.estimator.local_fit import LocalFit
    from postlin.estimator.sparse_fit import SparseFit

#: Indices of the rows of positive weight, indices of their classes, and their weights (None: all one).
Observed = tuple[np.ndarray, np.ndarray, Array | None]


class Findings(ABC):
    """The part of ``GPClassifier`` that reads the results of ``fit``."""

    classes_: Array
    n_classes_: int
    verbose: int
    _decomposition: Strategy
    _observed: Observed | None  # None with inducing points, where a pass finds it

    @property
    def _estimators(self) -> list[Fit]:
        check_is_fitted(self)
        return self._decomposition.estimators_

    def _rows(self) -> Observed:
        if self._observed is not None:
            return self._observed
        if self._estimators[0].method == "local":
            raise AttributeError("the rows are on a cluster, and not known one by one.")
        each = [fit.each() for fit in self._sparse("information about single rows")]
        first, signs = each[0], [one.y for one in each]
        codes = np.argmax(signs, axis=0) if len(each) > 1 else (first.y > 0).astype(int)
        return first.row, codes, first.weight

    def _sparse(self, what: str) -> "list[SparseFit]":
        """The fits with inducing points, if each of them has used all rows."""
        fits = cast("list[SparseFit]", self._estimators)
        if self._decomposition.name == "one_vs_one" and len(fits) > 1:
            raise AttributeError(
                f"{what} is not known with inducing points and multi_class='one_vs_one': use "
                "'one_vs_rest'."
            )
        return fits

    @property
    def _kept(self) -> np.ndarray:
        return self._rows()[0]

    @property
    def _codes(self) -> np.ndarray:
        return self._rows()[1]

    @property
    def _n_rows(self) -> int:
        """The number of rows of positive weight."""
        pairs = self._decomposition.name == "one_vs_one" and self._estimators[0].method != "local"
        if pairs:  # a row is in the pairs of its class
            return sum(fit.n_rows for fit in self._estimators) // (self.n_classes_ - 1)
        return self._estimators[0].n_rows

    @abstractmethod
    def _new(self, X: object) -> np.ndarray:
        """Validate rows to predict."""

    def _only(self, what: str) -> Fit:
        """The fit, if there is only one."""
        if len(self._estimators) > 1:
            raise AttributeError(
                f"{what} is defined for two classes; of {self.n_classes_} each problem has its own: "
                f"base_estimator_.estimators_[k].{what}."
            )
        return self._estimators[0]

    @property
    def kernel_(self) -> Kernel:
        """The kernel with the learned parameters; several kernels make a ``CompoundKernel``."""
        kernels = [estimator.kernel_ for estimator in self._estimators]
        return kernels[0] if len(kernels) == 1 else CompoundKernel(kernels)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log evidence; the mean, if there are several binary problems."""
        return float(np.mean([e.log_marginal_likelihood_value_ for e in self._estimators]))

    @property
    def log_marginal_likelihood_corrected_(self) -> float:
        """The log evidence, corrected towards the truth; the mean, if there are several problems.

        It is known for exact inference by PL, CL and EP, whether or not probabilities are corrected.
        """
        return float(
            np.mean([e.log_marginal_likelihood_value_ + e.correction for e in self._estimators])
        )

    def log_marginal_likelihood(
        self, theta: Array | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> np.float64 | tuple[np.float64, Array]:
        """The log evidence at ``theta`` (None: the learned parameters), and its gradient on request.

        With several binary problems it is their mean, and ``theta`` holds the parameters of one kernel
        for all problems, or those of the kernels of all problems one after another. With
        ``clone_kernel=False`` the fit moves to ``theta``: ``kernel_``, the posterior, the evidence and
        all predictions are those at ``theta`` from then on.
        """
        if theta is None and not eval_gradient:
            return np.float64(self.log_marginal_likelihood_value_)
        estimators = self._estimators
        learned = [e.hyperparameters.theta for e in estimators]
        n = len(learned[0])
        theta = np.asarray(np.concatenate(learned) if theta is None else theta, float)
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
            return np.float64(np.mean(answers))
        values, gradients = zip(*answers, strict=True)
        together = np.concatenate(gradients) / len(estimators) if whole else np.mean(gradients, axis=0)
        return np.float64(np.mean(values)), together

    @property
    def approximation_(self) -> Approximation[Any]:
        """The approximation of the posterior over latent values, if there is one problem."""
        return self._only("approximation_").approximation_

    @property
    def likelihood_(self) -> BinaryLikelihood | Softmax:
        """The likelihood with the learned parameters, if there is one problem."""
        return self._only("likelihood_").likelihood_

    @property
    def evidence_path_(self) -> list[tuple[Array, float]]:
        """Log-parameters and log evidence of every evaluation in order, if there is one problem."""
        return self._only("evidence_path_").evidence_path_

    @property
    def X_train_(self) -> np.ndarray:  # noqa: N802
        """The training rows of positive weight, if there is one problem."""
        return self._only("X_train_").X_train_

    @property
    def y_train_(self) -> np.ndarray:
        """The labels of ``X_train_``: −1 and +1, or indices of classes in a joint fit."""
        return self._only("y_train_").y_train_

    @property
    def inducing_points_(self) -> Array:
        """The inducing points, if there is one problem."""
        return self._only("inducing_points_").inducing_points_

    @property
    def n_neighbors_(self) -> int:
        """The number of neighbours of a prediction."""
        return self._near("n_neighbors_").k

    @property
    def recall_(self) -> float:
        """The share of the nearest rows that the search for neighbours finds, in a sample."""
        return self._near("recall_").recall

    def _near(self, what: str) -> "LocalFit":
        """A fit with neighbours; all of them share what they know."""
        first = self._estimators[0]
        if first.method != "local":
            raise AttributeError(f"{what} is known with neighbours only: n_neighbors is None.")
        return cast("LocalFit", first)

    @property
    def converged_(self) -> bool:
        """Whether inference converged in every problem."""
        return all(fit.record.converged for fit in self._estimators)

    @property
    def n_iter_(self) -> int:
        """The number of iterations of inference; the largest, if there are several problems."""
        return max(fit.record.n_iter for fit in self._estimators)

    def latent_mean_and_variance(self, X: object) -> Marginals:
        """Mean and variance of the latent value at each row.

        With several problems the arrays have a column for each fit in ``base_estimator_.estimators_``.
        """
        rows = self._new(X)
        parts = [fit.latent_mean_and_variance(rows) for fit in self._estimators]
        if len(parts) == 1:
            return Marginals(*(like(X, part) for part in parts[0]))
        return Marginals(*(like(X, np.stack(part, axis=1)) for part in zip(*parts, strict=True)))

    def sample_latent(
        self, X: object, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> Array:
        """Draws (n, n_samples) from the joint posterior of the latent values at the rows of X.

        With several problems the array has a further, second axis for them.
        """
        rows = self._new(X)
        rng = check_random_state(random_state)
        draws = [fit.sample(rows, n_samples, rng) for fit in self._estimators]
        return cast(Array, like(X, draws[0] if len(draws) == 1 else np.stack(draws, axis=1)))

    @property
    def loo_predict_proba_(self) -> Array:
        """Leave-one-out probabilities of the labels of each training row of positive weight.

        They are predictions from all other rows with the hyperparameters learned from all rows. Most
        rows cost nothing; rows that many other sites depend on cost a factorisation or two each. With
        inducing points the predictions come from the cavities, in one pass over the data; likewise
        where inference has not converged, so that there is no fixed point to start from.
        """
        check_is_fitted(self)
        if self._observed is not None:
            return self._decomposition.loo_predict_proba(self._all_rows())
        n = self._sparse("loo_predict_proba_")[0].n_rows
        return self._decomposition.loo_predict_proba(np.empty((n, 0)))  # cavities need no features

    @property
    def loo_log_score_(self) -> float:
        """The weighted sum of the log leave-one-out probabilities of the training rows' labels."""
        _, codes, weight = self._rows()
        p = self.loo_predict_proba_[np.arange(len(codes)), codes]
        log_p = np.log(np.maximum(p, np.finfo(float).tiny))  # a probability may underflow
        return float((np.ones(len(codes)) if weight is None else weight) @ log_p)

    def _all_rows(self) -> np.ndarray:
        """All training rows, gathered from the binary problems if none of them has all."""
        first = self._estimators[0]
        if first.takes_passes or len(first.rows) == len(self._codes):
            return first.X_train_
        X = np.empty((len(self._codes), *np.shape(first.X_train_)[1:]), first.X_train_.dtype)
        for fit in self._estimators:
            X[fit.rows] = fit.X_train_
        return X

    @property
    def diagnostics_(self) -> Diagnostics | list[Diagnostics]:
        """How inference went, and which rows are hard; a list, if there are several problems."""
        fits = self._estimators
        found = [Diagnostics(fit, self._observed and self._observed[0]) for fit in fits]
        return found[0] if len(found) == 1 else found

    @property
    def relevance_(self) -> Relevance:
        """Features by relevance, if the kernel has a length scale for each; the mean over kernels."""
        kernels = [fit.kernel_ for fit in self._estimators]
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        try:
            if self._estimators[0].method != "exact":
                return relevance(kernels, self._estimators[0].deviations, names)
            X = self._all_rows()  # which may be other objects than vectors
            spread = np.std(np.asarray(X, float), axis=0) if np.ndim(X) == 2 else np.zeros(0)
            return relevance(kernels, spread, names)
        except ValueError as error:
            raise AttributeError(str(error)) from None

    def verify(
        self,
        X: object = None,
        *,
        n_particles: int = 1000,
        n_runs: int = 3,
        random_state: int | np.random.RandomState | None = None,
        time_limit: float | None = None,
    ) -> Verification:
        """How far the fit is from the exact posterior at the learned hyperparameters, by Monte Carlo.

        Each run draws ``n_particles`` from the fit's Gaussian posterior and takes them to the exact
        one; ``print`` the result for a verdict on the log evidence and on the probabilities at the rows
        of X (None: the training rows). This takes exact inference by PL or EP, and two classes or
        binary problems for more. With one run there are no standard deviations.

        ``time_limit`` is in seconds. When it is up, or after Ctrl-C, the result is that of the finished
        runs; without any, a run that was cut short counts after ``time_limit``. The result says so.
        With ``verbose`` set, the log tells how much time is left. The result depends on
        ``random_state`` and not on the number of threads.
        """
        check_is_fitted(self)
        check_verifiable(self._decomposition)
        return verified(
            self,
            self._all_rows() if X is None else self._new(X),
            n_particles=n_particles,
            n_runs=n_runs,
            random_state=random_state,
            time_limit=time_limit,
            verbose=self.verbose,
        )

    def summary(self) -> str:
        """A summary of the fit in a few lines of text."""
        return as_text(self)

    def _get_fitted_attr_html(self, doc_link: str = "") -> dict[str, object]:
        """No attributes: scikit-learn would compute all of them, and some take passes over the data."""
        return {}

    def _html_repr(self) -> str:
        """scikit-learn's diagram for notebooks, with the summary if the classifier is fitted."""
        return as_html(self)
