"""The site formula in matrices, and its derivatives.

A site is the factor exp(νᵀu − ½ uᵀT u) in a point's contrasts u. In units of the marginal N(m, L Lᵀ)
the formula of ``rules.sites`` reads

    Lᵀ T L = A (I − A)⁻¹,        Lᵀ (ν − T m) = (I − A)⁻¹ G_y,

with A for ρ v and G_y for g √v. Changes are given in the same units: P = Lᵀ dT L and q = Lᵀ (dν − dT
m) of a site, b = L⁻¹ dm and E = L⁻¹ dV L⁻ᵀ of the marginal. A change (b, E), and likewise (q, P), is
packed into D + D (D + 1)/2 numbers: the vector, then the lower triangle of the symmetric matrix with
√2 where an entry counts twice. In these coordinates the adjoint of a matrix is its transpose.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.softmax import AtNodes, SoftmaxMoments
from postlin.linalg.blocks import inverted, outer, symmetric, times
from postlin.linalg.threads import in_batches
from postlin.rules.sites import Sites


@dataclass(frozen=True)
class JointProposal(ABC):
    """Sites that follow from softmax at the marginals N(m, L Lᵀ)."""

    root: Array  # L, (n, D, D)
    mean: Array  # m, (n, D)
    scaled_tau: Array  # Lᵀ T L
    pull: Array  # Lᵀ (ν − T m)

    @cached_property
    def sites(self) -> Sites:
        """T, (n, D, D), and ν, (n, D)."""
        inverse = inverted(self.root)
        up = np.swapaxes(inverse, 1, 2)
        tau = symmetric(up @ self.scaled_tau @ inverse)
        return Sites(tau, times(tau, self.mean) + times(up, self.pull))

    @property
    def overruled(self) -> np.ndarray:
        """No site is ever changed by a policy."""
        return np.zeros(len(self.mean), dtype=bool)

    @abstractmethod
    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        """(P, q) of the proposed sites for a change (b, E) of the marginals."""

    @abstractmethod
    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        """The adjoint of ``change``."""


@dataclass(frozen=True)
class JointWeighted(JointProposal):
    """What is proposed for one observation of each point, for w of them."""

    one: JointProposal
    weight: Array

    @classmethod
    def of(cls, one: JointProposal, weight: Array) -> "JointWeighted":
        """The proposal for the points."""
        scaled = weight[:, None, None] * one.scaled_tau
        return cls(one.root, one.mean, scaled, weight[:, None] * one.pull, one, weight)

    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        """As often as observed."""
        P, q = self.one.change(b, E)
        return self.weight[:, None, None] * P, self.weight[:, None] * q

    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        """As often as observed."""
        return self.one.pull_back(self.weight[:, None, None] * P, self.weight[:, None] * q)


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


@dataclass(frozen=True)
class ByRegression(JointProposal):
    """PL: statistical linear regression of the label at the posterior marginal."""

    found: Regressed
    y: np.ndarray
    H: Array
    nodes: tuple[Array, Array]

    @classmethod
    def at(
        cls, y: np.ndarray, mean: Array, root: Array, H: Array, z: Array, weights: Array
    ) -> "ByRegression":
        """The proposal for labels y, indices of classes."""
        moments = SoftmaxMoments.at(mean, root, H, z, weights)
        solved = symmetric(inverted(np.eye(mean.shape[1]) - moments.explained))
        scaled = symmetric(solved @ moments.explained)
        pull = times(solved, moments.slopes[np.arange(len(y)), y])
        found = Regressed(moments.mean, moments.slopes, solved, scaled, pull)
        return cls(root, mean, scaled, pull, found, y, H, (z, weights))

    @cached_property
    def _local(self) -> Array:
        return regression_changes(self.nodes, self.H, self.mean, self.root, self.y, self.found)

    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        """Through p̄, G and A."""
        q, P = unpacked(times(self._local, packed(b, E)), b.shape[1])
        return P, q

    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        """``change`` in reverse."""
        return unpacked(times(np.swapaxes(self._local, 1, 2), packed(q, P)), q.shape[1])


@dataclass(frozen=True)
class JointAtMode(JointProposal):
    """Laplace: the curvature and slope of log softmax at the mean, in units of any root."""

    p: Array  # softmax at the mean, (n, C)
    scaled: Array  # H L

    @classmethod
    def at(cls, p: Array, root: Array, mean: Array, H: Array, y: np.ndarray) -> "JointAtMode":
        """The proposal for labels y, indices of classes."""
        scaled = H @ root
        middle = np.einsum("nc,ncd->nd", p, scaled)
        curvature = np.einsum("nc,ncd,nce->nde", p, scaled, scaled, optimize=True) - outer(
            middle, middle
        )
        return cls(root, mean, curvature, scaled[np.arange(len(y)), y] - middle, p, scaled)

    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        """Only the mean matters: dW, and dν − dW m = 0 since d(W m + g) = dW m."""
        d_f = np.einsum("ncd,nd->nc", self.scaled, b)
        d_p = self.p * (d_f - np.sum(self.p * d_f, axis=1, keepdims=True))
        middle = np.einsum("nc,ncd->nd", self.p, self.scaled)
        d_middle = np.einsum("nc,ncd->nd", d_p, self.scaled)
        P = np.einsum("nc,ncd,nce->nde", d_p, self.scaled, self.scaled, optimize=True)
        return P - outer(d_middle, middle) - outer(middle, d_middle), np.zeros_like(b)

    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        """``change`` in reverse."""
        middle = np.einsum("nc,ncd->nd", self.p, self.scaled)
        by_p = np.einsum("ncd,nde,nce->nc", self.scaled, P, self.scaled, optimize=True)
        by_p -= 2.0 * np.einsum("ncd,nd->nc", self.scaled, times(P, middle))
        by_f = self.p * (by_p - np.sum(self.p * by_p, axis=1, keepdims=True))
        return np.einsum("nc,ncd->nd", by_f, self.scaled), np.zeros_like(P)


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
