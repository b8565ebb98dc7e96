"""Solves by GMRES with little overhead, and the spectral radius, from products with a matrix alone."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from postlin._typing import Array

#: A direction that keeps less than this part of its length is orthogonalised a second time.
_LITTLE = 0.1


def gmres(
    product: Callable[[Array], Array], right: Array, *, rtol: float, dimension: int
) -> tuple[Array, bool]:
    """Solve A x = right, where ``product`` maps x to A x: return x and whether it is accurate enough.

    The search starts from zero and ends when the residual is ``rtol`` times the right-hand side, or
    when the Krylov space has the given ``dimension``.

    In an orthonormal basis A maps the first k directions to the first k + 1 by a Hessenberg matrix H.
    One direction u of these is orthogonal to the range of H, and the component of the right-hand side
    along u is the residual. With u₀ = 1 every column of H gives one more entry of u, and the residual
    is 1/|u|.
    """
    size = float(blas.dnrm2(right))
    dimension = min(dimension, len(right))
    if size == 0.0:
        return np.zeros_like(right), True
    basis = np.empty((dimension + 1, len(right)))
    np.divide(right, size, out=basis[0])
    H = np.zeros((dimension + 1, dimension), order="F")
    u = np.zeros(dimension + 1)
    u[0] = square = 1.0
    for k in range(dimension):
        new = product(basis[k])
        known, column = basis[: k + 1], H[: k + 1, k]
        np.matmul(known, new, out=column)
        new -= column @ known
        length = float(blas.dnrm2(new))
        if length * length < _LITTLE**2 * float(column @ column):
            again = known @ new
            new -= again @ known
            column += again
            length = float(blas.dnrm2(new))
        H[k + 1, k] = length
        reached = float(u[: k + 1] @ column)
        if length == 0.0:  # A maps the space to itself: it holds the solution if there is one
            return _combine(H, size, basis, k + (reached != 0.0)), reached != 0.0
        u[k + 1] = last = -reached / length
        square += last * last  # this may overflow to infinity; the residual is then zero
        if square * rtol**2 >= 1.0:
            return _combine(H, size, basis, k + 1), True
        np.divide(new, length, out=basis[k + 1])
    return _combine(H, size, basis, dimension), False


def _combine(H: Array, size: float, basis: Array, k: int) -> Array:
    """The combination of the first k directions whose image is closest to the right-hand side."""
    if k == 0:
        return np.zeros(basis.shape[1])
    right = np.zeros(k + 1)
    right[0] = size
    _, weights, _ = lapack.dgels(H[: k + 1, :k], right)
    return np.asarray(weights[:k] @ basis[:k], float)


def spectral_radius(product: Callable[[Array], Array], start: Array) -> float:
    """The largest absolute eigenvalue of A, where ``product`` maps x to A x."""
    operator = LinearOperator((len(start), len(start)), matvec=product, dtype=float)
    try:
        values = eigs(operator, k=4, which="LM", v0=start, return_eigenvectors=False, ncv=60)
    except ArpackNoConvergence as error:  # the error holds the eigenvalues that were found
        values = error.eigenvalues
    return float(np.abs(values).max())
