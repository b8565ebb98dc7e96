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
from postlin.linalg.arrays import Matrix, on_host, place_of
from postlin.linalg.stacks import diagonals, entries, shaped, solve_each, times, transposed, zeros


class LocalPrior(NamedTuple):
    """Means (n, P) and covariances (n, P, P), and for which problems the sites could be removed."""

    mean: Array
    covariance: Matrix
    found: Any


class PriorGradients(NamedTuple):
    """Derivatives of a sum over all problems by what their priors depend on."""

    R: Matrix  # (n, P, m), those through V = R L⁻ᵀ included
    B: Array  # (m, m), symmetric
    b: Array  # (m,)
    beta: Array  # (n, k)
    gamma: Array  # (n, k)


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
        A, gain, found = _gains(V, beta)
        k = beta.shape[1]
        mean, to_all = self._mean(A, gain, V, gamma), A[:, :, :k]
        widening = to_all @ gain @ transposed(to_all)
        widening = 0.5 * (widening + transposed(widening))
        return LocalPrior(mean, covariance - R @ transposed(R) + A + widening, found)

    def _mean(self, A: Matrix, gain: Matrix, V: Matrix, gamma: Array) -> Array:
        """The prior means, (n, P)."""
        k = gamma.shape[1]
        to_all = A[:, :, :k]
        kept = V @ place_of(V).give(self._h) - times(to_all, gamma)
        mean: Array = kept + times(to_all, times(gain, kept[:, :k]))
        return mean

    def pull_back(
        self,
        R: Matrix,
        V: Matrix,
        beta: Array,
        gamma: Array,
        covariance_bar: Matrix,
        mean_bar: Array,
    ) -> PriorGradients:
        """The gradient by all that ``at`` depends on, from derivatives by its covariance and mean.

        The derivative by K_PP is ``covariance_bar`` itself, which must be symmetric.
        """
        A, gain, _ = _gains(V, beta)
        k, mean = beta.shape[1], self._mean(A, gain, V, gamma)
        H = zeros(mean.shape[0], mean.shape[1], A)  # becomes (I − A diag(β))⁻¹, with β = 0 at the query
        H[:, :, :k] = A[:, :, :k] @ gain
        diagonal = entries(H, 0, 0, H.shape[1])
        diagonal += 1.0
        x, without = times(transposed(H), mean_bar), H @ A
        pull = mean * 0.0
        pull[:, :k] = beta * mean[:, :k] - gamma
        outer = (0.5 * x)[:, :, None] @ pull[:, None, :]
        A_bar = transposed(H) @ covariance_bar @ H + outer + transposed(outer)
        place, m = place_of(A), len(self._h)
        inverse = solve_triangular(self._L, np.eye(m), lower=True)
        w = inverse.T @ self._h
        by_R = 2.0 * (A_bar @ (V @ place.give(inverse)) - covariance_bar @ R)
        by_R = by_R + x[:, :, None] * place.give(w)
        flat = shaped(R, -1, m)
        by_S = on_host(flat.T @ shaped(A_bar @ R, -1, m))
        by_b = inverse.T @ (inverse @ on_host(flat.T @ shaped(x, -1)))
        S = inverse.T @ inverse
        felt = times(A, x)[:, :k]
        by_beta = diagonals(without @ covariance_bar @ without)[:, :k] + felt * mean[:, :k]
        half = 0.5 * np.outer(by_b, w)
        return PriorGradients(by_R, -S @ by_S @ S - half - half.T, by_b, by_beta, -felt)


def _gains(V: Matrix, beta: Array) -> tuple[Matrix, Matrix, Any]:
    """A, and M⁻¹ diag(β), which is symmetric, with the problems for which it exists."""
    n, k = beta.shape
    A = V @ transposed(V)
    M, sites = -beta[:, :, None] * A[:, :k, :k], zeros(n, k, A)
    for matrix, values in ((M, 1.0), (sites, beta)):
        diagonal = entries(matrix, 0, 0, k)
        diagonal += values
    return A, *solve_each(M, sites)
