"""What the solver asks of a problem. Exact and joint inference fulfil it, each with arrays of its own.

A Newton step is checked before anything is factorised. The rule's proposal at the marginals that are
predicted for the end of the step shows what the linear step has missed, and a second solve corrects
it: together they leave about a tenth of the residual that the first alone would. Where the prediction
shows that Newton's step would lead farther away, the solver takes a shorter one, an implicit step of
pseudo-time, without spending a factorisation to find that out.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from postlin._typing import Array, cached_property
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.linalg.arrays import Matrix
from postlin.linalg.krylov import gmres, spectral_radius
from postlin.rules.joint_sites import JointProposal
from postlin.rules.sites import Proposal, SiteRule, Sites

#: Relative accuracy of the linear solves far from the solution, and near it.
_ROUGH, _FINE = 1e-2, 1e-6
#: Pseudo-times that are tried where a Newton step would increase the residual: the first, the factor by
#: which each further one is shorter, and the last.
_LONG, _SHORTER, _SHORT = 8.0, 2.0, 1.0
#: A correction that is longer than this part of the step is not used.
_SMALL = 0.5
#: Relative accuracy of the mean that is predicted for the end of a step.
MEAN_ACCURACY = 1e-4
#: No variance is predicted to fall below this part of its present value.
LEAST = 0.1
_EPS = float(np.finfo(float).eps)


class Step(NamedTuple):
    """A step in the residual's units, and its pseudo-time, which is infinite for Newton's method."""

    step: Array
    time: float


class Posterior(ABC):
    """The Gaussian that a prior and sites make. It holds one large matrix, which it can release."""

    sites: Sites
    mean: Array
    weights: Array  # the mean is the prior mean plus the prior covariance times these

    @property
    @abstractmethod
    def variance(self) -> Array:
        """Posterior variances."""

    @property
    @abstractmethod
    def covariance(self) -> Matrix:
        """The posterior covariance Σ as a new matrix."""

    def release(self) -> None:
        """Free the matrix. Computed vectors stay; anything else costs another factorisation."""
        self.__dict__.pop("_factor", None)
        self.__dict__.pop("correlation", None)

    @property
    def is_released(self) -> bool:
        """Whether the matrix is freed, so that the next question costs a factorisation."""
        return not {"_factor", "correlation"} & self.__dict__.keys()


class Iterate(ABC):
    """Sites with their posterior, and the sites that the rule proposes there."""

    posterior: Posterior
    proposal: Proposal | JointProposal

    @property
    @abstractmethod
    def residual(self) -> Array:
        """The move from the present to the proposed sites, in units of the marginals."""

    @cached_property
    def size(self) -> float:
        """The largest entry of the residual; not finite if any entry is not."""
        return float(np.abs(self.residual).max())

    @property
    @abstractmethod
    def strength(self) -> float:
        """The largest product of a site's precision and its prior variance."""

    @property
    def rounding(self) -> float:
        """The residual that rounding in the factorisation can cause: no iteration gets below it.

        The relative error of the log evidence is of the same order or smaller: measured against 60
        digits it was at most a tenth of this, with rank-one covariances of up to 1e13 and weights.
        """
        return 8.0 * _EPS * (1.0 + self.strength)

    @abstractmethod
    def moved(self, step: Array) -> Sites:
        """The sites after a step in the residual's units."""


I = TypeVar("I", bound=Iterate)  # noqa: E741


class Climb(Protocol):
    """Newton's method for the mode, written as an iteration of sites."""

    def sites(self) -> Sites:
        """The sites at the present point. The mean of their posterior is where Newton's step leads."""

    def advance(self, iterate: Iterate) -> None:
        """Go from the present point towards the iterate's mean, as far as the density increases."""


class Problem(ABC, Generic[I]):
    """Find sites that equal what the rule proposes at the posterior that they make."""

    rule: SiteRule

    @property
    @abstractmethod
    def no_sites(self) -> Sites:
        """Sites of zeros, with which the posterior is the prior."""

    @abstractmethod
    def iterate(self, sites: Sites, *, strict: bool = False) -> I:
        """The iterate at these sites: one factorisation.

        With ``strict``, variances without a correct digit raise ``NotPositiveDefiniteError``.
        """

    def try_iterate(self, sites: Sites) -> I | None:
        """The iterate, or None where the sites make no posterior or the numbers break down."""
        if not sites.are_finite():
            return None
        try:
            with np.errstate(all="ignore"):  # a trial may overflow, which is checked below
                iterate = self.iterate(sites, strict=True)
                return iterate if np.isfinite(iterate.size) else None
        except (NotPositiveDefiniteError, ImproperCavityError):
            return None

    @abstractmethod
    def prior_proposal(self) -> Proposal | JointProposal:
        """The sites that the rule proposes at the prior."""

    @abstractmethod
    def cautious_sites(self, iterate: I | None) -> Sites:
        """Sites that are never far too weak, at an iterate or at the prior."""

    @abstractmethod
    def newton_step(self, iterate: I, *, time: float) -> Step:
        """A Newton step, or an implicit step of this pseudo-time or less."""

    def sweep(self, iterate: I | None, damping: float, *, block: int) -> tuple[Sites, np.ndarray]:
        """The sites after a damped sequential sweep, and which of them a policy has changed.

        The sweep starts from an iterate or from the prior. Joint inference has no sweeps.
        """
        raise NotImplementedError

    def climb(self, iterate: I | None) -> Climb:
        """Newton's method for the mode from an iterate or the prior, for a rule that ``is_newton``."""
        raise NotImplementedError


class Jacobian(ABC):
    """The Jacobian J of the undamped parallel map from sites to proposed sites, at an iterate.

    Vectors are flat and in the residual's units. The spectral radius of J may exceed one, so linear
    systems with I − J are solved by GMRES and not by fixed-point iteration.
    """

    #: Dimensions of the Krylov spaces, for steps and for the adjoint.
    krylov: ClassVar[int]
    long_krylov: ClassVar[int]

    @abstractmethod
    def apply(self, step: Array) -> Array:
        """J times a step."""

    @abstractmethod
    def apply_transposed(self, adjoint: Array) -> Array:
        """Jᵀ times a vector."""

    @abstractmethod
    def residual_after(self, step: Array) -> Array | None:
        """The residual predicted for the end of a step; None where the rule proposes nothing there."""

    def solve(self, right: Array, *, time: float, rtol: float) -> Array:
        """((1 + 1/time) I − J)⁻¹ right: a Newton step, or an implicit step of pseudo-time."""
        diagonal = 1.0 + 1.0 / time
        step: Array
        step, _ = gmres(lambda x: diagonal * x - self.apply(x), right, rtol=rtol, dimension=self.krylov)
        return step

    def solve_transposed(self, right: Array, *, rtol: float) -> tuple[Array, bool]:
        """(I − Jᵀ)⁻¹ right, and whether the tolerance was reached."""
        return gmres(
            lambda x: x - self.apply_transposed(x), right, rtol=rtol, dimension=self.long_krylov
        )

    def spectral_radius(self, size: int) -> float:
        """max |eigenvalue of J|: below one, the plain iteration converges locally."""
        return spectral_radius(self.apply, np.random.default_rng(0).standard_normal(size))

    def newton_step(self, residual: Array, size: float, time: float) -> Step:
        """A corrected Newton step, or an implicit step of this pseudo-time, or of less if need be.

        ``size`` is the largest entry of the residual.
        """
        # Newton's method squares the residual: near the end the solves must be accurate enough for it.
        rtol = min(_ROUGH, max(size, _FINE))
        step = self.solve(residual, time=time, rtol=rtol)
        missed = self.residual_after(step)
        while missed is not None and np.abs(missed).max() > size and time > _SHORT:
            time = min(_LONG, time / _SHORTER)
            step = self.solve(residual, time=time, rtol=rtol)
            missed = self.residual_after(step)
        if missed is None or np.isfinite(time):
            return Step(step, time)
        correction = self.solve(missed, time=time, rtol=rtol)
        is_small = np.abs(correction).max() < _SMALL * np.abs(step).max()
        return Step(step + correction if is_small else step, time)
