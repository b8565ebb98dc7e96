"""Sums whose order is fixed by the order of what is added."""

from collections.abc import Iterable
from functools import reduce
from typing import Any


def added(one: Any, other: Any) -> Any:
    """The sum of two shares; None is nothing."""
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, tuple):
        parts = [added(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return one + other


def pairwise_sum(shares: Iterable[Any]) -> Any:
    """The sum by a balanced tree over the order of the shares, however many there will be."""
    partial: list[tuple[int, Any]] = []  # sums of 2^level shares, levels falling
    for share in shares:
        level = 0
        while partial and partial[-1][0] == level:
            share = added(partial.pop()[1], share)
            level += 1
        partial.append((level, share))
    return reduce(lambda right, left: added(left, right), (s for _, s in reversed(partial)), None)
