"""postlin itself: the estimator for fits, the path that a fit takes for single evaluations."""

import warnings

import numpy as np

import postlin
from peers.base import Evaluator, Fit, Peer
from postlin import GPClassifier, likelihoods, rules, schedules
from postlin.estimator.parameters import default_kernel
from postlin.inference.infer import MAX_ITER, TOL
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import Model


class Postlin(Peer):
    """Options: ``likelihood``, ``inference``, ``schedule``."""

    packages = ("postlin", "numpy", "scipy")

    def fit(self, X, y):
        """The estimator with its defaults, as anybody would use it."""
        model = GPClassifier(default_kernel(), **self.options).fit(X, y)
        return Fit(
            model.log_marginal_likelihood_value_,
            model.kernel_.theta,
            lambda new: model.predict_proba(new)[:, 1],
            bool(model.converged_ and model.approximation_.residual <= TOL),
            len(model.evidence_path_),
        )

    def evaluator(self, X, y):
        """What the optimiser evaluates at every step."""
        likelihood = likelihoods.REGISTRY[self.options["likelihood"]]()
        return _Evaluator(lambda: self.model(X, y), Hyperparameters(default_kernel(), likelihood))

    def model(self, X, y):
        """The data and the method, with no hyperparameters."""
        return Model(
            X,
            y,
            rules.REGISTRY[self.options["inference"]](),
            schedules.REGISTRY[self.options["schedule"]](),
            TOL,
            MAX_ITER,
        )

    def infer(self, K, y):
        """The evidence and its gradient by the covariance matrix: the function for researchers."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = postlin.infer(K, y, **self.options)
        return result.log_evidence, result.evidence_gradient()


class _Evaluator(Evaluator):
    def __init__(self, make, start):
        self._make, self._start = make, start

    def cold(self, theta):
        self._model, self._sites = self._make(), None
        return self.warm(theta)

    def warm(self, theta):
        fitted = self._model.infer(self._start.at(np.asarray(theta)), self._sites)
        evidence = fitted.approximation.log_evidence
        fitted.gradient()
        if not fitted.approximation.converged:
            raise RuntimeError(f"inference did not converge at {theta}")
        self._sites = fitted.approximation.sites
        return evidence


PEER = Postlin
