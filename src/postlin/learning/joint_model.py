"""Data and method for several classes at a time."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel

from postlin._typing import Array
from postlin.inference.joint.evidence import JointApproximation, adjoint_at
from postlin.inference.joint.jacobian import joint_newton_step
from postlin.inference.joint.posterior import Prior
from postlin.inference.joint.problem import JointProblem
from postlin.inference.result import EXACT
from postlin.inference.solver import Record, Solution, solve
from postlin.kernels import (
    Gram,
    Points,
    Term,
    WhiteSplit,
    bind,
    bind_checked,
    can_split,
    full_gram,
    split_white,
)
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import STEADY, SitePath
from postlin.likelihoods.softmax import contrasts
from postlin.linalg.blocks import symmetric, times
from postlin.linalg.minimise import Worth
from postlin.rules.joint import JointRule
from postlin.rules.sites import Sites
from postlin.schedules import Schedule

#: Eigenvalues of a site below this part of its largest count as that much.
_FAINT = 1e-12


class JointSitePath(SitePath):
    """Solved sites along the path of an optimiser.

    As for scalars the coordinates are log T and T^(−1/2) ν: precisions stay positive, and a prior
    that is only scaled moves the first alone.
    """

    @staticmethod
    def extrapolated(sites: Sites, others: list[tuple[float, Sites]]) -> Sites:
        """``sites`` moved by so much of the way to each of the others."""
        known = [sites, *(other for _, other in others)]
        positive = np.all([part.tau.any(axis=(1, 2)) for part in known], axis=0)
        logarithm, pull = _coordinates(sites, positive)
        log_tau, moved = logarithm.copy(), pull.copy()
        for weight, other in others:
            its, its_pull = _coordinates(other, positive)
            log_tau += weight * (its - logarithm)
            moved += weight * (its_pull - pull)
        # what changes by orders of magnitude is not linear in anything
        steady = np.abs(np.linalg.eigvalsh(log_tau - logarithm)).max(axis=1) < STEADY
        values, vectors = np.linalg.eigh(log_tau[steady])
        root = (vectors * np.exp(0.5 * values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        tau, nu = sites.tau.copy(), sites.nu.copy()
        chosen = np.flatnonzero(positive)[steady]
        tau[chosen], nu[chosen] = symmetric(root @ root), times(root, moved[steady])
        return Sites(tau, nu)


def _coordinates(sites: Sites, chosen: np.ndarray) -> tuple[Array, Array]:
    """Log T and T^(−1/2) ν."""
    values, vectors = np.linalg.eigh(sites.tau[chosen])
    values = np.maximum(values, _FAINT * values[:, -1:])
    up = np.swapaxes(vectors, 1, 2)
    logarithm = symmetric((vectors * np.log(values)[:, None, :]) @ up)
    return logarithm, times((vectors / np.sqrt(values)[:, None, :]) @ up, sites.nu[chosen])


def kernels_of(kernel: Kernel) -> list[Kernel]:
    """One kernel for all classes, or one for each."""
    return list(kernel.kernels) if isinstance(kernel, CompoundKernel) else [kernel]


@dataclass
class JointModel:
    """Everything about a fit but the hyperparameters; labels are indices of classes.

    Weights treat white noise as every observation's own, so that integer ones mean repeated rows.
    """

    X: Any
    y: np.ndarray
    n_classes: int
    rule: JointRule
    schedule: Schedule
    tol: float
    max_iter: int
    weight: Array | None = None
    _terms: list[Term] | None = field(default=None, repr=False)

    #: How exact the adjoint of a gradient may be asked to be.
    adjoint_accuracy: ClassVar[float] = EXACT
    #: What is worth an evaluation of the evidence in a search.
    worth: ClassVar[Worth] = Worth()

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.y)

    def is_lost(self, approximation: JointApproximation) -> bool:
        """Whether the evidence means nothing: never, it is bounded at any sites."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_terms": None}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` where a kernel makes no covariance of the data."""
        points = Points(self.X)
        smooth, _ = self._split(kernel)
        self._terms = [bind_checked(part, points, len(self.y)) for part in smooth]

    def forget(self) -> None:
        """Drop what is kept between kernels."""
        self._terms = None

    def path(self, start: Sites | None) -> JointSitePath:
        """What remembers sites along a search."""
        return JointSitePath(start)

    def infer(
        self, at: Hyperparameters, start: Sites | None = None, tol: float | None = None
    ) -> "JointFitted":
        """The approximation at these hyperparameters."""
        problem, grams, splits = self._problem(at)
        solution = solve(
            problem,  # type: ignore[arg-type]  # it has the methods that are asked of a Problem
            self.schedule,
            start=start,
            tol=tol or self.tol,
            max_iter=self.max_iter,
            newton=joint_newton_step,
        )
        return JointFitted(at, grams, splits, JointApproximation(problem, solution))

    def revive(self, at: Hyperparameters, sites: Sites, record: Record) -> JointApproximation:
        """The approximation that was found before, from its sites."""
        problem, *_ = self._problem(at)
        return JointApproximation(problem, Solution(problem.iterate(sites), record))

    def _split(self, kernel: Kernel) -> tuple[list[Kernel], list[WhiteSplit | None]]:
        """The kernels without the white noise that is to be treated apart, and how they were split."""
        kernels = kernels_of(kernel)
        if self.weight is None:
            return kernels, [None] * len(kernels)
        splits = [split_white(part) if can_split(part) else None for part in kernels]
        parts = zip(kernels, splits, strict=True)
        return [split.smooth if split else part for part, split in parts], splits

    def _problem(self, at: Hyperparameters) -> tuple[JointProblem, list[Gram], list[WhiteSplit | None]]:
        kernels, splits = self._split(at.kernel)
        if self._terms is None:
            points = Points(self.X)
            self._terms = [bind(kernel, points) for kernel in kernels]
        grams = [
            full_gram(term.gram(kernel), len(self.y))
            for term, kernel in zip(self._terms, kernels, strict=True)
        ]
        prior = Prior.of([gram.K for gram in grams], contrasts(self.n_classes))
        levels = [split.noise if split else 0.0 for split in splits] if any(splits) else None
        if levels is not None and self.weight is not None:
            prior.add_noise(levels, 1.0 / np.maximum(self.weight, 1.0))
        problem = JointProblem(prior, self.y, self.n_classes, self.rule, self.weight, levels)
        return problem, grams, splits


class JointFitted(NamedTuple):
    """An approximation with the hyperparameters that it belongs to."""

    at: Hyperparameters
    grams: list[Gram]
    splits: list[WhiteSplit | None]
    approximation: JointApproximation

    def gradient(self) -> Array:
        """∂ log evidence by the free log-parameters."""
        return self.value_and_gradient(EXACT)[1]

    def value_and_gradient(self, accuracy: float) -> tuple[float, Array]:
        """The log evidence at the fixed point, and its gradient."""
        found = self.approximation
        problem, iterate = found.problem, found.solution.iterate
        value, mean_bar, variance_bar = adjoint_at(problem, iterate, accuracy)
        by_kernels = iterate.posterior.pull_back(mean_bar, variance_bar)
        slopes: list[float] = []
        for k, (gram, split) in enumerate(zip(self.grams, self.splits, strict=True)):
            by_smooth = gram.pull_back(by_kernels[k])
            if split is None:
                slopes += by_smooth
                continue
            by_noise = problem.observations.by_noise(
                iterate.view.tau,
                by_kernels[k].diagonal(),
                variance_bar,
                problem.prior.directions[k],
            )
            slopes += split.join(by_smooth, by_noise)
        return (value if found.converged else found.log_evidence), np.array(slopes, dtype=float)
