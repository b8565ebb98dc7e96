"""The site formula in matrices, and its derivatives.

A site is the factor exp(νᵀu − ½ uᵀT u) in a point's contrasts u. In units of the marginal N(m, L Lᵀ)
the formula of ``postlin.sites`` reads

    Lᵀ T L = A (I − A)⁻¹,        Lᵀ (ν − T m) = (I − A)⁻¹ G_y,

with A for ρ v and G_y for g √v. Changes are told in the same units: P = Lᵀ dT L and q = Lᵀ (dν − dT m)
of a site, b = L⁻¹ dm and E = L⁻¹ dV L⁻ᵀ of the marginal.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.joint.changes import Regressed, packed, regression_changes, unpacked
from postlin.joint.softmax import SoftmaxMoments
from postlin.sites import Sites


def symmetric(matrices: Array) -> Array:
    """(M + Mᵀ)/2."""
    return 0.5 * (matrices + np.swapaxes(matrices, -1, -2))


def inverted(matrices: Array) -> Array:
    """Point by point."""
    try:
        return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise NotPositiveDefiniteError("a site or a marginal is singular to rounding.") from None


def root_of(matrices: Array) -> Array:
    """Lower triangular roots, point by point."""
    return np.asarray(np.linalg.cholesky(matrices), dtype=np.float64)


def times(matrices: Array, vectors: Array) -> Array:
    """Point by point."""
    product: Array = (matrices @ vectors[:, :, None])[:, :, 0]
    return product


def outer(one: Array, other: Array) -> Array:
    """Point by point."""
    product: Array = one[:, :, None] * other[:, None]
    return product


def half_lower(matrices: Array) -> Array:
    """The lower triangles with half the diagonals: the change of a Cholesky factor, in its units."""
    lower = np.tril(matrices)
    diagonal = np.einsum("nii->ni", lower)
    diagonal *= 0.5
    return lower


@dataclass(frozen=True)
class Proposal(ABC):
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
class Weighted(Proposal):
    """What is proposed for one observation of each point, for w of them."""

    one: Proposal
    weight: Array

    @classmethod
    def of(cls, one: Proposal, weight: Array) -> "Weighted":
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


@dataclass(frozen=True)
class ByRegression(Proposal):
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
class AtMode(Proposal):
    """Laplace: the curvature and slope of log softmax at the mean, in units of any root."""

    p: Array  # softmax at the mean, (n, C)
    scaled: Array  # H L

    @classmethod
    def at(cls, p: Array, root: Array, mean: Array, H: Array, y: np.ndarray) -> "AtMode":
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
