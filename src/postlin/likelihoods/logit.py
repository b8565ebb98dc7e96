"""Logit: p(y=1|f) = 1/(1 + exp(−f)), paper eq. (2)."""

from typing import ClassVar

import numpy as np
from scipy.special import expit, log_expit

from postlin._typing import Array
from postlin._validation import check_order
from postlin.likelihoods.base import BinaryLikelihood, Jet, complement, mirror, select
from postlin.likelihoods.logistic import by_density, by_moments, tilted_nodes
from postlin.likelihoods.quadrature import gauss_hermite

#: Below this variance Gauss–Hermite moments lose digits that the density form keeps.
_SMALL_VARIANCE = 1e-4


class Logit(BinaryLikelihood):
    """p(y=1|f) = 1/(1 + exp(−f)), integrated numerically.

    By default by a quadrature that is accurate at every mean and variance. With ``order`` by
    Gauss–Hermite quadrature of that order, as in the paper, which takes 10.
    """

    name: ClassVar[str] = "logit"
    symmetric: bool = True

    def __init__(self, order: int | None = None) -> None:
        self.order = None if order is None else check_order(order, "order")

    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """The jets of both labels; at v = 0 those of the density."""
        m, v = np.broadcast_arrays(np.asarray(m, float), np.asarray(v, float))
        if not np.any(v > 0):
            return _density_jet(m), mirror(_density_jet(-m))
        if self.order is None:
            # One integral for the less likely label; 1 − Z gives the other in full precision.
            minor = _accurate_jet(-np.abs(m).ravel(), v.ravel())
            minor = Jet(*(a.reshape(m.shape) for a in minor))
            major = mirror(complement(minor))
            return select(m > 0, major, minor), mirror(select(m > 0, minor, major))
        nodes, weights = gauss_hermite(self.order)
        return _hermite_jet(m, v, nodes, weights), mirror(_hermite_jet(-m, v, nodes, weights))


def _density_jet(f: Array) -> Jet:
    """The jet of log p(y=1|f) itself."""
    return Jet(log_expit(f), *_log_density_slopes(expit(f), expit(-f)))


def _log_density_slopes(p: Array, q: Array) -> tuple[Array, Array, Array, Array]:
    """Four derivatives of log p(y=1|f) from p and q = 1 − p, both given in full precision."""
    pq = p * q
    return q, -pq, pq * (p - q), pq * (6 * pq - 1)


def _accurate_jet(m: Array, v: Array) -> Jet:
    """The jet of log Z₊ for m ≤ 0."""
    jet = Jet(*(np.empty(m.shape) for _ in Jet._fields))
    # Moments lose digits where the tilted density is nearly Gaussian, the density form elsewhere.
    nearly_gaussian = (v < 4.0) | (m + v < 0.0)
    for group in (nearly_gaussian, ~nearly_gaussian):
        rows = np.flatnonzero(group)
        if not len(rows):
            continue
        for block, nodes in tilted_nodes(m[rows], v[rows]):
            here = rows[block]
            if group is nearly_gaussian:
                derivatives = by_density(nodes.weights, _log_density_slopes(nodes.p, nodes.q), -nodes.p)
            else:
                derivatives = by_moments(nodes.weights, nodes.f - m[here, None], v[here])
            for target, value in zip(jet, (nodes.log_z, *derivatives), strict=True):
                target[here] = value
    return jet


def _hermite_jet(m: Array, v: Array, nodes: Array, weights: Array) -> Jet:
    """The jet of log Z₊ by Gauss–Hermite quadrature about N(m, v), as the paper has it."""
    shift = np.sqrt(v)[..., None] * nodes
    f = m[..., None] + shift
    log_terms = log_expit(f) + np.log(weights)
    top = log_terms.max(axis=-1)
    tilted = np.exp(log_terms - top[..., None])
    total = tilted.sum(axis=-1)
    tilted /= total[..., None]
    small = v < _SMALL_VARIANCE
    density = by_density(tilted, _log_density_slopes(expit(f), expit(-f)), expit(-f))
    moments = by_moments(tilted, shift, np.where(small, 1.0, v))
    derivatives = (np.where(small, a, b) for a, b in zip(density, moments, strict=True))
    return Jet(np.log(total) + top, *derivatives)
