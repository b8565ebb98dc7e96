"""GPyTorch's variational softmax classifier, as in its documentation: Adam on the bound."""

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)

#: Steps and rate of Adam, inducing points at most, and draws for the probabilities.
STEPS, RATE, INDUCING, DRAWS = 300, 0.1, 200, 256


class _Latent(gpytorch.models.ApproximateGP):
    """One function for each class, each with a kernel of its own."""

    def __init__(self, points: torch.Tensor, n_classes: int) -> None:
        shape = torch.Size([n_classes])
        distribution = CholeskyVariationalDistribution(len(points), batch_shape=shape)
        strategy = VariationalStrategy(self, points, distribution, learn_inducing_locations=True)
        super().__init__(IndependentMultitaskVariationalStrategy(strategy, num_tasks=n_classes))
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=shape)
        self.covar_module = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape)

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SoftmaxSVGP:
    """fit, predict and predict_proba as in scikit-learn."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "SoftmaxSVGP":
        """Hyperparameters, inducing points and variational parameters together."""
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        self.classes_, codes = np.unique(y, return_inverse=True)
        rows, labels = torch.tensor(X), torch.tensor(codes)
        start = rows[torch.randperm(len(rows))[:INDUCING]]
        self.model = _Latent(start, len(self.classes_))
        self.likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
            num_classes=len(self.classes_), mixing_weights=False
        )
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, len(y))
        optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = -bound(self.model(rows), labels)
            loss.backward()
            optimizer.step()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Softmax averaged over draws."""
        torch.manual_seed(1)
        self.model.eval()
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(DRAWS):
            probabilities = self.likelihood(self.model(torch.tensor(X))).probs.mean(0).numpy()
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The most probable classes."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
