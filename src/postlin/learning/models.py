"""Models: data and method, from which hyperparameters make an approximation.

``Model`` is what learning needs; ``ExactModel`` is the model of two classes without inducing points.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, override
from postlin.inference.exact.evidence import ExactApproximation, PullBack
from postlin.inference.exact.problem import ExactProblem
from postlin.inference.result import EXACT, Adjoint, Approximation, Record, warnings_about
from postlin.inference.solver import solve
from postlin.kernels import (
    Gram,
    Term,
    WhiteSplit,
    bind,
    bind_checked,
    can_split,
    cross_covariance,
    full_gram,
    split_white,
)
from postlin.learning.hyperparameters import Hyperparameters
from postlin.likelihoods import WithNoise
from postlin.linalg.arrays import HOST, Matrix, Place, add_to_diagonal, diagonal
from postlin.linalg.minimise import Worth
from postlin.rules.binary import Rule
from postlin.rules.sites import SiteRule, Sites
from postlin.rules.weights import UNIT, Weights
from postlin.schedules import Schedule

#: An extrapolation farther than this, in known steps, is not trusted.
_FAR = 5.0
#: Changes of log τ beyond which a site is left as it was.
STEADY = 5.0
#: How many solved points are kept.
_MEMORY = 8


class SitePath:
    """Solved sites along the path of an optimiser, and starts that are extrapolated from them."""

    def __init__(self, start: Sites | None = None) -> None:
        self._default = start
        self._solved: list[tuple[Array, Sites]] = []

    def add(self, theta: Array, sites: Sites) -> None:
        """Remember the sites that were found at theta."""
        others = [solved for solved in self._solved if not np.array_equal(solved[0], theta)]
        self._solved = [*others[-_MEMORY + 1 :], (np.array(theta), sites)]

    def predict(self, theta: Array) -> Sites | None:
        """Sites to start from at theta, linear in theta through the nearest solved points.

        Precisions are extrapolated by their logarithms, so that positive ones stay positive.
        """
        if not self._solved:
            return self._default
        near = sorted(self._solved, key=lambda point: float(np.sum((point[0] - theta) ** 2)))
        origin, sites = near[0]
        near = near[1 : len(theta) + 1]
        if not near:
            return sites
        steps = np.array([other - origin for other, _ in near])
        weights, *_ = np.linalg.lstsq(steps.T, theta - origin, rcond=1e-3)
        if np.abs(weights).sum() > _FAR:
            return sites
        return self.extrapolated(
            sites, [(w, other) for w, (_, other) in zip(weights, near, strict=True)]
        )

    @staticmethod
    def extrapolated(sites: Sites, others: list[tuple[float, Sites]]) -> Sites:
        """``sites`` moved by the given part of the way to each of the others."""
        here = _coordinates(sites)
        log_tau, pull = here + sum(weight * (_coordinates(other) - here) for weight, other in others)
        # a precision that vanishes by orders of magnitude is not linear in theta
        steady = np.abs(log_tau - here[0]) < STEADY
        positive = (sites.tau > 0) & steady
        root = np.exp(0.5 * np.where(steady, log_tau, 0.0))
        return Sites(np.where(positive, root**2, sites.tau), np.where(positive, root * pull, sites.nu))


def _coordinates(sites: Sites) -> Array:
    """log τ and ν/√τ, of which the latter does not change when the prior is only scaled."""
    tau = np.where(sites.tau > 0, sites.tau, 1.0)
    return np.array([np.log(tau), sites.nu / np.sqrt(tau)])


Start = TypeVar("Start")


class Path(Protocol[Start]):
    """What remembers solutions along a search, and where to start at other hyperparameters."""

    def add(self, theta: Array, start: Start) -> None:
        """Remember what was found at theta."""

    def predict(self, theta: Array) -> Start | None:
        """What to start from at theta."""


class Model(ABC, Generic[Start]):
    """Data and method: everything about a fit but the hyperparameters."""

    X: np.ndarray  # the training rows and their labels, where they are in memory
    y: np.ndarray
    rule: SiteRule
    tol: float
    max_iter: int
    schedule: Schedule

    #: How exact the adjoint of a gradient may be asked to be.
    adjoint_accuracy: ClassVar[float] = EXACT

    @property
    def worth(self) -> Worth:
        """What is worth an evaluation of the evidence in a search."""
        return Worth()

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of rows."""

    @abstractmethod
    def infer(
        self, at: Hyperparameters, start: Start | None = None, tol: float | None = None
    ) -> Approximation[Start]:
        """The approximation at these hyperparameters."""

    @abstractmethod
    def revive(
        self, at: Hyperparameters, kept: tuple[Array, Array], record: Record, log_evidence: float
    ) -> Approximation[Start]:
        """The approximation that was found before, from what was kept of it."""

    @abstractmethod
    def path(self, start: Start | None) -> Path[Start]:
        """What remembers solutions along a search that begins at ``start``."""

    def forget(self) -> None:
        """Drop what is kept between evaluations."""

    @property
    def can_sweep(self) -> bool:
        """Whether the sequential schedule can be used."""
        return False

    def warnings(self, record: Record) -> list[Warning]:
        """What a user must be told about an inference with this record."""
        return warnings_about(
            record,
            self.rule,
            self.schedule,
            self.tol,
            self.max_iter,
            "max_iter_predict",
            can_sweep=self.can_sweep,
        )


@dataclass
class ExactModel(Model[Sites]):
    """Two classes, exactly.

    ``fold_noise`` moves the kernel's white noise into the likelihood. With weights white noise belongs
    to each observation, so that integer weights mean repeated rows. ``place`` is where matrices are
    kept.
    """

    X: np.ndarray
    y: Array
    rule: Rule
    schedule: Schedule
    tol: float
    max_iter: int
    fold_noise: bool = False
    weights: Weights = UNIT
    place: Place = HOST
    _term: Term | None = field(default=None, repr=False)

    @property
    @override
    def n_rows(self) -> int:
        return len(self.y)

    @property
    @override
    def can_sweep(self) -> bool:
        return self.place.is_host

    def __getstate__(self) -> dict[str, object]:
        """Distances are computed again where they are needed again, in NumPy's memory."""
        return {name: value for name, value in vars(self).items() if name not in ("_term", "place")}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` where the kernel makes no covariance of the data."""
        split = self._split(kernel)
        self._term = bind_checked(split.smooth if split else kernel, self.X, len(self.y), self.place)

    @override
    def forget(self) -> None:
        self._term = None  # distances, which are as large as a covariance

    @override
    def path(self, start: Sites | None) -> SitePath:
        return SitePath(start)

    @override
    def infer(
        self, at: Hyperparameters, start: Sites | None = None, tol: float | None = None
    ) -> ExactApproximation:
        problem, pull_back = self._problem(at)
        iterate, record = solve(
            problem, self.schedule, start=start, tol=tol or self.tol, max_iter=self.max_iter
        )
        plain = self.schedule.iterations is not None
        return ExactApproximation(record, problem, iterate, pull_back, plain)

    @override
    def revive(
        self, at: Hyperparameters, kept: tuple[Array, Array], record: Record, log_evidence: float
    ) -> ExactApproximation:
        problem, pull_back = self._problem(at)
        return ExactApproximation(record, problem, problem.iterate(Sites(*kept)), pull_back)

    def latent_kernel(self, kernel: Kernel) -> Kernel:
        """The kernel of the latent values that predictions are about."""
        return split_white(kernel).smooth if self.fold_noise else kernel

    def cross(self, kernel: Kernel, new: np.ndarray) -> Matrix:
        """Covariances of the data with new rows, where matrices are kept."""
        return cross_covariance(kernel, self.X, new, self.place)

    def _problem(self, at: Hyperparameters) -> tuple[ExactProblem, PullBack]:
        """The problem at these hyperparameters, and the pull-back of its adjoint to them."""
        split = self._split(at.kernel)
        kernel = split.smooth if split else at.kernel
        if self._term is None:
            self._term = bind(kernel, self.X, self.place)
        gram = full_gram(self._term.gram(kernel), len(self.y), self.place)
        likelihood, weights = at.likelihood, self.weights
        if split and self.fold_noise:
            likelihood = WithNoise(likelihood, split.noise)
        elif split:
            weights = weights.with_noise(split.noise)
            add_to_diagonal(gram.K, weights.mean_noise)
        problem = ExactProblem(gram.K, np.zeros_like(self.y), self.y, likelihood, self.rule, weights)
        return problem, _PullBack(at, gram, split)

    def _split(self, kernel: Kernel) -> WhiteSplit | None:
        """The kernel without its white noise, where that is treated apart."""
        apart = self.fold_noise or (not self.weights.is_unit and can_split(kernel))
        return split_white(kernel) if apart else None


@dataclass(frozen=True)
class _PullBack:
    """From an adjoint to derivatives of the log evidence by the free log-parameters."""

    at: Hyperparameters
    gram: Gram
    split: WhiteSplit | None

    def __call__(self, found: ExactApproximation, adjoint: Adjoint) -> Array:
        problem, weights = found.problem, found.problem.weights
        by_parameters = dict(zip(problem.likelihood.parameters, adjoint.by_parameters, strict=True))
        K_bar = found.by_covariance(adjoint)
        by_kernel = self.gram.pull_back(K_bar)
        if self.split is not None:
            by_noise = by_parameters.get("variance", 0.0)
            if weights.noise > 0:
                tau = weights.one(found.iterate.view).tau
                by_noise = weights.by_noise(tau, diagonal(K_bar), adjoint.variance_bar)
            by_kernel = self.split.join(by_kernel, by_noise)
        return np.array(by_kernel + self.at.by_likelihood(by_parameters), dtype=float)
