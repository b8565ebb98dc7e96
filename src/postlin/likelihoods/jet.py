"""The jet of log Z_y: all that inference ever asks of a likelihood.

For a latent Gaussian N(m, v) let Z_y(m, v) = ∫ p(y|f) N(f; m, v) df. The heat equation
∂Z/∂v = ½ ∂²Z/∂m² turns every derivative in the variance into derivatives in the mean, so
log Z_y and its derivatives in m serve the site updates, the evidence, the exact gradient
of the evidence and the Newton steps of the solver alike.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from postlin._typing import Array


class Jet(NamedTuple):
    """``log_z`` = log Z_y(m, v) and its first four derivatives in m: g, h, c, d."""

    log_z: Array
    g: Array
    h: Array
    c: Array
    d: Array

    @property
    def log_z_by_v(self) -> Array:
        """∂ log Z / ∂v = (h + g²)/2."""
        return 0.5 * (self.h + self.g**2)

    @property
    def g_by_v(self) -> Array:
        """∂g/∂v = (c + 2gh)/2."""
        return 0.5 * self.c + self.g * self.h

    @property
    def h_by_v(self) -> Array:
        """∂h/∂v = (d + 2h² + 2gc)/2."""
        return 0.5 * self.d + self.h**2 + self.g * self.c


class JetChange(NamedTuple):
    """Derivatives of log Z_y, g and h by a parameter of the likelihood."""

    log_z: Array
    g: Array
    h: Array


def mirror(jet: Jet) -> Jet:
    """The jet in m of a function whose jet at −m is ``jet``."""
    return Jet(jet.log_z, -jet.g, jet.h, -jet.c, jet.d)


def both_labels(jet_of: Callable[[Array], Jet], z: Array) -> tuple[Jet, Jet]:
    """The jets of log Z₊ and log Z₋ in m, for Z₋(m) = Z₊(−m) and ``jet_of`` that of log Z₊ by z ∝ m.

    Arrays go in one call; of scalars two calls are faster.
    """
    if np.ndim(z) == 0:
        return jet_of(z), mirror(jet_of(-z))
    plus, minus = (Jet(*parts) for parts in zip(*jet_of(np.array([z, -z])), strict=True))
    return plus, mirror(minus)


def with_label(y: Array, jet: Jet) -> Jet:
    """The jet of log Z_y in m, for Z_y(m) = Z₊(y m) and ``jet`` that of log Z₊ at y m."""
    return Jet(jet.log_z, y * jet.g, jet.h, y * jet.c, jet.d)


def select(choose: np.ndarray, if_true: Jet, if_false: Jet) -> Jet:
    """Point by point, one jet or the other."""
    return Jet(*(np.where(choose, a, b) for a, b in zip(if_true, if_false, strict=True)))


def complement(jet: Jet) -> Jet:
    """The jet of log(1 − Z) from that of log Z; accurate while Z ≤ ½.

    Works with the normalised derivatives Z⁽ᵏ⁾/Z, which change sign and scale together.
    """
    log_z, g, h, c, d = jet
    odds = np.exp(log_z - np.log1p(-np.exp(log_z)))
    n1 = -odds * g
    n2 = -odds * (h + g**2)
    n3 = -odds * (c + 3 * g * h + g**3)
    n4 = -odds * (d + 4 * g * c + 3 * h**2 + 6 * g**2 * h + g**4)
    return Jet(
        np.log1p(-np.exp(log_z)),
        n1,
        n2 - n1**2,
        n3 - 3 * n1 * n2 + 2 * n1**3,
        n4 - 4 * n1 * n3 - 3 * n2**2 + 12 * n1**2 * n2 - 6 * n1**4,
    )
