"""Probit: p(y|f) = Φ(y f), paper eq. (1)."""

from itertools import accumulate, islice, repeat
from operator import mul
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood, symmetric_regression
from postlin.likelihoods.jet import Jet, both_labels, with_label
from postlin.likelihoods.mills import FLAT, TAIL, derivatives, mills_ratio, tail_derivatives
from postlin.sites import Response


class Probit(BinaryLikelihood):
    """p(y|f) = Φ(y f). All integrals have closed forms."""

    name: ClassVar[str] = "probit"
    symmetric: bool = True

    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """Z_y = Φ(y m/√(1+v))."""
        r = np.sqrt(1.0 + v)
        return both_labels(lambda z: _log_ndtr_jet(z, r), m / r)

    def slopes(self, m: Array, v: Array) -> tuple[Array, Array]:
        """λ(z)/√(1+v) and −λ(−z)/√(1+v)."""
        r = np.sqrt(1.0 + v)
        plus, minus = (mills_ratio(np.minimum(z, FLAT)) for z in (m / r, -m / r))
        return 1.0 / (r * plus), -1.0 / (r * minus)

    def regression(self, y: Array, m: Array, v: Array) -> Response:
        """From three derivatives of log Φ at y m and at −y m, at half the price."""
        r = np.sqrt(1.0 + v)
        z = y * m / r
        return symmetric_regression(y, *_log_ndtr_derivatives(np.array([z, -z]), r, 3))

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """One label's alone, at half the price."""
        r = np.sqrt(1.0 + v)
        return with_label(y, _log_ndtr_jet(y * m / r, r))


def _log_ndtr_jet(z: Array, r: Array) -> Jet:
    """The jet of log Φ(m/r) in m, at z = m/r."""
    return Jet(log_ndtr(z), *_log_ndtr_derivatives(z, r, 4))


def _log_ndtr_derivatives(z: Array, r: Array, order: int) -> list[Array]:
    """The first so many derivatives of log Φ(m/r) in m, at z = m/r."""
    inside = np.minimum(np.maximum(z, -TAIL), FLAT)
    slope = 1.0 / mills_ratio(inside)
    parts = [slope, *islice(derivatives(inside, slope), order - 1)]
    tail = z < -TAIL
    if tail.any():
        beyond = np.where(tail, z, -TAIL)
        series = 1.0 / mills_ratio(beyond), *islice(tail_derivatives(beyond), order - 1)
        parts = [np.where(tail, s, p) for s, p in zip(series, parts, strict=True)]
    scales = accumulate(repeat(1.0 / r, order), mul)
    return [part * scale for part, scale in zip(parts, scales, strict=True)]
