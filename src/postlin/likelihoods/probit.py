"""Probit: p(y|f) = Φ(y f), paper eq. (1)."""

from collections.abc import Iterator
from itertools import accumulate, islice, repeat
from math import pi, sqrt
from operator import mul
from typing import ClassVar

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood, Jet, Response, both_labels, mirror
from postlin.linalg.functions import functions

SQRT_2, SQRT_HALF_PI = sqrt(2.0), sqrt(0.5 * pi)
#: Below −TAIL the derivatives of λ come from an asymptotic series, since z + λ cancels.
TAIL = 12.0
#: Above this φ(z) < 1e-305, and Φ is constant in double precision.
FLAT = 37.5
#: Below minus this the series equals its limit.
_INFINITE = 1e60


def mills_ratio(z: Array) -> Array:
    """Φ(z)/φ(z) for z ≤ FLAT."""
    ratio: Array = SQRT_HALF_PI * functions(z).erfcx(-z / SQRT_2)
    return ratio


def _mills_ratio_inside(z: Array) -> Array:
    """The same for −TAIL ≤ z ≤ FLAT."""
    ratio: Array = SQRT_HALF_PI * functions(z).scaled_erfc(-z / SQRT_2)
    return ratio


def derivatives(z: Array, slope: Array) -> Iterator[Array]:
    """Yield λ', λ'' and λ''' at z, given λ = ``slope`` with λ' = −λ(z + λ)."""
    excess = z + slope
    first = -slope * excess
    yield first
    bracket = excess * (excess + slope) - 1.0
    yield slope * bracket
    yield first * bracket + slope * ((1.0 + first) * (excess + slope) + excess * (1 + 2 * first))


def _tail_coefficients(terms: int) -> Array:
    """cₖ of w = λ − a = Σ cₖ a^−(2k+1) for a = −z → ∞, from the equation a w = 1 + w' − w²."""
    c = np.ones(1)
    for k in range(terms - 1):
        c = np.append(c, -(2 * k + 1) * c[k] - c @ c[::-1])
    return c


def _tail_derivatives(orders: int) -> Array:
    """The coefficients of w and its first derivatives by −a, one row each, beside powers of 1/a."""
    c = _tail_coefficients(16)
    rows = [c]
    for order in range(1, orders + 1):
        c = c * np.arange(order, order + 2 * len(c), 2)
        rows.append(c)
    return np.array(rows)


_TAIL_DERIVATIVES = _tail_derivatives(3)


def tail_derivatives(z: Array) -> Iterator[Array]:
    """Yield λ = φ/Φ, λ', λ'' and λ''' at z < −TAIL."""
    a = functions(z).minimum(-z, _INFINITE)
    series = _polynomials(1.0 / a**2, _TAIL_DERIVATIVES)
    for order, limit in enumerate((-z, -1.0, 0.0, 0.0)):  # λ = a + w, and d/dz = −d/da
        yield limit + series[order, ...] / a ** (order + 1)


def _polynomials(x: Array, coefficients: Array) -> Array:
    """Σ cₖ xᵏ for each row c of coefficients; NumPy's function for it is for NumPy's arrays."""
    by_power = functions(x).give(coefficients.reshape(*coefficients.shape, *[1] * x.ndim), x)
    value: Array
    *others, value = (by_power[:, k, ...] for k in range(coefficients.shape[1]))
    for c in reversed(others):
        value = c + value * x
    return value


class Probit(BinaryLikelihood):
    """p(y|f) = Φ(y f), whose integrals all have closed forms."""

    name: ClassVar[str] = "probit"
    log_concave: bool = True
    symmetric: bool = True
    anywhere: bool = True

    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """The jets of log Z_y = log Φ(y m/√(1+v))."""
        r = _root(v)
        return both_labels(lambda z: _log_ndtr_jet(z, r), m / r)

    def slopes(self, m: Array, v: Array) -> tuple[Array, Array]:
        """λ(z)/√(1+v) and −λ(−z)/√(1+v) at z = m/√(1+v)."""
        r = _root(v)
        low = functions(m).minimum
        plus, minus = (mills_ratio(low(z, FLAT)) for z in (m / r, -m / r))
        return 1.0 / plus / r, -1.0 / minus / r  # r times a ratio of 1e305 may overflow

    def regression(self, y: Array, m: Array, v: Array) -> Response:
        """The regression from three derivatives of log Φ at ±y m, in half the time of two jets."""
        r = _root(v)
        z = y * m / r
        g, h, c = _log_ndtr_derivatives(functions(z).rows([z, -z]), r, 3)
        g_by_v = 0.5 * c + g * h
        return Response(
            g=y * g[0],
            rho=g[0] * g[1],
            g_by_m=h[0],
            g_by_v=y * g_by_v[0],
            rho_by_m=y * (h[0] * g[1] - g[0] * h[1]),
            rho_by_v=g_by_v[0] * g[1] + g[0] * g_by_v[1],
        )

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """The jet of one label, in half the time of both."""
        r = _root(v)
        return mirror(_log_ndtr_jet(y * m / r, r), y)


def _root(v: Array) -> Array:
    """√(1 + v), by which a mean is divided."""
    root: Array = functions(v).sqrt(1.0 + v)
    return root


def _log_ndtr_jet(z: Array, r: Array) -> Jet:
    """The jet of log Φ(m/r) in m, at z = m/r."""
    return Jet(functions(z).log_ndtr(z), *_log_ndtr_derivatives(z, r, 4))


def _log_ndtr_derivatives(z: Array, r: Array, order: int) -> list[Array]:
    """The first ``order`` derivatives of log Φ(m/r) in m, at z = m/r."""
    f = functions(z)
    inside = f.clip(z, -TAIL, FLAT)
    slope = 1.0 / _mills_ratio_inside(inside)
    parts = [slope, *islice(derivatives(inside, slope), order - 1)]
    tail = z < -TAIL
    if f.any(tail):
        series = islice(tail_derivatives(f.where(tail, z, -TAIL)), order)
        parts = [f.where(tail, s, p) for s, p in zip(series, parts, strict=True)]
    scales = accumulate(repeat(1.0 / r, order), mul)
    return [part * scale for part, scale in zip(parts, scales, strict=True)]
