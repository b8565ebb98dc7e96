"""Likelihoods of which only log p(y|f) is known: adaptive quadrature computes their jets.

The tilted density p(y|f) N(f; m, v)/Z is integrated on Gauss–Lobatto panels that are halved until a
polynomial describes it on each of them, however steep p is. The derivatives of log Z in m are then
cumulants of f under the tilted density, divided by powers of v. Where v is so small that these lose
their digits, cumulants of the derivatives of log p are used instead. Those derivatives come from a
polynomial that is fitted to log p on a window about m, much wider than N(m, v).

Only the rarer label is integrated: 1 − Z gives the other one with all its digits.
"""

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev, legendre

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood, Jet, complement, select
from postlin.likelihoods.quadrature import Derivatives, by_density, by_moments, gauss_lobatto, mean_of

#: (rows, f) ↦ log p of the labels of these rows at f, an array [row, node].
LogDensityOfRows = Callable[[np.ndarray, Array], Array]

_EPSILON = 2.0**-52
#: The logarithm of an integrand that is zero.
_NOTHING = -1e300
#: Above this log Z the other label is integrated instead, since 1 − Z would lose digits.
_LIKELY = np.log(0.75)
#: Integrands are followed down to e^−_DEPTH of their maximum, …
_DEPTH = 40.0
#: … which is sought up to _FAR standard deviations from m, and farther out if it is not found there.
_FAR, _SEARCHES = 64.0, 40
_PROBES = np.outer([[-1.0], [1.0]], np.append(0.0, np.geomspace(0.5 / _FAR, 1.0, 15))).ravel()
#: The number of panels at first, and the number of nodes of each panel.
_PANELS, _NODES = 6, 20
#: A panel is halved while its last Legendre coefficients hold more than this part of the integral; the
#: error of an analytic integrand is about the square of that.
_ROUGH = 1e-11
#: Rows integrated together: their node arrays then stay in the processor's cache.
_BLOCK = 128
#: Half-widths of the windows on which log p is fitted, and the degree of the polynomial.
_WINDOWS, _DEGREE = 2.0 ** np.arange(6, -25, -1), 32
#: A fit describes log p if its last coefficients are below this part of the range of log p. It cannot
#: be improved if they are below this multiple of the rounding errors of log p.
_DESCRIBED, _SMOOTH = 1e-6, 30.0

_X, _W = gauss_lobatto(_NODES)
#: Values at the nodes @ these are the last two Legendre coefficients and all Chebyshev coefficients.
_LAST = np.linalg.inv(legendre.legvander(2.0 * _X - 1.0, _NODES - 1)).T[:, -2:].copy()
_FIT_AT = chebyshev.chebpts1(_DEGREE + 1)
_FIT = np.linalg.inv(chebyshev.chebvander(_FIT_AT, _DEGREE)).T.copy()
#: Chebyshev coefficients @ these are the coefficients of the first four derivatives.
_DERIVATIVES = [chebyshev.chebder(np.eye(_DEGREE + 1), k).T for k in (1, 2, 3, 4)]


class DensityLikelihood(BinaryLikelihood):
    """p(y|f) given by its logarithm alone; everything else is computed numerically.

    A subclass sets its ``name`` and implements :meth:`log_density`. The relative accuracy is 1e-8 or
    better for log Z, g and h and 1e-6 or better for c and d, at every mean and variance, for smooth and
    for steep likelihoods (measured: 3e-11 and 3e-9). Rounding limits it: an error δ of log p becomes
    one of about δ/sᵏ in the k-th derivative, where s is √v or, if that is larger, the length over which
    p changes. So derivatives where p is flat, as at a rate of wrong labels, have an absolute accuracy.
    Steps are integrated to 1e-11; set ``differentiable = False`` for them.

    A jet takes a few hundred values of log p. Implement :meth:`log_density_derivatives` too where
    the derivatives of log p are known, or ``BinaryLikelihood.jets`` where Z has a closed form: that is
    the fastest way.

    >>> import numpy as np
    >>> from scipy.special import log_ndtr
    >>> from postlin.likelihoods import DensityLikelihood, Probit
    >>> class Own(DensityLikelihood):
    ...     name = "own"
    ...
    ...     def log_density(self, y, f):
    ...         return log_ndtr(y * f)
    >>> own, exact = (likelihood.jet(1.0, 0.3, 2.0) for likelihood in (Own(), Probit()))
    >>> bool(np.allclose(own, exact, rtol=1e-10))
    True
    """

    @abstractmethod
    def log_density(self, y: Array, f: Array) -> Array:
        """Return log p(y|f), element by element, for labels y of ±1 and latent values f of one shape.

        The probabilities of the two labels must sum to one; −inf stands for a probability of zero.
        """

    def log_density_derivatives(self, y: Array, f: Array) -> Derivatives | None:
        """Return the first four derivatives of log p(y|f) in f, or None to have them computed."""
        return None

    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """The jets of both labels, from that of the rarer one."""
        shape = np.broadcast_shapes(np.shape(m), np.shape(v))
        m, v = (np.broadcast_to(np.asarray(a, float), shape).ravel() for a in (m, v))
        with np.errstate(all="ignore"):
            y = self._rarer_label(m)
            parts = self._jet(y, m, v)
            wrong = np.flatnonzero(parts[0] > _LIKELY)
            y[wrong] *= -1.0
            parts[:, wrong] = self._jet(y[wrong], m[wrong], v[wrong])
            jet = Jet(*parts.reshape(5, *shape))
            other = complement(jet)
        positive = y.reshape(shape) > 0
        return select(positive, jet, other), select(positive, other, jet)

    def _rarer_label(self, f: Array) -> Array:
        """The label that is less likely at f; raises ``ValueError`` unless the two sum to one."""
        plus, minus = (np.asarray(self.log_density(np.full_like(f, y), f), float) for y in (1.0, -1.0))
        if not plus.shape == minus.shape == f.shape:
            raise ValueError(
                f"log_density returned shape {plus.shape} for input of shape {f.shape}; it must act on "
                "arrays element by element."
            )
        total = np.exp(plus) + np.exp(minus)
        sound = np.abs(total - 1.0) < 1e-6
        if not sound.all():
            k = sound.argmin()
            raise ValueError(
                "log_density must return logarithms of probabilities that sum to one over both labels, "
                f"but at f = {f[k]:g} they sum to {total[k]:g}."
            )
        return np.where(plus > minus, -1.0, 1.0)

    def _jet(self, y: Array, m: Array, v: Array) -> Array:
        """The five parts of the jet of log Z_y for flat arrays, computed for a few rows at a time."""
        jet = np.empty((5, len(m)))
        for start in range(0, len(m), _BLOCK):
            rows = slice(start, start + _BLOCK)
            jet[:, rows] = self._jet_of_rows(y[rows], m[rows], v[rows])
        return jet

    def _jet_of_rows(self, y: Array, m: Array, v: Array) -> tuple[Array, ...]:
        """The jet by moments of f, or by derivatives of log p where those are more accurate."""

        def log_p(rows: np.ndarray, f: Array) -> Array:
            return np.asarray(self.log_density(np.broadcast_to(y[rows, None], f.shape), f), float)

        if not v.any():  # the jet of log p itself
            slopes = self.log_density_derivatives(y, m)
            if slopes is None:
                slopes = _Window(log_p, m, v).derivatives(np.arange(len(m)), np.zeros((len(m), 1)))
            return self.log_density(y, m), *map(np.ravel, slopes)
        sigma = np.sqrt(v)
        reach = _reach(log_p, m, sigma)
        t, weights, log_z = _tilted_nodes(log_p, m, sigma, reach)
        rows, shift = np.arange(len(m)), sigma[:, None] * t
        result = np.array(by_moments(weights, shift, v))
        slopes = self.log_density_derivatives(np.broadcast_to(y[:, None], t.shape), m[:, None] + shift)
        if slopes is None:
            window = _Window(log_p, m, sigma * reach)
            rows = np.flatnonzero(~(window.noise * v**2 > 4.0 * _EPSILON))  # moments err by 4 ε/v²
            slopes, weights = window.derivatives(rows, shift[rows]), weights[rows]
        spread = mean_of(weights, (slopes[0] - mean_of(weights, slopes[0])[:, None]) ** 2)
        spread += np.abs(mean_of(weights, slopes[1]))
        good = ~(v[rows] * spread > 0.5)  # elsewhere the cumulants of the derivatives cancel
        result[:, rows[good]] = np.array(by_density(weights, slopes, slopes[0]))[:, good]
        return log_z, *result


class _Window:
    """Polynomials that describe log p on windows about m, wide enough for accurate derivatives."""

    def __init__(self, log_p: LogDensityOfRows, m: Array, reach: Array) -> None:
        """Fit log p on windows of at least ± ``reach``; ``noise`` is the expected error of d."""
        self.noise = np.full(len(m), np.inf)
        self._width = np.ones(len(m))
        self._series = np.zeros((len(m), _DEGREE + 1))
        done = np.zeros(len(m), dtype=bool)
        for width in _WINDOWS:
            rows = np.flatnonzero((reach <= width) & ~done)
            if not len(rows):
                continue
            values = log_p(rows, m[rows, None] + width * _FIT_AT)
            series = values @ _FIT
            rounding = _EPSILON * np.abs(values).max(axis=1)
            error = np.abs(series[:, -4:]).max(axis=1) + rounding
            noise = error * (_DEGREE / width) ** 4
            done[rows] = smooth = error < _SMOOTH * rounding
            described = smooth | (error < _DESCRIBED * np.ptp(values, axis=1))
            better = described & (noise < self.noise[rows])
            found = rows[better]
            self.noise[found], self._series[found] = noise[better], series[better]
            self._width[found] = width

    def derivatives(self, rows: np.ndarray, shift: Array) -> Derivatives:
        """The first four derivatives of log p at f = m + shift, an array [row, node]."""
        width = self._width[rows, None]
        x = np.clip(shift / width, -1.0, 1.0)
        series = self._series[rows]
        s1, s2, s3, s4 = (
            chebyshev.chebval(x, (series @ matrix).T[:, :, None], tensor=False) / width**k
            for k, matrix in enumerate(_DERIVATIVES, start=1)
        )
        return s1, s2, s3, s4


def _reach(log_p: LogDensityOfRows, m: Array, sigma: Array) -> Array:
    """How far from m, in standard deviations, the tilted density can have mass.

    Since p ≤ 1, it has none where N(f; m, v) is far below the largest value of p N.
    """
    rows, top = np.arange(len(m)), np.full(len(m), _NOTHING)
    reach = np.full(len(m), _FAR)
    for _ in range(_SEARCHES):
        t, before = reach[:, None] * _PROBES, reach
        level = log_p(rows, m[:, None] + sigma[:, None] * t) - 0.5 * t**2
        top = np.fmax(top, np.fmax.reduce(level, axis=1))
        reach = np.sqrt(2.0 * (_DEPTH - top))
        if ((reach <= _FAR) | (reach > 0.5 * before)).all():
            break
    return reach


def _tilted_nodes(
    log_p: LogDensityOfRows, m: Array, sigma: Array, reach: Array
) -> tuple[Array, Array, Array]:
    """Nodes t = (f − m)/√v and weights of the tilted density, [row, node], and log Z."""
    n = len(m)
    row, width = np.repeat(np.arange(n), _PANELS), np.repeat(2.0 * reach / _PANELS, _PANELS)
    left = np.outer(reach, np.linspace(-1.0, 1.0, _PANELS + 1)[:-1]).ravel()
    top, total = np.full(n, _NOTHING), np.zeros(n)
    panels = []
    while len(row):
        t = left[:, None] + width[:, None] * _X
        level = np.maximum(log_p(row, m[row, None] + sigma[row, None] * t) - 0.5 * t**2, _NOTHING)
        if np.isnan(level).any():
            raise ValueError("log_density returned NaN where the posterior may have mass.")
        before = top.copy()
        np.maximum.at(top, row, level.max(axis=1))
        total *= np.exp(before - top)
        height = np.exp(level - top[row, None])
        mass = width * (height @ _W)
        last = width * np.abs(height @ _LAST).sum(axis=1)
        tolerance = np.maximum(_ROUGH, 64.0 * _EPSILON * np.abs(top))
        rough = last > (tolerance * (total + np.bincount(row, mass, n)))[row]
        rough &= width * sigma[row] > 64.0 * _EPSILON * np.abs(m[row] + sigma[row] * left)
        smooth = ~rough
        total += np.bincount(row[smooth], mass[smooth], n)
        panels.append((row[smooth], t[smooth], level[smooth], width[smooth]))
        width = np.repeat(0.5 * width[rough], 2)
        row, left = np.repeat(row[rough], 2), np.repeat(left[rough], 2)
        left[1::2] += width[1::2]
    row, t, level, width = map(np.concatenate, zip(*panels, strict=True))
    top = np.full(n, _NOTHING)  # of the panels that were kept
    np.maximum.at(top, row, level.max(axis=1))
    weights = width[:, None] * _W * np.exp(level - top[row, None])
    whole = np.bincount(row, weights.sum(axis=1), n)
    weights /= whole[row, None]
    keep = np.flatnonzero(weights.max(axis=1) > _EPSILON**2)
    keep = keep[np.argsort(row[keep], kind="stable")]
    row, counts = row[keep], np.bincount(row[keep], minlength=n)
    place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    padded = np.zeros((2, n, counts.max(), _NODES))  # nodes of weight zero fill the rows
    padded[:, row, place] = t[keep], weights[keep]
    return *padded.reshape(2, n, -1), top + np.log(whole / np.sqrt(2.0 * np.pi))
