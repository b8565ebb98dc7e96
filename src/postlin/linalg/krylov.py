"""What products with a matrix are enough for: solves by GMRES, with little overhead, and its radius."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from postlin._typing import Array

#: A new direction of which so little is new is made orthogonal to those known a second time.
_LITTLE = 0.1


def gmres(
    product: Callable[[Array], Array], right: Array, *, rtol: float, dimension: int
) -> tuple[Array, bool]:
    """Solve A x = right, ``product`` being x ↦ A x: the best x of a Krylov space, from zero.

    Stops where the residual is ``rtol`` of the right-hand side, or at the ``dimension``; says
    whether it got there.

    In an orthonormal basis A takes the first k directions to the first k + 1, by a Hessenberg matrix
    H: one direction u is left out, and what the right-hand side has along it is the residual. With
    u₀ = 1 every column of H gives one further entry of u, and the residual is 1/|u|.
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
        if length == 0.0:  # nothing new: the answer is in the space, or nowhere
            return _combine(H, size, basis, k + (reached != 0.0)), reached != 0.0
        u[k + 1] = last = -reached / length
        square += last * last  # which may be infinite: then the residual is nothing
        if square * rtol**2 >= 1.0:
            return _combine(H, size, basis, k + 1), True
        np.divide(new, length, out=basis[k + 1])
    return _combine(H, size, basis, dimension), False


def _combine(H: Array, size: float, basis: Array, k: int) -> Array:
    """The combination of the first k directions that A takes closest to the right-hand side."""
    if k == 0:
        return np.zeros(basis.shape[1])
    right = np.zeros(k + 1)
    right[0] = size
    _, weights, _ = lapack.dgels(H[: k + 1, :k], right)
    solution: Array = weights[:k] @ basis[:k]
    return solution


def spectral_radius(product: Callable[[Array], Array], start: Array) -> float:
    """Max |eigenvalue of A|, ``product`` being x ↦ A x."""
    operator = LinearOperator((len(start), len(start)), matvec=product, dtype=float)
    try:
        values = eigs(operator, k=4, which="LM", v0=start, return_eigenvectors=False, ncv=60)
    except ArpackNoConvergence as error:  # which has those that it found
        values = error.eigenvalues
    return float(np.abs(values).max())
