"""The interface of a likelihood, and the jets of log Z that a binary one consists of."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import numpy as np

from postlin._typing import Array, override
from postlin.linalg.functions import functions


class Response(NamedTuple):
    """Slope g and curvature ρ of a likelihood at N(m, v), and their derivatives by m and v."""

    g: Array
    rho: Array
    g_by_m: Array
    g_by_v: Array
    rho_by_m: Array
    rho_by_v: Array


class Change(NamedTuple):
    """Derivatives of log Z_y, slope g and curvature ρ by a parameter of the likelihood."""

    log_z: Array
    g: Array
    rho: Array


class Jet(NamedTuple):
    """log Z_y(m, v) and its first four derivatives in m: g, h, c, d."""

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


#: The derivatives of log Z_y, g and h by a parameter of the likelihood.
JetChange = tuple[Array, Array, Array]


def mirror(jet: Jet, y: Array | float = -1.0) -> Jet:
    """The jet of log Z_y at m where Z_y(m) = Z₊(y m), from the jet of log Z₊ at y m."""
    return Jet(jet.log_z, y * jet.g, jet.h, y * jet.c, jet.d)


def both_labels(jet_of: Callable[[Array], Jet], z: Array) -> tuple[Jet, Jet]:
    """The jets of log Z₊ and log Z₋ where Z₋(m) = Z₊(−m); ``jet_of`` maps z ∝ m to that of log Z₊."""
    if np.ndim(z) == 0:  # two calls are faster than one for an array of both
        return jet_of(z), mirror(jet_of(-z))
    both = jet_of(functions(z).rows([z, -z]))
    plus, minus = (Jet(*parts) for parts in zip(*both, strict=True))
    return plus, mirror(minus)


def select(choose: np.ndarray, if_true: Jet, if_false: Jet) -> Jet:
    """The first jet at the points that ``choose`` marks, and the second at the others."""
    return Jet(*functions(if_true.g).where_each(choose, if_true, if_false))


def complement(jet: Jet) -> Jet:
    """The jet of log(1 − Z) from that of log Z; it is accurate while Z ≤ ½."""
    log_z, g, h, c, d = jet
    f = functions(log_z)
    log_rest = f.log1p(-f.exp(log_z))
    odds = f.exp(log_z - log_rest)
    n1 = -odds * g  # nₖ = (1 − Z)⁽ᵏ⁾/(1 − Z) is Z⁽ᵏ⁾/Z times −Z/(1 − Z)
    n2 = -odds * (h + g**2)
    n3 = -odds * (c + 3 * g * h + g**3)
    n4 = -odds * (d + 4 * g * c + 3 * h**2 + 6 * g**2 * h + g**4)
    return Jet(
        log_rest,
        n1,
        n2 - n1**2,
        n3 - 3 * n1 * n2 + 2 * n1**3,
        n4 - 4 * n1 * n3 - 3 * n2**2 + 12 * n1**2 * n2 - 6 * n1**4,
    )


class Likelihood(ABC):
    """p(y|f) as posterior linearisation needs it: the statistical linear regression of y on f."""

    name: ClassVar[str]
    #: Whether p(y|f) is known, which Laplace, EP and the evidence from cavities need.
    has_density: ClassVar[bool] = True
    #: Whether all methods work with arrays of any library that has special functions.
    anywhere: bool = False
    #: Whether log p(y|f) is known to be concave in f, so that a rule has one fixed point.
    log_concave: bool = False
    #: The names of the attributes by which this likelihood can be differentiated.
    parameters: tuple[str, ...] = ()

    @abstractmethod
    def regression(self, y: Array, m: Array, v: Array) -> Response:
        """Slope A(y − E[y])/V and curvature A²/V of the regression of y on f ~ N(m, v).

        V is the total variance of y and A the regression coefficient: paper eqs. (13), (14).
        """

    def regression_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        """Derivatives of log Z_y, slope and curvature of the regression by each of ``parameters``."""
        return []

    @abstractmethod
    def log_average(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """log Z_y, the log probability (density) of y for f ~ N(m, v), and its derivatives by m and v.

        Where only conditional moments are known, it is that of the Gaussian with the moments of y.
        """

    def density_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        """Derivatives of log Z_y, its slope and its curvature −h_y by each of ``parameters``."""
        return []

    @abstractmethod
    def check_targets(self, y: Array) -> None:
        """Raise ``ValueError`` if y holds values that this likelihood cannot produce."""

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({options})"


class BinaryLikelihood(Likelihood):
    """p(y|f) for labels y ∈ {−1, +1}.

    A subclass sets its ``name`` and implements :meth:`jets`; one line in ``likelihoods/__init__.py``
    registers it. ``DensityLikelihood`` computes the jets from log p(y|f) alone.
    """

    #: Whether log p(y|f) has derivatives in f, which Laplace needs.
    differentiable: bool = True
    #: Whether p(y|f) depends on y f alone; labels are then predicted without variances.
    symmetric: bool = False

    @abstractmethod
    def jets(self, m: Array, v: Array) -> tuple[Jet, Jet]:
        """The jets of log Z₊ and log Z₋ at N(m, v); at v = 0 those of log p(±1|f = m)."""

    def jet(self, y: Array, m: Array, v: Array) -> Jet:
        """The jet of log Z_y for labels y of ±1."""
        plus, minus = self.jets(m, v)
        return select(functions(m).asarray(y) > 0, plus, minus)

    def slopes(self, m: Array, v: Array) -> tuple[Array, Array]:
        """g₊ and g₋; the sites of PL need nothing else."""
        plus, minus = self.jets(m, v)
        return plus.g, minus.g

    @property
    def free(self) -> dict[str, tuple[float, float]]:
        """Bounds of the parameters that are learned with the kernel's; they must be positive."""
        return {}

    @property
    def other_starts(self) -> list[dict[str, float]]:
        """Further values of the free parameters from which a search should start."""
        return []

    def replaced(self, **parameters: float) -> Self:
        """A copy of this likelihood with other parameters."""
        other = copy.copy(self)
        for name, value in parameters.items():
            setattr(other, name, value)
        return other

    def jet_changes(self, m: Array, v: Array) -> list[tuple[JetChange, JetChange]]:
        """Derivatives of log Z, g and h of both labels by each of ``parameters``."""
        return []

    @override
    def log_average(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        jet = self.jet(y, m, v)
        return jet.log_z, jet.g, jet.log_z_by_v

    @override
    def density_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        f = functions(m)
        positive = f.asarray(y) > 0
        chosen = (f.where_each(positive, plus, minus) for plus, minus in self.jet_changes(m, v))
        return [Change(log_z, g, -h) for log_z, g, h in chosen]

    def regression_changes(self, y: Array, m: Array, v: Array) -> list[Change]:
        """Derivatives of log Z_y, its slope and the curvature −g₊g₋ by each of ``parameters``."""
        f = functions(m)
        positive = f.asarray(y) > 0
        plus, minus = self.slopes(m, v) if self.parameters else (0.0, 0.0)
        found = []
        for by_plus, by_minus in self.jet_changes(m, v):
            log_z, g, _ = f.where_each(positive, by_plus, by_minus)
            found.append(Change(log_z, g, -(by_plus[1] * minus + plus * by_minus[1])))
        return found

    def regression(self, y: Array, m: Array, v: Array) -> Response:
        """Slope g_y and curvature −g₊g₋, which are A(y − E[y])/V and A²/V without their 0/0.

        Here A = 2 Z₊g₊, E[y] = 2 Z₊ − 1 and V = 4 Z₊Z₋ (the supplement's 1 − α² is a misprint).
        """
        plus, minus = self.jets(m, v)
        f = functions(m)
        positive = f.asarray(y) > 0
        return Response(
            g=f.where(positive, plus.g, minus.g),
            rho=-plus.g * minus.g,
            g_by_m=f.where(positive, plus.h, minus.h),
            g_by_v=f.where(positive, plus.g_by_v, minus.g_by_v),
            rho_by_m=-(plus.h * minus.g + plus.g * minus.h),
            rho_by_v=-(plus.g_by_v * minus.g + plus.g * minus.g_by_v),
        )

    def check_targets(self, y: Array) -> None:
        """Raise ``ValueError`` if y holds anything but −1 and +1."""
        strange = np.flatnonzero(np.abs(y) != 1.0)
        if len(strange):
            raise ValueError(
                f"y must hold only -1 and +1 for the {self.name} likelihood, but y[{strange[0]}] "
                f"is {y[strange[0]]:g}; use GPClassifier for labels of other kinds."
            )
