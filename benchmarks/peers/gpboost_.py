"""GPBoost: Laplace's method in C++, probit or logit, the Gaussian kernel.

Its latent kernel has no white noise. For the probit that is no loss: Φ(f + e) with e ~ N(0, s²) is
Φ(f/√(1 + s²)), so that dividing σ² by 1 + s² gives the very same model. For the logit the noise is
left out. Its kernel is σ² exp(−d²/ρ²), so ρ = √2 ℓ.
"""

import gpboost
import numpy as np

from peers.base import NOISE, START, Evaluator, Fit, Peer


class GPBoost(Peer):
    """Option: ``likelihood`` (probit, logit)."""

    packages = ("gpboost", "numpy", "scipy")

    def _folded(self):
        return 1.0 + NOISE if self.options["likelihood"] == "probit" else 1.0

    def parameters(self, theta):
        """σ² and ρ, as GPBoost has them."""
        variance, length_scale = np.exp(theta)
        return np.array([variance / self._folded(), np.sqrt(2) * length_scale])

    def model(self, X):
        """A model without data on labels."""
        likelihood = f"bernoulli_{self.options['likelihood']}"
        return gpboost.GPModel(gp_coords=X, cov_function="gaussian", likelihood=likelihood)

    def fit(self, X, y):
        """L-BFGS, its default, which knows no bounds."""
        model = self.model(X)
        model.fit(y=(y > 0).astype(float), params={"init_cov_pars": self.parameters(START)})
        found = np.asarray(model.get_cov_pars(format_pandas=False), float).ravel()
        theta = np.log([found[0] * self._folded(), found[1] / np.sqrt(2)])
        return Fit(
            -model.get_current_neg_log_likelihood(),
            theta,
            lambda new: model.predict(gp_coords_pred=new, predict_response=True)["mu"],
        )

    def evaluator(self, X, y):
        """The evidence without its gradient, which GPBoost does not give out."""
        return _Evaluator(self, X, y)


class _Evaluator(Evaluator):
    def __init__(self, peer, X, y):
        self._peer, self._X, self._y = peer, X, (y > 0).astype(float)

    def cold(self, theta):
        model = self._peer.model(self._X)
        return -model.neg_log_likelihood(cov_pars=self._peer.parameters(theta), y=self._y)


PEER = GPBoost
