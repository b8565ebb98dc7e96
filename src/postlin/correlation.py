"""The posterior correlation of all points: in the one array there is, where memory matters."""

import numpy as np
from scipy.linalg import blas

from postlin._memory import FEW_ROWS
from postlin._typing import Array
from postlin.triangles import diagonal_of, lower_panels, mirror, panels, times

#: Columns of a panel in a product, the best of those measured.
_WIDE = 176


class Correlation:
    """A correlation matrix C and its entries' squares, both with ones on the diagonal.

    Off it C = −U G U, with U = diag(unit): below the diagonal of an array stands G, above it G∘G, on it
    zero. Only vectors are ever multiplied by U. Squares of few rows have an array for themselves.
    """

    def __init__(self, inverse: Array, unit: Array) -> None:
        """Take over B⁻¹, in the lower triangle; in the blocks on the diagonal zeros stand above it."""
        diagonal_of(inverse)[:] = 0.0
        self._array = inverse
        self._unit, self._unit_squared = unit, unit**2
        self._apart = len(unit) <= FEW_ROWS
        self._squares = _squares(inverse) if self._apart else _with_squares(inverse)

    def times(self, x: Array) -> Array:
        """C x."""
        product = self.off_diagonal_times(x)
        product += x
        return product

    def off_diagonal_times(self, x: Array) -> Array:
        """(C − I) x."""
        product = times(self._array, self._unit * x)
        product *= -self._unit
        return product

    def squared_times(self, x: Array) -> Array:
        """(C∘C) x."""
        right = self._unit_squared * x
        product: Array = blas.dsymv(1.0, self._squares, right, lower=int(self._apart))
        product *= self._unit_squared
        product += x
        return product

    def dense(self) -> Array:
        """C as a matrix of its own."""
        return self.covariance(np.ones_like(self._unit), np.ones_like(self._unit))

    def lower_covariance(self, sigma: Array, variance: Array) -> Array:
        """The lower triangle of diag(σ) C diag(σ); above it stands nothing of use."""
        covariance = np.zeros((len(sigma), len(sigma)), order="F")
        scale = self._unit * sigma
        for rows, columns in lower_panels(len(sigma)):
            part = covariance[rows, columns]
            np.multiply(self._array[rows, columns], -scale[rows, None], out=part)
            part *= scale[columns]
        diagonal_of(covariance)[:] = variance
        return covariance

    def covariance(self, sigma: Array, variance: Array) -> Array:
        """Σ = diag(σ) C diag(σ)."""
        return mirror(self.lower_covariance(sigma, variance))

    def weighted_square(self, outer: Array, inner: Array) -> Array:
        """D (C − I) W (C − I) D, with D = diag(outer) and W = diag(inner): the lower triangle."""
        n = len(outer)
        result = np.zeros((n, n), order="F")
        outer, weight = self._unit * outer, self._unit * np.sqrt(np.abs(inner))
        for columns in panels(n, n if self._apart else _WIDE):
            panel = self._columns(columns)
            panel *= outer[:, None]
            panel *= weight[columns]
            for sign in (1.0, -1.0):
                part = panel.T[sign * inner[columns] > 0].T
                if part.shape[1]:
                    result = blas.dsyrk(sign, part, beta=1.0, c=result, lower=1, overwrite_c=1)
        return result

    def _columns(self, columns: slice) -> Array:
        """Those of G, in an array of their own."""
        if self._apart:  # then they are all
            return mirror(self._array.copy(order="F"))
        panel = np.empty((len(self._unit), columns.stop - columns.start), order="F")
        panel[: columns.start] = self._array[columns, : columns.start].T
        panel[columns.stop :] = self._array[columns.stop :, columns]
        corner = np.tril(self._array[columns, columns])
        panel[columns] = corner + corner.T
        return panel

    def add_products(self, result: Array, left: Array, right: Array) -> None:
        """Add (left rightᵀ + right leftᵀ)∘(C − I), the lower triangle."""
        left, right = -self._unit * left, self._unit * right
        for rows, columns in lower_panels(len(left)):
            bracket = np.outer(right[columns], left[rows]).T  # in the order of the arrays
            bracket += np.outer(left[columns], right[rows]).T
            bracket *= self._array[rows, columns]
            result[rows, columns] += bracket

    def add_outer(self, result: Array, left: Array, right: Array, on_diagonal: Array) -> Array:
        """Add left rightᵀ + right leftᵀ and a diagonal, and complete the upper triangle."""
        result = blas.dsyr2(1.0, left, right, a=result, lower=1, overwrite_a=1)
        diagonal_of(result)[:] += on_diagonal
        return mirror(result)


def _squares(lower: Array) -> Array:
    """Of a lower triangle, in another array."""
    squares = np.empty_like(lower)
    for rows, columns in lower_panels(len(lower)):
        np.square(lower[rows, columns], out=squares[rows, columns])
    return squares


def _with_squares(lower: Array) -> Array:
    """The array of a lower triangle, its squares now above the diagonal."""
    for columns in panels(len(lower)):
        corner = lower[columns, columns]
        corner += np.square(corner.T)
        np.square(lower[columns.stop :, columns].T, out=lower[columns, columns.stop :])
    return lower
