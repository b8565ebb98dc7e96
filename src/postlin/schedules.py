"""Schedules: all sites at once, one after another, or first the one and then the other.

They say how the strides towards the fixed point are made; where Newton's method takes over is
the business of ``fixed_point``.
"""

from dataclasses import dataclass
from typing import ClassVar

from postlin._validation import check_order
from postlin.linalg.arrays import Place


@dataclass(frozen=True)
class Schedule:
    """How the strides towards the fixed point are made.

    ``iterations`` = k means exactly k undamped iterations from the prior, as in the paper (or from
    the sites passed as ``start``). With None the solver iterates to its tolerance: a cautious start
    and Newton's method at the end are common to all schedules, the strides between are theirs.
    ``block`` is the number of sites that a sweep treats at a time; it
    affects speed alone.
    """

    iterations: int | None = None
    block: int = 32
    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.iterations is not None:
            check_order(self.iterations, "iterations")
        check_order(self.block, "block")

    def check(self, place: Place) -> None:
        """Sweeps, which treat one site after another, are not for devices: ``ValueError``."""
        if self.sweeps and not place.is_host:
            raise ValueError(
                f"schedule={self.name!r} works on the CPU with NumPy only, not with {place}: use "
                "schedule='parallel', or pass NumPy arrays and device=None."
            )

    @property
    def sweeps(self) -> float:
        """How many strides, the first ones, are sequential."""
        return 0

    @property
    def least_sweeps(self) -> int:
        """How many of them a cold start makes before Newton's method may take over."""
        return 0


@dataclass(frozen=True)
class Parallel(Schedule):
    """All sites are set anew from one posterior, which is then computed anew."""

    name: ClassVar[str] = "parallel"


@dataclass(frozen=True)
class Sequential(Schedule):
    """The posterior is brought up to date after every site."""

    name: ClassVar[str] = "sequential"

    @property
    def sweeps(self) -> float:
        """All of them."""
        return float("inf")

    @property
    def least_sweeps(self) -> int:
        """One, however near the start is."""
        return 1


@dataclass(frozen=True)
class Hybrid(Schedule):
    """``first`` sequential sweeps to get near, then parallel iterations."""

    first: int = 2
    name: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self.first, "first")

    @property
    def sweeps(self) -> float:
        """The first few."""
        return self.first

    @property
    def least_sweeps(self) -> int:
        """All of these."""
        return self.first


#: The schedules by name, as ``schedule="parallel"``.
REGISTRY: dict[str, type[Schedule]] = {kind.name: kind for kind in (Parallel, Sequential, Hybrid)}
