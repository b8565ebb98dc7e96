"""Quadrature for the logistic function against a Gaussian, accurate at every mean and variance.

For m ≤ 0 the integrand p(f) N(f; m, v), p = 1/(1+e^−f), is on either half-line a Gaussian times
the smooth factor 1/(1+e^−|f|): N(m, v) on f > 0 and e^(m+v/2) N(m+v, v) on f < 0. The tops of
both are known, so no search is needed. Two rules share the work:

- narrow, √v ≤ 3: the trapezoidal rule, which converges exponentially for a function analytic in
  the strip |Im f| < π; its step need only resolve that strip and the Gaussian;
- wide: Gauss–Legendre on panels that end where either factor changes its character.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.quadrature import REACH


def by_density(
    weights: Array, slopes: tuple[Array, Array, Array, Array], shifted: Array
) -> tuple[Array, Array, Array, Array]:
    """(g, h, c, d) from normalised weights and the first four derivatives of log p at the nodes.

    ``shifted`` is the first derivative but for a constant, in the form that keeps small
    differences. Arrays have the nodes on the last axis.
    """
    s1, s2, s3, s4 = slopes
    g = _mean(weights, s1)
    r1 = shifted - _mean(weights, shifted)[..., None]
    mean_s2 = _mean(weights, s2)
    r2 = s2 - mean_s2[..., None]
    square = r1**2
    variance = _mean(weights, square)
    h = mean_s2 + variance
    c = _mean(weights, s3 + r1 * (3 * r2 + square))
    d = _mean(weights, s4 + 4 * s3 * r1 + 3 * r2**2 + square * (6 * r2 + square)) - 3 * variance**2
    return g, h, c, d


def by_moments(weights: Array, shift: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    """(g, h, c, d) from normalised weights and ``shift`` = f − m at the nodes."""
    first = _mean(weights, shift)
    residual = shift - first[..., None]
    square = residual**2
    second = _mean(weights, square)
    g = first / v
    h = (second / v - 1.0) / v
    c = _mean(weights, square * residual) / v**3
    d = (_mean(weights, square**2) - 3.0 * second**2) / v**4
    return g, h, c, d


def _mean(weights: Array, values: Array) -> Array:
    mean: Array = np.einsum("...k,...k->...", weights, values)
    return mean


#: (largest √v, number of steps): the step stays below 0.41, and is 0.54 √v or less.
_TRAPEZOIDS = ((0.75, 32), (1.5, 64), (3.0, 128))

#: Panels end where 1/(1+e^−x) changes its character, …
_STRUCTURE = np.array([0.0, 1.5, 6.0, 25.0])
#: … and at these multiples of the standard deviation of the Gaussian factor.
_LEVELS = np.array([4.0, 9.0])
_NODES_PER_PANEL = 16

#: Rows integrated at a time: their node arrays then stay in the processor's cache.
_BLOCK = 64


class Nodes(NamedTuple):
    """Nodes ``f``, the logistic ``p`` and ``q`` = 1 − p there, normalised tilted weights, log Z."""

    f: Array
    p: Array
    q: Array
    weights: Array
    log_z: Array


def tilted_nodes(m: Array, v: Array) -> Iterator[tuple[np.ndarray, Nodes]]:
    """(row indices, nodes) in blocks that together cover all rows; m ≤ 0 < v, both flat."""
    sigma = np.sqrt(v)
    lower = 0.0
    for upper, steps in (*_TRAPEZOIDS, (np.inf, 0)):
        rows = np.flatnonzero((sigma > lower) & (sigma <= upper))
        lower = upper
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            rule = (
                _trapezoid(m[block], sigma[block], steps) if steps else _panels(m[block], sigma[block])
            )
            yield block, rule


def _trapezoid(m: Array, sigma: Array, steps: int) -> Nodes:
    m, sigma = m[:, None], sigma[:, None]
    v = sigma**2
    t = np.linspace(-REACH, REACH, steps + 1)
    top = np.minimum(m + v, 0.0)
    beyond = np.maximum(m + v, 0.0) / sigma  # how far past 0 the left Gaussian would peak
    f = top + sigma * t
    e = np.exp(-np.abs(f))
    large = 1.0 / (1.0 + e)
    small = e * large
    weights = np.exp(t * (beyond - 0.5 * t) - np.maximum(f, 0.0)) * large
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    log_top = np.where(m + v < 0.0, m + 0.5 * v, -0.5 * (m / sigma) ** 2)
    step = 2 * REACH / steps
    log_z = (np.log(total * (step / np.sqrt(2 * np.pi))) + log_top)[:, 0]
    right = f > 0
    return Nodes(f, np.where(right, large, small), np.where(right, small, large), weights, log_z)


def _panels(m: Array, sigma: Array) -> Nodes:
    right_x, right_w, right_e = _half_line(m, sigma)
    left_x, left_w, left_e = _half_line(-(m + sigma**2), sigma)
    # Log-heights of the two tops: f = 0 where a half-line holds only a tail.
    right_top = -0.5 * (m / sigma) ** 2
    left_top = np.where(m + sigma**2 < 0, m + 0.5 * sigma**2, right_top)
    top = np.maximum(right_top, left_top)
    weights = np.concatenate(
        [right_w * np.exp(right_top - top)[:, None], left_w * np.exp(left_top - top)[:, None]], axis=1
    )
    total = weights.sum(axis=1)
    weights /= total[:, None]
    log_z = np.log(total / np.sqrt(2 * np.pi)) + top
    f = np.concatenate([right_x, -left_x], axis=1)
    right_large, left_large = 1.0 / (1.0 + right_e), 1.0 / (1.0 + left_e)
    p = np.concatenate([right_large, left_e * left_large], axis=1)
    q = np.concatenate([right_e * right_large, left_large], axis=1)
    return Nodes(f, p, q, weights, log_z)


def _half_line(centre: Array, sigma: Array) -> tuple[Array, Array, Array]:
    """Nodes x > 0, weights in units of √v and e^−x for a Gaussian N(centre, v) on x > 0.

    The weights include 1/(1+e^−x) and the Gaussian, scaled to be 1 at its top on the half-line.
    """
    centre, sigma = centre[:, None], sigma[:, None]
    top = np.maximum(centre, 0.0)
    outside = np.minimum(centre, 0.0) / sigma
    # Offsets from the top, in standard deviations, at which the Gaussian has fallen by a level.
    falls = _LEVELS**2 / (np.sqrt(outside**2 + _LEVELS**2) - outside)
    start = np.maximum(-top / sigma, -_LEVELS[-1])
    structure = np.clip((_STRUCTURE - top) / sigma, start, falls[:, -1:])
    rises = np.maximum(-_LEVELS, start)
    edges = np.sort(np.concatenate([rises, np.zeros_like(top), falls, structure], axis=1), axis=1)
    nodes, panel_weights = _gauss_legendre(_NODES_PER_PANEL)
    width = np.diff(edges, axis=1)[:, :, None]
    offset = (edges[:, :-1, None] + width * nodes).reshape(len(centre), -1)
    x = top + sigma * offset
    e = np.exp(-x)
    weights = (width * panel_weights).reshape(offset.shape)
    return x, weights * np.exp(offset * (outside - 0.5 * offset)) / (1.0 + e), e


@cache
def _gauss_legendre(order: int) -> tuple[Array, Array]:
    """Nodes and weights on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return 0.5 * (nodes + 1.0), 0.5 * weights
