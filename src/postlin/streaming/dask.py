"""Rows in Dask collections, and passes on a Dask cluster.

Tasks keep nothing: each loads its rows itself, so a worker may die at any time and its tasks run again
elsewhere. The state of a pass is one task, and workers get it from each other. Dask is imported when it
is needed.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial, reduce
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import DTypeLike

from postlin._typing import Array
from postlin._validation import is_dask
from postlin.linalg.threads import blas_threads
from postlin.streaming.chunks import Chunk, checked, grouped, joined
from postlin.streaming.engines import Engine, added
from postlin.streaming.sources import Source

if TYPE_CHECKING:
    from dask.delayed import Delayed

S = TypeVar("S")

#: Shares that one task adds up.
FAN_IN = 8
#: Rows of a task if the partitions allow: fewer are not worth sending.
_ROWS = 8000


def active_client() -> Any:
    """The client of a surrounding ``joblib.parallel_config("dask")``; None elsewhere and on workers."""
    client = getattr(get_active_backend()[0], "client", None)
    if client is None or not hasattr(client, "scheduler_info"):
        return None
    from distributed import get_worker

    with suppress(ValueError):
        get_worker()
        return None  # on a worker waiting for other tasks could last forever
    return client


@dataclass(frozen=True, eq=False)
class DaskEngine(Engine):
    """Works on chunks as tasks of the client's cluster, or of Dask's own scheduler without a client."""

    client: Any = None

    def total(self, source: Source, work: Callable[[Chunk], S]) -> S | None:
        """The sum of one pass, by a tree with eight branches over the order of the chunks."""
        dask, loads = dask_module(), source.loads_anywhere()
        assert loads is not None
        shared = dask.delayed(work, traverse=False, pure=False)
        apply, add = dask.delayed(_apply, pure=False), dask.delayed(partial(reduce, added), pure=False)
        shares = [apply(shared, dask.delayed(load, traverse=False)) for load in loads]
        if not shares:
            return None
        while len(shares) > 1:
            shares = [add(shares[i : i + FAN_IN]) for i in range(0, len(shares), FAN_IN)]
        # the state of a pass may be large; distributed has settings only once it is imported
        quiet = {"distributed.admin.large-graph-warning-threshold": "4 GiB"}
        with dask.config.set(quiet) if "distributed" in sys.modules else nullcontext():
            task = shares[0] if self.client is None else self.client.compute(shares[0])
            total: S = task.compute() if self.client is None else task.result()
        return total


def _apply(work: Callable[[Chunk], S], load: Chunk | Callable[[], Chunk]) -> S:
    with blas_threads(1):
        return work(load if isinstance(load, Chunk) else load())


@dataclass(frozen=True, eq=False)
class DaskSource(Source):
    """Rows of Dask collections, which stay where Dask has them; small partitions are joined."""

    parts: "tuple[tuple[Delayed, Delayed, Delayed | None], ...]"  # X, y and weights of each partition
    sizes: tuple[int, ...]
    is_on_dask: ClassVar[bool] = True

    @classmethod
    def of(cls, X: Any, y: Any, weight: Any = None) -> "DaskSource":
        """The source of collections that are cut alike, or of arrays beside a Dask array X."""
        rows = _rows(X)
        features, labels = _parts(X, rows, "X"), _parts(y, rows, "y")
        weights = [None] * len(features) if weight is None else _parts(weight, rows, "weights")
        for what, parts in (("y", labels), ("weights", weights)):
            if len(parts) != len(features):
                raise ValueError(
                    f"X has {len(features)} partitions and {what} has {len(parts)}: cut them alike."
                )
        if rows is None:
            rows = dask_module().compute(*map(dask_module().delayed(len), features))
        return cls(tuple(zip(features, labels, weights, strict=True)), rows)

    def loads(self) -> "list[Callable[[], Chunk]]":
        """One pass: functions that make Dask compute the chunks."""
        return [load.compute for load in self.loads_anywhere()]

    def loads_anywhere(self) -> "list[Delayed]":
        """One pass: tasks that return the chunks."""
        chunk = dask_module().delayed(_chunk, pure=False)
        loads, first = [], 0
        for group in grouped(enumerate(self.sizes), lambda part: part[1], _ROWS):
            loads.append(chunk([self.parts[k] for k, _ in group], first, group[0][0]))
            first += sum(size for _, size in group)
        return loads


def _rows(collection: Any) -> tuple[int, ...] | None:
    """The numbers of rows of a Dask array's chunks; None if Dask does not know them."""
    rows = getattr(collection, "chunks", ((np.nan,),))[0]
    return None if np.isnan(rows).any() else tuple(map(int, rows))


def _parts(collection: Any, rows: tuple[int, ...] | None, what: str) -> "list[Delayed]":
    """The partitions of a collection, cut into as many ``rows`` each as X if these are known."""
    if not is_dask(collection):
        values = np.asarray(collection)
        if rows is None or values.shape[:1] != (sum(rows),):
            raise ValueError(
                f"{what} must be a Dask collection that is cut as X is, got "
                f"{type(collection).__name__} of shape {values.shape}."
            )
        return [dask_module().delayed(part) for part in np.split(values, np.cumsum(rows)[:-1])]
    if not hasattr(collection, "chunks"):  # a data frame or a series
        return list(collection.to_delayed())
    if collection.ndim == 2:
        collection = collection.rechunk({1: -1})
    own = _rows(collection)
    if own is not None and rows is not None:
        if sum(own) != sum(rows):
            raise ValueError(f"X has {sum(rows)} rows and {what} has {sum(own)}.")
        collection = collection.rechunk({0: rows})
    return list(np.ravel(collection.to_delayed()))


def _chunk(parts: Sequence[tuple[object, object, object]], first: int, number: int) -> Chunk:
    """The partitions as one chunk; ``number`` is the number of the first of them."""
    chunks: list[Chunk] = []
    for k, (X, y, weight) in enumerate(parts):
        chunks.append(checked(X, y, weight, first, number + k))
        first += len(chunks[-1].y)
    return joined(chunks)


def lazily(function: Callable[[Any], Array], X: Any, dtype: DTypeLike, width: int | None) -> Any:
    """A Dask array of what a function returns for each partition: ``width`` columns, or a vector."""
    meta = np.empty((0,) if width is None else (0, width), dtype)
    if not hasattr(X, "chunks"):  # a data frame
        return X.map_partitions(function, meta=meta)
    X = X.rechunk({1: -1})
    chunks, dropped = ((X.chunks[0],), [1]) if width is None else ((X.chunks[0], (width,)), None)
    return X.map_blocks(function, dtype=dtype, chunks=chunks, drop_axis=dropped, meta=meta)


def dask_module() -> ModuleType:
    """Dask, if it is installed."""
    try:
        return importlib.import_module("dask")
    except ImportError:
        raise ImportError(
            "Dask is not installed: pip install 'dask[array,dataframe]' distributed."
        ) from None
