"""What a likelihood is to the rest of the library."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import numpy as np

from postlin._typing import Array


class Response(NamedTuple):
    """Slope g and curvature ρ of the likelihood at N(m, v), with their derivatives there."""

    g: Array
    rho: Array
    g_by_m: Array
    g_by_v: Array
    rho_by_m: Array
    rho_by_v: Array


class Change(NamedTuple):
    """How log Z_y, slope and curvature change with a parameter of the likelihood."""

    log_z: Array
    g: Array
    rho: Array


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


class Likelihood(ABC):
    """p(y|f) as posterior linearisation sees it: its statistical linear regression."""

    name: ClassVar[str]

    #: Whether there is a density p(y|f), as Laplace, EP and the cavity evidence need.
    has_density: ClassVar[bool] = True

    @abstractmethod
    def regression(self, y: Array, m: Array, v: Array) -> Response:
        """Slope A(y − E[y])/V and curvature A²/V of the regression of y on f ~ N(m, v).

        V is the total variance of y, A the regression coefficient: paper eqs. (13), (14).
        """

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the attributes by which it can be differentiated."""
        return ()

    def regression_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        """Derivatives of log Z_y and of the regression by each of ``parameters``."""
        return []

    @abstractmethod
    def check_targets(self, y: Array) -> None:
        """Raise ``ValueError`` where y is nothing this likelihood can explain."""

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({options})"


class BinaryLikelihood(Likelihood):
    """p(y|f) for labels y ∈ {−1, +1}.

    A subclass says its ``name`` and implements :meth:`jets`; one line in
    ``likelihoods/__init__.py`` registers it.
    """

    #: Whether log p(y|f) can be differentiated at a point (v = 0), as Laplace must.
    differentiable: bool = True

    #: Whether p(y|f) depends on y f alone; then labels are predicted without variances.
    symmetric: bool = False

    @abstractmethod
    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """The jets of log Z₊ and of log Z₋ in m, at N(m, v); v = 0 means the density itself."""

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """The jet of log Z_y, for labels y of ±1."""
        plus, minus = self.jets(m, v)
        return select(np.asarray(y) > 0, plus, minus)

    def slopes(self, m: Array, v: Array) -> tuple[Array, Array]:
        """g₊ and g₋ alone, which is all that sites of PL need."""
        plus, minus = self.jets(m, v)
        return plus.g, minus.g

    @property
    def free(self) -> dict[str, tuple[float, float]]:
        """Bounds of those among them that are learned with the kernel's, which must be positive."""
        return {}

    @property
    def other_starts(self) -> list[dict[str, float]]:
        """Values of free parameters from where a search should begin too, where one is not enough."""
        return []

    def replaced(self, **parameters: float) -> Self:
        """The same likelihood with other parameters."""
        other = copy.copy(self)
        for name, value in parameters.items():
            setattr(other, name, value)
        return other

    def jet_changes(self, m: Array, v: Array) -> list[tuple[JetChange, JetChange]]:
        """Derivatives of both labels' jets by each of ``parameters``."""
        return []

    def density_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        """Derivatives of log Z_y, its slope and its curvature −h_y by each of ``parameters``."""
        chosen = [
            [np.where(np.asarray(y) > 0, p, q) for p, q in zip(plus, minus, strict=True)]
            for plus, minus in self.jet_changes(m, v)
        ]
        return [Change(log_z, g, -h) for log_z, g, h in chosen]

    def regression_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        """The same with the regression's curvature −g₊g₋."""
        changes = self.jet_changes(m, v)
        g_plus, g_minus = self.slopes(m, v) if changes else (0.0, 0.0)
        return [
            density._replace(rho=-(plus.g * g_minus + g_plus * minus.g))
            for density, (plus, minus) in zip(self.density_changes(y, m, v), changes, strict=True)
        ]

    def regression(self, y: Array, m: Array, v: Array) -> Response:
        """Slope g_y and curvature −g₊g₋: A²/V and A(y − E[y])/V without their 0/0.

        With A = 2 Z₊g₊, E[y] = 2 Z₊ − 1 and V = 4 Z₊Z₋ (the supplement's 1 − α² is a misprint).
        """
        plus, minus = self.jets(m, v)
        positive = np.asarray(y) > 0
        return Response(
            g=np.where(positive, plus.g, minus.g),
            rho=-plus.g * minus.g,
            g_by_m=np.where(positive, plus.h, minus.h),
            g_by_v=np.where(positive, plus.g_by_v, minus.g_by_v),
            rho_by_m=-(plus.h * minus.g + plus.g * minus.h),
            rho_by_v=-(plus.g_by_v * minus.g + plus.g * minus.g_by_v),
        )

    def check_targets(self, y: Array) -> None:
        """Only −1 and +1 are labels."""
        strange = np.flatnonzero(np.abs(y) != 1.0)
        if len(strange):
            raise ValueError(
                f"y must hold only -1 and +1 for the {self.name} likelihood, but y[{strange[0]}] "
                f"is {y[strange[0]]:g}; use GPClassifier for labels of other kinds."
            )


def symmetric_regression(y: Array, g: Array, h: Array, c: Array) -> Response:
    """``regression`` where p(y|f) depends on y f alone, by L(m) = log Z₊(m).

    Given are the first three derivatives of L at y m and at −y m, arrays [which, point].
    """
    g_by_v = 0.5 * c + g * h
    return Response(
        g=y * g[0],
        rho=g[0] * g[1],
        g_by_m=h[0],
        g_by_v=y * g_by_v[0],
        rho_by_m=y * (h[0] * g[1] - g[0] * h[1]),
        rho_by_v=g_by_v[0] * g[1] + g[0] * g_by_v[1],
    )
