"""A global part of neighbours: inducing points, and the posteriors of all problems at these."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from postlin._typing import Array
from postlin.inference.sparse.posterior import inducing_points
from postlin.inference.sparse.solver import record_of_passes
from postlin.kernels.stacks import metric
from postlin.learning.global_part import GlobalPart
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.local_model import LocalModel
from postlin.learning.sparse_model import MAX_PASSES, SparseModel
from postlin.linalg.arrays import HOST, Place
from postlin.linalg.threads import threads
from postlin.streaming.engines import Threads
from postlin.streaming.surroundings import Queries
from postlin.streaming.views import ArrayRows, Rows

#: The number of inducing points of ``inducing="auto"``.
_POINTS = 256

#: From the labels ±1 of the classes, 0 for none, to the rows of that problem.
Passes = Callable[[Array], Rows]


@dataclass(frozen=True, eq=False)
class GlobalFit:
    """Inducing points and, for each problem, the posterior of their coefficients (B, b)."""

    Z: Array
    states: tuple[tuple[Array, Array], ...]
    members: np.ndarray | None  # the numbers of the rows that it has seen; None for all


def with_parts(model: LocalModel, at: Hyperparameters, whole: GlobalFit, n: int) -> LocalModel:
    """The model with the global part that was fitted at these hyperparameters to some of n rows."""
    members = None
    if whole.members is not None:
        members = np.zeros(n, dtype=bool)
        members[whole.members] = True
    none = ArrayRows(np.zeros((0, whole.Z.shape[1])), np.zeros(0))
    record = record_of_passes(True, 0.0, [], 0)
    parts = []
    for state in whole.states:
        found = sparse_model(model, whole.Z, none).revive(at, state, record, 0.0)
        parts.append(GlobalPart.of(found.posterior, found.state, found.method, members))
    return replace(model, parts=tuple(parts))


def sparse_model(model: LocalModel, Z: Array, rows: Rows, place: Place = HOST) -> SparseModel:
    """Inference with inducing points on the rows of a problem, by the method of the local problems."""
    method = model.rule, model.tol, MAX_PASSES, model.fold_noise, model.prior_mean
    return SparseModel(rows, Z, *method, place=place)


def problem_of(rows: Queries, sign: Array) -> ArrayRows:
    """The rows of one problem."""
    y = sign[rows.code]
    used = y != 0
    return ArrayRows(rows.X[used], y[used], rows.weight[used], engine=Threads(threads()))


def fitted(
    model: LocalModel,
    at: Hyperparameters,
    asked: int | Array | str | None,
    sample: Queries,
    passes: Passes,
    n: int,
    seed: int,
) -> tuple[GlobalFit, list[str]]:
    """The global part that is asked for, and what is to be said of it.

    Inducing points are chosen among a sample of the n rows. The sample is also what they are fitted
    to if their number is left open, else all rows are.
    """
    lengths, members = metric(at.kernel, sample.X.shape[1]), None
    place = model.place if model.place.has_memory else HOST
    if isinstance(asked, str):
        asked = max(1, min(_POINTS, n // 20, len(np.unique(sample.X, axis=0))))
        members = sample.number if len(sample) < n else None
    if isinstance(asked, Integral):  # distances are those of the kernel
        Z = inducing_points(asked, sample.X / lengths, n, seed, sample.weight) * lengths
    else:
        Z = inducing_points(asked, sample.X, n, seed)
    states, remarks = [], []
    for sign in model.signs:
        rows = passes(sign) if members is None else problem_of(sample, sign)
        sparse = sparse_model(model, Z, rows, place)
        sparse.check(at.kernel)
        found = sparse.infer(at)
        if not found.converged:
            remarks += [str(warning) for warning in sparse.warnings(found.record)]
        states.append(found.kept)
    return GlobalFit(Z, tuple(states), members), remarks
