"""A model: data, likelihood and rule, from which every kernel makes an approximation."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.inference.exact.evidence import by_covariance
from postlin.inference.exact.problem import Problem
from postlin.inference.infer import Approximation
from postlin.inference.result import EXACT
from postlin.inference.solver import Record, Solution, solve
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
from postlin.linalg.arrays import Matrix, Place, add_to_diagonal, diagonal
from postlin.linalg.minimise import Worth
from postlin.rules.binary import EP, Rule
from postlin.rules.sites import Sites
from postlin.rules.weights import Observations
from postlin.schedules import Schedule

#: An extrapolation farther than this, in known steps, is not trusted.
_FAR = 5.0
#: Changes of log τ beyond which a site is left as it was.
STEADY = 5.0
#: How many solved points are kept.
_MEMORY = 8


class SitePath:
    """Solved sites along the path of an optimiser."""

    def __init__(self, start: Sites | None = None) -> None:
        self._default = start
        self._solved: list[tuple[Array, Sites]] = []

    def add(self, theta: Array, sites: Sites) -> None:
        """Remember the sites found at theta."""
        others = [solved for solved in self._solved if not np.array_equal(solved[0], theta)]
        self._solved = [*others[-_MEMORY + 1 :], (np.array(theta), sites)]

    def predict(self, theta: Array) -> Sites | None:
        """Sites to start from at theta: linear in theta through the nearest solved points.

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
        """``sites`` moved by so much of the way to each of the others."""
        here = _coordinates(sites)
        log_tau, pull = here + sum(weight * (_coordinates(other) - here) for weight, other in others)
        # what goes to nothing by orders of magnitude is not linear in anything
        steady = np.abs(log_tau - here[0]) < STEADY
        positive = (sites.tau > 0) & steady
        root = np.exp(0.5 * np.where(steady, log_tau, 0.0))
        return Sites(np.where(positive, root**2, sites.tau), np.where(positive, root * pull, sites.nu))


def _coordinates(sites: Sites) -> Array:
    """Log τ and ν/√τ: of these the latter stays put when the prior is only scaled."""
    tau = np.where(sites.tau > 0, sites.tau, 1.0)
    return np.array([np.log(tau), sites.nu / np.sqrt(tau)])


#: EP that has not converged and still moves by more than this, in units of the marginal, is lost.
_LOST = 0.1


@dataclass
class Model:
    """Data and method: everything about a fit but the hyperparameters.

    ``fold_noise`` moves the kernel's white noise into the likelihood. Weights treat it as every
    observation's own, so that integer ones mean repeated rows. ``place`` is where matrices are kept
    (None: NumPy's memory).
    """

    X: Any
    y: Array
    rule: Rule
    schedule: Schedule
    tol: float
    max_iter: int
    fold_noise: bool = False
    weight: Array | None = None
    place: Place | None = None
    _term: Term | None = field(default=None, repr=False)

    #: How exact the adjoint of a gradient may be asked to be.
    adjoint_accuracy: ClassVar[float] = EXACT
    #: What is worth an evaluation of the evidence in a search.
    worth: ClassVar[Worth] = Worth()

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.y)

    def is_lost(self, approximation: Approximation) -> bool:
        """Whether the evidence means nothing: EP's is that of a fixed point, and else of any size."""
        apart = not approximation.converged and approximation.residual > _LOST
        return apart and isinstance(self.rule, EP) and self.schedule.iterations is None

    def __getstate__(self) -> dict[str, Any]:
        """Distances are made again where they are needed again, and in NumPy's memory."""
        return {**self.__dict__, "_term": None, "place": None}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` where the kernel makes no covariance of the data."""
        split = self._split(kernel)
        self._term = bind_checked(split.smooth if split else kernel, self.X, len(self.y), self.place)

    def forget(self) -> None:
        """Drop what is kept between kernels: distances, which are as large as a covariance."""
        self._term = None

    def path(self, start: Sites | None) -> SitePath:
        """What remembers sites along a search."""
        return SitePath(start)

    def infer(
        self, at: Hyperparameters, start: Sites | None = None, tol: float | None = None
    ) -> "Fitted":
        """The approximation at these hyperparameters."""
        prior = self._prior(at)
        solution = solve(
            prior.problem, self.schedule, start=start, tol=tol or self.tol, max_iter=self.max_iter
        )
        return Fitted(at, prior, Approximation(prior.problem, solution))

    def revive(self, at: Hyperparameters, sites: Sites, record: Record) -> Approximation:
        """The approximation that was found before, from its sites."""
        problem = self._prior(at).problem
        return Approximation(problem, Solution(problem.iterate(sites), record))

    def latent_kernel(self, kernel: Kernel) -> Kernel:
        """The kernel of the latent values that predictions are about."""
        return split_white(kernel).smooth if self.fold_noise else kernel

    def cross(self, kernel: Kernel, new: Any) -> Matrix:
        """Covariances of the data with new rows, where matrices are kept."""
        return cross_covariance(kernel, self.X, new, self.place)

    def _prior(self, at: Hyperparameters) -> "Prior":
        """The problem to solve at these hyperparameters."""
        split = self._split(at.kernel)
        kernel = split.smooth if split else at.kernel
        if self._term is None:
            self._term = bind(kernel, self.X, self.place)
        gram = full_gram(self._term.gram(kernel), len(self.y), self.place)
        likelihood, observations = at.likelihood, None
        if split and self.fold_noise:
            likelihood = WithNoise(likelihood, split.noise)
        if self.weight is not None:
            noise = split.noise if split and not self.fold_noise else 0.0
            observations = Observations(self.weight, noise)
            add_to_diagonal(gram.K, observations.mean_noise)
        problem = Problem(gram.K, np.zeros_like(self.y), self.y, likelihood, self.rule, observations)
        return Prior(problem, gram, split)

    def _split(self, kernel: Kernel) -> WhiteSplit | None:
        """The kernel without its white noise, where that is to be treated apart."""
        apart = self.fold_noise or (self.weight is not None and can_split(kernel))
        return split_white(kernel) if apart else None


class Prior(NamedTuple):
    """A problem with the covariance matrix it came from, the white noise apart or not."""

    problem: Problem
    gram: Gram
    split: WhiteSplit | None


class Fitted(NamedTuple):
    """An approximation with the hyperparameters that it belongs to."""

    at: Hyperparameters
    prior: Prior
    approximation: Approximation

    def gradient(self) -> Array:
        """∂ log evidence by the free log-parameters."""
        return self.value_and_gradient(EXACT)[1]

    def value_and_gradient(self, accuracy: float) -> tuple[float, Array]:
        """The log evidence at the fixed point, to second order in the residual, and its gradient."""
        problem, iterate = self.approximation.problem, self.approximation.solution.iterate
        adjoint = self.approximation.adjoint(accuracy)
        value = self.approximation.log_evidence
        if self.approximation.converged:  # if only to a loose tolerance
            value += adjoint.correction
        by_parameters = dict(zip(problem.likelihood.parameters, adjoint.by_parameters, strict=True))
        K_bar = by_covariance(iterate, adjoint)
        if problem.observations is not None and problem.observations.noise > 0:
            tau = problem.observations.one(iterate.view).tau
            by_noise = problem.observations.by_noise(tau, diagonal(K_bar), adjoint.variance_bar)
        else:
            by_noise = by_parameters.get("variance", 0.0)
        by_kernel = self.prior.gram.pull_back(K_bar)
        if self.prior.split is not None:
            by_kernel = self.prior.split.join(by_kernel, by_noise)
        likelihood = self.at.likelihood
        by_likelihood = [by_parameters[name] * getattr(likelihood, name) for name in likelihood.free]
        return value, np.array(by_kernel + by_likelihood, dtype=float)
