"""``factor`` and ``triangles`` for matrices of other array libraries, mainly on a GPU.

All operations work in place on rows of large blocks, so that memory beyond the matrix itself is needed
for one row of blocks only. Symmetric matrices are stored whole, since a device reads memory faster than
it separates triangles.
"""

from collections.abc import Iterator

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.linalg.arrays import (
    Matrix,
    add_to_diagonal,
    cholesky,
    diagonal,
    namespace,
    on_host,
    place_of,
    set_diagonal,
    solve_lower,
)
from postlin.linalg.triangles import gains_before

#: The number of rows of a block, large enough for products to run at full speed.
_BLOCK = 2048
#: The number of entries of a panel in passes over a matrix, 256 MiB: enough to hide the cost of a call.
_PANEL = 2**25


def rows_of_blocks(n: int) -> Iterator[slice]:
    """Slices of the rows of an n × n matrix, block by block from the top."""
    for first in range(0, n, _BLOCK):
        yield slice(first, min(first + _BLOCK, n))


def wide_panels(n: int) -> Iterator[tuple[slice, slice]]:
    """Slices (rows, columns) of wide panels that cover the lower triangle."""
    width = max(1, _PANEL // n)
    for first in range(0, n, width):
        yield slice(first, n), slice(first, min(first + width, n))


def mirror(A: Matrix) -> Matrix:
    """Copy the lower triangle onto the upper one, in place."""
    xp = namespace(A)
    for rows in rows_of_blocks(A.shape[0]):
        A[: rows.start, rows] = A[rows, : rows.start].T
        corner = A[rows, rows]
        A[rows, rows] = xp.tril(corner) + xp.tril(corner, k=-1).T
    return A


def factorise(A: Matrix) -> int:
    """Replace the lower triangle of A, which has zeros above it, by its Cholesky factor.

    Returns 0, or the order of the first leading minor that has no factor.
    """
    n = A.shape[0]
    for rows in rows_of_blocks(n):
        known, below = slice(0, rows.start), slice(rows.stop, n)
        if rows.start:
            column = A[rows.start :, rows]
            column -= A[rows.start :, known] @ A[rows, known].T
        L, failed = cholesky(A[rows, rows])
        if failed:
            return int(rows.start + failed)
        A[rows, rows] = L
        if rows.stop < n:
            A[below, rows] = solve_lower(L, A[below, rows].T).T
    return 0


def invert(L: Matrix) -> None:
    """Replace the lower triangular L by L⁻¹."""
    place = place_of(L)
    for rows in rows_of_blocks(L.shape[0]):
        size = rows.stop - rows.start
        one = place.xp.eye(size, dtype=place.xp.float64, device=place.device)
        corner = place.xp.tril(solve_lower(L[rows, rows], one))
        for columns in rows_of_blocks(rows.start):
            inside = slice(columns.start, rows.start)
            L[rows, columns] = L[rows, inside] @ L[inside, columns]
        if rows.start:
            L[rows, : rows.start] = -corner @ L[rows, : rows.start]
        L[rows, rows] = corner


def square(X: Matrix) -> None:
    """Replace the lower triangle of a lower triangular X by that of Xᵀ X."""
    for rows in rows_of_blocks(X.shape[0]):
        X[rows, : rows.stop] = X[rows.start :, rows].T @ X[rows.start :, : rows.stop]


def whole_times(A: Matrix, x: Array) -> Array:
    """The product of a symmetric matrix, stored whole, and a vector."""
    product: Array = on_host(A @ place_of(A).put(x))
    return product


class TiledFactor:
    """``factor.Factor`` on any device."""

    def __init__(self, K: Matrix, root: Array) -> None:
        n = len(root)
        self._place = place_of(K)
        self._root = s = self._place.put(root)
        B = self._place.zeros(n, n)
        for rows in rows_of_blocks(n):
            scaled = K[rows, : rows.stop] * s[rows, None]
            scaled *= s[None, : rows.stop]
            B[rows, : rows.stop] = scaled
        self._added = np.array(diagonal(B))
        add_to_diagonal(B, 1.0)
        if factorise(B):
            raise NotPositiveDefiniteError(
                "the covariance matrix is not positive semi-definite, or holds NaN or infinity."
            )
        self._array = B
        self.is_inverted = False
        self.half_log_det = float(np.log(diagonal(B)).sum())

    def solve(self, x: Array) -> Array:
        """B⁻¹ x for a NumPy vector or NumPy columns."""
        columns = self._place.put(x.reshape(len(x), -1))
        solved: Array = on_host(self._unwhiten(self._whiten(columns))).reshape(x.shape)
        return solved

    def whiten_cross(self, cross: Matrix) -> Matrix:
        """L⁻¹ S times columns."""
        return self._whiten(self._root[:, None] * cross)

    def _whiten(self, columns: Matrix) -> Matrix:
        """L⁻¹ times columns, which are overwritten."""
        A, n = self._array, self._array.shape[0]
        if self.is_inverted:
            result = self._place.zeros(*columns.shape)
            for rows in rows_of_blocks(n):
                result[rows, :] = A[rows, : rows.stop] @ columns[: rows.stop, :]
            return result
        for rows in rows_of_blocks(n):
            rest = columns[rows, :]
            if rows.start:
                rest -= A[rows, : rows.start] @ columns[: rows.start, :]
            columns[rows, :] = solve_lower(A[rows, rows], rest)
        return columns

    def _unwhiten(self, columns: Matrix) -> Matrix:
        """L⁻ᵀ times columns, which are overwritten."""
        A, n = self._array, self._array.shape[0]
        if self.is_inverted:
            result = self._place.zeros(*columns.shape)
            for rows in rows_of_blocks(n):
                result[rows, :] = A[rows.start :, rows].T @ columns[rows.start :, :]
            return result
        for rows in reversed(list(rows_of_blocks(n))):
            rest = columns[rows, :]
            if rows.stop < n:
                rest -= A[rows.stop :, rows].T @ columns[rows.stop :, :]
            columns[rows, :] = solve_lower(A[rows, rows], rest, transposed=True)
        return columns

    def _invert(self) -> Matrix:
        if not self.is_inverted:
            invert(self._array)
            self.is_inverted = True
        return self._array

    def marginals(self) -> tuple[Array, Array]:
        """Variances (1 − B⁻¹)ᵢᵢ/sᵢ² and gaps (B⁻¹)ᵢᵢ, to full precision. L is inverted: ask first."""
        assert not self.is_inverted
        before = _squares_beside_diagonal(self._array, axis=1)
        below = _squares_beside_diagonal(self._invert(), axis=0)
        ends = diagonal(self._array)
        gains = gains_before(self._added, before, ends) - below
        return gains / on_host(self._root) ** 2, ends**2 + below

    def into_correlation(self, unit: Array, spread: Array | None) -> "TiledCorrelation":
        """−D B⁻¹ D + spreadᵀ spread off the diagonal, D = diag(unit); the factor is used up."""
        A, u = self._invert(), self._place.put(unit)
        del self._array
        square(A)
        S = None if spread is None else self._place.put(spread)
        for rows in rows_of_blocks(A.shape[0]):
            part = A[rows, : rows.stop]
            part *= -u[rows, None]
            part *= u[None, : rows.stop]
            if S is not None:
                part += S[:, rows].T @ S[:, : rows.stop]
        return TiledCorrelation(A)


def _squares_beside_diagonal(L: Matrix, axis: int) -> Array:
    """Sums of squares of the columns (axis 0) or rows of a lower triangle, without its diagonal."""
    place, n = place_of(L), L.shape[0]
    ends = np.array(diagonal(L))
    set_diagonal(L, 0.0)
    sums = np.zeros(n)
    for rows in rows_of_blocks(n):
        part = slice(0, rows.stop) if axis == 0 else rows
        sums[part] += on_host(place.xp.sum(L[rows, : rows.stop] ** 2, axis=axis))
    set_diagonal(L, ends)
    return sums


class TiledCorrelation:
    """``factor.Correlation`` on any device, stored as the whole matrix C − I."""

    def __init__(self, lower: Matrix) -> None:
        """Take over an array whose lower triangle is that of C."""
        self._array = mirror(lower)
        self._place = place_of(lower)
        set_diagonal(self._array, 0.0)

    def times(self, x: Array) -> Array:
        """C x."""
        return whole_times(self._array, x) + x

    def off_diagonal_times(self, x: Array) -> Array:
        """(C − I) x."""
        return whole_times(self._array, x)

    def squared_times(self, x: Array) -> Array:
        """(C∘C) x."""
        A, right = self._array, self._place.put(x[:, None])
        product = self._place.zeros(len(x), 1)
        for rows in rows_of_blocks(len(x)):
            product[rows, :] = A[rows, :] ** 2 @ right
        result: Array = on_host(product)[:, 0] + x
        return result

    def dense(self) -> Array:
        """C as a new NumPy matrix."""
        full = np.array(on_host(self._array))
        full[np.diag_indices_from(full)] = 1.0
        return full

    def covariance(self, sigma: Array, variance: Array) -> Matrix:
        """Σ = diag(σ) C diag(σ)."""
        s, n = self._place.put(sigma), len(sigma)
        result = self._place.zeros(n, n)
        for rows in rows_of_blocks(n):
            result[rows, :] = self._array[rows, :] * s[rows, None] * s[None, :]
        set_diagonal(result, variance)
        return result

    def weighted_square(self, outer: Array, inner: Array) -> Matrix:
        """The lower triangle of D (C − I) W (C − I) D, with D = diag(outer) and W = diag(inner)."""
        A, d, w = self._array, self._place.put(outer), self._place.put(inner)
        result = self._place.zeros(len(outer), len(outer))
        for rows in rows_of_blocks(len(outer)):
            part = (A[rows, :] * w[None, :]) @ A[:, : rows.stop]
            part *= d[rows, None]
            part *= d[None, : rows.stop]
            result[rows, : rows.stop] = part
        return result

    def add_products(self, result: Matrix, left: Array, right: Array) -> None:
        """Add the lower triangle of (left rightᵀ + right leftᵀ)∘(C − I) to ``result``."""
        a, b = self._place.put(left), self._place.put(right)
        for rows in rows_of_blocks(len(left)):
            bracket = a[rows, None] * b[None, : rows.stop]
            bracket += b[rows, None] * a[None, : rows.stop]
            bracket *= self._array[rows, : rows.stop]
            part = result[rows, : rows.stop]
            part += bracket

    def add_outer(self, result: Matrix, left: Array, right: Array, on_diagonal: Array) -> Matrix:
        """Add left rightᵀ + right leftᵀ and a diagonal to ``result``, and fill its upper triangle."""
        a, b = self._place.put(left), self._place.put(right)
        for rows in rows_of_blocks(len(left)):
            part = result[rows, : rows.stop]
            part += a[rows, None] * b[None, : rows.stop]
            part += b[rows, None] * a[None, : rows.stop]
        add_to_diagonal(result, on_diagonal)
        return mirror(result)
