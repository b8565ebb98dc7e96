"""Stacks of small matrices, arrays (n, P, P): every matrix is treated alone, whatever its neighbours.

A factorisation that fails for one matrix marks that matrix and leaves the others as they are. The
numbers do not depend on how many matrices a stack has or on their order.
"""

from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.linalg.arrays import (
    Matrix,
    cholesky_each,
    namespace,
    on_host,
    place_of,
    solve_lower_each,
)

#: An eigenvalue below minus this part of the largest one is no rounding error.
_NEGATIVE = 1e-10


def transposed(A: Matrix) -> Matrix:
    """The transpose of every matrix of a stack."""
    return A.swapaxes(1, 2) if isinstance(A, np.ndarray) else namespace(A).permute_dims(A, (0, 2, 1))


def part_of(A: Matrix, rows: np.ndarray) -> Matrix:
    """Copies of the matrices with these indices."""
    return namespace(A).take(A, place_of(A).give(rows), axis=0)


def spread(A: Matrix, values: Array) -> Any:
    """Numbers, one a row of every matrix, as an array (n, P, 1) beside the stack A."""
    return place_of(A).give(values)[:, :, None]


def times(A: Matrix, x: Array) -> Array:
    """The product of each matrix with its own vector, (n, P)."""
    product: Array = on_host(A @ spread(A, x))[:, :, 0]
    return product


def diagonals(A: Matrix) -> Array:
    """The diagonal of each matrix, (n, P)."""
    return np.array(on_host(entries(A, 0, 0, A.shape[1])), dtype=np.float64)


def all_finite(A: Matrix) -> np.ndarray:
    """Which matrices have no entry that is infinite or NaN."""
    finite: np.ndarray = np.all(on_host(namespace(A).isfinite(A)), axis=(1, 2))
    return finite


def row_squares(A: Matrix) -> Array:
    """The sum of squares of each row, (n, P)."""
    sums: Array = on_host(namespace(A).sum(A * A, axis=2))
    return sums


def roots(K: Matrix) -> tuple[Matrix, np.ndarray]:
    """R with R Rᵀ = K, and which matrices are covariances.

    R is a Cholesky factor, or where K is singular made of eigenvectors, of which those with negative
    eigenvalues are dropped. Where these are no rounding errors, K is marked as no covariance.
    """
    R, found = cholesky_each(K)
    sound = found.copy()
    for i in np.flatnonzero(~found):
        values, vectors = np.linalg.eigh(on_host(K[i, :, :]))
        sound[i] = values[0] >= -_NEGATIVE * values[-1]
        R[i, :, :] = place_of(K).give(vectors * np.sqrt(np.maximum(values, 0.0)))
    return R, sound


def whitened(root: Matrix, precision: Array) -> tuple[Matrix, np.ndarray]:
    """G with G Gᵀ = (K⁻¹ + diag(τ))⁻¹ for K = R Rᵀ and precisions τ, (n, P), and which exist.

    With I + Rᵀ diag(τ) R = L Lᵀ, G is R L⁻ᵀ. Precisions may be negative as long as L exists.
    """
    A = transposed(root) @ (spread(root, precision) * root)
    diagonal = entries(A, 0, 0, A.shape[1])
    diagonal += 1.0
    L, found = cholesky_each(A)
    return transposed(solve_lower_each(L, transposed(root))), found


def entries(M: Matrix, row: int, column: int, count: int) -> Any:
    """A view of ``count`` entries of each matrix, down the diagonal that starts at (row, column)."""
    n, _, size = M.shape
    first = row * size + column
    flat = namespace(M).reshape(M, (n, -1))  # a view, since M is stored row by row
    return flat[:, first : first + count * (size + 1) : size + 1]


def zeros(n: int, size: int, like: Matrix) -> Matrix:
    """A stack of n matrices of zeros where another stack is."""
    place = place_of(like)
    if place.is_host:
        return np.zeros((n, size, size))
    return place.xp.zeros((n, size, size), dtype=place.xp.float64, device=place.device)
