"""Probit: p(y|f) = Φ(y f), paper eq. (1)."""

from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood
from postlin.likelihoods.jet import Jet, both_labels, with_label
from postlin.likelihoods.mills import FLAT, TAIL, derivatives, mills_ratio, tail_derivatives


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

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """One label's alone, at half the price."""
        r = np.sqrt(1.0 + v)
        return with_label(y, _log_ndtr_jet(y * m / r, r))


def _log_ndtr_jet(z: Array, r: Array) -> Jet:
    """The jet of log Φ(m/r) in m, at z = m/r."""
    inside = np.minimum(np.maximum(z, -TAIL), FLAT)
    slope = 1.0 / mills_ratio(inside)
    parts: tuple[Array, ...] = slope, *derivatives(inside, slope)
    tail = z < -TAIL
    if tail.any():
        beyond = np.where(tail, z, -TAIL)
        series = 1.0 / mills_ratio(beyond), *tail_derivatives(beyond)
        parts = tuple(np.where(tail, s, p) for s, p in zip(series, parts, strict=True))
    powers = r, r**2, r**3, r**4
    return Jet(log_ndtr(z), *(part / power for part, power in zip(parts, powers, strict=True)))
