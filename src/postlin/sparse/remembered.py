"""A sparse model that writes down what it computes, and computes nothing twice."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.hyperparameters import Hyperparameters
from postlin.sparse.approximation import SparseApproximation
from postlin.sparse.checkpoint import Checkpoint, Journal, coarse
from postlin.sparse.model import SparseFitted, SparseModel
from postlin.sparse.revive import revived
from postlin.sparse.rows import ArrayRows, Chunk, Rows
from postlin.sparse.solver import SparseRecord

S = TypeVar("S")


class JournalRows(Rows):
    """Rows whose sums are written down; those that are known are not made again."""

    def __init__(self, rows: Rows, journal: Journal) -> None:
        self.n, self.n_features, self.engine = rows.n, rows.n_features, rows.engine
        self._rows, self._journal = rows, journal

    def total(self, share: Callable[[Chunk], S]) -> S:
        """As written, or one pass."""
        name = type(share).__name__
        total: Any = self._journal.known(name)
        if total is None:
            total = self._rows.total(share)
            self._journal.add(name, total)
        return total  # type: ignore[no-any-return]

    def sample(self, n: int, seed: int) -> ArrayRows:
        """Made again: it is as large as it is, and no part of an inference."""
        return self._rows.sample(n, seed)


@dataclass
class RememberingModel(SparseModel):
    """The same model with a journal."""

    checkpoint: Checkpoint | None = None
    name: str = ""

    @classmethod
    def of(cls, model: SparseModel, checkpoint: Checkpoint, name: str) -> "RememberingModel":
        """A model that keeps the journal of this name."""
        parts = {f.name: getattr(model, f.name) for f in fields(SparseModel)}
        rows = JournalRows(model.rows, checkpoint.journal(name))
        return cls(**parts | {"rows": rows}, checkpoint=checkpoint, name=name)

    def on(self, rows: Rows) -> "RememberingModel":
        """The same for some of the rows, with a journal of its own."""
        assert self.checkpoint is not None
        return self.of(replace(self, rows=rows), self.checkpoint, coarse(self.name))

    @property
    def journal(self) -> Journal:
        """Where it writes."""
        assert self.checkpoint is not None
        return self.checkpoint.journal(self.name)

    def infer(  # type: ignore[override]
        self, at: Hyperparameters, start: Any = None, tol: float | None = None
    ) -> "Replayed | Remembering":
        """As written, or computed and then written."""
        step = self.journal.step(at.theta)
        if step is not None:
            if "failed" in step:
                raise NotPositiveDefiniteError(step["failed"])
            record = SparseRecord(**step["record"])
            approximation = revived(
                self, at, step["state"], record, step["log_evidence"], step["improper"]
            )
            return Replayed(at, approximation, step)
        try:
            fitted = super().infer(at, start, tol)
        except NotPositiveDefiniteError as error:
            self.journal.open({"theta": at.theta, "failed": str(error), "state": None})
            raise
        return Remembering(fitted, self.journal)


class Replayed(NamedTuple):
    """An inference of an earlier time."""

    at: Hyperparameters
    approximation: SparseApproximation
    step: dict[str, Any]

    def gradient(self) -> Array:
        """∂ log evidence by the free parameters."""
        return self.value_and_gradient(0.0)[1]

    def value_and_gradient(self, accuracy: float) -> tuple[float, Array]:
        """As written."""
        if self.step["gradient"] is None:
            raise NotPositiveDefiniteError("the gradient could not be computed.")
        return self.step["value"], self.step["gradient"]


class Remembering:
    """An inference of now; over when its gradient is known, or when the next begins."""

    def __init__(self, fitted: SparseFitted, journal: Journal) -> None:
        self.at, self.approximation = fitted.at, fitted.approximation
        self._fitted, self._journal = fitted, journal
        found, record = fitted.approximation, fitted.approximation.record
        self._step = {
            "theta": fitted.at.theta,
            "state": [found.state.B, found.state.b],
            "record": {f.name: getattr(record, f.name) for f in fields(record)},
            "log_evidence": found.log_evidence,
            "improper": found.improper,
            "value": None,
            "gradient": None,
        }
        journal.open(self._step)

    def gradient(self) -> Array:
        """∂ log evidence by the free parameters."""
        return self._fitted.gradient()

    def value_and_gradient(self, accuracy: float) -> tuple[float, Array]:
        """Computed, and written."""
        value, gradient = self._fitted.value_and_gradient(accuracy)
        self._step |= {"value": value, "gradient": gradient}
        return value, gradient
