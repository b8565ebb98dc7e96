"""What is asked of learning with neighbours, and the results that a checkpoint keeps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from postlin._typing import Array
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.hyperprior import ARDPrior, Hyperprior
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
