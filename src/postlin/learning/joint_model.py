"""The model of many classes jointly."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin import kernels
from postlin._typing import Array, override
from postlin.inference.joint.evidence import JointApproximation, PullBack
from postlin.inference.joint.posterior import JointPrior
from postlin.inference.joint.problem import JointProblem
from postlin.inference.result import Adjoint, Record
from postlin.inference.solver import solve
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import LARGE, LEAP, LEFT, STEADY, Model, SitePath
from postlin.learning.progress import OF_JOINT, Costs, costs
from postlin.likelihoods.softmax import contrasts
from postlin.linalg.arrays import HOST, Place, diagonal
from postlin.linalg.blocks import symmetric, times, transposed
from postlin.linalg.minimise import Worth
from postlin.rules.joint import JointRule
from postlin.rules.sites import Sites
from postlin.rules.weights import JointWeights
from postlin.schedules import Schedule

#: The eigenvalues of a precision are raised to at least this part of the largest.
_FAINT = 1e-12
#: From this many latent values on a search ends as for so many rows of two classes, except that slopes
#: of this size are flat: the curvature is known from parts of the rows.
_SLOPE = 0.1


@dataclass
class JointModel(Model[Sites]):
    """Many classes jointly; labels are indices of classes.

    With weights, white noise belongs to each observation, so that integer weights mean repeated rows.
    Matrices are kept at ``place``.
    """

    X: np.ndarray
    y: np.ndarray
    n_classes: int
    rule: JointRule
    schedule: Schedule
    tol: float
    max_iter: int
    weight: Array | None = None
    place: Place = HOST
    _terms: list[kernels.Term] | None = field(default=None, repr=False)

    @property
    def is_large(self) -> bool:
        """Whether so many latent values are inferred that every evaluation counts."""
        return self.n_rows * (self.n_classes - 1) >= LARGE

    @property
    @override
    def worth(self) -> Worth:
        return Worth(slope=_SLOPE, least=LEFT, leap=LEAP) if self.is_large else super().worth

    def on(self, rows: np.ndarray) -> "JointModel":
        """The model of some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, X=self.X[rows], y=self.y[rows], weight=weight, _terms=None)

    def __getstate__(self) -> dict[str, object]:
        """A copy computes distances again when it needs them, and in NumPy's memory."""
        return {name: value for name, value in vars(self).items() if name not in ("_terms", "place")}

    def check(self, kernel: Kernel) -> None:
        """Raise ``ValueError`` if a kernel is no covariance on the data."""
        points = kernels.Points(self.X, self.place)
        smooth, _ = self._split(kernel)
        self._terms = [kernels.bind_checked(part, points, len(self.y), self.place) for part in smooth]

    @override
    def forget(self) -> None:
        self._terms = None

    @override
    def costs(self, n_parameters: int) -> Costs:
        return costs(len(self.y) * (self.n_classes - 1), OF_JOINT, n_parameters, self.place)

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

    def predicted_sites(
        self, found: JointApproximation, at: Hyperparameters, part: "JointModel", rows: np.ndarray
    ) -> Sites:
        """Sites of further rows, each as if it alone were added to the part that ``found`` is for."""
        parts, X = kernels.kernels_of(at.kernel), self.X[rows]
        mean, variance = found.iterate.posterior.predict(
            part.cross(found, at.kernel, X), [k.diag(X) for k in parts]
        )
        sites = found.problem.alone(mean, variance, self.y[rows])
        if self.weight is None:
            return sites
        return replace(found.problem.weights, weight=self.weight[rows]).total(sites)

    def cross(self, found: JointApproximation, kernel: Kernel, new: np.ndarray) -> JointPrior:
        """The covariances of the rows with new ones, kept where those of ``found`` are."""
        prior = found.problem.prior
        parts = kernels.kernels_of(kernel)
        return prior._replace(
            covariances=[kernels.cross_covariance(k, self.X, new, prior.place) for k in parts]
        )

    def _split(self, kernel: Kernel) -> tuple[list[Kernel], list[kernels.WhiteSplit | None]]:
        """The kernels without the white noise of single observations, and how each was split."""
        parts = kernels.kernels_of(kernel)
        if self.weight is None:
            return parts, [None] * len(parts)
        splits = [kernels.split_white(part) if kernels.can_split(part) else None for part in parts]
        return [s.smooth if s else part for part, s in zip(parts, splits, strict=True)], splits

    def _problem(self, at: Hyperparameters) -> tuple[JointProblem, PullBack]:
        """The problem at these hyperparameters, and the pull-back of its adjoint to them."""
        parts, splits = self._split(at.kernel)
        if self._terms is None:
            points = kernels.Points(self.X, self.place)
            self._terms = [kernels.bind(part, points, self.place) for part in parts]
        grams = [
            kernels.full_gram(term.gram(part), len(self.y), self.place)
            for term, part in zip(self._terms, parts, strict=True)
        ]
        prior = JointPrior.of([gram.K for gram in grams], contrasts(self.n_classes))
        weights = JointWeights.unit(len(self.y), self.n_classes - 1)
        levels = [split.noise if split else 0.0 for split in splits] if any(splits) else []
        if self.weight is not None:
            weights = JointWeights(self.weight, prior.blocks(levels) if levels else weights.noise)
        if levels:
            prior.add_noise(levels, weights.share)
        problem = JointProblem(prior, self.y, self.n_classes, self.rule, weights, levels)
        return problem, partial(_pull_back, grams, splits)


def _pull_back(
    grams: list[kernels.Gram],
    splits: list[kernels.WhiteSplit | None],
    found: JointApproximation,
    adjoint: Adjoint,
) -> Array:
    """The derivatives of the log evidence by the free log-parameters, from an adjoint."""
    problem, iterate, variance_bar = found.problem, found.iterate, adjoint.variance_bar
    by_kernels = iterate.posterior.pull_back(adjoint.mean_bar, variance_bar)
    slopes: list[float] = []
    for k, (gram, split) in enumerate(zip(grams, splits, strict=True)):
        by_kernel = gram.pull_back(by_kernels[k])
        if split is not None:
            direction, by_diagonal = problem.prior.directions[k], diagonal(by_kernels[k])
            by_noise = problem.weights.by_noise(iterate.view.tau, by_diagonal, variance_bar, direction)
            by_kernel = split.join(by_kernel, by_noise)
        slopes += by_kernel
    return np.array(slopes, dtype=float)


class JointSitePath(SitePath):
    """Sites along a search, from which starts are extrapolated linearly in theta.

    As for scalars the coordinates are log T and T^(−1/2) ν, so that precisions stay positive and only
    the first change when the prior is only scaled.
    """

    @staticmethod
    @override
    def extrapolated(sites: Sites, others: list[tuple[float, Sites]]) -> Sites:
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
    """log T and T^(−1/2) ν of the chosen sites."""
    values, vectors = np.linalg.eigh(sites.tau[chosen])
    values = np.maximum(values, _FAINT * values[:, -1:])
    up = transposed(vectors)
    logarithm = symmetric((vectors * np.log(values)[:, None, :]) @ up)
    return logarithm, times((vectors / np.sqrt(values)[:, None, :]) @ up, sites.nu[chosen])
