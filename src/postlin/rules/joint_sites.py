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
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from postlin._typing import Array, cached_property, override
from postlin.likelihoods.softmax import AtNodes, Nodes, SoftmaxMoments, at_points
from postlin.linalg.arrays import Matrix, on_host
from postlin.linalg.blocks import inverted, outer, symmetric
from postlin.linalg.functions import functions
from postlin.linalg.stacks import part_of, shaped, times, transposed
from postlin.rules.sites import Sites


class JointView(NamedTuple):
    """What a rule starts from: each point's posterior marginal, its root, and its present site.

    Where points stand for several observations, the marginal is that of one of them.
    """

    mean: Array  # m, (n, D)
    root: Array  # L, (n, D, D), lower triangular
    tau: Array  # T, (n, D, D)
    nu: Array  # ν, (n, D)

    def sites_from(self, scaled_tau: Array, pull: Array) -> Sites:
        """The sites T, (n, D, D), and ν, (n, D), from Lᵀ T L and Lᵀ (ν − T m) at this marginal."""
        inverse = inverted(self.root)
        up = transposed(inverse)
        tau = symmetric(up @ scaled_tau @ inverse)
        return Sites(tau, times(tau, self.mean) + times(up, pull))


@dataclass(frozen=True)
class JointProposal(ABC):
    """Sites that follow from softmax at the marginals N(m, L Lᵀ) of a view."""

    view: JointView
    scaled_tau: Array  # Lᵀ T L
    pull: Array  # Lᵀ (ν − T m)

    @cached_property
    def sites(self) -> Sites:
        """T, (n, D, D), and ν, (n, D)."""
        return self.view.sites_from(self.scaled_tau, self.pull)

    @property
    def overruled(self) -> np.ndarray:
        """No site, since joint rules have no policy that changes sites."""
        return np.zeros(len(self.pull), dtype=bool)

    @abstractmethod
    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        """(P, q) of the proposed sites for a change (b, E) of the marginals."""

    @abstractmethod
    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        """The adjoint of ``change``."""


@dataclass(frozen=True)
class JointWeighted(JointProposal):
    """The proposal for points of weight w: w times the proposal ``one`` for one observation."""

    one: JointProposal
    weight: Array

    @override
    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        P, q = self.one.change(b, E)
        return self.weight[:, None, None] * P, self.weight[:, None] * q

    @override
    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        return self.one.pull_back(self.weight[:, None, None] * P, self.weight[:, None] * q)


@dataclass(frozen=True)
class ByRegression(JointProposal):
    """PL: statistical linear regression of the label at the posterior marginal."""

    moments: SoftmaxMoments
    solved: Array  # N = (I − A)⁻¹
    nodes: Nodes
    y: np.ndarray

    @classmethod
    def at(cls, nodes: Nodes, y: np.ndarray, view: JointView) -> "ByRegression":
        """The proposal for labels y, indices of classes."""
        moments = SoftmaxMoments.at(view.mean, view.root, nodes)
        solved = symmetric(inverted(np.eye(view.mean.shape[1]) - moments.explained))
        pull = times(solved, moments.slopes[np.arange(len(y)), y])
        return cls(view, symmetric(solved @ moments.explained), pull, moments, solved, nodes, y)

    @cached_property
    def _local(self) -> Matrix:
        """(q, P) of the sites from (b, E) of the marginals: packed matrices (n, M, M).

        They are where softmax is computed at the nodes.
        """
        mean, root, *_ = self.view
        D, place = mean.shape[1], self.nodes.place
        products, source, factors = _directions(D)
        extended = np.concatenate([np.ones((len(self.nodes.z), 1)), self.nodes.z], axis=1)
        of_nodes = extended[:, products[0]] * extended[:, products[1]]
        chosen, weights = place.give(source), place.give(factors)

        def of(at: AtNodes, part: slice) -> Matrix:
            found = at.responses(of_nodes)
            b, C = found.shape[:2]
            by_direction = part_of(shaped(found, b, C, -1), chosen, axis=2)
            return self._through_sites(shaped(by_direction, b, C, D + 1, -1) * weights, part)

        parts = at_points(mean, root, self.nodes, of, width=D)
        return functions(parts[0]).concat(parts)

    def _through_sites(self, by_direction: Matrix, part: slice) -> Matrix:
        """From changes of p̄ and G through A to those of the sites, for all directions together.

        ``by_direction`` holds (d log p̄_c, d(p̄_c G_c)/p̄_c) for every packed direction, (b, C, D + 1,
        directions).
        """
        give = self.nodes.place.give
        moments = self.moments.mean, self.moments.slopes, self.solved
        p, G, N = (give(values[part]) for values in moments)
        X, pull = give(self.scaled_tau[part]), give(self.pull[part])
        b, C, D = G.shape
        d_log, d_slopes = by_direction[:, :, 0, :], by_direction[:, :, 1:, :]
        d_slopes = d_slopes - G[:, :, :, None] * d_log[:, :, None, :]
        size = d_log.shape[2]
        mixed = d_slopes + 0.5 * G[:, :, :, None] * d_log[:, :, None, :]
        half = transposed(p[:, :, None] * G) @ shaped(mixed, b, C, D * size)
        d_explained = shaped(half, b, D, D, size)
        flat = shaped(d_explained + _swapped(d_explained), b, D, D * size)
        stretch = give(_stretches(D).reshape(D, D * size))
        turn = shaped(X @ stretch, b, D, D, size)
        left = shaped(_swapped(shaped(N @ flat, b, D, D, size)), b, D, D * size)
        P = shaped(N @ left, b, D, D, size) - turn - _swapped(turn)
        own = give(np.arange(b) * C + self.y[part])
        along = shaped(pull[:, None, :] @ flat, b, D, size)
        q = N @ (along + part_of(shaped(d_slopes, b * C, D, size), own))
        q -= shaped(pull @ stretch, b, D, size)
        q[:, :, :D] += X
        rows, columns, counts, _ = _triangle(D)
        triangle = part_of(shaped(P, b, D * D, size), give(rows * D + columns), axis=1)
        return functions(q).concat([q, triangle * give(counts[:, None])], axis=1)

    @override
    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        q, P = self._moved(self._local, packed(b, E))
        return P, q

    @override
    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        return self._moved(transposed(self._local), packed(q, P))

    def _moved(self, local: Matrix, flat: Array) -> tuple[Array, Array]:
        """Products with the matrices of all points."""
        there = self.nodes.place.give(flat)
        return unpacked(np.asarray(on_host(times(local, there))), self.view.mean.shape[1])


@dataclass(frozen=True)
class JointAtMode(JointProposal):
    """Laplace: the curvature and slope of log softmax at the mean, in units of any root."""

    p: Array  # softmax at the mean, (n, C)
    scaled: Array  # H L
    middle: Array  # Σ_c p_c (H L)_c

    @classmethod
    def at(cls, H: Array, y: np.ndarray, view: JointView) -> "JointAtMode":
        """The proposal for labels y, indices of classes."""
        p, scaled = softmax(view.mean @ H.T, axis=1), H @ view.root
        middle = np.einsum("nc,ncd->nd", p, scaled)
        curvature = np.einsum("nc,ncd,nce->nde", p, scaled, scaled, optimize=True)
        curvature -= outer(middle, middle)
        return cls(view, curvature, scaled[np.arange(len(y)), y] - middle, p, scaled, middle)

    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        """Only the mean matters: P is the change of W, and q is 0 since dν = d(W m + g) = dW m."""
        d_f = np.einsum("ncd,nd->nc", self.scaled, b)
        d_p = self.p * (d_f - np.sum(self.p * d_f, axis=1, keepdims=True))
        across = outer(np.einsum("nc,ncd->nd", d_p, self.scaled), self.middle)
        P = np.einsum("nc,ncd,nce->nde", d_p, self.scaled, self.scaled, optimize=True)
        return P - across - transposed(across), np.zeros_like(b)

    @override
    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        by_p = np.einsum("ncd,nde,nce->nc", self.scaled, P, self.scaled, optimize=True)
        by_p -= 2.0 * np.einsum("ncd,nd->nc", self.scaled, times(P, self.middle))
        by_f = self.p * (by_p - np.sum(self.p * by_p, axis=1, keepdims=True))
        return np.einsum("nc,ncd->nd", by_f, self.scaled), np.zeros_like(P)


@cache
def _triangle(D: int) -> tuple[np.ndarray, np.ndarray, Array, Array]:
    """Rows and columns of the lower triangle; √2 for entries that count twice, else 1; and √½ or ½."""
    rows, columns = np.tril_indices(D)
    own = rows == columns
    return rows, columns, np.where(own, 1.0, np.sqrt(2.0)), np.where(own, 0.5, 1.0 / np.sqrt(2.0))


def packed(vector: Array, matrix: Array) -> Array:
    """Vectors (n, D) and symmetric matrices (n, D, D) in one array."""
    rows, columns, counts, _ = _triangle(vector.shape[1])
    return np.concatenate([vector, matrix[:, rows, columns] * counts], axis=1)


def unpacked(flat: Array, D: int) -> tuple[Array, Array]:
    """The vectors (n, D) and the matrices (n, D, D) from arrays that ``packed`` made."""
    rows, columns, counts, _ = _triangle(D)
    matrix = np.empty((len(flat), D, D))
    matrix[:, rows, columns] = matrix[:, columns, rows] = flat[:, D:] / counts
    return flat[:, :D], matrix


@cache
def _stretches(D: int) -> Array:
    """The change of a Cholesky factor, in its units, for every packed direction: (D, D, directions)."""
    rows, columns, _, halves = _triangle(D)
    stretch = np.zeros((D, D, D + len(rows)))
    stretch[rows, columns, D + np.arange(len(rows))] = halves
    return stretch


@cache
def _directions(D: int) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, Array]:
    """Products of coordinates of (1, z), and how responses to them make changes by packed directions.

    The first are the numbers of both coordinates of each product. Then come the entries of a point's
    responses, (D, products), that make the D + 1 changes by each direction, and their factors.
    """
    one, other = np.tril_indices(D + 1)
    place = np.empty((D + 1, D + 1), dtype=int)  # the number of each product
    place[one, other] = place[other, one] = np.arange(len(one))
    rows, columns, _, halves = _triangle(D)
    by_shift = np.arange(D)[:, None] * len(one) + place[:, 0]
    by_stretch = rows[:, None] * len(one) + place[columns + 1]
    source = np.concatenate([by_shift, by_stretch]).T
    return (one, other), source.ravel(), np.concatenate([np.ones(D), halves])


def _swapped(stack: Matrix) -> Matrix:
    """The transposes of matrices (b, D, D) of vectors."""
    return functions(stack).permute_dims(stack, (0, 2, 1, 3))
