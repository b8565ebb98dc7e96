"""A sparse model that writes down what it computes, and computes nothing twice."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.hyperparameters import Hyperparameters
from postlin.sparse.approximation import SparseApproximation
from postlin.sparse.checkpoint import Checkpoint, Journal
from postlin.sparse.model import SparseFitted, SparseModel
from postlin.sparse.revive import revived
from postlin.sparse.rows import Chunk, Rows
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


@dataclass
class RememberingModel(SparseModel):
    """The same model with a journal."""

    journal: Journal | None = None

    @classmethod
    def of(cls, model: SparseModel, checkpoint: Checkpoint, name: str) -> "RememberingModel":
        """A model that keeps the journal of this name."""
        parts = {f.name: getattr(model, f.name) for f in fields(SparseModel)}
        journal = checkpoint.journal(name)
        return cls(**parts | {"rows": JournalRows(model.rows, journal)}, journal=journal)

    def infer(  # type: ignore[override]
        self, at: Hyperparameters, start: Any = None, tol: float | None = None
    ) -> "Replayed | Remembering":
        """As written, or computed and then written."""
        assert self.journal is not None
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
