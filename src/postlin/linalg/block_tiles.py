"""``blocks`` for matrices of other array libraries, mainly on a GPU.

A matrix of n × n blocks of D × D stays on the device, and so do all products with it. What has n blocks
(marginals, sites, vectors) is an array of NumPy.
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import blas

from postlin._typing import Array, override
from postlin.linalg import arrays, blocks
from postlin.linalg.arrays import Matrix, on_host, place_of
from postlin.linalg.blocks import BlockCorrelation, BlockFactor
from postlin.linalg.threads import slices
from postlin.linalg.tiles import TiledCholesky, mirror, whole_times

#: The number of entries of the temporary arrays of a step, 256 MiB.
_ENTRIES = 2**25


def _points(n: int, D: int) -> list[slice]:
    """Consecutive slices of n points, whose rows of an (n D, n D) matrix make a temporary array."""
    return slices(n, max(1, _ENTRIES // (n * D * D)))


def diagonal_blocks(A: Matrix, D: int) -> Array:
    """The blocks D × D on the diagonal, in NumPy."""
    xp, n = arrays.namespace(A), A.shape[0] // D
    apart = xp.permute_dims(xp.reshape(A, (n, D, n, D)), (1, 3, 0, 2))
    return np.array(np.moveaxis(on_host(xp.linalg.diagonal(apart)), -1, 0), dtype=float)


def _column_grams(A: Matrix, D: int, *, is_lower: bool = False) -> Array:
    """AⱼᵀAⱼ for every D consecutive columns Aⱼ of A, (columns/D, D, D), in NumPy.

    With ``is_lower`` the entries above the diagonal are zeros, which need not be read.
    """
    xp, (rows, columns) = arrays.namespace(A), A.shape
    found = []
    for part in slices(columns, max(1, _ENTRIES // (rows * D)) * D):
        first = part.start if is_lower else 0
        stack = xp.reshape(A[first:, part], (rows - first, -1, D))
        found.append(on_host(xp.permute_dims(stack, (1, 2, 0)) @ xp.permute_dims(stack, (1, 0, 2))))
    return np.concatenate(found)


class TiledBlockFactor(TiledCholesky, BlockFactor):
    """``BlockFactor`` on any device."""

    @override
    def _cleared(self, B: Matrix) -> Matrix:
        return B  # which has been made with zeros above the diagonal

    @override
    def gains(self) -> Array:
        n, D = self._n, self._D
        before = self._squares(axis=1)
        inverse = self._invert()
        ends = np.array(arrays.diagonal(inverse))
        arrays.set_diagonal(inverse, 0.0)
        below = _column_grams(inverse, D, is_lower=True)
        mixed = ends.reshape(n, 1, D) * np.swapaxes(diagonal_blocks(inverse, D), 1, 2)
        arrays.set_diagonal(inverse, ends)
        return self._assembled(below, mixed, before, ends)


class TiledBlockCorrelation(BlockCorrelation):
    """``BlockCorrelation`` on any device, stored whole."""

    def __init__(self, inverse: Matrix, scale: Array) -> None:
        n, D = scale.shape[:2]
        self._array, self._place, self._shape = mirror(inverse), place_of(inverse), (n, D)
        right = self._place.put(scale)
        up = self._place.put(-np.swapaxes(scale, 1, 2))
        for part in _points(n, D):
            turned = self._turned(up[part, :, :] @ self._rows_of(part), right)
            self._array[part.start * D : part.stop * D, :] = turned
        self._set_blocks()

    def _set_blocks(self) -> None:
        """Write identities onto the diagonal."""
        n, D = self._shape
        entries = self._place.xp.reshape(self._array, (-1,))
        step = (n * D + 1) * D  # from a block to the next
        for a in range(D):
            for b in range(D):
                entries[a * n * D + b :: step] = float(a == b)

    def _rows_of(self, part: slice) -> Matrix:
        """The rows of some points, (points, D, n D)."""
        n, D = self._shape
        rows = self._array[part.start * D : part.stop * D, :]
        return self._place.xp.reshape(rows, (part.stop - part.start, D, n * D))

    def _turned(self, rows: Matrix, matrices: Matrix) -> Matrix:
        """The rows (points, D, n D) times blockdiag(matrices), (points · D, n D)."""
        (n, D), xp = self._shape, self._place.xp
        stack = xp.permute_dims(xp.reshape(rows, (-1, n, D)), (1, 0, 2)) @ matrices
        return xp.reshape(xp.permute_dims(stack, (1, 0, 2)), (-1, n * D))

    @override
    def times(self, x: Array) -> Array:
        return whole_times(self._array, x.ravel()).reshape(x.shape)

    @override
    def sandwich(self, P: Array) -> Array:
        (n, D), xp, found = self._shape, self._place.xp, []
        middle = self._place.put(P)
        for part in _points(n, D):
            rows = self._rows_of(part)
            right = xp.reshape(self._turned(rows, middle), rows.shape)
            found.append(on_host(right @ xp.permute_dims(rows, (0, 2, 1))))
        return np.concatenate(found)

    @override
    def columns(self, i: int) -> Array:
        n, D = self._shape
        rows = on_host(self._rows_of(slice(i, i + 1)))[0]
        return np.array(rows.reshape(D, n, D).transpose(1, 2, 0), order="C")

    @override
    def along(self, u: Array) -> Matrix:
        (n, D), xp = self._shape, self._place.xp
        found, there = self._place.zeros(n, D, n), self._place.put(u)[:, :, None]
        for part in _points(n, D):
            rows = xp.reshape(self._rows_of(part), (-1, n, D))
            summed = (xp.permute_dims(rows, (1, 0, 2)) @ there)[:, :, 0]
            found[part, :, :] = xp.reshape(summed.T, (-1, D, n))
        return found

    @override
    def scaled(self, root: Array) -> Matrix:
        n, D = self._shape
        result = self._place.zeros(n * D, n * D)
        left, right = self._place.put(root), self._place.put(np.swapaxes(root, 1, 2))
        for part in _points(n, D):
            turned = self._turned(left[part, :, :] @ self._rows_of(part), right)
            result[part.start * D : part.stop * D, :] = turned
        return result


def _block_products(factors: Sequence[tuple[Matrix, Array]], D: int) -> Matrix:
    place, n = place_of(factors[0][0]), factors[0][0].shape[0]
    xp, result = place.xp, place.zeros(n * D, n * D)
    there = [(K, place.put(t)) for K, t in factors]
    for part in _points(n, D):
        rows, columns = slice(part.start * D, part.stop * D), slice(0, part.stop * D)
        for K, t in there:
            products = xp.reshape(t[rows, :] @ t[columns, :].T, (-1, D, part.stop, D))
            products *= K[part, : part.stop][:, None, :, None]
            result[rows, columns] += xp.reshape(products, (-1, part.stop * D))
        corner = result[rows, rows]
        result[rows, rows] = xp.tril(corner)
    return result


def block_products(factors: Sequence[tuple[Matrix, Array]], D: int) -> Matrix:
    """Σ K[i, j] tᵢ tⱼᵀ over pairs of K (n, n) and t (n D, M): the lower triangle, where K is."""
    on_cpu = isinstance(factors[0][0], np.ndarray)
    return blocks.block_products(factors, D) if on_cpu else _block_products(factors, D)


def column_grams(A: Matrix, D: int) -> Array:
    """AⱼᵀAⱼ for every D consecutive columns Aⱼ of A, (columns/D, D, D), in NumPy."""
    return blocks.column_grams(A, D) if isinstance(A, np.ndarray) else _column_grams(A, D)


def block_factor(B: Matrix, n: int) -> BlockFactor:
    """The factorisation of I + B, for n × n blocks, wherever the array is; it takes it over."""
    return BlockFactor(B, n) if isinstance(B, np.ndarray) else TiledBlockFactor(B, n)


def block_correlation(inverse: Matrix, scale: Array) -> BlockCorrelation:
    """The correlation that the lower triangle of an inverse and the scale of each point make."""
    on_cpu = isinstance(inverse, np.ndarray)
    return BlockCorrelation(inverse, scale) if on_cpu else TiledBlockCorrelation(inverse, scale)


def add_to_own(along: Matrix, values: Array) -> None:
    """Add the vector (D,) of every point i to ``along[i, :, i]``, for an array (n, D, n)."""
    n, D, _ = along.shape
    entries = arrays.namespace(along).reshape(along, (-1,))  # a view, since it is stored row by row
    there = place_of(along).put(values)
    for a in range(D):
        entries[a * n :: D * n + 1] += there[:, a]


def gram_between(left: Matrix, right: Matrix) -> Matrix:
    """Σ leftᵢₐⱼ rightᵢₐₖ for every j and k, for arrays (n, D, m)."""
    xp, shape = arrays.namespace(left), (-1, left.shape[2])
    left, right = xp.reshape(left, shape), xp.reshape(right, shape)
    if isinstance(left, np.ndarray):  # by SciPy's BLAS, which alone has several threads
        return blas.dgemm(1.0, right.T, left.T, trans_b=1).T
    return left.T @ right
