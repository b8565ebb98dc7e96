"""What inference returns, whatever its kind: an approximation, and the record of how it was reached."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ConvergenceWarning
from postlin.rules.sites import SiteRule
from postlin.schedules import Schedule

#: What inference can start from: sites, or with inducing points a state.
Start = TypeVar("Start")

#: The relative tolerance of the adjoint solve where nothing else is asked.
EXACT = 1e-11


@dataclass(repr=False)
class History:
    """What happened, iteration by iteration: residuals and posterior means."""

    residuals: list[float] = field(default_factory=list)
    means: list[Array] = field(default_factory=list)

    def __repr__(self) -> str:
        lines = [f"<History of {len(self.residuals)} iterations>", "iteration  residual"]
        return "\n".join(lines + [f"{k:9d}  {size:.2e}" for k, size in enumerate(self.residuals, 1)])


@dataclass(frozen=True)
class Record:
    """How a solve went. With inducing points ``n_iter`` and ``n_factorisations`` count passes."""

    converged: bool
    residual: float
    n_iter: int
    n_factorisations: int
    history: History
    overruled: np.ndarray  # sites that a policy of EP has changed at any time
    unsolved: int = 0  # with inducing points: rows whose own equation was not solved in the last pass


@dataclass(frozen=True, eq=False, repr=False)
class Approximation(ABC, Generic[Start]):
    """A Gaussian approximation of the posterior over latent values, and all that follows from it."""

    record: Record

    @property
    @abstractmethod
    def log_evidence(self) -> float:
        """The approximate log marginal likelihood log p(y)."""

    @abstractmethod
    def value_and_gradient(self, accuracy: float = EXACT) -> tuple[float, Array]:
        """The log evidence at the fixed point, and its gradient by the free log-parameters.

        The value is exact to second order in the residual, the gradient to the relative ``accuracy``
        of the adjoint solve.
        """

    @property
    @abstractmethod
    def start(self) -> Start:
        """What inference in a similar problem can start from."""

    @property
    @abstractmethod
    def kept(self) -> tuple[Array, Array]:
        """The arrays from which the approximation can be made again."""

    def without_gradient(self) -> Self:
        """The approximation without what only the gradient by log-parameters needs."""
        return self

    @property
    def converged(self) -> bool:
        """Whether the residual is below the tolerance.

        Where the covariance is so ill-conditioned that rounding alone moves the residual by more,
        up to 1e-6, that counts instead: compare ``residual``.
        """
        return self.record.converged

    @property
    def residual(self) -> float:
        """The largest move that the rule still asks for, in units of the marginal."""
        return self.record.residual

    @property
    def is_clean(self) -> bool:
        """Whether inference converged and no policy has changed a site on the way."""
        return self.converged and not self.record.overruled.any()

    @property
    def is_unusable(self) -> bool:
        """Whether inference ended so far from a fixed point that the evidence means nothing."""
        return False

    def spectral_radius(self) -> float:
        """The spectral radius of the undamped map at the solution, which exact inference knows."""
        raise AttributeError("the spectral radius is not known with inducing points.")

    @property
    def n_iter(self) -> int:
        """The number of iterations."""
        return self.record.n_iter

    @property
    def n_factorisations(self) -> int:
        """The number of Cholesky factorisations, including those of rejected steps."""
        return self.record.n_factorisations

    @property
    def history(self) -> History:
        """``history.residuals`` and ``history.means``, iteration by iteration."""
        return self.record.history

    @property
    def effort(self) -> str:
        """What inference took, in words."""
        return f"{self.n_factorisations} factorisations"

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return (
            f"<{type(self).__name__}: {state}, residual {self.residual:.1e}, {self.effort}, "
            f"log evidence {self.log_evidence:.6g}>"
        )


def warnings_about(
    record: Record,
    rule: SiteRule,
    schedule: Schedule,
    tol: float,
    max_iter: int,
    option: str = "max_iter",
    *,
    can_sweep: bool,
) -> list[Warning]:
    """What a user must be told about an inference, each with what to do about it.

    ``option`` is the name of the parameter that holds ``max_iter``; ``can_sweep`` tells whether the
    sequential schedule could solve the problem.
    """
    found: list[Warning] = []
    if schedule.iterations is not None and record.n_iter < schedule.iterations:
        found.append(
            ConvergenceWarning(
                f"plain iteration broke down after {record.n_iter} of {schedule.iterations} "
                "iterations; the result is where it stood. Use a schedule without iterations=."
            )
        )
    if not record.converged and schedule.iterations is None:
        cures = ["use schedule='sequential'"] if can_sweep else []
        spent = record.n_factorisations >= max_iter
        cures = [f"raise {option} (now {max_iter})"] if spent else [*cures, rule.remedy]
        found.append(
            ConvergenceWarning(
                f"inference stopped after {record.n_factorisations} factorisations with residual "
                f"{record.residual:.2g}, above tol={tol:g}; the result is approximate. To remedy it, "
                f"{', or '.join(cures)}. Extreme kernel parameters are the usual cause."
            )
        )
    policy = rule.policy_warning(record.overruled)
    return found if policy is None else [*found, policy]
