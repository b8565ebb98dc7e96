"""log Z of both labels from tables, for millions of values.

At a fixed variance log Z₊ and log Z₋ are smooth functions of the mean alone, which cubics between
equidistant knots describe. A table gives a value and its slope in 10 to 20 ns; jets of likelihoods
take from 100 ns to several microseconds (measured).
"""

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood

#: The number of intervals of a table at first, and the most knots of all tables together.
_FIRST, _MOST = 32, 2**20


class Tables:
    """log Z₋ and log Z₊ at N(m, v) as functions of m, with a table for each of several v.

    Outside of its interval, and where a likelihood is too steep for a table, jets are computed.
    """

    def __init__(
        self, likelihood: BinaryLikelihood, low: Array, high: Array, v: Array, *, accuracy: float
    ) -> None:
        """Tabulate each row [low, high], v with errors of at most ``accuracy`` times 1 + |log Z|."""
        self._likelihood, self._v, self._low = likelihood, v, low
        width = np.maximum(high - low, 1e-6 * (1.0 + np.abs(low)))
        self._n = _FIRST
        values, slopes = self._parts(width, np.arange(_FIRST + 1) / _FIRST)
        sound = False
        while not sound:
            step = (width / self._n)[:, None]
            between, slopes_between = self._parts(width, (np.arange(self._n) + 0.5) / self._n)
            with np.errstate(all="ignore"):
                guess = 0.5 * (values[..., 1:] + values[..., :-1]) - 0.125 * step * np.diff(slopes)
                # of this error a sixteenth is left with twice the number of intervals
                error = np.abs(between - guess) / (1.0 + np.abs(between))
            sound = bool((error <= 16.0 * accuracy).all())
            values, slopes = _woven(values, between), _woven(slopes, slopes_between)
            self._n *= 2
            if not np.isfinite(slopes).all() or (values.size > _MOST and not sound):
                self._n = 0
                return
        step = width / self._n
        self._per_step = 1.0 / step
        self._cubics = _cubics(values, slopes * step[:, None])

    def _parts(self, width: Array, x: Array) -> tuple[Array, Array]:
        """log Z and its slope [label, row, knot], at these parts of the intervals."""
        m = self._low[:, None] + width[:, None] * x
        with np.errstate(all="ignore"):
            plus, minus = self._likelihood.jets(m, np.broadcast_to(self._v[:, None], m.shape))
        return np.array([minus.log_z, plus.log_z]), np.array([minus.g, plus.g])

    def __call__(self, positive: np.ndarray, m: Array) -> tuple[Array, Array]:
        """log Z and its slope at means [sample, point], at the labels and in the rows of the points.

        ``positive`` marks the points whose label is +1. A single row is that of all points.
        """
        if not self._n:
            everywhere = np.ones(m.shape, dtype=bool)
            return self._directly(positive, m, everywhere, np.empty_like(m), np.empty_like(m))
        t: Array = (m - self._low) * self._per_step
        with np.errstate(invalid="ignore"):
            inside = t.min() >= 0.0 and t.max() < self._n
            outside = ~((t >= 0.0) & (t < self._n)) if not inside else None
        if outside is not None:
            t[outside] = 0.0
        k = t.astype(np.int64)
        t -= k
        rows = len(self._low)
        k += self._n * (np.arange(rows) + np.where(positive, rows, 0))
        first, *rest, last = self._cubics
        value = first.take(k)
        slope = value.copy()
        value *= t
        value += rest[0].take(k)
        for c in (rest[1], last):
            slope *= t
            slope += value
            value *= t
            value += c.take(k)
        slope *= self._per_step
        if outside is not None:
            self._directly(positive, m, outside, value, slope)
        return value, slope

    def _directly(
        self, positive: np.ndarray, m: Array, where: np.ndarray, value: Array, slope: Array
    ) -> tuple[Array, Array]:
        """Fill in ``value`` and ``slope`` from jets at some means; a mean that is none has −∞ and 0."""
        value[where], slope[where] = -np.inf, 0.0
        where = where & np.isfinite(m)
        labels = np.broadcast_to(np.where(positive, 1.0, -1.0), m.shape)[where]
        v = np.broadcast_to(self._v, m.shape)[where]
        with np.errstate(all="ignore"):
            jet = self._likelihood.jet(labels, m[where], v)
        value[where], slope[where] = jet.log_z, jet.g
        return value, slope


def _woven(even: Array, odd: Array) -> Array:
    """The entries of two arrays in turns along their last axis."""
    both = np.empty((*even.shape[:-1], even.shape[-1] + odd.shape[-1]))
    both[..., ::2], both[..., 1::2] = even, odd
    return both


def _cubics(values: Array, slopes: Array) -> list[Array]:
    """The coefficients on every interval, of the highest power first; slopes are by interval."""
    low, high, rise = values[..., :-1], slopes[..., :-1] + slopes[..., 1:], np.diff(values)
    parts = high - 2.0 * rise, 3.0 * rise - high - slopes[..., :-1], slopes[..., :-1], low
    return [np.ascontiguousarray(part).ravel() for part in parts]
