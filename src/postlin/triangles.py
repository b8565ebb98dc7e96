"""Symmetric matrices of which one triangle is enough, worked on in place.

Arrays are in LAPACK's memory order and hold the lower triangle; what stands above the diagonal is
zero, or belongs to somebody else. Passes over a whole matrix go by panels of columns that
fit the cache, so that no second matrix is ever needed.
"""

from collections.abc import Iterator

import numpy as np
from scipy.linalg import blas, lapack

from postlin._threads import threads
from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError

#: Entries of a panel, 128 KiB: what is larger is fresh memory from the system every time; and the
#: fewest columns.
_PANEL = 2**14
_NARROW = 48
#: Triangles of more rows than the first and up to the second are inverted in halves (measured).
_LEAF, _HALVED = 64, 1024
#: Columns of a panel in a product, enough to run at full speed.
_WIDE = 128


def panels(n: int, width: int | None = None) -> Iterator[slice]:
    """Consecutive columns of an n × n matrix."""
    width = width or max(_NARROW, _PANEL // n)
    for first in range(0, n, width):
        yield slice(first, min(first + width, n))


def lower_panels(n: int) -> Iterator[tuple[slice, slice]]:
    """(Rows, columns) of the panels that cover the lower triangle."""
    for columns in panels(n):
        yield slice(columns.start, n), columns


def times(matrix: Array, x: Array) -> Array:
    """Symmetric matrix times vector, from the lower triangle."""
    product: Array = blas.dsymv(1.0, matrix, x, lower=1)
    return product


def mirror(matrix: Array) -> Array:
    """Copy the lower triangle onto the upper one, in place."""
    for columns in panels(len(matrix)):
        block = np.tril(matrix[columns, columns], -1)
        diagonal = matrix[columns, columns].diagonal().copy()
        matrix[columns, columns] = block + block.T
        diagonal_of(matrix[columns, columns])[:] = diagonal
    return mirror_panels(matrix)


def mirror_panels(matrix: Array) -> Array:
    """Copy the lower triangle onto the upper one, in place, outside the blocks on the diagonal."""
    for columns in panels(len(matrix)):
        matrix[columns, columns.stop :] = matrix[columns.stop :, columns].T
    return matrix


def diagonal_of(matrix: Array) -> Array:
    """The diagonal as something that can be written to, whatever the layout in memory."""
    view: Array = np.einsum("ii->i", matrix)
    return view


class Factor:
    """B = I + S K S in one array: its Cholesky factor L, on request L⁻¹, at last B⁻¹.

    The eigenvalues of B are at least one: no jitter, ever.
    """

    def __init__(self, K: Array, root: Array) -> None:
        n = len(root)
        B = np.empty((n, n), order="F")
        for rows, columns in lower_panels(n):
            part = B[rows, columns]
            np.multiply(K.T[rows, columns], root[rows, None], out=part)
            part *= root[columns]
        diagonal_of(B)[:] += 1.0
        self._array: Array
        self._array, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError(
                "the covariance matrix is not positive semi-definite, or holds NaN or infinity."
            )
        self._is_inverted = False
        self._root = root
        self.half_log_det = float(np.log(self._array.diagonal()).sum())

    def solve(self, x: Array) -> Array:
        """B⁻¹ x, for one vector or for columns."""
        return self.whiten(self.whiten(x), transposed=True)

    def whiten(self, columns: Array, *, transposed: bool = False) -> Array:
        """L⁻¹ times a vector or columns, or L⁻ᵀ times them."""
        result: Array
        if columns.ndim == 1:
            product = blas.dtrmv if self._is_inverted else blas.dtrsv
            result = product(self._array, columns, lower=1, trans=int(transposed))
        else:
            product = blas.dtrmm if self._is_inverted else blas.dtrsm
            result = product(1.0, self._array, columns, lower=1, trans_a=int(transposed))
        return result

    def whiten_cross(self, cross: Array) -> Array:
        """L⁻¹ S times columns."""
        return self.whiten(self._root[:, None] * cross)

    def _invert(self) -> Array:
        """L⁻¹ in place of L."""
        if not self._is_inverted:
            self._array = _inverted(self._array)
            self._is_inverted = True
        return self._array

    def inverse_diagonal(self) -> Array:
        """The diagonal of B⁻¹: sums of squares of the columns of L⁻¹."""
        inverted = self._invert()
        n = len(inverted)
        diagonal = np.empty(n)
        for rows, columns in lower_panels(n):
            part = inverted[rows, columns]
            diagonal[columns] = np.einsum("ij,ij->j", part, part)
        return diagonal

    def into_inverse(self) -> Array:
        """The array, now with B⁻¹ in its lower triangle; the factor is gone."""
        inverse, _ = lapack.dlauum(self._invert(), lower=1, overwrite_c=1)
        del self._array
        matrix: Array = inverse
        return matrix

    def into_correlation(self, unit: Array, spread: Array | None) -> "Correlation":
        """−D B⁻¹ D off the diagonal, D = diag(unit), plus spreadᵀ spread; the factor is gone."""
        array = self.into_inverse()
        for rows, columns in lower_panels(len(unit)):
            part = array[rows, columns]
            part *= -unit[rows, None]
            part *= unit[columns]
        if spread is not None:
            columns_first = np.asfortranarray(spread)
            array = blas.dsyrk(1.0, columns_first, beta=1.0, c=array, trans=1, lower=1, overwrite_c=1)
        return Correlation(array)


def _inverted(L: Array) -> Array:
    """L⁻¹ in place of the lower triangular L.

    In halves, which for one thread is up to twice as fast as LAPACK's way.
    """
    n = len(L)
    if not _LEAF < n <= _HALVED or threads() > 1:
        inverse: Array = lapack.dtrtri(L, lower=1, overwrite_c=1)[0]
        return inverse
    top, bottom = slice(0, n // 2), slice(n // 2, n)
    L[top, top] = first = _inverted(np.asfortranarray(L[top, top]))
    L[bottom, bottom] = second = _inverted(np.asfortranarray(L[bottom, bottom]))
    corner = blas.dtrmm(-1.0, second, L[bottom, top], lower=1)
    L[bottom, top] = blas.dtrmm(1.0, first, corner, side=1, lower=1, overwrite_b=1)
    return L


class Correlation:
    """A correlation matrix C and its entries' squares in one array.

    Below the diagonal stands C, above it C∘C, on it zero: both have ones there.
    """

    def __init__(self, lower: Array) -> None:
        """Take over an array whose lower triangle is C, with nothing above."""
        diagonal_of(lower)[:] = 0.0
        for columns in panels(len(lower)):
            block = lower[columns, columns]
            block += np.square(block.T)
            np.square(lower[columns.stop :, columns].T, out=lower[columns, columns.stop :])
        self._array = lower

    def times(self, x: Array) -> Array:
        """C x."""
        product = times(self._array, x)
        product += x
        return product

    def off_diagonal_times(self, x: Array) -> Array:
        """(C − I) x."""
        return times(self._array, x)

    def squared_times(self, x: Array) -> Array:
        """(C∘C) x."""
        product: Array = blas.dsymv(1.0, self._array, x, lower=0)
        product += x
        return product

    def dense(self) -> Array:
        """C as a matrix of its own."""
        full = mirror(self._array.copy(order="F"))
        diagonal_of(full)[:] = 1.0
        return full

    def lower_covariance(self, sigma: Array, variance: Array) -> Array:
        """The lower triangle of diag(σ) C diag(σ); above it stands nothing of use."""
        covariance = np.zeros((len(sigma), len(sigma)), order="F")
        for rows, columns in lower_panels(len(sigma)):
            part = covariance[rows, columns]
            np.multiply(self._array[rows, columns], sigma[rows, None], out=part)
            part *= sigma[columns]
        diagonal_of(covariance)[:] = variance
        return covariance

    def covariance(self, sigma: Array, variance: Array) -> Array:
        """Σ = diag(σ) C diag(σ)."""
        return mirror(self.lower_covariance(sigma, variance))

    def weighted_square(self, outer: Array, inner: Array) -> Array:
        """D (C − I) W (C − I) D, with D = diag(outer) and W = diag(inner): the lower triangle."""
        n = len(outer)
        result = np.zeros((n, n), order="F")
        for columns in panels(n, _WIDE):
            panel = np.empty((n, columns.stop - columns.start), order="F")
            panel[: columns.start] = self._array[columns, : columns.start].T
            panel[columns.stop :] = self._array[columns.stop :, columns]
            corner = np.tril(self._array[columns, columns])
            panel[columns] = corner + corner.T
            panel *= outer[:, None]
            panel *= np.sqrt(np.abs(inner[columns]))
            for sign in (1.0, -1.0):
                part = panel.T[sign * inner[columns] > 0].T
                if part.shape[1]:
                    result = blas.dsyrk(sign, part, beta=1.0, c=result, lower=1, overwrite_c=1)
        return result

    def add_products(self, result: Array, left: Array, right: Array) -> None:
        """Add (left rightᵀ + right leftᵀ)∘(C − I), the lower triangle."""
        for rows, columns in lower_panels(len(left)):
            bracket = left[rows, None] * right[columns]
            bracket += right[rows, None] * left[columns]
            bracket *= self._array[rows, columns]
            result[rows, columns] += bracket

    def add_outer(self, result: Array, left: Array, right: Array, on_diagonal: Array) -> Array:
        """Add left rightᵀ + right leftᵀ and a diagonal, and complete the upper triangle."""
        result = blas.dsyr2(1.0, left, right, a=result, lower=1, overwrite_a=1)
        diagonal_of(result)[:] += on_diagonal
        return mirror(result)
