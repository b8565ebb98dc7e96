"""scikit-learn's GaussianProcessClassifier: Laplace's method, logit likelihood."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from peers.base import BOUNDS, NOISE, START, Evaluator, Fit, Peer


def kernel(theta=START):
    variance, length_scale = np.exp(theta)
    (low, high), (shortest, longest) = BOUNDS
    smooth = ConstantKernel(variance, (low, high)) * RBF(length_scale, (shortest, longest))
    return smooth + WhiteKernel(NOISE, "fixed")


class ScikitLearn(Peer):
    """No options."""

    packages = ("scikit-learn", "numpy", "scipy")

    def fit(self, X, y):
        """Its own defaults, with the common kernel."""
        model = GaussianProcessClassifier(kernel()).fit(X, y)
        return Fit(
            model.log_marginal_likelihood_value_,
            model.kernel_.theta,
            lambda new: model.predict_proba(new)[:, 1],
        )

    def evaluator(self, X, y):
        """One evaluation as its optimiser makes it."""
        return _Evaluator(X, y)


class _Evaluator(Evaluator):
    """``warm_start`` makes it begin from the mode of the evaluation before."""

    def __init__(self, X, y):
        self._X, self._y = X, y

    def cold(self, theta):
        model = GaussianProcessClassifier(kernel(theta), optimizer=None, warm_start=True)
        self._model = model.fit(self._X[:2], [-1, 1])  # two rows: a fit of all would be a second run
        binary = self._model.base_estimator_
        binary.X_train_, binary.y_train_ = self._X, (self._y > 0).astype(int)
        if hasattr(binary, "f_cached"):
            del binary.f_cached
        return self.warm(theta)

    def warm(self, theta):
        binary = self._model.base_estimator_
        evidence, _ = binary.log_marginal_likelihood(np.asarray(theta), eval_gradient=True)
        return float(evidence)


PEER = ScikitLearn
