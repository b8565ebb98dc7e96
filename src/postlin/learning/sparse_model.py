"""The model with inducing points: rows that are read in passes, inducing points and a method."""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, override
from postlin.exceptions import ConvergenceWarning, NotPositiveDefiniteError
from postlin.inference.prior_mean import PriorMean, mean_at
from postlin.inference.result import Record
from postlin.inference.sparse.evidence import SparseApproximation, gradient_at
from postlin.inference.sparse.passes import Evidence, EvidencePass, LogLossPass
from postlin.inference.sparse.posterior import JITTER, Basis, SparsePosterior, State
from postlin.inference.sparse.row_sites import Method
from postlin.inference.sparse.solver import AfterPass, Solver, record_of_passes
from postlin.kernels import WhiteSplit, moves_points, shown, split_white
from postlin.learning.hyperparameters import Hyperparameters, WithPoints
from postlin.learning.models import Model
from postlin.learning.progress import OF_SPARSE, Costs, costs
from postlin.likelihoods import BinaryLikelihood, WithNoise
from postlin.linalg.arrays import HOST, Place
from postlin.linalg.minimise import Worth
from postlin.rules.binary import Rule
from postlin.schedules import Parallel
from postlin.streaming.views import ArrayRows, PlacedRows, Rows

#: A search with more parameters than this, as with learned inducing points, takes no more evaluations.
MANY = 40
#: The default tolerance of the residual, and the most passes spent on reaching it.
TOL = 1e-6
MAX_PASSES = 200
#: The factor of the tolerance where the evidence cannot be computed yet.
_FINER = 0.01
#: The finest accuracy of a gradient, absolute or, where it is larger than one, relative.
_EXACT = 1e-10
#: The slope of the log evidence at which a search may end: per row, and at least.
_SLOPE_A_ROW, _FLAT = 5e-6, 0.02


@dataclass
class SparseModel(Model[State]):
    """Two classes with inducing points Z, for rows that are read in passes.

    ``fold_noise`` moves the kernel's white noise into the likelihood. A row of weight w means w rows,
    each with its own noise and its own variance that the inducing points do not explain. After every
    pass ``after_pass`` is called with the number of passes of this inference, the residual and the
    state.
    """

    rows: Rows
    Z: Array
    rule: Rule
    tol: float = TOL
    max_iter: int = MAX_PASSES
    fold_noise: bool = False
    prior_mean: PriorMean = 0.0
    jitter: float = JITTER
    after_pass: AfterPass | None = None
    place: Place = HOST

    schedule = Parallel()  # a pass sets the sites of all rows
    compares_starts: ClassVar[bool] = False
    #: Every digit of an adjoint takes two or three passes.
    adjoint_accuracy: ClassVar[float] = 1e-4

    @property
    @override
    def worth(self) -> Worth:
        # slopes are sums over rows with a relative error, so that what counts as flat grows with n
        return Worth(gain=1e-6, slope=max(_FLAT, _SLOPE_A_ROW * self.stands_for))

    @property
    @override
    def n_rows(self) -> int:
        return self.rows.n

    def __post_init__(self) -> None:
        if not self.place.is_host and isinstance(self.rows, Rows):
            self.rows = PlacedRows.of(self.rows, self.place, self.Z)

    def __getstate__(self) -> dict[str, object]:
        """A copy computes in NumPy's memory."""
        return {name: value for name, value in vars(self).items() if name != "place"}

    @override
    def forget(self) -> None:
        if isinstance(self.rows, PlacedRows):
            self.rows.forget()

    @property
    def stands_for(self) -> float:
        """The number of rows that the rows stand for."""
        return self.rows.stands_for

    def on(self, rows: Rows) -> "SparseModel":
        """The same model for other rows."""
        return replace(self, rows=rows)

    def check(self, kernel: Kernel, *, learn_points: bool = False) -> None:
        """Raise ``ValueError`` if kernel, rule and inducing points cannot be used together."""
        self.rule.check_inducing()
        latent = self.latent_kernel(kernel)
        try:
            Basis.of(latent, self.Z, self.jitter, self.place)
        except (TypeError, ValueError, NotPositiveDefiniteError) as error:
            raise ValueError(
                f"the kernel {shown(kernel)} cannot use these inducing points: {error}"
            ) from error
        if learn_points and not moves_points(kernel):
            raise ValueError(
                f"inducing points cannot be learned with the kernel {kernel}, whose derivatives by "
                "points are not known: keep the points where they are, or use RBF, Matérn (ν of ½, 1½ "
                "or 2½), rational quadratic, periodic and dot-product kernels, their sums and products."
            )

    def mean_at(self, rows: np.ndarray) -> Array:
        """The prior mean at rows."""
        return mean_at(self.prior_mean, rows)

    def points_at(self, at: Hyperparameters) -> Array:
        """The inducing points: those among the hyperparameters if they are learned, else Z."""
        return at.points if isinstance(at, WithPoints) else self.Z

    def _prior(self, at: Hyperparameters) -> tuple[Basis, Method, WhiteSplit | None]:
        """The basis and the method at these hyperparameters, and how the kernel was split."""
        split = split_white(at.kernel) if self.fold_noise else None
        kernel = split.smooth if split else at.kernel
        basis = Basis.of(kernel, self.points_at(at), self.jitter, self.place)
        likelihood = WithNoise(at.likelihood, split.noise) if split else at.likelihood
        return basis, Method(likelihood, self.rule, self.prior_mean), split

    @override
    def costs(self, n_parameters: int) -> Costs:
        size = (self.n_rows * float(len(self.Z)) ** 2) ** (1 / 3)
        return costs(size, OF_SPARSE, min(n_parameters, MANY), self.place)

    @override
    def infer(
        self, at: Hyperparameters, start: State | None = None, tol: float | None = None
    ) -> SparseApproximation:
        basis, method, split = self._prior(at)
        tol = max(tol or self.tol, self.tol)
        residuals: list[float] = []
        while True:
            budget = self.max_iter - len(residuals)
            solver = Solver(self.rows, basis, method, tol, budget, self.after_pass)
            found = solver.run(start)
            converged = found.size <= tol and not found.unsolved
            evidence: Evidence = self.rows.total(EvidencePass(found.posterior, method))
            residuals += [*solver.residuals, found.size]
            # cavities need more digits than marginals where sites carry most of the precision
            if not evidence.improper or tol <= self.tol or not converged:
                break
            start, tol = found.state, max(self.tol, _FINER * tol)
        posterior = found.posterior
        value = (
            0.5 * float(posterior.h @ posterior.h) - posterior.factor.log_determinant + evidence.value
        )
        record = record_of_passes(converged, found.size, residuals, found.unsolved)
        differentiate = partial(_differentiate, at, self.rows, split, evidence)
        return SparseApproximation(
            record, posterior, found.state, method, float(value), evidence.improper, differentiate
        )

    @override
    def revive(
        self,
        at: Hyperparameters,
        kept: tuple[Array, Array] | None,
        record: Record,
        log_evidence: float,
        improper: int = 0,
    ) -> SparseApproximation:
        basis, method, _ = self._prior(at)
        state = State.prior(basis)
        if kept is not None:
            B, b = map(self.place.put, kept)
            state = State(B, b, basis.factor.L)
        posterior = SparsePosterior.of(basis, state)
        return SparseApproximation(
            record, posterior, state, method, log_evidence, improper, _not_differentiable
        )

    def log_loss(self, at: Hyperparameters, state: State, rows: ArrayRows) -> float:
        """The mean log-loss of other rows in a state at these hyperparameters, weights included."""
        basis, method, _ = self._prior(at)
        posterior = SparsePosterior.of(basis, state)
        lost, weight = rows.total(LogLossPass(posterior, method))
        return lost / weight

    @override
    def warnings(self, record: Record) -> list[Warning]:
        if record.converged:
            return []
        spent = record.n_iter >= self.max_iter
        remedy = f"raise max_iter_predict, the most passes (now {self.max_iter})"
        other = "add white noise to the kernel or use other inducing points"
        return [
            ConvergenceWarning(
                f"sparse inference stopped after {record.n_iter} passes with residual "
                f"{record.residual:.2g}, above tol={self.tol:g} ({record.unsolved} rows unsolved); the "
                f"result is approximate. To remedy it, {remedy if spent else other}. Extreme kernel "
                "parameters are the usual cause."
            )
        ]


def _not_differentiable(found: SparseApproximation, accuracy: float) -> tuple[float, Array]:
    raise NotPositiveDefiniteError("the gradient could not be computed.")


def _differentiate(
    at: Hyperparameters,
    rows: Rows,
    split: WhiteSplit | None,
    evidence: Evidence,
    found: SparseApproximation,
    accuracy: float,
) -> tuple[float, Array]:
    """The log evidence at the fixed point, to second order in the residual, and its gradient."""
    learn_points = isinstance(at, WithPoints)
    slopes = gradient_at(
        rows,
        found.posterior,
        found.method,
        evidence,
        accuracy=max(accuracy, _EXACT),
        points=learn_points,
    )
    value = found.log_evidence + (slopes.correction if found.converged else 0.0)
    likelihood = found.method.likelihood
    assert isinstance(likelihood, BinaryLikelihood)
    by_parameters = dict(zip(likelihood.parameters, slopes.by_parameters, strict=True))
    by_kernel = list(slopes.by_theta)
    if split is not None:
        by_kernel = split.join(by_kernel, by_parameters["variance"])
    by_points = slopes.by_points.ravel() if learn_points else ()
    return value, np.array([*by_kernel, *at.by_likelihood(by_parameters), *by_points], dtype=float)
