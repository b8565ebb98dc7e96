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
        z = m / r
        return both_labels(_log_ndtr_jet(np.array([z, -z]), r))

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """One label's alone, at half the price."""
        r = np.sqrt(1.0 + v)
        return with_label(y, _log_ndtr_jet(y * m / r, r))


def _log_ndtr_jet(z: Array, r: Array) -> Jet:
    """The jet of log Φ(m/r) in m, at z = m/r."""
    inside = np.clip(z, -TAIL, FLAT)
    slope = 1.0 / mills_ratio(inside)
    parts: tuple[Array, ...] = slope, *derivatives(inside, slope)
    tail = z < -TAIL
    if np.any(tail):
        beyond = np.where(tail, z, -TAIL)
        series = 1.0 / mills_ratio(beyond), *tail_derivatives(beyond)
        parts = tuple(np.where(tail, s, p) for s, p in zip(series, parts, strict=True))
    powers = r, r**2, r**3, r**4
    return Jet(log_ndtr(z), *(part / power for part, power in zip(parts, powers, strict=True)))
