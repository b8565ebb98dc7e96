"""What the solver asks of a problem. Exact and joint inference fulfil it, each with arrays of its own.

A problem is to find sites that equal what the rule proposes at the posterior that they make.
"""

from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from postlin._typing import Array
from postlin.rules.sites import SiteRule, Sites


class Step(NamedTuple):
    """A step in the residual's units, and its pseudo-time, which is infinite for Newton's method."""

    step: Array
    time: float


class Swept(NamedTuple):
    """The sites after a sweep, and which of them a policy has changed."""

    sites: Sites
    overruled: np.ndarray


class Posterior(Protocol):
    """The Gaussian that a prior and sites make. It holds one matrix, which it can give back."""

    sites: Sites

    @property
    def mean(self) -> Array:
        """Posterior means."""

    @property
    def variance(self) -> Array:
        """Posterior variances."""

    def release(self) -> None:
        """Free the matrix. What is known stays; other questions cost a factorisation again."""

    @property
    def is_released(self) -> bool:
        """Whether the next question costs a factorisation."""


class Proposed(Protocol):
    """What the rule proposes."""

    @property
    def sites(self) -> Sites:
        """The proposed sites."""

    @property
    def overruled(self) -> np.ndarray:
        """Which of them a policy has changed."""


class Iterate(Protocol):
    """Sites with their posterior, and what the rule proposes instead."""

    @property
    def posterior(self) -> Posterior:
        """The posterior that the sites make."""

    @property
    def proposal(self) -> Proposed:
        """What the rule proposes there."""

    @property
    def residual(self) -> Array:
        """The move that the rule asks for, in units of the marginals."""

    @property
    def size(self) -> float:
        """The largest entry of the residual; not finite if any entry is not."""

    @property
    def rounding(self) -> float:
        """The residual that rounding alone can cause: no iteration gets below it."""

    def moved(self, step: Array) -> Sites:
        """The sites after a step in the residual's units."""


class Jacobian(Protocol):
    """The Jacobian J of the undamped map from sites to proposed sites, in the residual's units."""

    def solve(self, right: Array, *, time: float, rtol: float) -> Array:
        """((1 + 1/time) I − J)⁻¹ right: a Newton step, or an implicit step of pseudo-time."""

    def residual_after(self, step: Array) -> Array | None:
        """The residual to expect after a step; None where the rule has no answer there."""


I = TypeVar("I", bound=Iterate)  # noqa: E741
I_in = TypeVar("I_in", bound=Iterate, contravariant=True)


class Climb(Protocol[I_in]):
    """Newton's method for the mode, written as an iteration of sites."""

    def sites(self) -> Sites:
        """The sites at the present point. The mean of the posterior that they make is Newton's next."""

    def advance(self, iterate: I_in) -> None:
        """Go towards the mean of this iterate, as far as that leads up."""


class Problem(Protocol[I]):
    """Find sites that equal what the rule proposes at the posterior that they make."""

    @property
    def rule(self) -> SiteRule:
        """The rule that sets the sites."""

    @property
    def no_sites(self) -> Sites:
        """Sites of zeros, with which the posterior is the prior."""

    def iterate(self, sites: Sites) -> I:
        """The iterate at these sites: one factorisation."""

    def try_iterate(self, sites: Sites) -> I | None:
        """The iterate, or None where the sites make no posterior or the numbers break down."""

    def prior_proposal(self) -> Proposed:
        """What the rule proposes at the prior."""

    def cautious_sites(self, iterate: I | None) -> Sites:
        """Sites that are never far too weak, at an iterate or at the prior."""

    def sweep(self, iterate: I | None, damping: float, *, block: int) -> Swept:
        """The sites after a damped sequential sweep from an iterate, or from the prior."""

    def newton_step(self, iterate: I, *, time: float) -> Step:
        """A Newton step, or an implicit step of this pseudo-time or less."""

    def climb(self, iterate: I | None) -> Climb[I]:
        """Newton's method for the mode from an iterate, or from the prior; where ``rule.is_newton``."""
