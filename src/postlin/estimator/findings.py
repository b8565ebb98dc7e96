"""What a fitted classifier can tell beyond its predictions."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from postlin._typing import Array, Marginals
from postlin.estimator.diagnostics import Diagnostics, Relevance, relevance
from postlin.estimator.fits import Fit
from postlin.estimator.summary import as_html, as_text
from postlin.linalg.arrays import like

if TYPE_CHECKING:
    from postlin.estimator.sparse_fit import SparseFit


class Findings(ABC):
    """The part of ``GPClassifier`` that reads what ``fit`` has left."""

    classes_: Array
    n_classes_: int
    _decomposition: Any
    _observed: Any  # indices of the rows that count, their classes and weights; None if not kept

    @property
    def _estimators(self) -> list[Fit]:
        check_is_fitted(self)
        fits: list[Fit] = self._decomposition.estimators_
        return fits

    def _rows(self) -> tuple[np.ndarray, np.ndarray, Array | None]:
        """Which rows count, their classes as indices, and their weights (None: one each)."""
        if self._observed is not None:
            kept, codes, weight = self._observed
            return kept, codes, weight
        each = [fit.each() for fit in self._sparse("what is said of single rows")]
        if len(each) == 1:
            codes = (each[0].y > 0).astype(int)
        else:
            codes = np.argmax([one.y for one in each], axis=0)
        return each[0].row, codes, each[0].weight

    def _sparse(self, what: str) -> "list[SparseFit]":
        """The fits with inducing points, where every one of them has seen all rows."""
        from postlin.estimator.sparse_fit import SparseFit  # exact fits need none of it

        fits = [fit for fit in self._estimators if isinstance(fit, SparseFit)]
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
    def _weight(self) -> Array | None:
        return self._rows()[2]

    @property
    def _n_rows(self) -> int:
        """How many rows count."""
        if self._observed is not None:
            return len(self._codes)
        fits = self._estimators
        pairs = self._decomposition.name == "one_vs_one" and len(fits) > 1
        # a class is in a pair with each of the others
        return sum(fit.n_rows for fit in fits) // (self.n_classes_ - 1) if pairs else fits[0].n_rows

    @abstractmethod
    def _new(self, X: Any) -> Any:
        """Rows to predict, validated."""

    def _only(self, what: str) -> Fit:
        """The fit, where there is but one."""
        if len(self._estimators) > 1:
            raise AttributeError(
                f"{what} is defined for two classes; of {self.n_classes_} each problem has its own: "
                f"base_estimator_.estimators_[k].{what}."
            )
        return self._estimators[0]

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
        of one kernel for all of them or those of all of them. With ``clone_kernel=False``
        ``kernel_`` has these parameters from then on.
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

    @property
    def approximation_(self) -> Any:
        """Of two classes, the approximation of the posterior over latent values."""
        return self._only("approximation_").approximation_

    @property
    def likelihood_(self) -> Any:
        """Of two classes, the likelihood with the parameters learned."""
        return self._only("likelihood_").likelihood_

    @property
    def evidence_path_(self) -> list[tuple[Array, float]]:
        """Of two classes, log-parameters and log evidence of every evaluation, in order."""
        return self._only("evidence_path_").evidence_path_

    @property
    def X_train_(self) -> Any:  # noqa: N802
        """Of two classes, the training rows that count."""
        return self._only("X_train_").X_train_

    @property
    def y_train_(self) -> Array:
        """Of two classes, their labels as −1 and +1."""
        return self._only("y_train_").y_train_

    @property
    def inducing_points_(self) -> Array:
        """Of two classes, the inducing points."""
        return self._only("inducing_points_").inducing_points_

    @property
    def converged_(self) -> bool:
        """Whether inference converged, in every problem."""
        return all(fit.record.converged for fit in self._estimators)

    @property
    def n_iter_(self) -> int:
        """The iterations of inference; of many classes the most."""
        return max(fit.record.n_iter for fit in self._estimators)

    def latent_mean_and_variance(self, X: Any) -> Marginals:
        """Mean and variance of the latent value at each row.

        Of many classes, arrays with a column for each problem in ``base_estimator_.estimators_``.
        """
        rows = self._new(X)
        parts = [fit.latent_mean_and_variance(rows) for fit in self._estimators]
        if len(parts) == 1:
            return Marginals(*(like(X, part) for part in parts[0]))
        return Marginals(*(like(X, np.stack(part, axis=1)) for part in zip(*parts, strict=True)))

    def sample_latent(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws from the joint posterior of the latent values at the rows of X, (n, n_samples).

        Of many classes the array has a further, second axis for the problems.
        """
        rows = self._new(X)
        rng = check_random_state(random_state)
        draws = [fit.sample(rows, n_samples, rng) for fit in self._estimators]
        together: Array = like(X, draws[0] if len(draws) == 1 else np.stack(draws, axis=1))
        return together

    @property
    def loo_predict_proba_(self) -> Array:
        """Probabilities of the labels of each training row, as if it had not been learned from.

        At the hyperparameters learned from all. Most rows cost nothing; those that hold the others in
        place, a factorisation or two each. Rows of weight zero are left out. With inducing points they
        are from the cavities, by one pass.
        """
        check_is_fitted(self)
        if self._observed is None:  # of each row the cavity is known, and the rows are not wanted
            n = self._sparse("loo_predict_proba_")[0].n_rows
            probabilities: Array = self._decomposition.loo_predict_proba(np.empty((n, 0)))
        else:
            probabilities = self._decomposition.loo_predict_proba(self._all_rows())
        return probabilities

    @property
    def loo_log_score_(self) -> float:
        """The sum over training rows of the log leave-one-out probability of their label."""
        p = self.loo_predict_proba_[np.arange(len(self._codes)), self._codes]
        weight = np.ones_like(p) if self._weight is None else self._weight
        return float(weight @ np.log(p))

    def _all_rows(self) -> Any:
        """The training rows, put together from the problems where they have been taken apart."""
        first = self._estimators[0]
        if first.takes_passes or len(first.rows) == len(self._codes):
            return first.X_train_
        X = np.empty((len(self._codes), *np.shape(first.X_train_)[1:]), first.X_train_.dtype)
        for fit in self._estimators:
            X[fit.rows] = fit.X_train_
        return X

    def _spread(self) -> Array:
        """Standard deviations of the features; none where rows are no vectors."""
        first = self._estimators[0]
        if first.takes_passes:
            return self._sparse("relevance_")[0].spread
        X = self._all_rows()
        return np.std(np.asarray(X, float), axis=0) if np.ndim(X) == 2 else np.zeros(0)

    @property
    def diagnostics_(self) -> Diagnostics | list[Diagnostics]:
        """How inference went; of many classes a list, one for each problem."""
        check_is_fitted(self)
        kept = None if self._observed is None else self._kept
        found = [Diagnostics(fit, kept) for fit in self._estimators]
        return found[0] if len(found) == 1 else found

    @property
    def relevance_(self) -> Relevance:
        """Features by relevance, for kernels with a length scale for each; the mean over problems."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        kernels = [fit.kernel_ for fit in self._estimators]
        try:
            return relevance(
                kernels, self._spread(), None if names is None else [str(n) for n in names]
            )
        except ValueError as error:
            raise AttributeError(str(error)) from None

    def summary(self) -> str:
        """The fit in a few lines of text."""
        check_is_fitted(self)
        return as_text(self)

    def _get_fitted_attr_html(self, doc_link: str = "") -> dict[str, Any]:
        """None: scikit-learn would look at all of them, and some take passes over the data."""
        return {}

    def _html_repr(self) -> str:
        """For notebooks: scikit-learn's diagram, and the summary once fitted."""
        return as_html(self)
