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
from postlin.likelihoods.softmax import AtNodes, Nodes, SoftmaxMoments, over_points
from postlin.linalg.arrays import on_host
from postlin.linalg.blocks import inverted, outer, symmetric, times, transposed
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
    def _local(self) -> Array:
        """(q, P) of the sites from (b, E) of the marginals: packed matrices (n, M, M)."""
        mean, root, *_ = self.view
        D = mean.shape[1]
        rows, columns = np.tril_indices(D + 1)
        extended = np.concatenate([np.ones((len(self.nodes.z), 1)), self.nodes.z], axis=1)
        products = extended[:, rows] * extended[:, columns]
        place = np.empty((D + 1, D + 1), dtype=int)  # the index of each product
        place[rows, columns] = place[columns, rows] = np.arange(len(rows))

        def of(at: AtNodes, part: slice) -> tuple[Array]:
            responses = np.asarray(on_host(at.responses(products)))
            return (self._through_sites(_by_direction(responses, place), part),)

        return over_points(mean, root, self.nodes, of, width=D)[0]

    def _through_sites(self, by_direction: Array, part: slice) -> Array:
        """From changes of p̄ and G through A to those of the sites, for all directions together."""
        p, G, N = self.moments.mean[part], self.moments.slopes[part], self.solved[part]
        X, pull, y = self.scaled_tau[part], self.pull[part], self.y[part]
        b, C, D = G.shape
        d_log, d_slopes = by_direction[:, :, 0], by_direction[:, :, 1:]
        d_slopes = d_slopes - G[:, :, :, None] * d_log[:, :, None]
        size = d_log.shape[2]
        mixed = d_slopes + 0.5 * G[:, :, :, None] * d_log[:, :, None]
        half = transposed(p[:, :, None] * G) @ mixed.reshape(b, C, D * size)
        half = half.reshape(b, D, D, size)
        d_explained = half + np.swapaxes(half, 1, 2)
        stretch = _stretches(D).reshape(D, D * size)
        turn = (X @ stretch).reshape(b, D, D, size)
        flat = d_explained.reshape(b, D, D * size)
        left = np.swapaxes((N @ flat).reshape(b, D, D, size), 1, 2).reshape(b, D, D * size)
        P = (N @ left).reshape(b, D, D, size) - turn - np.swapaxes(turn, 1, 2)
        along = (pull[:, None] @ flat).reshape(b, D, size)
        q = N @ (along + d_slopes[np.arange(b), y])
        q -= (pull @ stretch).reshape(b, D, size)
        q[:, :, :D] += X
        return packed(q, P)

    @override
    def change(self, b: Array, E: Array) -> tuple[Array, Array]:
        q, P = unpacked(times(self._local, packed(b, E)), b.shape[1])
        return P, q

    @override
    def pull_back(self, P: Array, q: Array) -> tuple[Array, Array]:
        return unpacked(times(transposed(self._local), packed(q, P)), q.shape[1])


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
    """Vectors (n, D, ...) and symmetric matrices (n, D, D, ...) in one array."""
    rows, columns, counts, _ = _triangle(vector.shape[1])
    triangle = matrix[:, rows, columns] * counts.reshape(-1, *[1] * (vector.ndim - 2))
    return np.concatenate([vector, triangle], axis=1)


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


def _by_direction(responses: Array, place: np.ndarray) -> Array:
    """(d log p̄_c, d(p̄_c G_c)/p̄_c) for every packed direction: (b, C, D + 1, directions)."""
    D = responses.shape[2]
    rows, columns, _, halves = _triangle(D)
    by_shift = responses[:, :, :, place[:, 0]]
    by_stretch = responses[:, :, rows[:, None], place[columns + 1]] * halves[:, None]
    return np.swapaxes(np.concatenate([by_shift, by_stretch], axis=2), 2, 3)
