"""What is asked of learning with neighbours, and its results by name, so that none is computed twice.

In a checkpoint the parameters of the evidence and the state of every climb are kept after each round. A
fit that runs again draws the same rows with the same seed, and continues from there.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from postlin._files import sealed, unsealed
from postlin._typing import Array, override
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import ARDPrior, Hyperprior
from postlin.learning.journal_file import FitFile, belonging, restored, stored
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


class MemoFile(FitFile, Memo):
    """Results that a file keeps."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        FitFile.__init__(self, path, fingerprint)
        Memo.__init__(self)
        damaged = []
        if self.path.exists():
            for number, line in enumerate(belonging(self.path, fingerprint)[1:], 2):
                try:
                    entry = unsealed(line, restored)
                    self.values[entry["name"]] = entry["value"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    damaged.append(number)
        self.warn_of_damage(damaged)

    @override
    def put(self, name: str, value: Any) -> None:
        super().put(name, value)
        self.write_lines(
            sealed({"name": name, "value": value}, stored) for name, value in self.values.items()
        )
