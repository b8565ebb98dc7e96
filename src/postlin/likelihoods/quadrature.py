"""Quadrature rules, and the derivatives of log Z from a tilted density at the nodes of a rule."""

from functools import cache

import numpy as np

from postlin._typing import Array
from postlin.linalg.functions import functions

#: Half-width of trapezoidal grids in standard deviations: e^(−8.6²/2) is below 1e-16.
REACH = 8.6

Derivatives = tuple[Array, Array, Array, Array]


@cache
def gauss_hermite(order: int) -> tuple[Array, Array]:
    """Gauss–Hermite nodes and weights for the standard normal density; the weights sum to one."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    return nodes, weights / weights.sum()


@cache
def gauss_legendre(order: int) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and weights on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return 0.5 * (nodes + 1.0), 0.5 * weights


@cache
def gauss_lobatto(order: int) -> tuple[Array, Array]:
    """Gauss–Lobatto nodes, which include both ends, and weights on (0, 1)."""
    last = np.polynomial.Legendre.basis(order - 1)
    nodes = np.concatenate([[-1.0], last.deriv().roots(), [1.0]])
    return 0.5 * (nodes + 1.0), 1.0 / (order * (order - 1) * last(nodes) ** 2)


@cache
def trapezoid(nodes: int, reach: float = REACH) -> tuple[Array, Array]:
    """Equidistant nodes and weights for the standard normal density, with Σ weights = Σ weights x² = 1.

    The rule converges exponentially for smooth functions.
    """
    x = np.linspace(-reach, reach, nodes)
    weights = np.exp(-0.5 * x**2)
    return x, weights / weights.sum()


def by_density(weights: Array, slopes: Derivatives, shifted: Array) -> Derivatives:
    """(g, h, c, d) from the tilted density's weights and four derivatives of log p at the nodes.

    The weights sum to one. ``shifted`` is the first derivative plus any constant, in a form that keeps
    small differences. The last axis of all arrays runs over the nodes.
    """
    s1, s2, s3, s4 = slopes
    r1 = shifted - mean_of(weights, shifted)[..., None]
    mean_s2 = mean_of(weights, s2)
    r2 = s2 - mean_s2[..., None]
    square = r1**2
    variance = mean_of(weights, square)
    c = mean_of(weights, s3 + r1 * (3 * r2 + square))
    d = mean_of(weights, s4 + 4 * s3 * r1 + 3 * r2**2 + square * (6 * r2 + square)) - 3 * variance**2
    return mean_of(weights, s1), mean_s2 + variance, c, d


def by_moments(weights: Array, shift: Array, v: Array) -> Derivatives:
    """(g, h, c, d) from the tilted density's weights and ``shift`` = f − m at the nodes."""
    first = mean_of(weights, shift)
    residual = shift - first[..., None]
    square = residual**2
    second = mean_of(weights, square)
    c = mean_of(weights, square * residual) / v**3
    d = (mean_of(weights, square**2) - 3.0 * second**2) / v**4
    return first / v, (second / v - 1.0) / v, c, d


def mean_of(weights: Array, values: Array) -> Array:
    """Σ weights · values over the last axis."""
    mean: Array = functions(values).einsum("...k,...k->...", weights, values)
    return mean
