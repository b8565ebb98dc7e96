"""Matrices of D × D blocks, one block for each pair of points: factor, correlation, products."""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import blas

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.linalg.arrays import Matrix, diagonal_of
from postlin.linalg.threads import in_batches
from postlin.linalg.triangles import Cholesky, clear_corners, gains_before, mirror


class BlockFactor(Cholesky):
    """The factorisation of B, which exceeds I by a semi-definite matrix of n × n blocks of D × D."""

    def __init__(self, B: Array, n: int) -> None:
        """Take over the array of B − I, of which only the lower triangle is read."""
        self._n, self._D = n, B.shape[0] // n
        Cholesky.__init__(self, self._cleared(B))

    def _cleared(self, B: Matrix) -> Matrix:
        """B with zeros above the diagonal in the panels and the blocks that are read."""
        clear_corners(B)
        clear_corners(B, self._D)
        return B

    def gains(self) -> Array:
        """I − (B⁻¹)ᵢᵢ, (n, D, D), to full precision.

        This inverts L, and must be called before anything else does. Where the result is small, so are
        the entries below the diagonal of L⁻¹: nothing cancels.
        """
        n, D = self._n, self._D
        before = self._squares(axis=1)
        diagonal = diagonal_of(self._invert())
        ends = diagonal.copy()
        diagonal[:] = 0.0
        below, mixed = np.empty((2, n, D, D))
        rows = self._array.T

        def work(part: slice) -> None:
            for i in range(part.start, part.stop):
                here = slice(i * D, (i + 1) * D)
                off = rows[here, i * D :]
                below[i], mixed[i] = off @ off.T, ends[here] * rows[here, here]

        in_batches(work, n, n * D * D)
        diagonal[:] = ends
        return self._assembled(below, mixed, before, ends)

    def _assembled(self, below: Array, mixed: Array, before: Array, ends: Array) -> Array:
        """The gains, from products of L⁻¹ without its diagonal, and with it, and that diagonal."""
        gains = -below - mixed - transposed(mixed)
        own = gains_before(self._added, before, ends).reshape(self._n, self._D)
        np.einsum("naa->na", gains)[:] += own
        return gains


def block_products(factors: Sequence[tuple[Array, Array]], D: int) -> Array:
    """Σ K[i, j] tᵢ tⱼᵀ over pairs of K (n, n) and t (n D, M): the lower triangle, in Fortran order."""
    n = len(factors[0][0])
    result = np.empty((n * D, n * D), order="F")

    def work(part: slice) -> None:
        columns = slice(part.start * D, part.stop * D)
        target = result.T[columns, columns.start :]
        target[:] = 0.0
        for K, t in factors:
            block = (t[columns] @ t[columns.start :].T).reshape(-1, D, n - part.start, D)
            block *= K[part, None, part.start :, None]
            target += block.reshape(target.shape)

    in_batches(work, n, n * D * D)
    return result


def column_grams(A: Array, D: int) -> Array:
    """AⱼᵀAⱼ for every D consecutive columns Aⱼ of A, (columns/D, D, D)."""
    columns = A.T.reshape(A.shape[1] // D, D, -1)
    return np.asarray(columns @ transposed(columns))


class BlockCorrelation:
    """A correlation matrix C of n × n blocks of D × D, with identities on the diagonal."""

    def __init__(self, inverse: Array, scale: Array) -> None:
        """Take over the lower triangle of B⁻¹: Cᵢⱼ = −Uᵢᵀ(B⁻¹)ᵢⱼUⱼ for i ≠ j, U = ``scale``."""
        n, D = scale.shape[:2]
        up = -np.swapaxes(scale, 1, 2)

        def work(part: slice) -> None:
            for j in range(part.start, part.stop):
                columns = inverse.T[j * D : (j + 1) * D, j * D :]
                turned = (up[j] @ columns).reshape(D, n - j, D)
                blocks = columns.reshape(D, n - j, D)  # a view that is written to
                np.matmul(turned.transpose(1, 0, 2), scale[j:], out=blocks.transpose(1, 0, 2))
                blocks[:, 0] = np.eye(D)

        in_batches(work, n, n * D * D)
        self._array = mirror(inverse)
        self._rows: Array = self._array.T.reshape(n, D, n, D)  # Cᵢⱼ = _rows[i, :, j]

    def times(self, x: Array) -> Array:
        """C x, for x (n, D)."""
        return np.reshape(blas.dsymv(1.0, self._array, x.ravel(), lower=1), x.shape)

    def sandwich(self, P: Array) -> Array:
        """Σⱼ Cᵢⱼ Pⱼ Cⱼᵢ, (n, D, D), for symmetric P."""
        n, D = self._rows.shape[:2]
        found = np.empty((n, D, D))

        def work(part: slice) -> None:
            right = np.empty((D, n, D))
            for i in range(part.start, part.stop):
                rows = self._rows[i]
                np.matmul(rows.transpose(1, 0, 2), P, out=right.transpose(1, 0, 2))
                np.matmul(right.reshape(D, n * D), rows.reshape(D, n * D).T, out=found[i])

        in_batches(work, n, n * D * D)
        return found

    def columns(self, i: int) -> Array:
        """A copy of Cⱼᵢ for all j, (n, D, D)."""
        return np.array(self._rows[i].transpose(1, 2, 0), order="C")

    def along(self, u: Array) -> Array:
        """Cᵢⱼ uⱼ for all i and j, (n, D, n), for u (n, D)."""
        found = np.empty((*u.shape, len(u)))

        def work(part: slice) -> None:
            np.einsum("iajb,jb->iaj", self._rows[part], u, out=found[part])

        in_batches(work, len(u), u.size * u.shape[1])
        return found

    def scaled(self, root: Array) -> Array:
        """L C Lᵀ as a new matrix, for L = blockdiag(root)."""
        n, D = self._rows.shape[:2]
        left = (root @ self._rows.reshape(n, D, n * D)).reshape(n * D, n, D)
        result = np.matmul(left.transpose(1, 0, 2), np.swapaxes(root, 1, 2)).transpose(1, 0, 2)
        return np.reshape(result, (n * D, n * D))


def symmetric(matrices: Array) -> Array:
    """(M + Mᵀ)/2 for every matrix M."""
    return 0.5 * (matrices + transposed(matrices))


def transposed(matrices: np.ndarray) -> Array:
    """The transpose of every matrix."""
    return np.swapaxes(matrices, -1, -2)


def inverted(matrices: Array) -> Array:
    """The inverse of every matrix."""
    try:
        return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError("a site or a marginal is singular to rounding.") from None


def root_of(matrices: Array) -> Array:
    """The lower Cholesky factor of every matrix."""
    return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)


def clipped(matrices: Array, low: float, high: float = np.inf) -> Array:
    """Symmetric matrices with eigenvalues below ``low`` raised to it, and those above ``high`` lowered.

    Cholesky factors show in a tenth of the time of the eigenvalues that there is nothing to do.
    """
    if np.sqrt(np.sum(matrices**2, axis=(1, 2)).max(initial=0.0)) <= high:
        try:
            np.linalg.cholesky(matrices - low * np.eye(matrices.shape[1]))
        except np.linalg.LinAlgError:
            pass
        else:
            return matrices
    values, vectors = np.linalg.eigh(matrices)
    found: Array = (vectors * np.clip(values, low, high)[:, None, :]) @ transposed(vectors)
    return found


def times(matrices: Array, vectors: Array) -> Array:
    """The product of every matrix with its vector."""
    product: Array = (matrices @ vectors[:, :, None])[:, :, 0]
    return product


def outer(one: Array, other: Array) -> Array:
    """The outer product of every pair of vectors."""
    return one[:, :, None] * other[:, None]


def half_lower(matrices: Array) -> Array:
    """The lower triangles with half the diagonals: L⁻¹ dL for matrices L⁻¹ d(L Lᵀ) L⁻ᵀ."""
    lower = np.tril(matrices)
    np.einsum("nii->ni", lower)[:] *= 0.5
    return lower
