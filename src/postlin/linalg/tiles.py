"""``factor`` and ``triangles`` for matrices of other array libraries, mainly on a GPU.

All operations work in place on rows of large blocks, so that they need memory for one row of blocks
beside the matrix itself. Symmetric matrices are stored whole, since a device reads memory faster than
it separates triangles.
"""

from collections.abc import Iterator

import numpy as np

from postlin._typing import Array, override
from postlin.linalg import arrays
from postlin.linalg.arrays import Matrix, on_host, place_of
from postlin.linalg.factor import Correlation, Factor, power_products
from postlin.linalg.threads import slices
from postlin.linalg.triangles import Cholesky, lower_panels

#: The number of rows of a block, large enough for products to run at full speed.
_BLOCK = 2048
#: The number of entries of a panel in passes over a matrix, 256 MiB: enough to hide the cost of a call.
_PANEL = 2**25


def rows_of_blocks(n: int) -> list[slice]:
    """Slices of the rows of an n × n matrix, block by block from the top."""
    return slices(n, _BLOCK)


def wide_panels(n: int, width: int | None = None) -> Iterator[tuple[slice, slice]]:
    """``lower_panels`` with panels that are wide enough for a device."""
    return lower_panels(n, width or max(1, _PANEL // n))


def mirror(A: Matrix) -> Matrix:
    """Copy the lower triangle onto the upper one, in place."""
    xp = arrays.namespace(A)
    for rows in rows_of_blocks(A.shape[0]):
        A[: rows.start, rows] = A[rows, : rows.start].T
        corner = A[rows, rows]
        A[rows, rows] = xp.tril(corner) + xp.tril(corner, k=-1).T
    return A


def factorise(A: Matrix) -> int:
    """Replace the lower triangle of A, which has zeros above the diagonal, by its Cholesky factor.

    Returns 0, or the order of the first leading minor that has no factor.
    """
    n = A.shape[0]
    for rows in rows_of_blocks(n):
        if rows.start:
            column = A[rows.start :, rows]
            column -= A[rows.start :, : rows.start] @ A[rows, : rows.start].T
        L, failed = arrays.cholesky(A[rows, rows])
        if failed:
            return int(rows.start + failed)
        A[rows, rows] = L
        if rows.stop < n:
            A[rows.stop :, rows] = arrays.solve_lower(L, A[rows.stop :, rows].T).T
    return 0


def whole_times(A: Matrix, x: Array) -> Array:
    """The product of a symmetric matrix, stored whole, and a vector."""
    return np.asarray(on_host(A @ place_of(A).put(x)), float)


class TiledCholesky(Cholesky):
    """``Cholesky`` on any device; the array has zeros above the diagonal, from block to block."""

    _panels = staticmethod(wide_panels)

    @override
    def _factorised(self, B: Matrix) -> tuple[Matrix, int]:
        return B, factorise(B)

    @override
    def solve(self, x: Array) -> Array:
        columns = place_of(self._array).put(x.reshape(len(x), -1))
        return np.reshape(on_host(super().solve(columns)), x.shape)

    @override
    def whiten(self, columns: Matrix, *, transposed: bool = False, overwrite: bool = False) -> Matrix:
        A, n = self._array, self._array.shape[0]
        result = columns if overwrite and not self.is_inverted else arrays.copied(columns)
        blocks = rows_of_blocks(n)
        for rows in reversed(blocks) if transposed else blocks:
            if transposed:
                known, corner, beside = slice(rows.stop, n), A[rows, rows].T, A[rows.stop :, rows].T
            else:
                known, corner, beside = slice(0, rows.start), A[rows, rows], A[rows, : rows.start]
            if self.is_inverted:
                result[rows, :] = corner @ columns[rows, :] + beside @ columns[known, :]
            else:
                rest = result[rows, :] - beside @ result[known, :]
                result[rows, :] = arrays.solve_lower(A[rows, rows], rest, transposed=transposed)
        return result

    @override
    def _invert(self) -> Matrix:
        L, place = self._array, place_of(self._array)
        for rows in [] if self.is_inverted else rows_of_blocks(L.shape[0]):
            one = place.xp.eye(rows.stop - rows.start, dtype=place.xp.float64, device=place.device)
            corner = place.xp.tril(arrays.solve_lower(L[rows, rows], one))
            for columns in rows_of_blocks(rows.start):
                inside = slice(columns.start, rows.start)
                L[rows, columns] = L[rows, inside] @ L[inside, columns]
            if rows.start:
                L[rows, : rows.start] = -corner @ L[rows, : rows.start]
            L[rows, rows] = corner
        self.is_inverted = True
        return L

    @override
    def into_inverse(self) -> Matrix:
        A = self._invert()
        del self._array
        for rows in rows_of_blocks(A.shape[0]):
            A[rows, : rows.stop] = A[rows.start :, rows].T @ A[rows.start :, : rows.stop]
        return A


class TiledFactor(TiledCholesky, Factor):
    """``Factor`` on any device."""

    @override
    def _scaled(self, K: Matrix) -> Matrix:
        place, n = place_of(K), len(self._root)
        s, scaled = place.put(self._root), place.zeros(n, n)
        for rows in rows_of_blocks(n):
            part = K[rows, : rows.stop] * s[rows, None]
            part *= s[None, : rows.stop]
            scaled[rows, : rows.stop] = part
        return scaled

    @override
    def into_correlation(self, unit: Array, spread: Array | None) -> "TiledCorrelation":
        A = self.into_inverse()
        u, S = place_of(A).put(unit), None if spread is None else place_of(A).put(spread)
        for rows in rows_of_blocks(len(unit)):
            part = A[rows, : rows.stop]
            part *= -u[rows, None]
            part *= u[None, : rows.stop]
            if S is not None:
                part += S[:, rows].T @ S[:, : rows.stop]
        return TiledCorrelation(A, unit)


class TiledCorrelation(Correlation):
    """``Correlation`` on any device, stored as the whole matrix C − I."""

    def __init__(self, lower: Matrix, unit: Array) -> None:
        """Take over an array whose lower triangle is that of C."""
        self._array, self._unit = mirror(lower), unit
        self._place = place_of(lower)
        arrays.set_diagonal(self._array, 0.0)

    @override
    def off_diagonal_times(self, x: Array) -> Array:
        return whole_times(self._array, x)

    @override
    def squared_times(self, x: Array) -> Array:
        right = self._place.put(x)
        rows_times = [on_host(self._array[rows, :] ** 2 @ right) for rows in rows_of_blocks(len(x))]
        return np.concatenate(rows_times) + x

    @override
    def powers_times(self, vectors: Array) -> Array:
        there = self._place.put(vectors)
        xs = [there[k, :] for k in range(len(vectors))]
        n = vectors.shape[1]
        found = [power_products(self._array[rows, :], xs) for rows in rows_of_blocks(n)]
        return np.concatenate(found, axis=1)

    @override
    def covariance(self, sigma: Array, variance: Array) -> Matrix:
        s, n = self._place.put(sigma), len(sigma)
        result = self._place.zeros(n, n)
        for rows in rows_of_blocks(n):
            result[rows, :] = self._array[rows, :] * s[rows, None] * s[None, :]
        arrays.set_diagonal(result, variance)
        return result

    @override
    def weighted_square(self, outer: Array, inner: Array) -> Matrix:
        A, d, w = self._array, self._place.put(outer), self._place.put(inner)
        result = self._place.zeros(len(outer), len(outer))
        for rows in rows_of_blocks(len(outer)):
            part = (A[rows, :] * w[None, :]) @ A[:, : rows.stop]
            part *= d[rows, None]
            part *= d[None, : rows.stop]
            result[rows, : rows.stop] = part
        return result

    def _brackets(self, left: Array, right: Array) -> Iterator[tuple[slice, slice, Matrix]]:
        """Yield rows, columns and entries of left rightᵀ + right leftᵀ, to cover the lower triangle."""
        a, b = self._place.put(left), self._place.put(right)
        for rows in rows_of_blocks(len(left)):
            bracket = a[rows, None] * b[None, : rows.stop]
            bracket += b[rows, None] * a[None, : rows.stop]
            yield rows, slice(0, rows.stop), bracket

    @override
    def add_products(self, result: Matrix, left: Array, right: Array) -> None:
        for rows, columns, bracket in self._brackets(left, right):
            bracket *= self._array[rows, columns]
            result[rows, columns] += bracket

    @override
    def add_outer(self, result: Matrix, left: Array, right: Array, on_diagonal: Array) -> Matrix:
        for rows, columns, bracket in self._brackets(left, right):
            result[rows, columns] += bracket
        arrays.add_to_diagonal(result, on_diagonal)
        return mirror(result)
