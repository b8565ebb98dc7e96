"""Noisy threshold: p(y|f) = ε + (1−2ε) H(y f), paper eq. (3)."""

from math import log, log1p, pi, sqrt
from typing import ClassVar, Literal

import numpy as np

from postlin._typing import Array
from postlin._validation import is_real
from postlin.likelihoods.base import BinaryLikelihood, Jet, JetChange, both_labels, mirror
from postlin.likelihoods.probit import FLAT, derivatives, mills_ratio
from postlin.linalg.functions import functions

_LOG_SQRT_2PI = 0.5 * log(2 * pi)

#: A high rate of wrong labels, from which a second search starts.
_MANY = 0.2
#: This variance is used in place of zero, where the evidence by quadrature needs the step itself.
_POINT = 1e-60


class NoisyThreshold(BinaryLikelihood):
    """A step at f = 0 whose labels are wrong at the rate ``epsilon``.

    With ``epsilon_bounds=(low, high)`` the rate is learned with the kernel's parameters. The search
    starts from ``epsilon`` and from 0.2, since the evidence has several maxima.
    """

    name: ClassVar[str] = "noisy_threshold"
    symmetric: bool = True
    anywhere: bool = True
    differentiable: bool = False
    parameters: tuple[str, ...] = ("epsilon",)

    def __init__(
        self, epsilon: float = 0.01, epsilon_bounds: tuple[float, float] | Literal["fixed"] = "fixed"
    ) -> None:
        if not is_real(epsilon) or not 0.0 < float(epsilon) < 0.5:
            raise ValueError(
                f"epsilon must lie strictly between 0 and 0.5, got {epsilon!r}: it is the "
                "probability that a label is wrong; use the probit likelihood if no label is wrong."
            )
        self.epsilon, self.epsilon_bounds = float(epsilon), epsilon_bounds
        try:
            sound = all(0.0 < low <= self.epsilon <= high < 0.5 for low, high in self.free.values())
        except (TypeError, ValueError):
            sound = False
        if not sound:
            raise ValueError(
                f"epsilon_bounds must be 'fixed' or two numbers within (0, 0.5) with "
                f"epsilon={self.epsilon:g} between them, got {self.epsilon_bounds!r}."
            )

    @property
    def free(self) -> dict[str, tuple[float, float]]:
        """The bounds of ε, if they are given."""
        if self.epsilon_bounds == "fixed":
            return {}
        low, high = map(float, self.epsilon_bounds)
        return {"epsilon": (low, high)}

    @property
    def other_starts(self) -> list[dict[str, float]]:
        """A high rate; from a low one a search may end where f follows each wrong label."""
        return [{"epsilon": float(np.clip(_MANY, low, high))} for low, high in self.free.values()]

    def jet_changes(self, m: Array, v: Array) -> list[tuple[JetChange, JetChange]]:
        """∂ log Z/∂ε = (1 − 2Φ)/Z; the derivatives of g and h follow from λ = (1−2ε)φ/Z."""
        z, r = _scaled(m, v)
        log_z, g, h = self._jet_change(-z, r)
        return [(self._jet_change(z, r), (log_z, -g, h))]

    def _jet_change(self, z: Array, r: Array) -> JetChange:
        f, slope = functions(z), self._slope(z)
        log_z = -f.erf(z / sqrt(2.0)) * f.exp(-self._jet(z, r).log_z)
        slope_by = -slope * (2.0 / (1.0 - 2.0 * self.epsilon) + log_z)
        # λ' = −λ(z + λ)
        return log_z, slope_by / r, -slope_by * (z + 2.0 * slope) / r**2

    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """The jets of log Z_y = log(ε + (1−2ε) Φ(y m/√v))."""
        z, r = _scaled(m, v)
        return both_labels(lambda z: self._jet(z, r), z)

    def slopes(self, m: Array, v: Array) -> tuple[Array, Array]:
        """λ(z)/√v and −λ(−z)/√v at z = m/√v."""
        z, r = _scaled(m, v)
        return self._slope(z) / r, -self._slope(-z) / r

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """The jet of one label, in half the time of both."""
        return mirror(self._jet(*_scaled(y * m, v)), y)

    def _jet(self, z: Array, r: Array) -> Jet:
        f, epsilon, span = functions(z), self.epsilon, 1.0 - 2.0 * self.epsilon
        lower_tail = span * f.ndtr(-f.abs(z))
        log_z = f.where(
            z > 0, log1p(-epsilon) + f.log1p(-lower_tail / (1 - epsilon)), f.log(epsilon + lower_tail)
        )
        slope = self._slope(z)
        first, second, third = derivatives(z, slope)
        return Jet(log_z, slope / r, first / r**2, second / r**3, third / r**4)

    def _slope(self, z: Array) -> Array:
        """λ = (1−2ε)φ/Z as (1−2ε)/(Z/φ), which does not underflow before λ itself does."""
        span = 1.0 - 2.0 * self.epsilon
        flips_per_density = functions(z).exp(log(self.epsilon) + 0.5 * z**2 + _LOG_SQRT_2PI)
        slope: Array = span / (flips_per_density + span * mills_ratio(z))
        return slope


def _scaled(m: Array, v: Array) -> tuple[Array, Array]:
    """z = m/√v within ±FLAT, beyond which Z is constant, and √v."""
    f = functions(v)
    r = f.sqrt(f.maximum(v, _POINT))
    return f.clip(m / r, -FLAT, FLAT), r
