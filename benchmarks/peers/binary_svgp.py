"""GPyTorch's variational classifier with inducing points, as in its documentation."""

import time

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from postlin.inference.sparse.posterior import inducing_points

#: Rows among which k-means looks for the first inducing points, and rows predicted at a time.
SAMPLE, BLOCK = 20_000, 8192


class _Latent(gpytorch.models.ApproximateGP):
    """One function; inducing points are learned."""

    def __init__(self, points: torch.Tensor, scales: np.ndarray) -> None:
        distribution = CholeskyVariationalDistribution(len(points))
        super().__init__(VariationalStrategy(self, points, distribution, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ZeroMean()
        ard = len(scales) if np.ndim(scales) else None
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=ard))
        # white noise of variance 0.1 beside 10 makes a probit of variance 1.1 of one of variance 1
        self.covar_module.outputscale = 10.0 / 1.1
        self.covar_module.base_kernel.lengthscale = torch.as_tensor(np.atleast_1d(scales))

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class BinarySVGP:
    """fit and predict_proba as in scikit-learn, for labels 0 and 1; single precision, its default."""

    def __init__(
        self, m: int, scales: np.ndarray, epochs: int, seconds: float, batch: int, rate: float
    ) -> None:
        self.m, self.scales, self.epochs, self.seconds = m, scales, epochs, seconds
        self.batch, self.rate = batch, rate

    def fit(self, X: np.ndarray, y: np.ndarray) -> "BinarySVGP":
        """Hyperparameters, inducing points and variational parameters together."""
        torch.manual_seed(0)
        began = time.perf_counter()
        points = inducing_points(self.m, X[:SAMPLE], len(X), seed=0)
        rows, labels = torch.tensor(X).float(), torch.tensor(y).float()
        self.model = _Latent(torch.tensor(points).float(), self.scales).float()
        self.likelihood = gpytorch.likelihoods.BernoulliLikelihood()
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, len(y))
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.rate)
        steps = 0
        for _ in range(self.epochs):
            for part in torch.randperm(len(rows)).split(self.batch):
                optimizer.zero_grad()
                (-bound(self.model(rows[part]), labels[part])).backward()
                optimizer.step()
                steps += 1
                if time.perf_counter() - began > self.seconds:
                    break
            else:
                continue
            break
        self.about = f"{steps * self.batch / len(rows):.1f} epochs of Adam"
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """In blocks."""
        self.model.eval()
        with torch.no_grad():
            p = np.concatenate(
                [
                    self.likelihood(self.model(part)).mean.double().numpy()
                    for part in torch.tensor(X).float().split(BLOCK)
                ]
            )
        return np.column_stack([1 - p, p])
