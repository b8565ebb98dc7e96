"""The survey: a first pass that counts rows and classes and draws a sample."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from postlin._typing import Array
from postlin.streaming.chunks import Chunk, Draw, Drawn, mixed_labels
from postlin.streaming.engines import Engine
from postlin.streaming.sources import Source, check_alike

#: Rows that the first pass keeps, to choose inducing points from and to recognise the data by.
SAMPLE = 20_000


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of the data after the first pass."""

    n: int
    n_features: int
    names: tuple[str, ...] | None
    classes: np.ndarray  # sorted
    counts: np.ndarray  # rows of each class
    used: np.ndarray  # rows of each class whose weight is not zero
    sample: Array  # a random sample of the used rows, in their order
    sample_weight: Array  # the weights of the sample
    sample_codes: np.ndarray  # the labels of the sample, as indices of the classes


@dataclass(frozen=True, eq=False)
class Tally:
    """What some of the chunks hold; the tallies of consecutive chunks can be added."""

    first: Chunk  # the first chunk without its rows
    counts: Counter[object]
    used: Counter[object]
    dtype: np.dtype
    drawn: Drawn

    def __add__(self, other: "Tally") -> "Tally":
        check_alike(other.first, self.first.X.shape[1], self.first.names)
        return replace(
            self,
            counts=self.counts + other.counts,
            used=self.used + other.used,
            dtype=np.result_type(self.dtype, other.dtype),
            drawn=self.drawn + other.drawn,
        )


def tally(seed: int, classes: np.ndarray | None, chunk: Chunk) -> Tally:
    """Count the labels of a chunk, all of them and those of rows with weight, and draw a sample."""
    if classes is not None:
        encode(chunk, classes)
    counts, used = _counts(chunk.y), _counts(chunk.y[chunk.weight > 0])
    drawn = Draw(SAMPLE, seed)(chunk)
    drawn = drawn.where(drawn.rows.weight != 0)
    return Tally(chunk.part(0, 0), counts, used, chunk.y.dtype, drawn)


def _counts(y: np.ndarray) -> Counter[object]:
    try:
        labels, counts = np.unique(y, return_counts=True)
    except TypeError:
        raise mixed_labels() from None
    return Counter(dict(zip(labels.tolist(), counts.tolist(), strict=True)))


def encode(chunk: Chunk, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels as indices of the classes, and whether each row has weight.

    A row with weight and a label that is none of the classes raises ``ValueError``.
    """
    used = chunk.weight > 0
    codes = np.minimum(np.searchsorted(classes, chunk.y), len(classes) - 1)
    unknown = np.flatnonzero(used & (classes[codes] != chunk.y))
    if len(unknown):
        i, row = unknown[0], chunk.first + unknown[0]
        raise ValueError(
            f"row {row} has the label {chunk.y[i]!s} (chunk {chunk.number_of(row)}), which is none "
            f"of the classes ({', '.join(map(str, classes[:6]))}{', …' if len(classes) > 6 else ''})."
        )
    return codes, used


def survey(source: Source, engine: Engine, seed: int) -> Survey:
    """What one pass over all rows of a source finds."""
    found = engine.total(source, partial(tally, seed, source.classes))
    if found is None:
        raise ValueError("the stream is empty: it gave no rows.")
    if not found.used:
        raise ValueError("weights are zero everywhere: no row is left.")
    try:
        classes = np.sort(np.array(list(found.used), dtype=object)).astype(found.dtype)
    except TypeError:
        raise mixed_labels() from None
    counts, used = (np.array([c[k] for k in classes.tolist()]) for c in (found.counts, found.used))
    first, sample = found.first, found.drawn.rows
    n, width = found.counts.total(), first.X.shape[1]
    codes = np.searchsorted(classes, sample.y)
    return Survey(n, width, first.names, classes, counts, used, sample.X, sample.weight, codes)
