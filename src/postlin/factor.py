"""I plus a positive semi-definite matrix, and all that is asked of it, in one array.

The array holds a lower triangle in LAPACK's order: of the matrix, then of its Cholesky factor L, then
of L⁻¹, at last of the inverse. Eigenvalues are at least one: no jitter, ever.
"""

import numpy as np
from scipy.linalg import blas, lapack

from postlin._typing import Array
from postlin.correlation import Correlation
from postlin.exceptions import NotPositiveDefiniteError
from postlin.triangles import clear_corners, diagonal_of, gains_before, inverted, lower_panels


class Cholesky:
    """B = L Lᵀ: solves with it, and its inverse."""

    def __init__(self, B: Array) -> None:
        """Take over an array, of which the lower triangle is looked at."""
        self._array: Array
        self._array, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=0)
        if failed:
            raise NotPositiveDefiniteError(
                "the covariance matrix is not positive semi-definite, or holds NaN or infinity."
            )
        self.is_inverted = False  # whether the array holds L⁻¹ in place of L
        self.half_log_det = float(np.log(self._array.diagonal()).sum())

    def solve(self, x: Array) -> Array:
        """B⁻¹ x, for one vector or for columns."""
        return self.whiten(self.whiten(x), transposed=True, overwrite=True)

    def whiten(self, columns: Array, *, transposed: bool = False, overwrite: bool = False) -> Array:
        """L⁻¹ times a vector or columns, or L⁻ᵀ times them."""
        result: Array
        if columns.ndim == 1:
            product = blas.dtrmv if self.is_inverted else blas.dtrsv
            result = product(
                self._array, columns, lower=1, trans=int(transposed), overwrite_x=int(overwrite)
            )
        else:
            product = blas.dtrmm if self.is_inverted else blas.dtrsm
            result = product(
                1.0, self._array, columns, lower=1, trans_a=int(transposed), overwrite_b=int(overwrite)
            )
        return result

    def _invert(self) -> Array:
        """L⁻¹ in place of L."""
        if not self.is_inverted:
            self._array = inverted(self._array)
            self.is_inverted = True
        return self._array

    def into_inverse(self) -> Array:
        """The array, now with B⁻¹ in its lower triangle; the factor is gone."""
        inverse, _ = lapack.dlauum(self._invert(), lower=1, overwrite_c=1)
        del self._array
        matrix: Array = inverse
        return matrix


class Factor(Cholesky):
    """B = I + S K S, with S = diag(root)."""

    def __init__(self, K: Array, root: Array) -> None:
        n = len(root)
        B = np.empty((n, n), order="F")
        for rows, columns in lower_panels(n):
            part = B[rows, columns]
            np.multiply(K.T[rows, columns], root[rows, None], out=part)
            part *= root[columns]
        clear_corners(B)
        diagonal = diagonal_of(B)
        self._added = diagonal.copy()
        diagonal += 1.0
        super().__init__(B)
        self._root = root

    def whiten_cross(self, cross: Array) -> Array:
        """L⁻¹ S times columns."""
        return self.whiten(self._root[:, None] * cross, overwrite=True)

    def diagonals(self) -> tuple[Array, Array]:
        """Of B⁻¹ and of I − B⁻¹, to full precision. To be asked for first: L is inverted.

        Squares below the diagonal of L⁻¹ are small where the second is: nothing cancels.
        """
        assert not self.is_inverted
        weak = (self._added < 1.0).any()  # else these squares are not asked for
        before = _squares_beside_diagonal(self._array, axis=1) if weak else np.zeros_like(self._added)
        below = _squares_beside_diagonal(self._invert(), axis=0)
        ends = self._array.diagonal()
        return ends**2 + below, gains_before(self._added, before, ends) - below

    def into_correlation(self, unit: Array, spread: Array | None) -> Correlation:
        """−D B⁻¹ D off the diagonal, D = diag(unit), plus spreadᵀ spread; the factor is gone."""
        array = self.into_inverse()
        if spread is not None:  # in the units of the inverse
            ours = np.asfortranarray(spread / unit)
            array = blas.dsyrk(-1.0, ours, beta=1.0, c=array, trans=1, lower=1, overwrite_c=1)
        return Correlation(array, unit)


def _squares_beside_diagonal(L: Array, axis: int) -> Array:
    """Sums of squares of the columns (axis 0) or rows of a lower triangle, without its diagonal."""
    diagonal = diagonal_of(L)
    ends = diagonal.copy()
    diagonal[:] = 0.0
    total = np.zeros(len(L))
    for rows, columns in lower_panels(len(L)):
        part = L[rows, columns]
        total[(columns, rows)[axis]] += np.einsum(("ij,ij->j", "ij,ij->i")[axis], part, part)
    diagonal[:] = ends
    return total
