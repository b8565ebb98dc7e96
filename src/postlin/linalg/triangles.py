"""Triangles of symmetric matrices, panel by panel, and triangular solves for many rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack, solve_triangular

from postlin._typing import Array
from postlin.linalg.threads import threads

#: The number of entries of a panel, 256 KiB, and its fewest columns. This is the fastest size of those
#: measured: smaller panels take more calls, larger ones leave the cache.
_PANEL = 2**15
_NARROW = 48
#: Triangles with more than _LEAF and at most _HALVED rows are inverted in halves (measured).
_LEAF, _HALVED = 64, 1024


def panels(n: int, width: int | None = None) -> Iterator[slice]:
    """Slices of consecutive columns of an n × n matrix."""
    width = width or max(_NARROW, _PANEL // n)
    for first in range(0, n, width):
        yield slice(first, min(first + width, n))


def lower_panels(n: int) -> Iterator[tuple[slice, slice]]:
    """Slices (rows, columns) of the panels that cover the lower triangle."""
    for columns in panels(n):
        yield slice(columns.start, n), columns


def times(matrix: Array, x: Array) -> Array:
    """The product of a symmetric matrix, given by its lower triangle, and a vector."""
    product: Array = blas.dsymv(1.0, matrix, x, lower=1)
    return product


def clear_corners(matrix: Array, width: int | None = None) -> None:
    """Set the entries above the diagonal to zero that passes over the lower panels read."""
    for columns in panels(len(matrix), width):
        np.copyto(matrix[columns, columns], 0.0, where=_above_diagonal(columns.stop - columns.start))


def mirror(matrix: Array) -> Array:
    """Copy the lower triangle onto the upper one, in place."""
    for columns in panels(len(matrix)):
        corner = matrix[columns, columns]
        np.copyto(corner, corner.T, where=_above_diagonal(len(corner)))
    return mirror_panels(matrix)


@lru_cache
def _above_diagonal(n: int) -> NDArray[np.bool_]:
    return np.triu(np.ones((n, n), dtype=bool), 1)


def mirror_panels(matrix: Array) -> Array:
    """Copy the lower triangle onto the upper one, in place, except in the diagonal blocks."""
    for columns in panels(len(matrix)):
        matrix[columns, columns.stop :] = matrix[columns.stop :, columns].T
    return matrix


def diagonal_of(matrix: Array) -> Array:
    """The diagonal as a view that can be written to, whatever the layout in memory."""
    view: Array = np.einsum("ii->i", matrix)
    return view


def gains_before(added: Array, before: Array, ends: Array) -> Array:
    """1 − 1/L²ᵢᵢ to full precision, for a Cholesky factor L of B.

    The arguments are (B − I)ᵢᵢ, Σ_{k<i} L²ᵢₖ and 1/Lᵢᵢ. Where t = L²ᵢᵢ − 1 is small, it is accurate
    only as the difference of the first two; the result is t/(1 + t).
    """
    weak = added < 1.0
    t = np.where(weak, added - before, 0.0)  # rounding could make it −1 where it is large
    return np.where(weak, t / (1.0 + t), 1.0 - ends**2)


def inverted(L: Array) -> Array:
    """Replace the lower triangular L by L⁻¹, and return it.

    For one thread, inverting in halves is up to twice as fast as LAPACK.
    """
    return _inverted(L, _LEAF if len(L) <= _HALVED and threads() == 1 else len(L))


def _inverted(L: Array, leaf: int) -> Array:
    n = len(L)
    if n <= leaf:
        inverse: Array = lapack.dtrtri(L, lower=1, overwrite_c=1)[0]
        return inverse
    top, bottom = slice(0, n // 2), slice(n // 2, n)
    L[top, top] = first = _inverted(np.asfortranarray(L[top, top]), leaf)
    L[bottom, bottom] = second = _inverted(np.asfortranarray(L[bottom, bottom]), leaf)
    corner = blas.dtrmm(-1.0, second, L[bottom, top], lower=1)
    L[bottom, top] = blas.dtrmm(1.0, first, corner, side=1, lower=1, overwrite_b=1)
    return L


#: How many columns and rows are solved for at a time, so that they stay in the cache.
_BLOCK, _ROWS = 64, 1024


@dataclass(frozen=True, eq=False)
class Triangle:
    """A lower triangular matrix L, with solves for many rows by matrix products alone.

    They use the inverses of the diagonal blocks. NumPy's products let other threads run meanwhile,
    which SciPy's triangular solves do not, and are twice as fast on a chunk of rows.
    """

    L: Array

    @cached_property
    def inverse(self) -> Array:
        """L⁻¹."""
        inverse: Array = solve_triangular(self.L, np.eye(len(self.L)), lower=True)
        return inverse

    @property
    def log_determinant(self) -> float:
        """log |L|."""
        return float(np.log(self.L.diagonal()).sum())

    @cached_property
    def _blocks(self) -> list[tuple[slice, Array]]:
        return [
            (b, solve_triangular(self.L[b, b], np.eye(b.stop - b.start), lower=True))
            for b in _slices(len(self.L), _BLOCK)
        ]

    def __getstate__(self) -> dict[str, Array]:
        return {"L": self.L}

    def solve(self, rows: Array) -> Array:
        """L⁻¹x for every row x, in place."""
        for some in _slices(len(rows), _ROWS):
            x = rows[some]
            for block, inverse in self._blocks:
                part = x[:, block]
                if block.start:
                    part = part - x[:, : block.start] @ self.L[block, : block.start].T
                x[:, block] = part @ inverse.T
        return rows

    def solve_transposed(self, rows: Array) -> Array:
        """L⁻ᵀx for every row x, in place."""
        for some in _slices(len(rows), _ROWS):
            x = rows[some]
            for block, inverse in reversed(self._blocks):
                part = x[:, block]
                if block.stop < len(self.L):
                    part = part - x[:, block.stop :] @ self.L[block.stop :, block]
                x[:, block] = part @ inverse
        return rows


def _slices(n: int, width: int) -> list[slice]:
    return [slice(first, min(first + width, n)) for first in range(0, n, width)]
