"""What inference returns, whatever its kind: an approximation, and the record of how it was reached."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np

from postlin._typing import Array, override
from postlin.exceptions import ConvergenceWarning
from postlin.inference.contract import I
from postlin.linalg.arrays import Matrix
from postlin.rules.sites import SiteRule, Sites
from postlin.schedules import Schedule

#: What inference can start from: sites, or with inducing points a state.
Start = TypeVar("Start")

#: The default relative tolerance of the adjoint solve.
EXACT = 1e-11

#: Where rounding can cause a larger residual than the first, inference has not converged, whatever the
#: residual is. Above the second the evidence can be wrong by nats, and no search uses it.
COARSE, UNUSABLE = 1e-5, 1e-3


#: What is said where there is no correction.
NO_CORRECTION = "the correction is known for exact inference with two classes only."


@dataclass(repr=False)
class History:
    """The residual and the posterior means of every iteration."""

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
    overruled: np.ndarray  # which sites a policy of EP has changed at any time
    unsolved: int = 0  # with inducing points: the number of rows not solved in the last pass
    rounding: float = 0.0  # the residual that rounding in the factorisation can cause
    doubt: str = ""  # why the evidence is unusable although inference came to an end, if it is


@dataclass(frozen=True, eq=False, repr=False)
class Approximation(ABC, Generic[Start]):
    """A Gaussian approximation of the posterior over latent values."""

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
        """The arrays that are stored, from which the approximation can be restored."""

    def without_gradient(self) -> Self:
        """The approximation without the arrays that only its gradient by log-parameters needs."""
        return self

    @property
    def converged(self) -> bool:
        """Whether the residual is below the tolerance.

        Where the covariance is so ill-conditioned that rounding alone causes a larger residual, of up
        to 1e-6, that is the tolerance: compare ``residual``. Where rounding leaves fewer than five
        digits, inference has not converged.
        """
        return self.record.converged

    @property
    def residual(self) -> float:
        """The largest move from a site to the site that the rule proposes, in units of the marginal."""
        return self.record.residual

    @property
    def is_clean(self) -> bool:
        """Whether inference converged and no policy has changed a site on the way."""
        return self.converged and not self.record.overruled.any()

    @property
    def is_unusable(self) -> bool:
        """Whether inference ended so far from a fixed point that its evidence is unusable."""
        return False

    @property
    def correction(self) -> float:
        """What to add to the log evidence, to second order in what the Gaussian misses."""
        raise AttributeError(NO_CORRECTION)

    @property
    def is_trustworthy(self) -> bool:
        """Whether that is so small, and so well known, that the approximation can be trusted."""
        raise AttributeError(NO_CORRECTION)

    @property
    def is_correction_trustworthy(self) -> bool:
        """Whether the corrected evidence and probabilities can be trusted."""
        raise AttributeError(NO_CORRECTION)

    @property
    def corrected_log_evidence(self) -> float:
        """The log evidence plus the correction."""
        return self.log_evidence + self.correction

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
        """The residual and the posterior means of every iteration."""
        return self.record.history

    @property
    def effort(self) -> str:
        """The cost of inference, in words."""
        return f"{self.n_factorisations} factorisations"

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        return (
            f"<{type(self).__name__}: {state}, residual {self.residual:.1e}, {self.effort}, "
            f"log evidence {self.log_evidence:.6g}>"
        )


class Adjoint(NamedTuple):
    """The arrays from which the gradient of log Z follows, given the posterior.

    ``mean_bar`` and ``variance_bar`` are total derivatives of log Z by the marginals that K makes at
    fixed sites, ``by_parameters`` those by the likelihood's parameters, and ``correction`` is the
    change of log Z, to first order, from the present sites to the fixed point.
    """

    mean_bar: Array
    variance_bar: Array
    by_parameters: Array
    correction: float


P = TypeVar("P")


def _no_hyperparameters(approximation: object, adjoint: object) -> Array:
    return np.zeros(0)


@dataclass(frozen=True, eq=False, repr=False)
class SiteApproximation(Approximation[Sites], Generic[P, I]):
    """The approximation that sites make at the last iterate of the solver."""

    problem: P
    iterate: I
    #: From this approximation and its adjoint to the derivatives by the free log-parameters.
    pull_back: Callable[[Self, Adjoint], Array] = _no_hyperparameters

    @property
    @override
    def is_unusable(self) -> bool:
        return self.record.rounding > UNUSABLE or bool(self.record.doubt)

    @property
    def mean(self) -> Array:
        """Posterior means: of the latent values (n,), or jointly of the contrasts (n, C − 1)."""
        return self.iterate.posterior.mean

    @property
    def variance(self) -> Array:
        """Posterior variances (n,), or jointly the covariances of each point (n, C − 1, C − 1)."""
        return self.iterate.posterior.variance

    @property
    def covariance(self) -> Matrix:
        """The posterior covariance matrix, as an array of K's kind."""
        return self.iterate.posterior.covariance

    @property
    def sites(self) -> Sites:
        """The Gaussian factors, ``sites.tau`` and ``sites.nu``; pass them on as ``start``."""
        return self.iterate.posterior.sites

    @property
    @override
    def start(self) -> Sites:
        return self.sites

    @property
    @override
    def kept(self) -> tuple[Array, Array]:
        return self.sites.tau, self.sites.nu

    @abstractmethod
    def adjoint(self, accuracy: float) -> Adjoint:
        """The solution of the adjoint equation, to a relative accuracy."""

    @override
    def value_and_gradient(self, accuracy: float = EXACT) -> tuple[float, Array]:
        adjoint = self.adjoint(accuracy)
        # the correction holds near a fixed point, even one that is reached to a loose tolerance only
        value = self.log_evidence + (adjoint.correction if self.converged else 0.0)
        return value, self.pull_back(self, adjoint)

    @override
    def without_gradient(self) -> Self:
        return replace(self, pull_back=_no_hyperparameters)


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
    """The warnings that an inference calls for, each of which names a remedy.

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
    if record.rounding > COARSE and schedule.iterations is None:
        found.append(
            ConvergenceWarning(
                f"rounding leaves relative errors of about {record.rounding:.0e} in the result: the "
                "kernel has variances that double precision cannot tell from infinite ones. To remedy "
                "it, lower the variance of the kernel, or the weights."
            )
        )
    elif not record.converged and schedule.iterations is None:
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
    doubt = f"{record.doubt}, and no search for hyperparameters uses it" if record.doubt else ""
    if policy is not None:
        found.append(type(policy)(f"{policy} With it {doubt}." if doubt else str(policy)))
    elif doubt:
        found.append(
            ConvergenceWarning(f"the evidence is unusable: {doubt}. To remedy it, {rule.remedy}.")
        )
    return found
