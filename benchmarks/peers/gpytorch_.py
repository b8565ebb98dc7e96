"""GPyTorch: a variational posterior over all n latent values, probit, trained by Adam.

No white noise in the latent kernel: folded into σ² as for GPBoost's probit. The bound that it
maximises is below the evidence, and 200 steps at a rate of 0.1, as in its tutorials, do not reach
the maximum.
"""

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from peers.base import NOISE, START, Fit, Peer

STEPS, RATE = 200, 0.1


class _Variational(gpytorch.models.ApproximateGP):
    """Inducing points at the data, held there."""

    def __init__(self, X):
        distribution = CholeskyVariationalDistribution(len(X))
        super().__init__(VariationalStrategy(self, X, distribution, learn_inducing_locations=False))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = ScaleKernel(RBFKernel())

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class GPyTorch(Peer):
    """No options."""

    packages = ("gpytorch", "linear_operator", "torch", "numpy")

    def __init__(self, **options):
        super().__init__(**options)
        torch.set_default_dtype(torch.float64)

    def fit(self, X, y):
        """Adam on the bound, hyperparameters and variational parameters together."""
        rows, labels = torch.tensor(X), torch.tensor((y > 0).astype(float))
        model, likelihood = _Variational(rows), gpytorch.likelihoods.BernoulliLikelihood()
        kernel = model.covar_module
        kernel.outputscale = np.exp(START[0]) / (1 + NOISE)
        kernel.base_kernel.lengthscale = np.exp(START[1])
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(y))
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = -bound(model(rows), labels)
            loss.backward()
            optimizer.step()
        found = kernel.outputscale.item() * (1 + NOISE), kernel.base_kernel.lengthscale.item()
        return Fit(-loss.item() * len(y), np.log(found), _predictor(model, likelihood), False, STEPS)


def _predictor(model, likelihood):
    model.eval()

    def predict(new):
        with torch.no_grad():
            return likelihood(model(torch.tensor(new))).mean.numpy()

    return predict


PEER = GPyTorch
