"""How proposed sites answer to the marginals: a small matrix for every point.

A change (b, E) of a marginal, and likewise a change (q, P) of a site, is packed into D + D (D + 1)/2
numbers: the vector, then the lower triangle of the symmetric matrix with √2 where an entry counts
twice. In these coordinates the adjoint of a matrix is its transpose.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.joint.batches import in_batches
from postlin.joint.softmax import AtNodes


@cache
def _triangle(D: int) -> tuple[np.ndarray, np.ndarray, Array]:
    """Rows and columns of the lower triangle, and how often its entries count, as a root."""
    rows, columns = np.tril_indices(D)
    return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))


def packed(vector: Array, matrix: Array) -> Array:
    """One array from arrays (n, D, ...) and symmetric (n, D, D, ...)."""
    rows, columns, counts = _triangle(vector.shape[1])
    triangle = matrix[:, rows, columns] * counts.reshape(-1, *[1] * (vector.ndim - 2))
    return np.concatenate([vector, triangle], axis=1)


def unpacked(flat: Array, D: int) -> tuple[Array, Array]:
    """The vector (n, D) and the matrix (n, D, D)."""
    rows, columns, counts = _triangle(D)
    matrix = np.empty((len(flat), D, D))
    matrix[:, rows, columns] = matrix[:, columns, rows] = flat[:, D:] / counts
    return flat[:, :D], matrix


@cache
def _stretches(D: int) -> Array:
    """The change of a Cholesky factor, in its units, for every packed direction: (D, D, directions)."""
    rows, columns, counts = _triangle(D)
    stretch = np.zeros((D, D, D + len(rows)))
    stretch[rows, columns, D + np.arange(len(rows))] = np.where(rows == columns, 0.5, 1.0 / counts)
    return stretch


class Regressed(NamedTuple):
    """What the sites of a regression are made of: p̄, G, N = (I − A)⁻¹, and the sites themselves."""

    mean: Array
    slopes: Array
    solved: Array
    scaled_tau: Array
    pull: Array

    def some(self, part: slice) -> "Regressed":
        """Those of some points."""
        return Regressed(*(array[part] for array in self))


def regression_changes(
    nodes: tuple[Array, Array], H: Array, mean: Array, root: Array, y: np.ndarray, found: Regressed
) -> Array:
    """(q, P) of the regression's sites from (b, E) of the marginals: packed matrices (n, M, M)."""
    (z, weights), D = nodes, mean.shape[1]
    rows, columns = np.tril_indices(D + 1)
    extended = np.concatenate([np.ones((len(z), 1)), z], axis=1)
    products = extended[:, rows] * extended[:, columns]
    place = np.empty((D + 1, D + 1), dtype=int)  # of a product among those
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    size = D + D * (D + 1) // 2
    local = np.empty((len(y), size, size))

    def work(part: slice) -> None:
        at_nodes = AtNodes(mean[part], root[part], H, z, weights)
        responses = at_nodes.responses(products)
        local[part] = _through_sites(_by_direction(responses, place), found.some(part), y[part])

    in_batches(work, len(y), H.size * len(z))
    return local


def _by_direction(responses: Array, place: np.ndarray) -> Array:
    """(d log p̄_c, d(p̄_c G_c)/p̄_c) for every packed direction: (b, C, D + 1, directions)."""
    D = responses.shape[2]
    rows, columns, _ = _triangle(D)
    scale = _stretches(D)[rows, columns, D:].diagonal()
    by_shift = responses[:, :, :, place[:, 0]]
    by_stretch = responses[:, :, rows[:, None], place[columns + 1]] * scale[:, None]
    return np.swapaxes(np.concatenate([by_shift, by_stretch], axis=2), 2, 3)


def _through_sites(by_direction: Array, found: Regressed, y: np.ndarray) -> Array:
    """From p̄ and G through A to the sites, for all directions at a time."""
    p, G, N, X, pull = found
    b, C, D = G.shape
    d_log, d_slopes = by_direction[:, :, 0], by_direction[:, :, 1:]
    d_slopes = d_slopes - G[:, :, :, None] * d_log[:, :, None]
    size = d_log.shape[2]
    mixed = d_slopes + 0.5 * G[:, :, :, None] * d_log[:, :, None]
    weighted = np.swapaxes(p[:, :, None] * G, 1, 2)
    half = (weighted @ mixed.reshape(b, C, D * size)).reshape(b, D, D, size)
    d_explained = half + np.swapaxes(half, 1, 2)
    stretch = _stretches(D)
    turn = (X @ stretch.reshape(D, D * size)).reshape(b, D, D, size)
    P = _both_sides(N, d_explained) - turn - np.swapaxes(turn, 1, 2)
    along = (pull[:, None] @ d_explained.reshape(b, D, D * size)).reshape(b, D, size)
    q = N @ (along + d_slopes[np.arange(b), y])
    q -= (pull @ stretch.reshape(D, D * size)).reshape(b, D, size)
    q[:, :, :D] += X
    return packed(q, P)


def _both_sides(N: Array, matrices: Array) -> Array:
    """N M N for symmetric N and M, (b, D, D, directions)."""
    b, D, _, size = matrices.shape
    left = (N @ matrices.reshape(b, D, D * size)).reshape(b, D, D, size)
    turned = np.swapaxes(left, 1, 2).reshape(b, D, D * size)
    product: Array = (N @ turned).reshape(b, D, D, size)
    return product
