"""The prior of a local problem from inference with inducing points on all rows.

The sparse posterior of the coefficients w of all rows is N(w̄, S), S = B⁻¹, w̄ = S b. Of it the sites of
the neighbours N are removed, so that the local problem may set them anew; (β, γ) = (τ', ν') are those
sites as w feels them. With rows P = N ∪ {query} of coordinates R_P, A = R_P S R_Pᵀ and
M = I − diag(β) A_NN the prior of their latent values is

    mean_P = R_P w̄ − A_PN γ + A_PN M⁻¹ diag(β) (R_N w̄ − A_NN γ)
    cov_P  = K_PP − R_P R_Pᵀ + A + A_PN M⁻¹ diag(β) A_NP.

Without neighbours the local problem is the sparse model, and with all rows it is exact inference.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from postlin._typing import Array
from postlin.linalg.arrays import Matrix, place_of
from postlin.linalg.functions import functions
from postlin.linalg.stacks import entries, solve_each, times, transposed


class LocalPrior(NamedTuple):
    """Means (n, P) and covariances (n, P, P), and for which problems the sites could be removed."""

    mean: Array
    covariance: Matrix
    found: Any


class SparsePrior:
    """The posterior N(B⁻¹b, B⁻¹) of the coefficients of all rows, from which local priors follow."""

    def __init__(self, B: Array, b: Array) -> None:
        self._L = cholesky(B, lower=True)
        self._h = solve_triangular(self._L, b, lower=True)

    def whitened(self, R: Array) -> Array:
        """V = R L⁻ᵀ with B = L Lᵀ, for coordinates R (..., m); A is V Vᵀ.

        Compute it once for all rows and pick those of each problem.
        """
        V = solve_triangular(self._L, R.reshape(-1, R.shape[-1]).T, lower=True)
        return np.ascontiguousarray(V.T).reshape(R.shape)

    def at(self, covariance: Matrix, R: Matrix, V: Matrix, beta: Array, gamma: Array) -> LocalPrior:
        """The priors of n problems whose prior covariances are K_PP, (n, P, P), white noise included.

        ``R`` and ``V`` (n, P, m) are the coordinates and the whitened coordinates of their rows, and
        ``beta`` and ``gamma`` (n, k) are the neighbours' sites as the coefficients feel them, all in
        the place of the covariance. All are in memory at once: pass some hundred problems.
        """
        k, f = beta.shape[1], functions(V)
        A = V @ transposed(V)
        to_all = A[:, :, :k]
        kept = V @ place_of(V).give(self._h) - times(to_all, gamma)
        M = -beta[:, :, None] * A[:, :k, :k]
        diagonal = entries(M, 0, 0, k)
        diagonal += 1.0
        right = beta[:, :, None] * f.concat([A[:, :k, :], kept[:, :k, None]], axis=2)
        solution, found = solve_each(M, right)
        widening = to_all @ solution[:, :, :-1]
        widening = 0.5 * (widening + transposed(widening))
        mean = kept + times(to_all, solution[:, :, -1])
        return LocalPrior(mean, covariance - R @ transposed(R) + A + widening, found)
