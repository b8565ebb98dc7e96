"""The inverse Mills ratio λ = φ/Φ and its relatives, without a division of small by small.

Every function whose logarithm L has L' = λ with λ' = −λ(z + λ) has the same higher
derivatives; log Φ and log(ε + (1−2ε)Φ) are both of that kind.
"""

from collections.abc import Iterator
from math import pi, sqrt

import numpy as np
from scipy.special import erfcx

from postlin._typing import Array

SQRT_2 = sqrt(2.0)
SQRT_HALF_PI = sqrt(0.5 * pi)

#: Below −TAIL, z + λ and its derivatives come from their asymptotic series.
TAIL = 12.0

#: Above this φ(z) < 1e-305, and Φ is as flat as double precision can tell.
FLAT = 37.5

#: Beyond this the series has nothing left but its limits.
_INFINITE = 1e60


def mills_ratio(z: Array) -> Array:
    """Φ(z)/φ(z), for z up to FLAT."""
    ratio: Array = SQRT_HALF_PI * erfcx(-z / SQRT_2)
    return ratio


def derivatives(z: Array, slope: Array) -> Iterator[Array]:
    """λ', λ'' and λ''' at z, one by one, from λ = ``slope`` and the identity λ' = −λ(z + λ)."""
    excess = z + slope
    first = -slope * excess
    yield first
    bracket = excess * (excess + slope) - 1.0
    yield slope * bracket
    yield first * bracket + slope * ((1.0 + first) * (excess + slope) + excess * (1 + 2 * first))


def _tail_coefficients(terms: int) -> Array:
    """W = λ − a = Σ cₖ a^−(2k+1) for a = −z → ∞, from the equation a w = 1 + w' − w²."""
    c = [1.0]
    for k in range(terms - 1):
        convolution = sum(c[i] * c[k - i] for i in range(k + 1))
        c.append(-(2 * k + 1) * c[k] - convolution)
    return np.array(c)


_TAIL_COEFFICIENTS = _tail_coefficients(16)
_TAIL_POWERS = 2.0 * np.arange(16) + 1.0


def tail_derivatives(z: Array) -> Iterator[Array]:
    """λ', λ'' and λ''' of log Φ, one by one, for z < −TAIL, where z + λ cancels."""
    a = np.minimum(-z, _INFINITE)
    inverse_square = 1.0 / a**2
    factors = _TAIL_COEFFICIENTS
    limit = -1.0  # λ = a + w, and d/dz = −d/da
    for order in (1, 2, 3):
        factors = factors * (_TAIL_POWERS + order - 1)
        yield limit + np.polynomial.polynomial.polyval(inverse_square, factors) / a ** (order + 1)
        limit = 0.0
