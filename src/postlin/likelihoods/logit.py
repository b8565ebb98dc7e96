"""Logit: p(y=1|f) = 1/(1 + exp(−f)), paper eq. (2).

The default quadrature is accurate at every mean and variance. For m ≤ 0 the integrand p(f) N(f; m, v)
is on either half-line a Gaussian times the smooth factor 1/(1+e^−|f|): N(m, v) on f > 0 and
e^(m+v/2) N(m+v, v) on f < 0. The maxima of both are known, so no search is needed. Two rules share the
work:

- for √v ≤ 3 the trapezoidal rule, which converges exponentially for a function that is analytic in the
  strip |Im f| < π; its step need only resolve that strip and the Gaussian;
- for larger v the Gauss–Legendre rule on panels that end where either factor changes its character.
"""

from collections.abc import Iterator
from math import pi, sqrt
from typing import ClassVar

import numpy as np

from postlin._typing import Array, override
from postlin._validation import check_order
from postlin.likelihoods import quadrature
from postlin.likelihoods.base import BinaryLikelihood, Jet, complement, mirror, select
from postlin.linalg.functions import functions

#: Below this variance moments at Gauss–Hermite nodes lose digits that ``by_density`` keeps.
_SMALL_VARIANCE = 1e-4
#: (largest √v, number of steps): the step is below 0.41 and at most 0.54 √v.
_TRAPEZOIDS = ((0.75, 32), (1.5, 64), (3.0, 128))

#: Panels end at these x, where 1/(1+e^−x) changes its character, …
_STRUCTURE = np.array([0.0, 1.5, 6.0, 25.0])
#: … and where the Gaussian has fallen as far as at these multiples of its standard deviation.
_LEVELS = np.array([4.0, 9.0])
_NODES_PER_PANEL = 16

#: Rows integrated together: their node arrays stay in the processor's cache, on a device in 64 MiB.
_BLOCK, _BLOCK_ELSEWHERE = 64, 2**15


class Logit(BinaryLikelihood):
    """p(y=1|f) = 1/(1 + exp(−f)), integrated numerically.

    The default quadrature is accurate at every mean and variance. ``order`` asks for Gauss–Hermite
    quadrature of that order instead; the paper uses 10.
    """

    name: ClassVar[str] = "logit"
    log_concave: bool = True
    symmetric: bool = True
    anywhere: bool = True

    def __init__(self, order: int | None = None) -> None:
        self.order = None if order is None else check_order(order, "order")

    @override
    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        fn = functions(m)
        m, v = fn.broadcast_arrays(fn.asarray(m, float), fn.asarray(v, float))
        if not fn.any(v > 0):
            return _density_jet(m), mirror(_density_jet(-m))
        if self.order is None:
            # Only the less likely label is integrated; 1 − Z gives the other in full precision.
            parts = _accurate_jet(-fn.abs(m).reshape(-1), v.reshape(-1))
            minor = Jet(*parts.reshape(5, *m.shape))
            major = mirror(complement(minor))
            return select(m > 0, major, minor), mirror(select(m > 0, minor, major))
        return _hermite_jet(m, v, self.order), mirror(_hermite_jet(-m, v, self.order))


def _density_jet(f: Array) -> Jet:
    """The jet of log p(y=1|f) itself."""
    fn = functions(f)
    return Jet(fn.log_expit(f), *_log_density_slopes(fn.expit(f), fn.expit(-f)))


def _log_density_slopes(p: Array, q: Array) -> quadrature.Derivatives:
    """Four derivatives of log p(y=1|f) from p and q = 1 − p, both given in full precision."""
    pq = p * q
    return q, -pq, pq * (p - q), pq * (6 * pq - 1)


def _accurate_jet(m: Array, v: Array) -> Array:
    """The five parts of the jet of log Z₊ for m ≤ 0."""
    fn = functions(m)
    jet: Array = fn.zeros((5, *m.shape), m)
    # Moments lose digits where the tilted density is nearly Gaussian, ``by_density`` elsewhere.
    nearly_gaussian = (v < 4.0) | (m + v < 0.0)
    for group in (nearly_gaussian, ~nearly_gaussian):
        rows = fn.flatnonzero(group)
        for block, (f, large, small, weights, log_z) in _tilted_nodes(m[rows], v[rows]):
            here = rows[block]
            if group is nearly_gaussian:
                p, q = fn.where(f > 0, large, small), fn.where(f > 0, small, large)
                derivatives = quadrature.by_density(weights, _log_density_slopes(p, q), -p)
            else:
                derivatives = quadrature.by_moments(weights, f - m[here, None], v[here])
            jet[:, here] = fn.stack([log_z, *derivatives])
    return jet


def _hermite_jet(m: Array, v: Array, order: int) -> Jet:
    """The jet of log Z₊ by Gauss–Hermite quadrature about N(m, v), as in the paper."""
    fn = functions(v)
    nodes, weights = (fn.give(part, v) for part in quadrature.gauss_hermite(order))
    shift = fn.sqrt(v)[..., None] * nodes
    f = m[..., None] + shift
    log_terms = fn.log_expit(f) + fn.log(weights)
    top = fn.max(log_terms, axis=-1)
    tilted = fn.exp(log_terms - top[..., None])
    total = fn.sum(tilted, axis=-1)
    tilted /= total[..., None]
    small = v < _SMALL_VARIANCE
    p, q = fn.expit(f), fn.expit(-f)
    density = quadrature.by_density(tilted, _log_density_slopes(p, q), q)
    moments = quadrature.by_moments(tilted, shift, fn.where(small, 1.0, v))
    return Jet(fn.log(total) + top, *fn.where_each(small, density, moments))


#: Nodes f, max(p, 1 − p) and min(p, 1 − p) there, normalised weights of the tilted density, and log Z.
_Nodes = tuple[Array, Array, Array, Array, Array]


def _tilted_nodes(m: Array, v: Array) -> Iterator[tuple[np.ndarray, _Nodes]]:
    """Yield (row indices, nodes) of blocks that together cover all rows, for flat m ≤ 0 < v."""
    fn, lower = functions(v), 0.0
    sigma, width = fn.sqrt(v), _BLOCK if isinstance(v, np.ndarray) else _BLOCK_ELSEWHERE
    for upper, steps in (*_TRAPEZOIDS, (np.inf, 0)):
        rows = fn.flatnonzero((sigma > lower) & (sigma <= upper))
        lower = upper
        for start in range(0, len(rows), width):
            block = rows[start : start + width]
            at = m[block, None], sigma[block, None]
            f, gaussian, log_top = _trapezoid(*at, steps) if steps else _panels(*at)
            e = fn.exp(-fn.abs(f))
            large = 1.0 / (1.0 + e)
            gaussian *= large
            total = fn.sum(gaussian, axis=1)[:, None]
            gaussian /= total
            log_z = fn.log(total / sqrt(2 * pi)) + log_top
            yield block, (f, large, e * large, gaussian, log_z[:, 0])


def _trapezoid(m: Array, sigma: Array, steps: int) -> tuple[Array, Array, Array]:
    """Equidistant nodes f, weights with the two Gaussians, and the logarithm of the weights' scale."""
    shifted, fn = m + sigma**2, functions(m)
    t = fn.give(np.linspace(-quadrature.REACH, quadrature.REACH, steps + 1), m)
    beyond = fn.maximum(shifted, 0.0) / sigma  # how far beyond 0 the left Gaussian has its maximum
    f = fn.minimum(shifted, 0.0) + sigma * t
    weights = fn.exp(t * (beyond - 0.5 * t) - fn.maximum(f, 0.0)) * (2 * quadrature.REACH / steps)
    return f, weights, fn.where(shifted < 0.0, m + 0.5 * sigma**2, -0.5 * (m / sigma) ** 2)


def _panels(m: Array, sigma: Array) -> tuple[Array, Array, Array]:
    """The same as ``_trapezoid`` returns, for Gauss–Legendre nodes on panels of both half-lines."""
    fn = functions(m)
    right_x, right_w = _half_line(m, sigma)
    left_x, left_w = _half_line(-(m + sigma**2), sigma)
    # The logarithms of both maxima, which lie at f = 0 where a half-line holds only a tail.
    right_top = -0.5 * (m / sigma) ** 2
    left_top = fn.where(m + sigma**2 < 0, m + 0.5 * sigma**2, right_top)
    top = fn.maximum(right_top, left_top)
    weights = [right_w * fn.exp(right_top - top), left_w * fn.exp(left_top - top)]
    return fn.concat([right_x, -left_x], axis=1), fn.concat(weights, axis=1), top


def _half_line(centre: Array, sigma: Array) -> tuple[Array, Array]:
    """Nodes x and weights in units of √v for a Gaussian N(centre, v) on x > 0.

    The weights include the Gaussian, scaled to a maximum of one on the half-line.
    """
    fn = functions(centre)
    levels, bends = fn.give(_LEVELS, centre), fn.give(_STRUCTURE, centre)
    top = fn.maximum(centre, 0.0)
    outside = fn.minimum(centre, 0.0) / sigma
    # Distances from the maximum, in standard deviations, at which the Gaussian has fallen by a level.
    falls = levels**2 / (fn.sqrt(outside**2 + levels**2) - outside)
    start = fn.maximum(-top / sigma, -float(_LEVELS[-1]))
    structure = fn.minimum(fn.maximum((bends - top) / sigma, start), falls[:, -1:])
    rises = fn.maximum(-levels, start)
    edges = fn.sort(fn.concat([rises, fn.zeros_like(top), falls, structure], axis=1))
    nodes, panel_weights = (
        fn.give(part, centre) for part in quadrature.gauss_legendre(_NODES_PER_PANEL)
    )
    width = fn.diff(edges)[:, :, None]
    offset = (edges[:, :-1, None] + width * nodes).reshape(len(centre), -1)
    weights = (width * panel_weights).reshape(offset.shape)
    return top + sigma * offset, weights * fn.exp(offset * (outside - 0.5 * offset))
