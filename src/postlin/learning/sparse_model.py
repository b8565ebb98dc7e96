"""An approximation made again from what was kept of it."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.sparse.evidence import SparseApproximation, gradient_at
from postlin.inference.sparse.passes import Evidence, EvidencePass
from postlin.inference.sparse.posterior import JITTER, Basis, SparsePosterior, State
from postlin.inference.sparse.row_sites import Method
from postlin.inference.sparse.solver import AfterPass, Residual, SparseRecord, residual_of, solve
from postlin.kernels import WhiteSplit, moves_points, split_white
from postlin.learning.hyperparameters import Hyperparameters, WithPoints
from postlin.likelihoods import BinaryLikelihood, Likelihood, WithNoise
from postlin.linalg.minimise import Worth
from postlin.rules.binary import EP, Rule
from postlin.streaming.chunks import Rows

#: The default tolerance of the residual, and the most passes spent on reaching it.
TOL = 1e-6
MAX_PASSES = 200
#: An iteration that has not converged and still moves by more than this is lost.
_LOST = 0.1
#: How much finer the tolerance is made where the evidence cannot be computed yet.
_FINER = 0.01
#: Where nothing else is asked: the accuracy of a gradient, relative to one or to itself.
_EXACT = 1e-10
#: A slope of the log evidence that ends a search: so much a row, and no less than this.
_SLOPE_A_ROW, _FLAT = 5e-6, 0.02


class NearestState:
    """Where to start at new hyperparameters: at the state of the nearest point that is solved."""

    def __init__(self, start: State | None) -> None:
        self._default = start
        self._solved: list[tuple[Array, State]] = []

    def add(self, theta: Array, state: State) -> None:
        """Remember the state found at theta."""
        others = [solved for solved in self._solved if not np.array_equal(solved[0], theta)]
        self._solved = [*others[-3:], (np.array(theta), state)]

    def predict(self, theta: Array) -> State | None:
        """The state to start from at theta."""
        if not self._solved:
            return self._default
        return min(self._solved, key=lambda solved: float(np.sum((solved[0] - theta) ** 2)))[1]


@dataclass
class SparseModel:
    """Everything about a sparse fit but the hyperparameters.

    ``fold_noise`` moves the kernel's white noise into the likelihood. A row of weight w is w rows,
    each with what the inducing points do not explain of it, and its noise, for its own.
    ``after_pass`` is called with the number of passes so far in the present inference, the
    residual, and the state.
    """

    rows: Rows
    Z: Array
    rule: Rule
    tol: float = TOL
    max_passes: int = MAX_PASSES
    fold_noise: bool = False
    jitter: float = JITTER
    after_pass: AfterPass | None = None

    #: How exact the adjoint of a gradient may be asked to be: every digit is two or three passes.
    adjoint_accuracy: ClassVar[float] = 1e-4

    @property
    def worth(self) -> Worth:
        """What is worth an evaluation of the evidence in a search, which is dear.

        Slopes are sums over rows, and known to a part of them: what is small grows with their number.
        """
        return Worth(gain=1e-6, slope=max(_FLAT, _SLOPE_A_ROW * self.n_rows))

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.rows.n

    def on(self, rows: Rows) -> "SparseModel":
        """The same for other rows."""
        return replace(self, rows=rows)

    def check(self, kernel: Kernel, *, learn_points: bool = False) -> None:
        """Raise ``ValueError`` where kernel, rule and inducing points cannot be used together."""
        if isinstance(self.rule, EP) and self.rule.negative_sites != "keep":
            raise ValueError(
                "EP with inducing points keeps sites of negative precision: use "
                f"EP(negative_sites='keep'), not {self.rule.negative_sites!r}."
            )
        smooth = self._split(kernel)
        try:
            Basis.of(smooth.smooth if smooth else kernel, self.Z, self.jitter)
        except (TypeError, ValueError, NotPositiveDefiniteError) as error:
            raise ValueError(
                f"the kernel {kernel} cannot use these inducing points: {error}"
            ) from error
        if learn_points and not moves_points(kernel):
            raise ValueError(
                f"inducing points cannot be learned with the kernel {kernel}, whose derivatives by "
                "points are not known: keep the points where they are, or use RBF, Matérn (ν of ½, 1½ "
                "or 2½), rational quadratic, periodic and dot-product kernels, their sums and products."
            )

    def forget(self) -> None:
        """Nothing is kept between kernels."""

    def path(self, start: State | None) -> NearestState:
        """What remembers states along a search."""
        return NearestState(start)

    def is_lost(self, approximation: SparseApproximation) -> bool:
        """Whether the evidence means nothing."""
        apart = not approximation.converged and approximation.residual > _LOST
        return apart or approximation.improper > 0

    def infer(
        self, at: Hyperparameters, start: State | None = None, tol: float | None = None
    ) -> "SparseFitted":
        """The approximation at these hyperparameters, from a state of any others or from the prior."""
        split = self._split(at.kernel)
        points = at.points if isinstance(at, WithPoints) else self.Z
        basis = Basis.of(split.smooth if split else at.kernel, points, self.jitter)
        likelihood: Likelihood = WithNoise(at.likelihood, split.noise) if split else at.likelihood
        method = Method(likelihood, self.rule)
        tol = max(tol or self.tol, self.tol)
        residuals: list[float] = []
        while True:
            found = solve(
                self.rows,
                basis,
                method,
                start=start,
                tol=tol,
                max_passes=self.max_passes - len(residuals),
                after_pass=self.after_pass,
            )
            evidence: Evidence = self.rows.total(EvidencePass(found.posterior, method))
            residuals += [*found.record.residuals, found.record.residual]
            # cavities need more digits than the marginals where sites are much of what is known
            if not evidence.improper or tol <= self.tol or not found.record.converged:
                break
            start, tol = found.state, max(self.tol, _FINER * tol)
        posterior = found.posterior
        value = 0.5 * posterior.h @ posterior.h - posterior.factor.log_determinant + evidence.value
        record = replace(found.record, n_passes=len(residuals), residuals=residuals)
        approximation = SparseApproximation(
            posterior, found.state, method, record, float(value), evidence.improper
        )
        residual = residual_of(posterior, evidence)
        return SparseFitted(at, self.rows, split, approximation, evidence, residual)

    def latent_kernel(self, kernel: Kernel) -> Kernel:
        """The kernel of the latent values that predictions are about."""
        return split_white(kernel).smooth if self.fold_noise else kernel

    def _split(self, kernel: Kernel) -> WhiteSplit | None:
        return split_white(kernel) if self.fold_noise else None


class SparseFitted(NamedTuple):
    """An approximation with the hyperparameters that it belongs to."""

    at: Hyperparameters
    rows: Rows
    split: WhiteSplit | None
    approximation: SparseApproximation
    evidence: Evidence
    residual: Residual

    def gradient(self) -> Array:
        """∂ log evidence by the free parameters."""
        return self.value_and_gradient(_EXACT)[1]

    def value_and_gradient(self, accuracy: float) -> tuple[float, Array]:
        """The log evidence at the fixed point, to second order in the residual, and its gradient."""
        found = self.approximation
        slopes = gradient_at(
            self.rows,
            found.posterior,
            found.method,
            self.evidence,
            self.residual,
            accuracy=max(accuracy, _EXACT),
            points=isinstance(self.at, WithPoints),
        )
        value = found.log_evidence + (slopes.correction if found.converged else 0.0)
        likelihood = found.method.likelihood
        assert isinstance(likelihood, BinaryLikelihood)
        by_parameters = dict(zip(likelihood.parameters, slopes.by_parameters, strict=True))
        by_kernel = list(slopes.by_theta)
        if self.split is not None:
            by_kernel = self.split.join(by_kernel, by_parameters["variance"])
        learned = self.at.likelihood
        by_likelihood = [by_parameters[name] * getattr(learned, name) for name in learned.free]
        by_points: Any = slopes.by_points.ravel() if isinstance(self.at, WithPoints) else []
        return value, np.array([*by_kernel, *by_likelihood, *by_points], dtype=float)


def points_at(model: SparseModel, at: Hyperparameters) -> Array:
    """The inducing points: learned, or as they were chosen."""
    return at.points if isinstance(at, WithPoints) else model.Z


def revived(
    model: SparseModel,
    at: Hyperparameters,
    state: tuple[Array, Array] | None,
    record: SparseRecord,
    log_evidence: float,
    improper: int,
) -> SparseApproximation:
    """The approximation with the state (B, b) at these hyperparameters; None for the prior's."""
    split = split_white(at.kernel) if model.fold_noise else None
    basis = Basis.of(split.smooth if split else at.kernel, points_at(model, at), model.jitter)
    likelihood: Likelihood = WithNoise(at.likelihood, split.noise) if split else at.likelihood
    here = State.prior(basis) if state is None else State(*state, basis.factor.L)
    method = Method(likelihood, model.rule)
    posterior = SparsePosterior.of(basis, here)
    return SparseApproximation(posterior, here, method, record, log_evidence, improper)
