"""Models: data and a method, which turn hyperparameters into an approximation.

``Model`` is what learning needs; ``ExactModel`` is the model of two classes without inducing points.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin import kernels
from postlin._typing import Array, override
from postlin.inference.exact.evidence import ExactApproximation, PullBack
from postlin.inference.exact.problem import ExactProblem
from postlin.inference.prior_mean import PriorMean, mean_at
from postlin.inference.result import EXACT, Adjoint, Approximation, Record, warnings_about
from postlin.inference.solver import solve
from postlin.learning.groups import neighbourhoods
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.progress import OF_EXACT, Costs, costs
from postlin.likelihoods import WithNoise
from postlin.linalg.arrays import HOST, Matrix, Place, add_to_diagonal, diagonal
from postlin.linalg.minimise import Worth
from postlin.rules.binary import Rule
from postlin.rules.sites import SiteRule, Sites
from postlin.rules.weights import UNIT, Observations, Weights
from postlin.schedules import Schedule

#: The weights of an extrapolation may sum to this at most; a farther one is not made.
_FAR = 5.0
#: Up to this many rows a search goes on until no slope exceeds ``_STEEPEST``, as scikit-learn's tests
#: ask. On the six data sets that takes 3 % more evaluations with 40 to 200 rows, and 12 % with 350.
_SMALL, _STEEPEST = 300, 1e-4
#: From this many rows on a search ends where less than these nats are left to gain and no slope exceeds
#: the last number, and takes a last step that is predicted to gain less than ``LEAP`` without a slope.
LARGE, LEFT, LEAP, _GENTLE = 1000, 3e-4, 0.006, 0.01
#: A site whose log τ would change by more than this is not extrapolated.
STEADY = 5.0

Start = TypeVar("Start")


class Path(Generic[Start]):
    """What inference found along a search, from which later inference starts."""

    #: The number of points that are remembered.
    memory: ClassVar[int] = 4

    def __init__(self, start: Start | None = None) -> None:
        self._default = start
        self._solved: list[tuple[Array, Start]] = []

    def add(self, theta: Array, found: Start) -> None:
        """Remember what was found at theta."""
        others = [solved for solved in self._solved if not np.array_equal(solved[0], theta)]
        self._solved = [*others[1 - self.memory :], (np.array(theta), found)]

    @property
    def has_solved(self) -> bool:
        """Whether there is a remembered point."""
        return bool(self._solved)

    def nearest(self, theta: Array) -> list[tuple[Array, Start]]:
        """The remembered points and what was found there, the nearest to theta first."""
        return sorted(self._solved, key=lambda point: float(np.sum((point[0] - theta) ** 2)))

    def predict(self, theta: Array) -> Start | None:
        """What to start from at theta: what was found at the nearest point."""
        return self.nearest(theta)[0][1] if self._solved else self._default

    def follow(self, theta: Array, before: Start, there: Start) -> None:
        """Expect at theta what differs from the last result as ``there`` differs from ``before``."""


class SitePath(Path[Sites]):
    """Sites along a search, from which starts are extrapolated linearly in theta.

    Precisions are extrapolated by their logarithms, so that positive ones stay positive.
    """

    memory = 8

    @override
    def predict(self, theta: Array) -> Sites | None:
        if len(self._solved) < 2:
            return super().predict(theta)
        (origin, sites), *near = self.nearest(theta)[: len(theta) + 1]
        steps = np.array([other - origin for other, _ in near])
        weights, *_ = np.linalg.lstsq(steps.T, theta - origin, rcond=1e-3)
        if np.abs(weights).sum() > _FAR:
            return sites
        others = [(weight, other) for weight, (_, other) in zip(weights, near, strict=True)]
        return self.extrapolated(sites, others)

    @override
    def follow(self, theta: Array, before: Sites, there: Sites) -> None:
        if self._solved:
            last = self._solved[-1][1]
            self.add(theta, self.extrapolated(last, [(1.0, there), (-1.0, before)]))

    @staticmethod
    def extrapolated(sites: Sites, others: list[tuple[float, Sites]]) -> Sites:
        """``sites`` moved towards each of the others by a part of the distance, its weight."""
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


class Model(ABC, Generic[Start]):
    """Data and a method: all of a fit except the hyperparameters."""

    X: np.ndarray  # the training rows and their labels, if they are in memory
    y: np.ndarray
    rule: SiteRule
    tol: float
    max_iter: int
    schedule: Schedule
    #: Whether inference from the prior is cheap enough to compare with the result of a search.
    compares_starts: ClassVar[bool] = True
    #: Whether the likelihood contains the kernel's white noise.
    fold_noise: bool = False
    #: The finest accuracy that the adjoint of a gradient is solved to in a search.
    adjoint_accuracy: ClassVar[float] = EXACT

    @property
    def worth(self) -> Worth:
        """When a search of the hyperparameters ends."""
        if self.n_rows >= LARGE:
            return Worth(slope=_GENTLE, least=LEFT, leap=LEAP)
        return Worth(slope=_STEEPEST) if self.n_rows <= _SMALL else Worth()

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.y)

    @property
    def can_sweep(self) -> bool:
        """Whether the sequential schedule can be used."""
        return False

    @abstractmethod
    def infer(
        self, at: Hyperparameters, start: Start | None = None, tol: float | None = None
    ) -> Approximation[Start]:
        """The approximation at these hyperparameters."""

    @abstractmethod
    def revive(
        self, at: Hyperparameters, kept: tuple[Array, Array], record: Record, log_evidence: float
    ) -> Approximation[Start]:
        """The approximation of an earlier inference, from the arrays that were kept of it."""

    @abstractmethod
    def costs(self, n_parameters: int) -> Costs:
        """What a search over so many parameters is expected to take."""

    def path(self, start: Start | None) -> Path[Start]:
        """An empty memory for a search whose first inference begins at ``start``."""
        return Path(start)

    def parted(self, count: int, tol: float) -> "list[tuple[np.ndarray, Model[Start]]] | None":
        """So many groups of rows that lie near each other, with models of them; None if unsuited.

        Inference in these has at least the tolerance ``tol``.
        """
        return None

    def split(self, start: Start, rows: np.ndarray) -> Start:
        """The part of a start for some of the rows."""
        raise NotImplementedError

    def joined(self, groups: Sequence[tuple[np.ndarray, Start]]) -> Start:
        """What inference can start from, from the results for groups of rows."""
        raise NotImplementedError

    def can_merge(self, kernel: Kernel) -> bool:
        """Whether a weight has the effect of repeated rows."""
        return False

    def merged(self, rows: np.ndarray, count: np.ndarray) -> "Model[Start]":
        """The model of some rows, each of which counts as so many."""
        raise NotImplementedError

    def gathered(self, start: Start, number: np.ndarray) -> Start:
        """What inference with merged rows can start from; every row has the number of a merged one."""
        raise NotImplementedError

    def spread(self, start: Start, number: np.ndarray, count: np.ndarray) -> Start:
        """What inference can start from, from what there is for merged rows."""
        raise NotImplementedError

    def forget(self) -> None:
        """Free the matrices that are kept from one evaluation to the next."""

    def latent_kernel(self, kernel: Kernel) -> Kernel:
        """The kernel of the latent values that are predicted."""
        return kernels.split_white(kernel).smooth if self.fold_noise else kernel

    def warnings(self, record: Record) -> list[Warning]:
        """What a user must be told about an inference with this record."""
        method = self.rule, self.schedule, self.tol, self.max_iter
        return warnings_about(record, *method, "max_iter_predict", can_sweep=self.can_sweep)


@dataclass
class ExactModel(Model[Sites]):
    """Two classes with labels −1 and +1, without inducing points.

    ``fold_noise`` moves the kernel's white noise into the likelihood. With weights, white noise belongs
    to each observation, so that integer weights mean repeated rows. With ``corrected`` predictions are
    corrected towards those of the exact posterior. The prior mean is that of the latent function.
    Matrices are kept at ``place``.
    """

    X: np.ndarray
    y: Array
    rule: Rule
    schedule: Schedule
    tol: float
    max_iter: int
    fold_noise: bool = False
    weights: Weights = UNIT
    corrected: bool = False
    prior_mean: PriorMean = 0.0
    place: Place = HOST
    _term: kernels.Term | None = field(default=None, repr=False)

    @property
    @override
    def can_sweep(self) -> bool:
        return self.place.is_host

    def __getstate__(self) -> dict[str, object]:
        """A copy computes distances again when it needs them, and in NumPy's memory."""
        return {name: value for name, value in vars(self).items() if name not in ("_term", "place")}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` if the kernel is no covariance on the data."""
        smooth, _ = self._split(kernel)
        self._term = kernels.bind_checked(smooth, self.X, len(self.y), self.place)

    @override
    def forget(self) -> None:
        self._term = None  # distances, which are as large as a covariance

    @override
    def costs(self, n_parameters: int) -> Costs:
        return costs(self.n_rows, OF_EXACT, n_parameters, self.place)

    @override
    def path(self, start: Sites | None) -> SitePath:
        return SitePath(start)

    @override
    def parted(self, count: int, tol: float) -> list[tuple[np.ndarray, Model[Sites]]] | None:
        if not self.place.is_host or np.ndim(self.X) != 2 or self.X.dtype.kind not in "fiu":
            return None
        return [(rows, self._on(rows, tol)) for rows in neighbourhoods(self.X, count)]

    def _on(self, rows: np.ndarray, tol: float) -> "ExactModel":
        """The model of some of the rows."""
        weights, tol = self.weights.point(rows), max(self.tol, tol)
        return replace(self, X=self.X[rows], y=self.y[rows], weights=weights, tol=tol, _term=None)

    @override
    def split(self, start: Sites, rows: np.ndarray) -> Sites:
        return Sites(start.tau[rows], start.nu[rows])

    @override
    def joined(self, groups: Sequence[tuple[np.ndarray, Sites]]) -> Sites:
        both = np.empty((2, self.n_rows))
        for rows, sites in groups:
            both[:, rows] = sites
        return Sites(*both)

    @override
    def can_merge(self, kernel: Kernel) -> bool:
        plain = self.schedule.iterations is not None  # which ends before the fixed point
        return kernels.can_merge(kernel) and self.weights.is_unit and not plain

    @override
    def merged(self, rows: np.ndarray, count: np.ndarray) -> "ExactModel":
        weights = Observations(count.astype(float))
        return replace(self, X=self.X[rows], y=self.y[rows], weights=weights, _term=None)

    @override
    def gathered(self, start: Sites, number: np.ndarray) -> Sites:
        both = np.zeros((2, number.max() + 1))
        np.add.at(both.T, number, np.transpose(start))
        return Sites(*both)

    @override
    def spread(self, start: Sites, number: np.ndarray, count: np.ndarray) -> Sites:
        return Sites((start.tau / count)[number], (start.nu / count)[number])

    @override
    def infer(
        self, at: Hyperparameters, start: Sites | None = None, tol: float | None = None
    ) -> ExactApproximation:
        problem, pull_back = self._problem(at)
        iterate, record = solve(
            problem, self.schedule, start=start, tol=tol or self.tol, max_iter=self.max_iter
        )
        plain = self.schedule.iterations is not None
        return ExactApproximation(record, problem, iterate, pull_back, plain).examined()

    @override
    def revive(
        self, at: Hyperparameters, kept: tuple[Array, Array], record: Record, log_evidence: float
    ) -> ExactApproximation:
        problem, pull_back = self._problem(at)
        return ExactApproximation(record, problem, problem.iterate(Sites(*kept)), pull_back)

    def with_folded_noise(
        self, at: Hyperparameters, sites: Sites
    ) -> tuple["ExactModel", ExactProblem, Sites]:
        """The same model and posterior, with any white noise of the kernel in the likelihood.

        The latent function is g in place of g + e with e ~ N(0, s²). Integrating e out of a site of
        g + e leaves a site of g; the posterior of g, and its evidence, stay the same. Matrices are in
        NumPy's memory.
        """
        folds = self.fold_noise or kernels.can_split(at.kernel)
        model = replace(self, fold_noise=folds, place=HOST, _term=None)
        problem, _ = model._problem(at)
        if not folds or self.fold_noise:
            return model, problem, sites
        noise = kernels.split_white(at.kernel).noise / np.maximum(self.weights.count, 1.0)
        shrink = 1.0 / (1.0 + noise * sites.tau)
        return model, problem, Sites(shrink * sites.tau, shrink * sites.nu)

    def mean_at(self, rows: np.ndarray) -> Array:
        """The prior mean at rows."""
        return mean_at(self.prior_mean, rows)

    def cross(self, kernel: Kernel, new: np.ndarray) -> Matrix:
        """The covariances of the data with new rows, kept at ``place``."""
        return kernels.cross_covariance(kernel, self.X, new, self.place)

    def _problem(self, at: Hyperparameters) -> tuple[ExactProblem, PullBack]:
        """The problem at these hyperparameters, and the pull-back of its adjoint to them."""
        kernel, split = self._split(at.kernel)
        if self._term is None:
            self._term = kernels.bind(kernel, self.X, self.place)
        gram = kernels.full_gram(self._term.gram(kernel), len(self.y), self.place)
        likelihood, weights = at.likelihood, self.weights
        if split and self.fold_noise:
            likelihood = WithNoise(likelihood, split.noise)
        elif split:
            weights = weights.with_noise(split.noise)
            add_to_diagonal(gram.K, weights.mean_noise)
        mean = self.mean_at(self.X)
        problem = ExactProblem(gram.K, mean, self.y, likelihood, self.rule, weights)
        return problem, partial(_pull_back, at, gram, split)

    def _split(self, kernel: Kernel) -> tuple[Kernel, kernels.WhiteSplit | None]:
        """The kernel without its white noise and how it was split, where noise is not part of K."""
        if self.fold_noise or (not self.weights.is_unit and kernels.can_split(kernel)):
            split = kernels.split_white(kernel)
            return split.smooth, split
        return kernel, None


def _pull_back(
    at: Hyperparameters,
    gram: kernels.Gram,
    split: kernels.WhiteSplit | None,
    found: ExactApproximation,
    adjoint: Adjoint,
) -> Array:
    """The derivatives of the log evidence by the free log-parameters, from an adjoint."""
    problem, weights = found.problem, found.problem.weights
    by_parameters = dict(zip(problem.likelihood.parameters, adjoint.by_parameters, strict=True))
    K_bar = found.by_covariance(adjoint)
    by_kernel = gram.pull_back(K_bar)
    if split is not None:
        by_noise = by_parameters.get("variance", 0.0)
        if weights.noise > 0:
            tau = weights.one(found.iterate.view).tau
            by_noise = weights.by_noise(tau, diagonal(K_bar), adjoint.variance_bar)
        by_kernel = split.join(by_kernel, by_noise)
    return np.array(by_kernel + at.by_likelihood(by_parameters), dtype=float)
