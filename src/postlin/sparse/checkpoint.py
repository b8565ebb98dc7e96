"""Checkpoints: a file that is whole at any time, and says what it belongs to.

All that a fit computes follows from the sums that its passes make. So a journal of these is enough to
go on from: a search that is run again gets from it, at once, what it got before, and works on where it
ended. Of inferences that are over only their results are kept.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from postlin.exceptions import CheckpointError

#: Seconds between writes, at least: what a kill may cost.
EVERY = 10.0
#: The layout of the file; another number is another layout.
_FORMAT = 1


class Journal:
    """What is known of one problem: inferences that are over, and the passes of the one that is not."""

    def __init__(self, file: "Checkpoint", content: dict[str, Any]) -> None:
        self._file = file
        self.steps: list[dict[str, Any]] = content.get("steps", [])
        self.passes: list[tuple[str, Any]] = [tuple(p) for p in content.get("passes", [])]
        self._open: dict[str, Any] | None = None
        self._step = self._pass = 0
        self._live = False

    def content(self) -> dict[str, Any]:
        """What goes into the file."""
        return {"steps": self.steps, "passes": [list(p) for p in self.passes]}

    def step(self, theta: Any) -> dict[str, Any] | None:
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

    def open(self, step: dict[str, Any]) -> None:
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
        self._about = {"format": _FORMAT, "fingerprint": fingerprint}
        content = read(self.path, fingerprint) if self.path.exists() else {}
        #: What a fit has chosen at random at its begin.
        self.choices: dict[str, Any] = content.get("choices", {})
        self._stored: dict[str, dict[str, Any]] = content.get("journals", {})
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
                    f"{str(path)!r} is a checkpoint in format {about['format']}, and this version "
                    f"reads format {_FORMAT}: remove it to begin anew."
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
