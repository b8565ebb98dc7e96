"""Checkpoints: a file from which a fit with inducing points continues where it was interrupted.

All that a fit computes follows from the sums that its passes over the rows make. A checkpoint is a
journal of these sums: a search that runs again reads from it what it computed before, without any pass,
and continues where it ended. Of a completed inference the journal keeps the result only.
"""

import importlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from postlin._files import write_atomically
from postlin._typing import Array, override
from postlin.exceptions import CheckpointError, NotPositiveDefiniteError
from postlin.inference.sparse import passes
from postlin.inference.sparse.evidence import SparseApproximation
from postlin.inference.sparse.posterior import State
from postlin.inference.sparse.solver import record_of_passes
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.sparse_model import SparseModel
from postlin.streaming.chunks import Chunk
from postlin.streaming.views import ArrayRows, Rows

#: The fewest seconds between two writes of the file, and so the most work that a kill can cost.
EVERY = 10.0
#: The number of the file's layout, which changes with the layout.
_FORMAT = 3

S = TypeVar("S")

#: What a journal keeps of one inference: ``theta``, the result, and, until the next inference begins,
#: the ``passes`` as pairs of a name and a sum.
Step = dict[str, Any]

#: The sum that each pass makes; JSON keeps such a tuple as a list.
_SUMS: dict[str, Callable[..., Any]] = {
    passes.Cautious.__name__: passes.Update,
    passes.Sweep.__name__: passes.Update,
    passes.EvidencePass.__name__: passes.Evidence,
    passes.AdjointPass.__name__: passes.Pulled,
    passes.GradientPass.__name__: passes.Slopes,
}


class Journal:
    """The inferences of one binary problem, in order; the last may still need passes."""

    def __init__(self, file: "Checkpoint", steps: list[Step]) -> None:
        self._file = file
        self.steps = steps
        self._step = self._pass = 0  # how many were asked for since the fit began

    def step(self, theta: Array) -> Step:
        """Begin the next inference and return its entry, with what is known of it at theta."""
        self._close()
        if self._step < len(self.steps) and not _same(self.steps[self._step]["theta"], theta):
            del self.steps[self._step :]  # rounding on another machine has led the search elsewhere
        if self._step == len(self.steps):
            self.steps.append({"theta": theta, "passes": []})
        self._step += 1
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
            found: S = _SUMS[name](*known[self._pass - 1][1])
            return found
        total = rows.total(share)
        known[self._pass - 1 :] = [(name, total)]
        self._file.write_now_and_then()
        return total

    def finish(self) -> None:
        """End the search: only the last state is kept."""
        self._close()
        for step in self.steps[:-1]:
            step["state"] = None


class Checkpoint:
    """A file with the journals of a fit, which belongs to the data and parameters of a fingerprint."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise CheckpointError(
                f"the checkpoint {str(path)!r} cannot be written: its folder is not there. Make the "
                "folder, or give another path."
            )
        self._about = {"format": _FORMAT, "postlin": _version(), "fingerprint": fingerprint}
        content = read(self.path, fingerprint) if self.path.exists() else {}
        #: What the fit chose at random when it began: the seed and the inducing points.
        self.choices: dict[str, Any] = content.get("choices", {})
        self._journals = {
            name: Journal(self, steps) for name, steps in content.get("journals", {}).items()
        }
        self._written = time.monotonic()

    def journal(self, name: str) -> Journal:
        """The journal of the binary problem with this name."""
        return self._journals.setdefault(name, Journal(self, []))

    def finish(self, names: Iterable[str]) -> None:
        """End the searches of the problems with these names."""
        for name in names:
            self.journal(name).finish()
            self.journal(_coarse(name)).finish()

    def write_now_and_then(self) -> None:
        """Write the file, unless it was written less than ``EVERY`` seconds ago."""
        if time.monotonic() - self._written >= EVERY:
            self.write()

    def write(self) -> None:
        """Write the file: JSON, with the arrays beside it."""
        arrays: dict[str, np.ndarray] = {}

        def stored(value: np.ndarray | np.generic) -> object:
            """Describe what JSON cannot hold; of a symmetric matrix the lower triangle is stored."""
            if isinstance(value, np.generic):
                return value.item()
            name = f"a{len(arrays)}"
            symmetric = value.ndim == 2 and np.array_equal(value, value.T)
            arrays[name] = value[np.tril_indices(len(value))] if symmetric else value
            return {"array": name, "symmetric": len(value) if symmetric else 0}

        journals = {name: journal.steps for name, journal in self._journals.items()}
        content = json.dumps({"choices": self.choices, "journals": journals}, default=stored)
        for name, text in ("about", json.dumps(self._about)), ("content", content):
            arrays[name] = np.frombuffer(text.encode(), np.uint8)
        write_atomically(self.path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
        self._written = time.monotonic()


def read(path: Path, fingerprint: str) -> dict[str, Any]:
    """The content of a checkpoint; ``CheckpointError`` if the file is not one of this fit."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]))
            known = about["format"] == _FORMAT
            content = json.loads(
                bytes(file["content"]) if known else b"{}",
                object_hook=lambda value: _whole(file, **value) if "array" in value else value,
            )
            same = about["fingerprint"] == fingerprint
    except Exception as error:  # whatever a damaged or foreign file may provoke
        raise CheckpointError(
            f"{str(path)!r} is no checkpoint, or damaged ({type(error).__name__}): give another path, "
            "or remove it to begin anew."
        ) from error
    if not known:
        raise CheckpointError(
            f"{str(path)!r} is a checkpoint of postlin {about.get('postlin', '0.1.0')} in format "
            f"{about['format']}, and postlin {_version()} reads format {_FORMAT}: remove it "
            "to begin anew."
        )
    if not same:
        raise CheckpointError(
            f"{str(path)!r} is the checkpoint of another fit: data, parameters or version differ. Give "
            "another path, or remove it to begin anew."
        )
    return dict(content)


def _whole(arrays: Any, array: str, symmetric: int) -> np.ndarray:
    """A stored array; ``symmetric`` is the number of rows if it is one of which half was stored."""
    found: np.ndarray = arrays[array]
    if symmetric:
        lower = np.zeros((symmetric, symmetric), found.dtype)
        lower[np.tril_indices(symmetric)] = found
        return lower + np.tril(lower, -1).T
    return found


def _version() -> str:
    return str(importlib.import_module("postlin").__version__)


def _coarse(name: str) -> str:
    """The name of the journal of a problem's coarse search."""
    return f"{name}, coarse"


def _same(one: Array, other: Array) -> bool:
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-9, atol=1e-12)


class JournalRows(Rows):
    """Rows whose sums are kept in a journal, so that none is computed twice."""

    def __init__(self, rows: Rows, journal: Journal) -> None:
        self.n, self.engine = rows.n, rows.engine
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
            return self._replayed(at, step)
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

    def _replayed(self, at: Hyperparameters, step: Step) -> SparseApproximation:
        """The approximation that the journal holds."""
        if step["error"] is not None:
            raise NotPositiveDefiniteError(step["error"])
        found = self.revive(at, step["state"], record_of_passes(*step["record"]), *step["evidence"])
        if "gradient" not in step:
            return found
        return replace(found, differentiate=lambda *_: tuple(step["gradient"]))
