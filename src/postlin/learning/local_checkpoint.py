"""What is asked of learning with neighbours, and its results by name, so that none is computed twice.

In a checkpoint the parameters of the evidence and the state of every climb are kept after each round. A
fit that runs again draws the same rows with the same seed, and continues from there.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postlin._files import reason, sealed, unsealed, write_atomically
from postlin._typing import Array, override
from postlin.exceptions import FileWarning
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import ARDPrior, Hyperprior
from postlin.learning.journal_file import FORMAT, belonging, restored, stored, version
from postlin.learning.search import Callback


class Memo:
    """Results by name, which a checkpoint keeps; this one keeps them for the time of the fit."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of this name, computed if it is not known."""
        if name not in self.values:
            self.put(name, compute())
        return self.values[name]

    def put(self, name: str, value: Any) -> None:
        """Keep a result."""
        self.values[name] = value


@dataclass(frozen=True, eq=False)
class Task:
    """What is asked for: starts, one for each kernel that is compared, and what is to be chosen."""

    starts: tuple[Hyperparameters, ...]
    learns: bool
    k: int | None  # None if it is to be chosen
    inducing: int | Array | str | None  # a number, points, "auto" or none
    deviations: Array  # of the features
    hyperprior: ARDPrior | Hyperprior | None
    seed: int
    evidence: bool = True  # whether the evidence moves the start, as it does unless that is warm
    callback: Callback | None = None
    keep_on_interrupt: bool = False
    memo: Memo = field(default_factory=Memo)


class MemoFile(Memo):
    """Results that a file keeps, which belongs to the data and parameters of a fingerprint."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        super().__init__()
        self.path = Path(path)
        self._about = {"format": FORMAT, "postlin": version(), "fingerprint": fingerprint}
        self._has_warned = False
        damaged = []
        if self.path.exists():
            for number, line in enumerate(belonging(self.path, fingerprint)[1:], 2):
                try:
                    entry = unsealed(line, restored)
                    self.values[entry["name"]] = entry["value"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    damaged.append(number)
        if damaged:
            self._warn(
                f"is damaged in line {', '.join(map(str, damaged[:5]))}: what it held there is "
                "computed again."
            )

    @override
    def put(self, name: str, value: Any) -> None:
        super().put(name, value)
        self.write()

    def write(self) -> None:
        """Write the file; if that fails, a warning says so once, and the fit goes on without."""
        lines = [sealed(self._about)]
        lines += [sealed({"name": name, "value": value}, stored) for name, value in self.values.items()]
        try:
            write_atomically(self.path, lambda file: file.writelines(lines))
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(
                    f"cannot be written: {reason(error)}. The fit goes on, and if it is killed, "
                    "what it has computed since is lost."
                )

    def _warn(self, text: str) -> None:
        warnings.warn(FileWarning(f"the checkpoint {str(self.path)!r} {text}"), stacklevel=4)
