"""Schedules: sites are updated all at once, one after another, or first in turn and then at once."""

from dataclasses import dataclass
from typing import ClassVar

from postlin._typing import override
from postlin._validation import check_order
from postlin.linalg.arrays import Place


@dataclass(frozen=True)
class Schedule:
    """The order in which the iterations towards the fixed point update the sites.

    ``iterations`` = k means exactly k undamped iterations from the prior, as in the paper, or from
    the sites passed as ``start``. With None the solver iterates to its tolerance: all schedules begin
    with cautious steps and end with Newton's method, and differ in the iterations between. ``block``
    is the number of sites that a sequential sweep treats together, which only affects speed.
    """

    iterations: int | None = None
    block: int = 32
    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.iterations is not None:
            check_order(self.iterations, "iterations")
        check_order(self.block, "block")

    def check(self, place: Place) -> None:
        """Raise ``ValueError`` if the schedule has sequential sweeps, which need NumPy's memory."""
        if self.sweeps and not place.is_host:
            raise ValueError(
                f"schedule={self.name!r} works on the CPU with NumPy only, not with {place}: use "
                "schedule='parallel', or pass NumPy arrays and device=None."
            )

    @property
    def sweeps(self) -> float:
        """The number of iterations, the first ones, that are sequential sweeps."""
        return 0

    @property
    def least_sweeps(self) -> int:
        """The number of sweeps that a cold start makes before Newton's method may take over."""
        return 0


@dataclass(frozen=True)
class Parallel(Schedule):
    """An iteration updates all sites from one posterior, and then the posterior."""

    name: ClassVar[str] = "parallel"


@dataclass(frozen=True)
class Sequential(Schedule):
    """A sweep updates the posterior after every site."""

    name: ClassVar[str] = "sequential"

    @property
    @override
    def sweeps(self) -> float:
        return float("inf")

    @property
    @override
    def least_sweeps(self) -> int:
        return 1


@dataclass(frozen=True)
class Hybrid(Schedule):
    """The ``first`` iterations are sequential sweeps, the others parallel."""

    first: int = 2
    name: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self.first, "first")

    @property
    @override
    def sweeps(self) -> float:
        return self.first

    @property
    @override
    def least_sweeps(self) -> int:
        return self.first


#: The schedules by name, as ``schedule="parallel"``.
REGISTRY: dict[str, type[Schedule]] = {kind.name: kind for kind in (Parallel, Sequential, Hybrid)}
