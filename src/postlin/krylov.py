"""What products with a matrix are enough for: solves by GMRES, with little overhead, and its radius."""

from collections.abc import Callable

import numpy as np
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from postlin._typing import Array


def gmres(
    product: Callable[[Array], Array], right: Array, *, rtol: float, dimension: int
) -> tuple[Array, bool]:
    """Solve A x = right, ``product`` being x ↦ A x: the best x of a Krylov space, from zero.

    Stops where the residual is ``rtol`` of the right-hand side, or at the ``dimension``; says
    whether it got there.
    """
    size = float(np.linalg.norm(right))
    dimension = min(dimension, len(right))
    if size == 0.0:
        return np.zeros_like(right), True
    basis = np.empty((dimension + 1, len(right)))
    basis[0] = right / size
    triangle = np.zeros((dimension, dimension))
    rest = np.zeros(dimension + 1)  # what rotations have made of the right-hand side
    rest[0] = size
    rotations: list[tuple[float, float]] = []
    for k in range(dimension):
        new = product(basis[k])
        known = basis[: k + 1]
        column = known @ new
        new -= column @ known
        again = known @ new  # once more: orthogonal to rounding
        new -= again @ known
        length = float(blas.dnrm2(new))
        entries = (column + again).tolist()
        for j, (cosine, sine) in enumerate(rotations):
            above, below = entries[j], entries[j + 1]
            entries[j], entries[j + 1] = cosine * above + sine * below, cosine * below - sine * above
        pivot = float(np.hypot(entries[k], length))
        if pivot == 0.0:
            return _combine(triangle, rest, basis, k), False
        cosine, sine = entries[k] / pivot, length / pivot
        rotations.append((cosine, sine))
        entries[k] = pivot
        triangle[: k + 1, k] = entries
        rest[k + 1] = -sine * rest[k]
        rest[k] *= cosine
        if abs(rest[k + 1]) <= rtol * size:
            return _combine(triangle, rest, basis, k + 1), True
        basis[k + 1] = new / length
    return _combine(triangle, rest, basis, dimension), False


def _combine(triangle: Array, rest: Array, basis: Array, k: int) -> Array:
    if k == 0:
        return np.zeros(basis.shape[1])
    weights, _ = lapack.dtrtrs(triangle[:k, :k], rest[:k])
    solution: Array = weights @ basis[:k]
    return solution


def spectral_radius(product: Callable[[Array], Array], start: Array) -> float:
    """Max |eigenvalue of A|, ``product`` being x ↦ A x."""
    operator = LinearOperator((len(start), len(start)), matvec=product, dtype=float)
    try:
        values = eigs(operator, k=4, which="LM", v0=start, return_eigenvectors=False, ncv=60)
    except ArpackNoConvergence as error:  # which has those that it found
        values = error.eigenvalues
    return float(np.abs(values).max())
