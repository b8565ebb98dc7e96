"""Softmax at Gaussians: label probabilities, their slopes, and the derivatives of both.

A point's contrasts are u = m + L z with V = L Lᵀ and z standard normal. In these units all that a rule
asks is

    p̄_c = E[p_c],   G_c = E[z | c],   A = Σ_c p̄_c G_c G_cᵀ,

where p_c is softmax's probability of class c and G_c = Lᵀ ∇ log p̄_c. A is the covariance of the
conditional means of z: so I − A, the mean of its conditional covariances, is positive semi-definite.
The scalars of the binary likelihoods are g₊ and g₋ for G, and −g₊g₋ v for A.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array


@dataclass(frozen=True)
class SoftmaxMoments:
    """Softmax averaged over Gaussians N(m, L Lᵀ), point by point."""

    log_p: Array  # (n, Q, C): log softmax at the nodes
    scaled: Array  # (n, C, D): H L
    z: Array  # (Q, D)
    weights: Array  # (Q,)

    @classmethod
    def at(cls, mean: Array, root: Array, H: Array, z: Array, weights: Array) -> "SoftmaxMoments":
        """At means (n, D) and lower triangular roots (n, D, D)."""
        scaled = H @ root
        f = (mean @ H.T)[:, None, :] + np.einsum("qd,ncd->nqc", z, scaled, optimize=True)
        return cls(f - logsumexp(f, axis=2, keepdims=True), scaled, z, weights)

    @cached_property
    def p(self) -> Array:
        """Softmax at the nodes, (n, Q, C)."""
        return np.exp(self.log_p)

    @cached_property
    def _tilted(self) -> tuple[Array, Array]:
        """Weights of the nodes given each class, (n, Q, C), and log p̄, (n, C)."""
        top = self.log_p.max(axis=1, keepdims=True)
        tilted = self.weights[:, None] * np.exp(self.log_p - top)
        total = tilted.sum(axis=1, keepdims=True)
        return tilted / total, (top + np.log(total))[:, 0]

    @property
    def given_class(self) -> Array:
        """Weights of the nodes given each class, (n, Q, C)."""
        return self._tilted[0]

    @property
    def log_mean(self) -> Array:
        """Log p̄, (n, C)."""
        return self._tilted[1]

    @cached_property
    def mean(self) -> Array:
        """p̄, (n, C)."""
        return np.exp(self.log_mean)

    @cached_property
    def slopes(self) -> Array:
        """G, (n, C, D)."""
        G: Array = np.einsum("nqc,qd->ncd", self.given_class, self.z, optimize=True)
        return G

    @cached_property
    def explained(self) -> Array:
        """A, (n, D, D)."""
        G = self.slopes
        A: Array = np.einsum("nc,ncd,nce->nde", self.mean, G, G, optimize=True)
        return A

    def change(self, shift: Array, stretch: Array) -> tuple[Array, Array]:
        """(d log p̄, dG) for dm = L shift and dL = L stretch: arrays (n, D) and (n, D, D)."""
        d_z = shift[:, None] + np.einsum("nde,qe->nqd", stretch, self.z, optimize=True)
        s = np.einsum("nqd,ncd->nqc", d_z, self.scaled, optimize=True)
        s -= np.sum(self.p * s, axis=2, keepdims=True)
        weighted = self.given_class * s
        d_log = weighted.sum(axis=1)
        d_slopes = np.einsum("nqc,qd->ncd", weighted, self.z, optimize=True)
        return d_log, d_slopes - self.slopes * d_log[:, :, None]

    def pull_back(self, log_bar: Array, slope_bar: Array) -> tuple[Array, Array]:
        """The adjoint of ``change``: (shift, stretch) from adjoints on log p̄ (n, C) and G (n, C, D)."""
        constant = log_bar - np.sum(self.slopes * slope_bar, axis=2)
        by_node = np.einsum("qd,ncd->nqc", self.z, slope_bar, optimize=True) + constant[:, None]
        by_node *= self.given_class
        by_node -= self.p * by_node.sum(axis=2, keepdims=True)
        by_z = np.einsum("nqc,ncd->nqd", by_node, self.scaled, optimize=True)
        return by_z.sum(axis=1), np.einsum("nqd,qe->nde", by_z, self.z, optimize=True)
