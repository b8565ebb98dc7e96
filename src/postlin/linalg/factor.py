"""I plus a positive semi-definite matrix: its factor, its inverse and a correlation, in one array.

The array, in LAPACK's order, holds the lower triangle of the matrix, then of its Cholesky factor L,
then of L⁻¹ and at last of the inverse. No jitter is needed, since the eigenvalues are at least one. A
covariance that may be singular has a root with pivots.
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.linalg.arrays import Matrix, diagonal, diagonal_of, on_host, place_of
from postlin.linalg.threads import FEW_ROWS
from postlin.linalg.triangles import (
    Cholesky,
    clear_corners,
    gains_before,
    lower_panels,
    mirror,
    panels,
    times,
)

#: The number of columns of a panel in a product, the fastest of those measured.
_WIDE = 176


def power_products(A: Matrix, vectors: Sequence[Matrix]) -> Array:
    """A x₁, (A∘A) x₂, (A∘A∘A) x₃ and so on, for a list of vectors."""
    power, products = A, []
    for k, x in enumerate(vectors):
        power = power * A if k else A
        products.append(on_host(power @ x))
    return np.array(products)


class Correlation:
    """A correlation matrix C and its elementwise square C∘C, both with ones on the diagonal.

    Off the diagonal C = −U G U, with U = diag(unit). One array holds G below its diagonal, G∘G above it
    and zeros on it; for few rows G∘G has a second array. Only vectors are ever multiplied by U.
    """

    def __init__(self, inverse: Array, unit: Array) -> None:
        """Take over the lower triangle of B⁻¹; its diagonal blocks have zeros above the diagonal."""
        diagonal_of(inverse)[:] = 0.0
        self._array = inverse
        self._unit, self._unit_squared = unit, unit**2
        self._apart = len(unit) <= FEW_ROWS
        self._squares = np.empty_like(inverse) if self._apart else inverse
        for rows, columns in lower_panels(len(unit)):
            if self._apart:
                np.square(inverse[rows, columns], out=self._squares[rows, columns])
            else:  # the squares of the lower triangle are written above the diagonal
                corner, below = inverse[columns, columns], slice(columns.stop, None)
                corner += np.square(corner.T)
                inverse[columns, below] = np.square(inverse[below, columns]).T

    def times(self, x: Array) -> Array:
        """C x."""
        return self.off_diagonal_times(x) + x

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

    def powers_times(self, vectors: Array) -> Array:
        """(C − I) x₁, (C − I)∘(C − I) x₂ and so on for the rows of an array of vectors."""
        n, products = len(self._unit), np.empty_like(vectors)
        for columns in panels(n, n if self._apart else _WIDE):
            part = self._columns(columns)
            part *= -self._unit[:, None]  # before any power, since units can be as large as 1e70
            part *= self._unit[columns]
            products[:, columns] = power_products(part.T, list(vectors))
        return products

    def dense(self) -> Array:
        """C as a new NumPy matrix."""
        one = np.ones_like(self._unit)
        return np.asarray(on_host(self.covariance(one, one)), float)

    def lower_covariance(self, sigma: Array, variance: Array) -> Array:
        """The lower triangle of diag(σ) C diag(σ); the strict upper triangle is undefined."""
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
        """The lower triangle of D (C − I) W (C − I) D, with D = diag(outer) and W = diag(inner)."""
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
        """A copy of these columns of G."""
        if self._apart:  # one panel has all columns
            return mirror(self._array.copy(order="F"))
        panel = np.empty((len(self._unit), columns.stop - columns.start), order="F")
        panel[: columns.start] = self._array[columns, : columns.start].T
        panel[columns.stop :] = self._array[columns.stop :, columns]
        corner = np.tril(self._array[columns, columns])
        panel[columns] = corner + corner.T
        return panel

    def add_products(self, result: Array, left: Array, right: Array) -> None:
        """Add the lower triangle of (left rightᵀ + right leftᵀ)∘(C − I) to ``result``."""
        left, right = -self._unit * left, self._unit * right
        for rows, columns in lower_panels(len(left)):
            bracket = np.outer(right[columns], left[rows]).T  # stored column by column like the arrays
            bracket += np.outer(left[columns], right[rows]).T
            bracket *= self._array[rows, columns]
            result[rows, columns] += bracket

    def add_outer(self, result: Array, left: Array, right: Array, on_diagonal: Array) -> Array:
        """Add left rightᵀ + right leftᵀ and a diagonal to ``result``, and fill its upper triangle."""
        result = blas.dsyr2(1.0, left, right, a=result, lower=1, overwrite_a=1)
        diagonal_of(result)[:] += on_diagonal
        return mirror(result)


class Downdate:
    """The change of the posterior by sites of negative precision."""

    def __init__(self, tau: Array, negative: np.ndarray, covariance: Array) -> None:
        """``covariance`` holds the columns of the negative sites in Σ₊, the posterior without them."""
        self.negative = negative
        strength = np.sqrt(-tau[negative])
        columns = covariance * strength
        downdate = -strength[:, None] * columns[negative]
        diagonal_of(downdate)[:] += 1.0
        factor, failed = lapack.dpotrf(downdate, lower=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError("negative sites outweigh the prior and the other sites.")
        self.half_log_det = float(np.log(factor.diagonal()).sum())
        #: Σ = Σ₊ + spreadᵀ spread
        self.spread: Array = solve_triangular(factor, columns.T, lower=True)
        self.widening: Array = np.einsum("ij,ij->j", self.spread, self.spread)
        # rows of I − Q₊K for the negative sites, for the predictive variance
        response = -np.maximum(tau, 0.0) * columns.T
        response[np.arange(len(negative)), negative] += strength
        self.response: Array = solve_triangular(factor, response, lower=True)

    def shift(self, target: Array) -> Array:
        """The change of the posterior mean that the negative sites cause."""
        return np.asarray(self.spread.T @ (self.spread @ target), float)


class Factor(Cholesky):
    """The factorisation of B = I + S K S, with S = diag(root)."""

    def __init__(self, K: Matrix, root: Array) -> None:
        self._root = root
        super().__init__(self._scaled(K))

    def _scaled(self, K: Matrix) -> Matrix:
        """The lower triangle of S K S in a new array."""
        root, n = self._root, len(self._root)
        scaled = np.empty((n, n), order="F")
        for rows, columns in lower_panels(n):
            part = scaled[rows, columns]
            np.multiply(K.T[rows, columns], root[rows, None], out=part)
            part *= root[columns]
        clear_corners(scaled)
        return scaled

    def whiten_cross(self, cross: Matrix) -> Matrix:
        """L⁻¹ S times columns."""
        return self.whiten(place_of(cross).put(self._root)[:, None] * cross, overwrite=True)

    def marginals(self) -> tuple[Array, Array]:
        """Variances (1 − B⁻¹)ᵢᵢ/sᵢ² and gaps (B⁻¹)ᵢᵢ, to full precision.

        This inverts L, and must be called before anything else does. Where the variance is small, so
        are the squares below the diagonal of L⁻¹: nothing cancels.
        """
        assert not self.is_inverted
        weak = (self._added < 1.0).any()  # otherwise ``gains_before`` does not use the squares
        before = self._squares(axis=1) if weak else np.zeros_like(self._added)
        ends = diagonal(self._invert())
        below = self._squares(axis=0)
        gains = gains_before(self._added, before, ends) - below
        return gains / self._root**2, ends**2 + below

    def into_correlation(self, unit: Array, spread: Array | None) -> Correlation:
        """−D B⁻¹ D + spreadᵀ spread off the diagonal, D = diag(unit); it uses this factor up."""
        array = self.into_inverse()
        if spread is not None:  # divided by D, as the inverse is
            ours = np.asfortranarray(spread / unit)
            array = blas.dsyrk(-1.0, ours, beta=1.0, c=array, trans=1, lower=1, overwrite_c=1)
        return Correlation(array, unit)


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
