"""The file of a checkpoint: lines of JSON, each with a checksum, so that damage stays in its line.

The first line says to which fit the file belongs, the second what the fit chose at random when it
began, and each of the others holds one inference of one journal.
"""

import importlib
import os
import warnings
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from postlin._files import reason, sealed, unsealed, write_atomically
from postlin._typing import Array
from postlin.exceptions import CheckpointError, FileWarning
from postlin.inference.sparse import passes

#: The number of the file's layout, which changes with the layout.
FORMAT = 4

#: What a journal keeps of one inference: ``theta``, the result, and, until the next inference begins,
#: the ``passes`` as pairs of a name and a sum. It is empty where the file is damaged.
Step = dict[str, Any]

#: The sum that each pass makes; JSON keeps such a tuple as a list.
SUMS: dict[str, Callable[..., Any]] = {
    passes.Cautious.__name__: passes.Update,
    passes.Sweep.__name__: passes.Update,
    passes.EvidencePass.__name__: passes.Evidence,
    passes.AdjointPass.__name__: passes.Pulled,
    passes.GradientPass.__name__: passes.Slopes,
}
#: The parts of these sums that are matrices m × m and vectors of m numbers, for m inducing points.
_MATRICES, _VECTORS = {"precision", "by_precision", "by_basis"}, {"pull", "by_pull"}
#: The parts that are where inference computes.
PLACED = _MATRICES | _VECTORS


@dataclass
class Content:
    """What a file holds: choices, the steps of each journal, and the numbers of damaged lines."""

    choices: dict[str, Any] = field(default_factory=dict)
    journals: dict[str, list[Step]] = field(default_factory=dict)
    damaged: list[int] = field(default_factory=list)


class FitFile:
    """A file that belongs to the data and parameters of a fingerprint, as its first line says."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        self.path = Path(path)
        self._about = {"format": FORMAT, "postlin": _version(), "fingerprint": fingerprint}
        self._has_warned = False

    def warn_of_damage(self, lines: list[int]) -> None:
        """Warn of lines that cannot be used, if there are any."""
        if lines:
            shown = ", ".join(map(str, lines[:5])) + ", …" * (len(lines) > 5)
            self._warn(f"is damaged in line {shown}: what it held there is computed again.")

    def write_lines(self, lines: Iterable[bytes]) -> None:
        """Write the file; if that fails, a warning says so once, and the fit goes on without."""
        every = chain([sealed(self._about)], lines)
        try:
            write_atomically(self.path, lambda file: file.writelines(every))
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(
                    f"cannot be written: {reason(error)}. The fit goes on, and if it is killed, what "
                    "it has computed since is lost."
                )

    def _warn(self, text: str) -> None:
        warnings.warn(FileWarning(f"the checkpoint {str(self.path)!r} {text}"), stacklevel=4)


def _version() -> str:
    return str(importlib.import_module("postlin").__version__)


def stored(value: np.ndarray | np.generic) -> object:
    """Describe what JSON cannot hold; of a symmetric matrix the lower triangle is stored."""
    if isinstance(value, np.generic):
        return value.item()
    symmetric = value.ndim == 2 and np.array_equal(value, value.T)
    kept = value[np.tril_indices(len(value))] if symmetric else value
    text = b64encode(np.ascontiguousarray(kept, "<f8").tobytes()).decode()
    return {"array": text, "shape": value.shape, "symmetric": symmetric}


def restored(value: dict[str, Any]) -> object:
    """The inverse of ``stored``."""
    if "array" not in value:
        return value
    found, shape = np.frombuffer(b64decode(value["array"]), "<f8"), value["shape"]
    if not value["symmetric"]:
        return found.reshape(shape).astype(float)
    n, _ = shape
    if len(found) != n * (n + 1) // 2:
        raise ValueError
    lower = np.zeros((n, n))
    lower[np.tril_indices(n)] = found
    return lower + np.tril(lower, -1).T


def read(path: Path, fingerprint: str) -> Content:
    """The content of a checkpoint; ``CheckpointError`` if the file is not one of this fit."""
    return _content(belonging(path, fingerprint))


def belonging(path: Path, fingerprint: str) -> list[bytes]:
    """The lines of a checkpoint; ``CheckpointError`` if the file is not one of this fit."""
    lines = _lines(path)
    try:
        about = unsealed(lines[0])
        known, same = about["format"] == FORMAT, about["fingerprint"] == fingerprint
    except (ValueError, KeyError, IndexError, RecursionError):
        raise CheckpointError(
            f"{str(path)!r} is no checkpoint, one of an early version, or damaged: give another path, "
            "or remove it to begin anew."
        ) from None
    if not known:
        raise CheckpointError(
            f"{str(path)!r} is a checkpoint of postlin {about.get('postlin')} in format "
            f"{about['format']}, and postlin {_version()} reads format {FORMAT}: remove it "
            "to begin anew."
        )
    if not same:
        raise CheckpointError(
            f"{str(path)!r} is the checkpoint of another fit: data, parameters or version differ. Give "
            "another path, or remove it to begin anew."
        )
    return lines


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        raise CheckpointError(f"{str(path)!r} is no checkpoint: it is no ordinary file.")
    try:
        return path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise CheckpointError(f"{str(path)!r} cannot be read: {reason(error)}.") from None


def _content(lines: list[bytes]) -> Content:
    """What the lines hold. Without the choices nothing else is of use."""
    content = Content()
    found: dict[str, dict[int, Step]] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            record = unsealed(line, restored)
            if number == 2:
                content.choices = _choices(record["choices"])
            elif content.choices:
                step = _step(record["step"], content.choices["Z"])
                found.setdefault(record["journal"], {})[_below(record["number"], len(lines))] = step
        except (ValueError, KeyError, TypeError, RecursionError):
            content.damaged.append(number)
    for name, steps in found.items():
        content.journals[name] = [steps.get(k, {}) for k in range(max(steps) + 1)]
    return content


def _check(condition: object) -> None:
    """Raise ``ValueError`` unless a record is as it must be."""
    if not condition:
        raise ValueError


def _below(number: object, limit: int) -> int:
    _check(isinstance(number, int) and 0 <= number < limit)
    return int(number)  # type: ignore[call-overload, no-any-return]


def _array(value: object, *shape: int | None, finite: bool = False) -> Array:
    """An array of this shape, in which None stands for any length."""
    _check(isinstance(value, np.ndarray))
    found: Array = np.asarray(value)
    _check(found.ndim == len(shape) and (not finite or np.isfinite(found).all()))
    _check(all(known in (None, size) for known, size in zip(shape, found.shape, strict=True)))
    return found


def _choices(choices: dict[str, Any]) -> dict[str, Any]:
    """The seed and the inducing points, checked."""
    return {"seed": _below(choices["seed"], 2**31), "Z": _array(choices["Z"], None, None, finite=True)}


def _step(step: Step, Z: Array) -> Step:
    """What is known of one inference with the inducing points Z, checked."""
    theta = _array(step["theta"], None, finite=True)
    for name, parts in step["passes"]:
        _check_sum(SUMS[name](*parts), Z)
    if step.get("error") is not None:
        _check(isinstance(step["error"], str))
    elif "error" in step:
        _check_result(step, len(Z))
    if "loss" in step:
        _check(isinstance(step["loss"], float))
    if "gradient" in step:
        value, gradient = step["gradient"]
        _check(isinstance(value, float))
        _array(gradient, len(theta))
    return step


def _check_sum(total: Any, Z: Array) -> None:
    """Check the parts of the sum of a pass."""
    m = len(Z)
    for name, part in zip(total._fields, total, strict=True):
        if name in _MATRICES:
            _array(part, m, m)
        elif name in _VECTORS:
            _array(part, m)
        elif name == "by_points":
            _array(part, *Z.shape)
        elif name.startswith("by_"):
            _array(part, None)
        else:
            _check(isinstance(part, int | float))


def _check_result(step: Step, m: int) -> None:
    """Check what is kept of an inference that was completed."""
    converged, residual, residuals, unsolved = step["record"]
    _check(isinstance(converged, bool) and isinstance(unsolved, int))
    _check(all(isinstance(size, float) for size in (residual, *residuals)))
    value, improper = step["evidence"]
    _check(isinstance(value, float) and isinstance(improper, int))
    if step["state"] is not None:
        B, b = step["state"]
        _array(B, m, m, finite=True)
        _array(b, m, finite=True)
