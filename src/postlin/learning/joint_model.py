"""The model of many classes jointly, and searches on parts of many rows first, which later ones follow.

The time of an evaluation grows with the cube of the number of rows, and a search needs some twenty.
Halves of the rows, of halves and so on determine the optimum better and better: the first search is on
the smallest part, and every further one begins at the optimum and with the curvature of that before
it, so that three to eight evaluations on all rows are left. Between two parts the optimum moves about
half as far as between the two before them (on 75, 150 and 300 rows of digits length scales of 9.7, 14.3
and 17.5 are best).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

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
from postlin.learning.search import Callback, logger
from postlin.learning.starts import Guide
from postlin.learning.training import Training, train
from postlin.likelihoods.softmax import contrasts
from postlin.linalg.arrays import HOST, Place, diagonal
from postlin.linalg.blocks import symmetric, times, transposed
from postlin.linalg.minimise import Optimizer, Worth
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


#: The fewest latent values of a part, rows × (classes − 1), and its fewest rows for every class.
_FEWEST, _EACH = 500, 4
#: The part of its last move that the optimum is expected to move again, and the farthest.
_AGAIN, _FARTHEST = 0.5, 0.3
#: How far below its start a variance may begin in a larger part. One that vanishes in few rows would
#: have no slope by which to grow again.
_VANISHED = 1.5
#: When a search between the first and the last ends.
_PASSING = Worth(least=0.02, slope=0.3)
#: The tolerance of the inference from which sites of further rows are predicted.
_ROUGH = 1e-2


def train_joint(
    models: Sequence[JointModel],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    starts: Sequence[Sites | None],
    callback: Callback | None = None,
    guide: Guide | None = None,
    look_around: bool = True,
    **options: Any,
) -> Training[Sites]:
    """Maximise the evidence of one joint model, as ``train`` does.

    From a thousand latent values on, searches on parts of the rows come first. The first of them makes
    all the restarts and looks around. The callback is called in the search on all rows only.
    """
    (model,) = models
    search: Callable[..., Training[Sites]] = partial(train, **options)
    parts = _parts(model) if model.is_large and len(at.theta) else []
    if optimizer != "bfgs" or not look_around or not parts:
        return search(
            models,
            at,
            optimizer,
            restarts=restarts,
            starts=starts,
            callback=callback,
            guide=guide,
            look_around=look_around,
        )
    how: dict[str, Any] = {"restarts": restarts, "guide": guide}
    ends: list[Array] = []
    least = _least(at)
    for rows, larger in zip(parts, [*parts[1:], np.arange(model.n_rows)], strict=True):
        part = model.on(rows)
        logger.info("searching on %d of %d rows first", len(rows), model.n_rows)
        coarse = search([part], at, optimizer, starts=starts, **how)
        part.forget()
        if coarse.interrupted:
            at = coarse.at
            del coarse  # and its matrices
            return search(models, at, None, starts=[None], guide=guide)._replace(interrupted=True)
        ends.append(coarse.at.theta)
        at = at.inside(np.maximum(_expected(ends), least))
        starts = [_start(model, part, coarse, at, rows, larger)]
        curvature = None if coarse.curvature is None else len(larger) / len(rows) * coarse.curvature
        how = {"guide": guide, "look_around": False, "curvature": curvature}
        how["worth"] = _PASSING if len(larger) < model.n_rows else None
        del coarse
    logger.info("continuing on all rows from %s", at.kernel)
    return search(models, at, optimizer, starts=starts, callback=callback, **how)


def _parts(model: JointModel) -> list[np.ndarray]:
    """The rows of each part, from few to a half of them; each holds those before it.

    They are drawn, always alike, with as many rows of every class as it has in all.
    """
    shuffled = np.random.default_rng(0).permutation(model.n_rows)
    dealt = shuffled[np.argsort(model.y[shuffled], kind="stable")]
    fewest = max(_FEWEST / (model.n_classes - 1), _EACH * model.n_classes)
    found, step = [], 2
    while len(dealt) // step >= fewest:
        found.append(np.sort(dealt[::step]))
        step *= 2
    return found[::-1]


def _expected(ends: list[Array]) -> Array:
    """Where the optimum of the next part is expected, from those of the parts before it."""
    if len(ends) < 2:
        return ends[-1]
    return np.asarray(ends[-1] + np.clip(_AGAIN * (ends[-1] - ends[-2]), -_FARTHEST, _FARTHEST))


def _least(at: Hyperparameters) -> Array:
    """The least log-parameters at which searches in larger parts begin."""
    least = np.full(len(at.theta), -np.inf)
    for name in ("constant_value", "noise_level"):
        for where in at.where(name):
            least[where] = at.theta[where] - _VANISHED
    return least


def _start(
    model: JointModel,
    part: JointModel,
    coarse: Training[Sites],
    at: Hyperparameters,
    rows: np.ndarray,
    larger: np.ndarray,
) -> Sites:
    """Sites for a larger part of the rows, from inference on a part at these hyperparameters."""
    found: JointApproximation = part.infer(at, coarse.best[0].start, max(model.tol, _ROUGH))
    known = np.isin(larger, rows)
    further = model.predicted_sites(found, at, part, larger[~known])
    tau = np.empty((len(larger), *further.tau.shape[1:]))
    nu = np.empty((len(larger), further.nu.shape[1]))
    tau[known], nu[known] = found.sites
    tau[~known], nu[~known] = further
    return Sites(tau, nu)
