"""Probit: p(y|f) = Φ(y f), paper eq. (1)."""

from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood
from postlin.likelihoods.jet import Jet, mirror
from postlin.likelihoods.mills import TAIL, derivatives, mills_ratio, tail_derivatives


class Probit(BinaryLikelihood):
    """p(y|f) = Φ(y f). All integrals have closed forms."""

    name: ClassVar[str] = "probit"

    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """Z_y = Φ(y m/√(1+v))."""
        r = np.sqrt(1.0 + v)
        z = m / r
        return _log_ndtr_jet(z, r), mirror(_log_ndtr_jet(-z, r))


def _log_ndtr_jet(z: Array, r: Array) -> Jet:
    """The jet of log Φ(m/r) in m, at z = m/r."""
    slope = 1.0 / mills_ratio(z)
    first, second, third = derivatives(z, slope)
    tail = z < -TAIL
    if np.any(tail):
        exact = tail_derivatives(np.where(tail, z, -TAIL))
        first, second, third = (
            np.where(tail, e, plain) for e, plain in zip(exact, (first, second, third), strict=True)
        )
    return Jet(log_ndtr(z), slope / r, first / r**2, second / r**3, third / r**4)
