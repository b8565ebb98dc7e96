"""A root of a covariance that may be singular: its Cholesky factor with pivots."""

import numpy as np
from scipy.linalg import lapack, solve_triangular

from postlin._typing import Array

#: A row is left out as a pivot where the rows before it leave less than this part of its variance.
#: Draws then lack 1e-5 of a standard deviation at most, and solves lose five digits at most.
_NEGLIGIBLE = 1e-10


class PivotedRoot:
    """A matrix L of n rows with L Lᵀ = Σ, to within a part of 1e-10 of each variance.

    Its rows that belong to the pivots make a lower triangle, so that z follows from d = L z.
    """

    def __init__(self, covariance: Array) -> None:
        """Factorise the correlation matrix, whose pivots do not depend on the scale of a row."""
        sigma = np.sqrt(covariance.diagonal())
        correlation = np.asfortranarray(covariance / np.outer(sigma, sigma))
        factor, order, rank, _ = lapack.dpstrf(correlation, lower=1, tol=_NEGLIGIBLE, overwrite_a=1)
        order -= 1  # LAPACK counts from one
        rows = np.tril(factor[:, :rank])
        #: The indices of the pivots.
        self.pivots: np.ndarray = order[:rank]
        self.matrix: Array = np.empty(rows.shape)
        self.matrix[order] = sigma[order, None] * rows
        self._triangle, self._sigma = np.asfortranarray(rows[:rank]), sigma[self.pivots, None]

    @property
    def rank(self) -> int:
        """The number of pivots."""
        return len(self.pivots)

    def whitened(self, columns: Array) -> Array:
        """z for each column d of which the entries at the pivots are given; ``columns`` is kept."""
        scaled = columns / self._sigma
        z: Array = solve_triangular(self._triangle, scaled, lower=True, overwrite_b=True)
        return z
