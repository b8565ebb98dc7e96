"""The first pass over labelled rows: how many there are, of what, and some of them."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.streaming.chunks import Block
from postlin.streaming.engines import Draw, Drawn, Engine
from postlin.streaming.sources import Source, check_alike

#: Rows that are kept of the first pass: for inducing points, and to know the data by.
SAMPLE = 20_000


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of the data after the first pass."""

    n: int
    n_features: int
    names: tuple[str, ...] | None
    classes: np.ndarray  # sorted
    counts: np.ndarray  # rows of each class
    used: np.ndarray  # those of them whose weight is not zero
    weighted: bool  # whether any weight differs from one
    sample: Array  # rows that count, drawn at random, in their order
    sample_weight: Array | None  # and what they count
    sample_codes: np.ndarray  # and their labels, as indices of the classes


@dataclass(frozen=True, eq=False)
class Seen:
    """The same of some of the chunks; what two of these have seen adds up."""

    first: Block  # without its rows
    n: int
    counts: "Counter[Any]"
    used: "Counter[Any]"
    dtype: np.dtype[Any]
    weighted: bool
    drawn: Drawn

    def __add__(self, other: "Seen") -> "Seen":
        check_alike(other.first, self.first)
        return replace(
            self,
            n=self.n + other.n,
            counts=self.counts + other.counts,
            used=self.used + other.used,
            dtype=np.result_type(self.dtype, other.dtype),
            weighted=self.weighted or other.weighted,
            drawn=self.drawn + other.drawn,
        )


@dataclass(frozen=True)
class Look:
    """A share: what one chunk holds."""

    seed: int
    classes: np.ndarray | None

    def __call__(self, block: Block) -> Seen:
        """Labels are counted, rows of zero weight apart."""
        if self.classes is not None:
            encode(block, self.classes)
        weight = np.ones(len(block.y)) if block.weight is None else block.weight
        drawn = Draw(SAMPLE, self.seed)(block._replace(weight=weight))
        return Seen(
            block.part(0, 0),
            len(block.y),
            _counts(block.y),
            _counts(block.y[weight > 0]),
            block.y.dtype,
            bool((weight != 1.0).any()),
            drawn.where(drawn.weight != 0),
        )


def _counts(y: np.ndarray) -> "Counter[Any]":
    try:
        labels, counts = np.unique(y, return_counts=True)
    except TypeError:
        raise TypeError("y holds labels of different types, which have no order: use one.") from None
    return Counter(dict(zip(labels.tolist(), counts.tolist(), strict=True)))


def encode(block: Block, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels as indices of the classes, and which rows count: of these all must be known."""
    used = np.ones(len(block.y), bool) if block.weight is None else block.weight > 0
    codes = np.minimum(np.searchsorted(classes, block.y), len(classes) - 1)
    strange = np.flatnonzero(used & (classes[codes] != block.y))
    if len(strange):
        i, row = strange[0], block.first + strange[0]
        raise ValueError(
            f"row {row} has the label {block.y[i]!s} (chunk {block.number_of(row)}), which is none "
            f"of the classes ({', '.join(map(str, classes[:6]))}{', …' if len(classes) > 6 else ''})."
        )
    return codes, used


def survey(source: Source, engine: Engine, seed: int) -> Survey:
    """One pass over all rows."""
    seen = engine.total(source, Look(seed, source.classes))
    if seen is None:
        raise ValueError("the stream is empty: it gave no rows.")
    if not seen.used:
        raise ValueError("weights are zero everywhere: no row is left.")
    try:
        classes = np.array(sorted(seen.used), dtype=seen.dtype)
    except TypeError:
        raise TypeError("y holds labels of different types, which have no order: use one.") from None
    return Survey(
        seen.n,
        seen.first.X.shape[1],
        seen.first.names,
        classes,
        np.array([seen.counts[label] for label in classes.tolist()]),
        np.array([seen.used[label] for label in classes.tolist()]),
        seen.weighted,
        seen.drawn.X,
        seen.drawn.weight,
        np.searchsorted(classes, seen.drawn.y),
    )
