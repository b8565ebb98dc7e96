"""Checkpoints: a file that is whole at any time, and that names the fit it belongs to.

All that a fit computes follows from the sums that its passes make, so a journal of these is enough to
go on from: a search that is run again gets from the journal, at once, what it got before, and works on
where it ended. Of inferences that are over the journal keeps only the results.
"""

import importlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from postlin._typing import Array, override
from postlin.exceptions import CheckpointError, NotPositiveDefiniteError
from postlin.inference.sparse.evidence import Differentiate, SparseApproximation
from postlin.inference.sparse.posterior import State
from postlin.inference.sparse.solver import record_of_passes
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.sparse_model import SparseModel
from postlin.streaming.chunks import Chunk
from postlin.streaming.views import ArrayRows, Rows

#: Seconds between writes, at least: what a kill may cost.
EVERY = 10.0
#: The layout of the file; another number is another layout.
_FORMAT = 2

S = TypeVar("S")

#: What a journal keeps of one inference: names, and whatever JSON and arrays can hold.
Step = dict[str, Any]


class Journal:
    """What is known of one problem: inferences that are over, and the passes of the one that is not."""

    def __init__(self, file: "Checkpoint", content: Step) -> None:
        self._file = file
        self.steps: list[Step] = content.get("steps", [])
        self.passes: list[tuple[str, Any]] = [tuple(p) for p in content.get("passes", [])]
        self._open: Step | None = None
        self._step = self._pass = 0
        self._live = False

    def content(self) -> Step:
        """What goes into the file."""
        return {"steps": self.steps, "passes": [list(p) for p in self.passes]}

    def step(self, theta: Any) -> Step | None:
        """The next inference, if it is known and was made at theta."""
        self.close()
        self._step += 1
        if self._step <= len(self.steps):
            if _same(self.steps[self._step - 1]["theta"], theta):
                return self.steps[self._step - 1]
            # rounding has led elsewhere, as on another machine: what was to follow is of no use
            self.steps, self.passes = self.steps[: self._step - 1], []
        if self._live:  # passes in the file belong to the first inference that is not
            self.passes = []
        self._live = True
        return None

    def open(self, step: Step) -> None:
        """An inference is made; its passes are kept as long as there may be more of them."""
        self._open = step

    def close(self) -> None:
        """The present inference is over."""
        if self._open is not None:
            self.steps.append(self._open)
            self._open, self.passes = None, []
            self._file.write_now_and_then()
        self._pass = 0

    def known(self, share: str) -> Any:
        """What the next pass of the present inference gave; None where that is not known."""
        self._pass += 1
        if self._pass > len(self.passes):
            return None
        name, total = self.passes[self._pass - 1]
        if name != share:
            self.passes = self.passes[: self._pass - 1]
            return None
        return total

    def add(self, share: str, total: Any) -> None:
        """The next pass."""
        self.passes.append((share, total))
        self._file.write_now_and_then()

    def finish(self) -> None:
        """The search is over: of the states only the last is wanted."""
        self.close()
        for step in self.steps[:-1]:
            step["state"] = None
        self.passes = []


class Checkpoint:
    """A file with the journals of a fit."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise CheckpointError(
                f"the checkpoint {str(path)!r} cannot be written: its folder is not there. Make the "
                "folder, or give another path."
            )
        self._about = {"format": _FORMAT, "postlin": _version(), "fingerprint": fingerprint}
        content = read(self.path, fingerprint) if self.path.exists() else {}
        #: What a fit has chosen at random at its begin.
        self.choices: dict[str, Any] = content.get("choices", {})
        self._stored: dict[str, Step] = content.get("journals", {})
        self._journals: dict[str, Journal] = {}
        self._written = time.monotonic()

    def journal(self, name: str) -> Journal:
        """That of one problem."""
        if name not in self._journals:
            self._journals[name] = Journal(self, self._stored.get(name, {}))
        return self._journals[name]

    def finish(self, names: Iterable[str]) -> None:
        """The search of these problems is over."""
        for name in names:
            self.journal(name).finish()
            self.journal(coarse(name)).finish()

    def write_now_and_then(self) -> None:
        """Write, unless that was done a moment ago."""
        if time.monotonic() - self._written >= EVERY:
            self.write()

    def write(self) -> None:
        """By way of a temporary file beside it."""
        now = {name: journal.content() for name, journal in self._journals.items()}
        arrays: dict[str, np.ndarray] = {}
        content = _packed({"choices": self.choices, "journals": self._stored | now}, arrays)
        about = json.dumps(self._about | {"content": content}).encode()
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            with temporary.open("wb") as file:
                np.savez(file, about=np.frombuffer(about, np.uint8), **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        self._written = time.monotonic()


def _version() -> str:
    return str(importlib.import_module("postlin").__version__)


def coarse(name: str) -> str:
    """What the journal of a problem's coarse search is called."""
    return f"{name}, coarse"


def read(path: Path, fingerprint: str) -> dict[str, Any]:
    """What the file holds; ``CheckpointError`` where that is no checkpoint of this problem."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]))
            if about["format"] != _FORMAT:
                raise CheckpointError(
                    f"{str(path)!r} is a checkpoint of postlin {about.get('postlin', '0.1.0')} in "
                    f"format {about['format']}, and postlin {_version()} reads format {_FORMAT}: "
                    "remove it to begin anew."
                )
            content: dict[str, Any] = _unpacked(about["content"], file)
            found = about["fingerprint"]
    except CheckpointError:
        raise
    except Exception as error:  # whatever a damaged or foreign file may provoke
        raise CheckpointError(
            f"{str(path)!r} is no checkpoint, or damaged ({type(error).__name__}): give another path, "
            "or remove it to begin anew."
        ) from error
    if found != fingerprint:
        raise CheckpointError(
            f"{str(path)!r} is the checkpoint of another fit: data, parameters or version differ. Give "
            "another path, or remove it to begin anew."
        )
    return content


def _packed(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A description that JSON can hold; arrays apart, symmetric ones by half."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        symmetric = value.ndim == 2 and len(value) > 1 and np.array_equal(value, value.T)
        arrays[name] = value[np.tril_indices(len(value))] if symmetric else value
        return {"array": name, "half": len(value) if symmetric else 0}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = [_packed(part, arrays) for part in value]
        return {"fields": list(value._fields), "values": parts}
    if isinstance(value, dict):
        return {"dict": [[key, _packed(part, arrays)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_packed(part, arrays) for part in value]
    return value


def _unpacked(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return _whole(arrays[value["array"]], value["half"])
    if "fields" in value:
        return Parts(value["fields"], [_unpacked(part, arrays) for part in value["values"]])
    return {key: _unpacked(part, arrays) for key, part in value["dict"]}


def _whole(stored: np.ndarray, m: int) -> np.ndarray:
    if not m:
        return stored
    whole = np.empty((m, m), stored.dtype)
    rows, columns = np.tril_indices(m)
    whole[rows, columns] = whole[columns, rows] = stored
    return whole


class Parts(tuple):  # type: ignore[type-arg]
    """A named tuple whose type is not known any more."""

    _fields: tuple[str, ...]

    def __new__(cls, fields: list[str], values: list[Any]) -> "Parts":
        """From names and values."""
        self = super().__new__(cls, values)
        self._fields = tuple(fields)
        return self

    def __getattr__(self, name: str) -> Any:
        """By name."""
        if name in self.__dict__.get("_fields", ()):
            return self[self._fields.index(name)]
        raise AttributeError(name)


def _same(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-9, atol=1e-12)


class JournalRows(Rows):
    """Rows whose sums are written down; those that are known are not made again."""

    def __init__(self, rows: Rows, journal: Journal) -> None:
        self.n, self.engine = rows.n, rows.engine
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
    """A sparse model that writes down what it computes, and computes nothing twice."""

    checkpoint: Checkpoint | None = None
    name: str = ""

    @classmethod
    def of(cls, model: SparseModel, checkpoint: Checkpoint, name: str) -> "RememberingModel":
        """The model with the journal of this name."""
        parts = {f.name: getattr(model, f.name) for f in fields(SparseModel)}
        rows = JournalRows(model.rows, checkpoint.journal(name))
        return cls(**parts | {"rows": rows}, checkpoint=checkpoint, name=name)

    @override
    def on(self, rows: Rows) -> "RememberingModel":
        assert self.checkpoint is not None
        return self.of(replace(self, rows=rows), self.checkpoint, coarse(self.name))

    @property
    def journal(self) -> Journal:
        """The journal of this model."""
        assert self.checkpoint is not None
        return self.checkpoint.journal(self.name)

    @override
    def infer(
        self, at: Hyperparameters, start: State | None = None, tol: float | None = None
    ) -> SparseApproximation:
        step = self.journal.step(at.theta)
        if step is not None:
            return self._replayed(at, step)
        try:
            found = super().infer(at, start, tol)
        except NotPositiveDefiniteError as error:
            self.journal.open({"theta": at.theta, "failed": str(error), "state": None})
            raise
        record = found.record
        step = {
            "theta": at.theta,
            "state": list(found.kept),
            "record": [record.converged, record.residual, record.history.residuals, record.unsolved],
            "log_evidence": found.log_evidence,
            "improper": found.improper,
            "value": None,
            "gradient": None,
        }
        self.journal.open(step)
        return replace(found, differentiate=_Recorded(found.differentiate, step))

    def _replayed(self, at: Hyperparameters, step: Step) -> SparseApproximation:
        """The approximation that the journal holds."""
        if "failed" in step:
            raise NotPositiveDefiniteError(step["failed"])
        record = record_of_passes(*step["record"])
        found = self.revive(at, step["state"], record, step["log_evidence"], step["improper"])
        if step["gradient"] is None:
            return found
        return replace(found, differentiate=lambda *_: (step["value"], step["gradient"]))


@dataclass(frozen=True)
class _Recorded:
    """Differentiates an approximation, and writes the result down."""

    differentiate: Differentiate
    step: Step

    def __call__(self, found: SparseApproximation, accuracy: float) -> tuple[float, Array]:
        value, gradient = self.differentiate(found, accuracy)
        self.step.update({"value": value, "gradient": gradient})
        return value, gradient
