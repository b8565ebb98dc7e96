"""Derivatives of log Z in m as cumulants of the tilted density p(y|f) N(f; m, v) / Z.

Two expressions, equal in exact arithmetic:

- by density: ∂ᵏ log Z/∂mᵏ from cumulants of the derivatives of log p(y|f); right for small v,
- by moments: κₖ(f)/vᵏ, less 1/v for k = 2; right for large v.

Each loses digits where the other keeps them.
"""

import numpy as np

from postlin._typing import Array


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
