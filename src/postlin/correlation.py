"""The posterior correlation of all points, in the one array there is."""

import numpy as np
from scipy.linalg import blas

from postlin._typing import Array
from postlin.triangles import diagonal_of, lower_panels, mirror, panels, times

#: Columns of a panel in a product, enough to run at full speed.
_WIDE = 128


class Correlation:
    """A correlation matrix C and its entries' squares in one array.

    Below the diagonal stands C, above it C∘C, on it zero: both have ones there.
    """

    def __init__(self, inverse: Array, unit: Array) -> None:
        """Take over B⁻¹, in the lower triangle: C = −D B⁻¹ D off the diagonal, D = diag(unit).

        In the blocks on the diagonal there must be zeros above it.
        """
        for rows, columns in lower_panels(len(inverse)):
            part = inverse[rows, columns]
            part *= -unit[rows, None]
            part *= unit[columns]
            diagonal_of(part[: columns.stop - columns.start])[:] = 0.0
            corner = inverse[columns, columns]
            corner += np.square(corner.T)
            np.square(inverse[columns.stop :, columns].T, out=inverse[columns, columns.stop :])
        self._array = inverse

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
