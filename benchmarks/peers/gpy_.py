"""GPy: expectation propagation, probit likelihood.

``ep_mode="nested"`` runs EP at every step of the optimiser, so that EP's evidence is what is
maximised. ``"alternated"``, GPy's default, runs it once, at the start, and then moves the
hyperparameters with the sites held: fast, and another objective.
"""

import GPy
import numpy as np
from GPy.inference.latent_function_inference import EP

from peers.base import BOUNDS, NOISE, START, Evaluator, Fit, Peer


class GPyEP(Peer):
    """Options: ``parallel`` (yes, no) and ``mode`` (nested, alternated)."""

    packages = ("GPy", "paramz", "numpy", "scipy")

    def model(self, X, y, theta=START):
        """A model, which runs EP as it is made."""
        np.random.seed(0)  # noqa: NPY002  (GPy draws the order of a sweep from here)
        variance, length_scale = np.exp(theta)
        smooth = GPy.kern.RBF(X.shape[1], variance=variance, lengthscale=length_scale)
        white = GPy.kern.White(X.shape[1], variance=NOISE)
        white.variance.fix(warning=False)
        smooth.variance.constrain_bounded(*BOUNDS[0], warning=False)
        smooth.lengthscale.constrain_bounded(*BOUNDS[1], warning=False)
        inference = EP(parallel_updates=self.options["parallel"] == "yes", ep_mode=self.options["mode"])
        labels = (y > 0).astype(float)[:, None]
        bernoulli = GPy.likelihoods.Bernoulli()
        return GPy.core.GP(X, labels, smooth + white, bernoulli, inference_method=inference)

    def fit(self, X, y):
        """L-BFGS-B, GPy's default."""
        model = self.model(X, y)
        model.optimize()
        rbf = model.kern.rbf
        theta = np.log([float(rbf.variance[0]), float(rbf.lengthscale[0])])
        run = model.optimization_runs[-1]
        return Fit(
            float(model.log_likelihood()),
            theta,
            lambda new: model.predict(new)[0][:, 0],
            run.status == "Converged",
            int(run.funct_eval),
        )

    def evaluator(self, X, y):
        """Only where the evidence is EP's at θ."""
        return _Evaluator(self, X, y) if self.options["mode"] == "nested" else None


class _Evaluator(Evaluator):
    """GPy begins from the sites it had before whenever parameters change."""

    def __init__(self, peer, X, y):
        self._make = lambda theta: peer.model(X, y, theta)

    def cold(self, theta):
        self._model = self._make(theta)
        return float(self._model.log_likelihood())

    def warm(self, theta):
        rbf = self._model.kern.rbf
        self._model.update_model(False)
        rbf.variance[:], rbf.lengthscale[:] = np.exp(theta)
        self._model.update_model(True)
        return float(self._model.log_likelihood())


PEER = GPyEP
