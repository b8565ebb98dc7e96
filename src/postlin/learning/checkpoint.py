"""Checkpoints: a file from which a fit with inducing points continues where it was interrupted.

All that a fit computes follows from the sums that its passes over the rows make. A checkpoint is a
journal of these sums: a search that runs again reads from it what it computed before, without any pass,
and continues where it ended. Of a completed inference the journal keeps the result only.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from postlin._files import reason, sealed, try_to_write
from postlin._typing import Array, override
from postlin.exceptions import CheckpointError, NotPositiveDefiniteError
from postlin.inference.sparse.evidence import SparseApproximation
from postlin.inference.sparse.posterior import State
from postlin.inference.sparse.solver import record_of_passes
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.journal_file import PLACED, SUMS, Content, FitFile, Step, read, stored
from postlin.learning.sparse_model import SparseModel
from postlin.linalg.arrays import on_host
from postlin.streaming.chunks import Chunk
from postlin.streaming.views import ArrayRows, Rows

#: The fewest seconds between two writes of the file, and so the most work that a kill can cost. After a
#: write that took longer than ``_LONG`` seconds they grow in proportion.
EVERY, _LONG = 10.0, 0.5

S = TypeVar("S")


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise ``CheckpointError`` if no checkpoint can be written to a path, before there is any work."""
    try:
        try_to_write(Path(path))
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {str(path)!r} cannot be written: {reason(error)}. Make its folder, free "
            "space on its disk, or give another path."
        ) from None


class Journal:
    """The inferences of one binary problem, in order; the last may still need passes."""

    def __init__(self, file: "Checkpoint", steps: list[Step]) -> None:
        self._file = file
        self.steps = steps
        self._step = self._pass = 0  # how many were asked for since the fit began

    def step(self, theta: Array) -> Step:
        """Begin the next inference and return its entry, with what is known of it at theta."""
        self._close()
        known = self.steps[self._step] if self._step < len(self.steps) else {}
        if known and not _same(known["theta"], theta):
            del self.steps[self._step :]  # rounding on another machine has led the search elsewhere
            known = {}
        known = known or {"theta": theta, "passes": []}
        self.steps[self._step : self._step + 1] = [known]
        self._step += 1
        return known

    @property
    def present(self) -> Step:
        """The entry of the present inference."""
        return self.steps[self._step - 1]

    def _close(self) -> None:
        """End the present inference, of which no pass is needed any more."""
        if self._pass:
            self.steps[self._step - 1]["passes"] = []
            self._pass = 0
            self._file.write_now_and_then()

    def total(self, rows: Rows, share: Callable[[Chunk], S]) -> S:
        """The sum of the next pass of the present inference, which is made if it is not known."""
        known, name = self.steps[self._step - 1]["passes"], type(share).__name__
        self._pass += 1
        if self._pass <= len(known) and known[self._pass - 1][0] == name:
            parts = SUMS[name](*known[self._pass - 1][1])
            put = share.place.put  # type: ignore[attr-defined]  # every pass of an inference has one
            on_place = {part: put(getattr(parts, part)) for part in parts._fields if part in PLACED}
            found: S = parts._replace(**on_place)
            return found
        total = rows.total(share)
        kept = SUMS[name](*map(on_host, total))  # type: ignore[call-overload]  # a tuple of arrays
        known[self._pass - 1 :] = [(name, kept)]
        self._file.write_now_and_then()
        return total

    def finish(self) -> None:
        """End the search: only the last state is kept."""
        self._close()
        for step in filter(None, self.steps[:-1]):
            step["state"] = None


class Checkpoint(FitFile):
    """The journals of a fit."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        super().__init__(path, fingerprint)
        content = read(self.path, fingerprint) if self.path.exists() else Content()
        self.warn_of_damage(content.damaged)
        #: What the fit chose at random when it began: the seed and the inducing points.
        self.choices: dict[str, Any] = content.choices
        self._journals = {name: Journal(self, steps) for name, steps in content.journals.items()}
        self._due = time.monotonic() + EVERY

    def journal(self, name: str) -> Journal:
        """The journal of the binary problem with this name."""
        return self._journals.setdefault(name, Journal(self, []))

    def finish(self, names: Iterable[str]) -> None:
        """End the searches of the problems with these names."""
        for name in names:
            for known, journal in self._journals.items():
                if known == name or known.startswith(_coarse(name)):
                    journal.finish()

    def write_now_and_then(self) -> None:
        """Write the file, unless it was written less than ``EVERY`` seconds ago."""
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write the file, and take longer until the next time if that takes long."""
        began = time.monotonic()
        self.write_lines(self._lines())
        now = time.monotonic()
        self._due = now + EVERY * max(1.0, (now - began) / _LONG)

    def _lines(self) -> Iterator[bytes]:
        yield sealed({"choices": self.choices}, stored)
        for name, journal in self._journals.items():
            for number, step in enumerate(journal.steps):
                if step:
                    yield sealed({"journal": name, "number": number, "step": step}, stored)


def _coarse(name: str) -> str:
    """The name of the journal of a problem's search on a sample; that on a larger one has it twice."""
    return f"{name}, coarse"


def _same(one: Array, other: Array) -> bool:
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-9, atol=1e-12)


class JournalRows(Rows):
    """Rows whose sums are kept in a journal, so that none is computed twice."""

    def __init__(self, rows: Rows, journal: Journal) -> None:
        self.n, self.engine, self.times = rows.n, rows.engine, rows.times
        self._rows, self._journal = rows, journal

    @override
    def total(self, share: Callable[[Chunk], S]) -> S:
        return self._journal.total(self._rows, share)

    @override
    def sample(self, n: int, seed: int) -> ArrayRows:
        return self._rows.sample(n, seed)  # which is no part of an inference, and too large to keep


@dataclass
class RememberingModel(SparseModel):
    """A sparse model that keeps what it computes in the journal of this name in a checkpoint."""

    _: KW_ONLY
    checkpoint: Checkpoint
    name: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self._journal = self.checkpoint.journal(self.name)
        self.rows = JournalRows(self.rows, self._journal)

    @override
    def on(self, rows: Rows) -> "RememberingModel":
        return replace(self, rows=rows, name=_coarse(self.name))

    @override
    def infer(
        self, at: Hyperparameters, start: State | None = None, tol: float | None = None
    ) -> SparseApproximation:
        step = self._journal.step(at.theta)
        if "error" in step and not step["passes"]:
            return self._replayed(at, step, start, tol)
        try:
            found = super().infer(at, start, tol)
        except NotPositiveDefiniteError as error:
            step["error"] = str(error)
            raise
        record, history = found.record, found.history.residuals
        step["record"] = [record.converged, record.residual, history, record.unsolved]
        step["evidence"] = [found.log_evidence, found.improper]
        step |= {"state": found.kept, "error": None}

        def differentiate(at: SparseApproximation, accuracy: float) -> tuple[float, Array]:
            step["gradient"] = result = found.differentiate(at, accuracy)
            return result

        return replace(found, differentiate=differentiate)

    @override
    def log_loss(self, at: Hyperparameters, state: State, rows: ArrayRows) -> float:
        step = self._journal.present
        if "loss" not in step:
            step["loss"] = super().log_loss(at, state, rows)
        return float(step["loss"])

    def _replayed(
        self, at: Hyperparameters, step: Step, start: State | None, tol: float | None
    ) -> SparseApproximation:
        """The approximation that the journal holds."""
        if step["error"] is not None:
            raise NotPositiveDefiniteError(step["error"])
        found = self.revive(at, step["state"], record_of_passes(*step["record"]), *step["evidence"])

        def differentiate(_: SparseApproximation, accuracy: float) -> tuple[float, Array]:
            if "gradient" not in step:  # Ctrl-C came before it was known
                again = SparseModel.infer(self, at, start, tol)
                step["gradient"] = again.differentiate(again, accuracy)
            value, gradient = step["gradient"]
            return value, gradient

        return replace(found, differentiate=differentiate)
