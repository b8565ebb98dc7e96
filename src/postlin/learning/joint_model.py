"""The model of many classes jointly."""

from dataclasses import dataclass, field

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, override
from postlin.inference.joint.evidence import JointAdjoint, JointApproximation, PullBack
from postlin.inference.joint.posterior import JointPrior
from postlin.inference.joint.problem import JointProblem
from postlin.inference.result import Record
from postlin.inference.solver import solve
from postlin.kernels import (
    Gram,
    Points,
    Term,
    WhiteSplit,
    bind,
    bind_checked,
    can_split,
    full_gram,
    kernels_of,
    split_white,
)
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import STEADY, Model, SitePath
from postlin.likelihoods.softmax import contrasts
from postlin.linalg.blocks import symmetric, times, transposed
from postlin.rules.joint import JointRule
from postlin.rules.sites import Sites
from postlin.rules.weights import JointWeights
from postlin.schedules import Schedule

#: Eigenvalues of a site below this part of its largest count as that much.
_FAINT = 1e-12


@dataclass
class JointModel(Model[Sites]):
    """Many classes jointly; labels are indices of classes.

    With weights white noise belongs to each observation, so that integer weights mean repeated rows.
    """

    X: np.ndarray
    y: np.ndarray
    n_classes: int
    rule: JointRule
    schedule: Schedule
    tol: float
    max_iter: int
    weight: Array | None = None
    _terms: list[Term] | None = field(default=None, repr=False)

    @property
    @override
    def n_rows(self) -> int:
        return len(self.y)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_terms": None}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` where a kernel makes no covariance of the data."""
        points = Points(self.X)
        smooth, _ = self._split(kernel)
        self._terms = [bind_checked(part, points, len(self.y)) for part in smooth]

    @override
    def forget(self) -> None:
        self._terms = None

    @override
    def path(self, start: Sites | None) -> "JointSitePath":
        return JointSitePath(start)

    @override
    def infer(
        self, at: Hyperparameters, start: Sites | None = None, tol: float | None = None
    ) -> JointApproximation:
        problem, pull_back = self._problem(at)
        iterate, record = solve(
            problem, self.schedule, start=start, tol=tol or self.tol, max_iter=self.max_iter
        )
        return JointApproximation(record, problem, iterate, pull_back)

    @override
    def revive(
        self, at: Hyperparameters, kept: tuple[Array, Array], record: Record, log_evidence: float
    ) -> JointApproximation:
        problem, pull_back = self._problem(at)
        return JointApproximation(record, problem, problem.iterate(Sites(*kept)), pull_back)

    def _split(self, kernel: Kernel) -> tuple[list[Kernel], list[WhiteSplit | None]]:
        """The kernels without the white noise that is treated apart, and how they were split."""
        kernels = kernels_of(kernel)
        if self.weight is None:
            return kernels, [None] * len(kernels)
        splits = [split_white(part) if can_split(part) else None for part in kernels]
        parts = zip(kernels, splits, strict=True)
        return [split.smooth if split else part for part, split in parts], splits

    def _problem(self, at: Hyperparameters) -> tuple[JointProblem, PullBack]:
        """The problem at these hyperparameters, and the pull-back of its adjoint to them."""
        kernels, splits = self._split(at.kernel)
        if self._terms is None:
            points = Points(self.X)
            self._terms = [bind(kernel, points) for kernel in kernels]
        grams = [
            full_gram(term.gram(kernel), len(self.y))
            for term, kernel in zip(self._terms, kernels, strict=True)
        ]
        prior = JointPrior.of([gram.K for gram in grams], contrasts(self.n_classes))
        weights = JointWeights.unit(len(self.y), self.n_classes - 1)
        levels = [split.noise if split else 0.0 for split in splits] if any(splits) else []
        if self.weight is not None:
            weights = JointWeights(self.weight, prior.noise(levels) if levels else weights.noise)
        if levels:
            prior.add_noise(levels, weights.share)
        problem = JointProblem(prior, self.y, self.n_classes, self.rule, weights, levels)
        return problem, _PullBack(grams, splits)


@dataclass(frozen=True)
class _PullBack:
    """From an adjoint to derivatives of the log evidence by the free log-parameters."""

    grams: list[Gram]
    splits: list[WhiteSplit | None]

    def __call__(self, found: JointApproximation, adjoint: JointAdjoint) -> Array:
        problem, iterate = found.problem, found.iterate
        by_kernels = iterate.posterior.pull_back(adjoint.mean_bar, adjoint.variance_bar)
        slopes: list[float] = []
        for k, (gram, split) in enumerate(zip(self.grams, self.splits, strict=True)):
            by_smooth = gram.pull_back(by_kernels[k])
            if split is None:
                slopes += by_smooth
                continue
            by_noise = problem.weights.by_noise(
                iterate.view.tau,
                by_kernels[k].diagonal(),
                adjoint.variance_bar,
                problem.prior.directions[k],
            )
            slopes += split.join(by_smooth, by_noise)
        return np.array(slopes, dtype=float)


class JointSitePath(SitePath):
    """Solved sites along the path of an optimiser.

    As for scalars the coordinates are log T and T^(−1/2) ν: precisions stay positive, and a prior
    that is only scaled moves the first alone.
    """

    @staticmethod
    def extrapolated(sites: Sites, others: list[tuple[float, Sites]]) -> Sites:
        """``sites`` moved by the given part of the way to each of the others."""
        known = [sites, *(other for _, other in others)]
        positive = np.all([part.tau.any(axis=(1, 2)) for part in known], axis=0)
        logarithm, pull = _coordinates(sites, positive)
        log_tau, moved = logarithm.copy(), pull.copy()
        for weight, other in others:
            its, its_pull = _coordinates(other, positive)
            log_tau += weight * (its - logarithm)
            moved += weight * (its_pull - pull)
        # a site that changes by orders of magnitude is not linear in theta
        steady = np.abs(np.linalg.eigvalsh(log_tau - logarithm)).max(axis=1) < STEADY
        values, vectors = np.linalg.eigh(log_tau[steady])
        root = (vectors * np.exp(0.5 * values)[:, None, :]) @ transposed(vectors)
        tau, nu = sites.tau.copy(), sites.nu.copy()
        chosen = np.flatnonzero(positive)[steady]
        tau[chosen], nu[chosen] = symmetric(root @ root), times(root, moved[steady])
        return Sites(tau, nu)


def _coordinates(sites: Sites, chosen: np.ndarray) -> tuple[Array, Array]:
    """log T and T^(−1/2) ν."""
    values, vectors = np.linalg.eigh(sites.tau[chosen])
    values = np.maximum(values, _FAINT * values[:, -1:])
    up = transposed(vectors)
    logarithm = symmetric((vectors * np.log(values)[:, None, :]) @ up)
    return logarithm, times((vectors / np.sqrt(values)[:, None, :]) @ up, sites.nu[chosen])
