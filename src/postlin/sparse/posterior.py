"""The posterior over the shared coefficients w: all that sparse inference keeps."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.sites import Marginals
from postlin.sparse.basis import Basis, Coordinates
from postlin.sparse.triangle import Triangle


@dataclass(frozen=True, eq=False)
class State:
    """B = I + Σ τ'RRᵀ and b = Σ ν'R in the basis whose factor is L: nothing of a row."""

    B: Array
    b: Array
    L: Array

    @classmethod
    def prior(cls, basis: Basis) -> "State":
        """Before any row is seen."""
        L = basis.factor.L
        return cls(np.eye(len(L)), np.zeros(len(L)), L)

    def repeated(self, times: float) -> "State":
        """As if every row had been there so many times."""
        eye = np.eye(len(self.b))
        return State(eye + times * (self.B - eye), times * self.b, self.L)

    def in_basis(self, basis: Basis) -> "State":
        """The same sites on the values at the inducing points, in another basis: a warm start.

        As functions of u = Lw the sites have the precision T = L⁻ᵀ(B − I)L⁻¹.
        """
        new = basis.factor.L
        if new is self.L or np.array_equal(new, self.L):
            return self
        ratio: Array = solve_triangular(self.L, new, lower=True)  # L⁻¹L_new
        return State(
            np.eye(len(new)) + ratio.T @ (self.B - np.eye(len(new))) @ ratio, ratio.T @ self.b, new
        )


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """N(w̄, B⁻¹) with B = L_B L_Bᵀ and w̄ = B⁻¹b, and the basis that w is in.

    Small (two matrices m × m and the inducing points), and all that predictions need.
    """

    basis: Basis
    factor: Triangle  # L_B
    h: Array  # L_B⁻¹b

    @classmethod
    def of(cls, basis: Basis, state: State) -> "SparsePosterior":
        """The posterior that a state stands for."""
        if not (np.isfinite(state.B).all() and np.isfinite(state.b).all()):
            raise NotPositiveDefiniteError("the state of the iteration is not finite.")
        try:
            L = cholesky(state.B, lower=True)
        except LinAlgError:
            raise NotPositiveDefiniteError(
                "negative sites outweigh the prior of the shared coefficients."
            ) from None
        return cls(basis, Triangle(L), solve_triangular(L, state.b, lower=True))

    @cached_property
    def coefficients(self) -> Array:
        """w̄."""
        mean: Array = solve_triangular(self.factor.L, self.h, lower=True, trans="T")
        return mean

    def whitened(self, coordinates: Coordinates) -> Array:
        """V = L_B⁻¹R, in which μ = Vᵀh and s = |V|²; written over R."""
        return self.factor.solve(coordinates.R)

    def predict(self, X: Array) -> Marginals:
        """Means and variances of the latent values of new rows, white noise included."""
        coordinates = self.basis.coordinates(X)
        V = self.whitened(coordinates)
        return Marginals(V @ self.h, coordinates.lam + np.einsum("ij,ij->i", V, V))

    def predict_jointly(self, X: Array) -> tuple[Array, Array]:
        """Mean and covariance at new rows: what Z does not explain is as in the prior."""
        R = self.basis.coordinates(X).R
        V = self.factor.solve(R.copy())
        prior = np.asarray(self.basis.kernel(X), dtype=np.float64)
        return V @ self.h, prior - R @ R.T + V @ V.T
