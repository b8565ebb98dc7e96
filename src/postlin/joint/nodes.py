"""Points and weights that stand for a standard normal in the contrasts between classes.

All have mean zero and covariance one exactly, and positive weights: with these the linear regression of
a label on the latent values explains less than all of their variance, so that sites are positive
semi-definite by construction (``softmax``).
"""

from functools import cache

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from postlin._typing import Array

#: Nodes in one dimension.
_LINE = 160
#: Beyond so many standard deviations a normal has no mass that a double could tell.
_REACH = 8.5


@cache
def normal_nodes(dimension: int, count: int) -> tuple[Array, Array]:
    """Nodes (Q, dimension) and their weights; ``count`` of them in two dimensions and more."""
    if dimension == 1:  # equal steps: for a Gaussian as good as any rule, and better for a step
        x = np.linspace(-_REACH, _REACH, _LINE)
        weights = np.exp(-0.5 * x**2)
        weights /= weights.sum()
        return x[:, None] / np.sqrt(weights @ x**2), weights
    # product rules of Gauss and Hermite are poor where softmax is a step, even in two dimensions
    half = qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(0)).random(count // 2)
    z = ndtri(half)
    z = np.concatenate([z, -z])
    # a triangular root of their covariance makes it one; the mean is zero by symmetry
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / len(z)), z.T).T
    return z, np.full(len(z), 1.0 / len(z))


@cache
def contrasts(n_classes: int) -> Array:
    """H, (C, C − 1): orthonormal columns that sum to zero. Softmax does not see anything else."""
    helmert = np.zeros((n_classes, n_classes - 1))
    for k in range(1, n_classes):
        helmert[:k, k - 1] = 1.0
        helmert[k, k - 1] = -float(k)
        helmert[:, k - 1] /= np.sqrt(k * (k + 1.0))
    return helmert
