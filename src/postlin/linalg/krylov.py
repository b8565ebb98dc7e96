"""Solves by GMRES with little overhead, and the spectral radius, from products with a matrix alone."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from postlin._typing import Array
from postlin.linalg.arrays import Matrix, norm, on_host, place_of

#: A direction that keeps less than this part of its length is orthogonalised a second time.
_LITTLE = 0.1


def gmres(
    product: Callable[[Matrix], Matrix], right: Matrix, *, rtol: float, dimension: int
) -> tuple[Matrix, bool]:
    """Solve A x = right, where ``product`` maps x to A x: return x and whether it is accurate enough.

    Vectors stay where the right-hand side is; a product may return an array that it no longer needs.
    The search starts from zero and ends when the residual is ``rtol`` times the right-hand side, or
    when the Krylov space has the given ``dimension``.

    In an orthonormal basis A maps the first k directions to the first k + 1 by a Hessenberg matrix H.
    One direction u of these is orthogonal to the range of H, and the component of the right-hand side
    along u is the residual. With u₀ = 1 every column of H gives one more entry of u, and the residual
    is 1/|u|.
    """
    size, place = _length(right), place_of(right)
    dimension = min(dimension, right.shape[0])
    if size == 0.0:
        return right * 0.0, True
    shape = dimension + 1, right.shape[0]
    basis: Matrix = np.empty(shape) if place.is_host else place.zeros(*shape)
    basis[0, :] = right / size
    H = np.zeros((dimension + 1, dimension), order="F")
    u = np.zeros(dimension + 1)
    u[0] = square = 1.0
    for k in range(dimension):
        new, known = product(basis[k, :]), basis[: k + 1, :]
        along = known @ new
        new -= along @ known
        length, column = _length(new), H[: k + 1, k]
        column[:] = on_host(along)
        if length * length < _LITTLE**2 * float(column @ column):
            again = known @ new
            new -= again @ known
            column += on_host(again)
            length = _length(new)
        H[k + 1, k] = length
        reached = float(u[: k + 1] @ column)
        if length == 0.0:  # A maps the space to itself: it holds the solution if there is one
            return _combine(H, size, basis, k + (reached != 0.0)), reached != 0.0
        u[k + 1] = last = -reached / length
        square += last * last  # this may overflow to infinity; the residual is then zero
        if square * rtol**2 >= 1.0:
            return _combine(H, size, basis, k + 1), True
        basis[k + 1, :] = new / length
    return _combine(H, size, basis, dimension), False


def _length(vector: Matrix) -> float:
    """The Euclidean length of a vector."""
    return float(blas.dnrm2(vector)) if isinstance(vector, np.ndarray) else norm(vector)


def _combine(H: Array, size: float, basis: Matrix, k: int) -> Matrix:
    """The combination of the first k directions whose image is closest to the right-hand side."""
    if k == 0:
        return basis[0, :] * 0.0
    right = np.zeros(k + 1)
    right[0] = size
    _, weights, _ = lapack.dgels(H[: k + 1, :k], right)
    return place_of(basis).give(np.ascontiguousarray(weights[:k])) @ basis[:k, :]


def spectral_radius(product: Callable[[Array], Array], start: Array) -> float:
    """The largest absolute eigenvalue of A, where ``product`` maps x to A x."""
    operator = LinearOperator((len(start), len(start)), matvec=product, dtype=float)
    try:
        values = eigs(operator, k=4, which="LM", v0=start, return_eigenvectors=False, ncv=60)
    except ArpackNoConvergence as error:  # the error holds the eigenvalues that were found
        values = error.eigenvalues
    return float(np.abs(values).max())
