"""The inverse Mills ratio λ = φ/Φ and its relatives, without a division of small by small.

Every function whose logarithm L has L' = λ with λ' = −λ(z + λ) has the same higher
derivatives; log Φ and log(ε + (1−2ε)Φ) are both of that kind.
"""

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


def derivatives(z: Array, slope: Array) -> tuple[Array, Array, Array]:
    """λ', λ'' and λ''' at z from λ = ``slope`` and the identity λ' = −λ(z + λ)."""
    excess = z + slope
    first = -slope * excess
    bracket = excess * (excess + slope) - 1.0
    second = slope * bracket
    third = first * bracket + slope * ((1.0 + first) * (excess + slope) + excess * (1 + 2 * first))
    return first, second, third


def _tail_coefficients(terms: int) -> Array:
    """W = λ − a = Σ cₖ a^−(2k+1) for a = −z → ∞, from the equation a w = 1 + w' − w²."""
    c = [1.0]
    for k in range(terms - 1):
        convolution = sum(c[i] * c[k - i] for i in range(k + 1))
        c.append(-(2 * k + 1) * c[k] - convolution)
    return np.array(c)


_TAIL_COEFFICIENTS = _tail_coefficients(16)
_TAIL_POWERS = 2.0 * np.arange(16) + 1.0


def tail_derivatives(z: Array) -> tuple[Array, Array, Array]:
    """λ', λ'' and λ''' of log Φ for z < −TAIL, where z + λ cancels."""
    a = np.minimum(-z, _INFINITE)
    coefficients, powers = _TAIL_COEFFICIENTS, _TAIL_POWERS
    inverse_square = 1.0 / a**2

    def series(factors: Array, power: int) -> Array:
        value: Array = np.polynomial.polynomial.polyval(inverse_square, factors) / a**power
        return value

    # d/dz = −d/da; λ = a + w.
    first = -1.0 + series(coefficients * powers, 2)
    second = series(coefficients * powers * (powers + 1), 3)
    third = series(coefficients * powers * (powers + 1) * (powers + 2), 4)
    return first, second, third
