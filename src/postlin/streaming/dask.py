"""Rows in Dask collections, and passes on a Dask cluster.

Tasks keep nothing: each loads its rows itself, so that a worker may die at any time and its tasks run
again elsewhere. The state of a pass is one task, from which workers get it from each other.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, TypeVar

import numpy as np

from postlin.linalg.threads import blas_threads, threads
from postlin.streaming.chunks import Block, check_finite, checked, joined
from postlin.streaming.engines import Engine, Threads, added
from postlin.streaming.sources import Source

S = TypeVar("S")

#: Shares that are added at a time.
_FAN_IN = 8
#: Rows a task, where partitions allow: fewer are not worth the way.
_ROWS = 8000


def is_dask(X: Any) -> bool:
    """Whether this is a Dask array, data frame or series."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed")


def active_client() -> Any:
    """The client of a surrounding ``joblib.parallel_config("dask")``; None elsewhere and on workers."""
    from joblib.parallel import get_active_backend

    client = getattr(get_active_backend()[0], "client", None)
    if client is None or not hasattr(client, "scheduler_info"):
        return None
    try:
        _distributed().get_worker()
    except ValueError:  # not on a worker, where waiting for other tasks could last forever
        return client
    return None


@dataclass(frozen=True, eq=False)
class DaskEngine(Engine):
    """Chunks as tasks; the client's cluster does them, or without one Dask's own scheduler."""

    client: Any = None

    def total(self, source: Any, work: Callable[[Any], S]) -> S | None:
        """By a tree of sums with fan-in eight, in the order of the chunks."""
        dask = _dask()
        loads = source.loads_anywhere()
        shared = dask.delayed(work, traverse=False, pure=False)
        apply, add = dask.delayed(_apply, pure=False), dask.delayed(_sum, pure=False)
        shares = [apply(shared, dask.delayed(load, traverse=False)) for load in loads]
        if not shares:
            return None
        while len(shares) > 1:
            shares = [add(shares[i : i + _FAN_IN]) for i in range(0, len(shares), _FAN_IN)]
        with _large_graphs():
            if self.client is None:
                return shares[0].compute()  # type: ignore[no-any-return]
            return self.client.compute(shares[0]).result()  # type: ignore[no-any-return]

    def here(self) -> Engine:
        """Without Dask."""
        return Threads(threads())


def _large_graphs() -> Any:
    """A context in which the state of a pass is not complained of for its size."""
    if "distributed" not in sys.modules:  # whose settings are not there before it is
        return nullcontext()
    return _dask().config.set({"distributed.admin.large-graph-warning-threshold": "4 GiB"})


def _apply(work: Callable[[Any], S], load: Any) -> S:
    with blas_threads(1):
        return work(load if isinstance(load, Block) else load())


def _sum(shares: Sequence[Any]) -> Any:
    return reduce(added, shares)


@dataclass(frozen=True, eq=False)
class DaskSource(Source):
    """Partitions of Dask collections, small ones together; their rows stay where Dask has them."""

    parts: tuple[tuple[Any, Any, Any], ...]  # X, y and weights of each partition, delayed
    sizes: tuple[int, ...]
    is_on_dask: ClassVar[bool] = True

    @classmethod
    def of(cls, X: Any, y: Any, weight: Any = None) -> "DaskSource":
        """Of collections that are cut alike, or arrays that can be."""
        columns = [_parts(X, X, "X"), _parts(y, X, "y")]
        columns.append([None] * len(columns[0]) if weight is None else _parts(weight, X, "weights"))
        for what, parts in zip(("y", "weights"), columns[1:], strict=True):
            if len(parts) != len(columns[0]):
                raise ValueError(
                    f"X has {len(columns[0])} partitions and {what} has {len(parts)}: cut them alike."
                )
        return cls(tuple(zip(*columns, strict=True)), _sizes(X, columns[0]))

    def loads(self) -> Iterator[Callable[[], Block]]:
        """Each computed when it is called."""
        return (load.compute for load in self.loads_anywhere())

    def loads_anywhere(self) -> list[Any]:
        """As tasks."""
        block = _dask().delayed(_block, pure=False)
        loads, first = [], 0
        for group in _groups(self.sizes):
            loads.append(block([self.parts[k] for k in group], first, group[0]))
            first += sum(self.sizes[k] for k in group)
        return loads


def _parts(collection: Any, X: Any, what: str) -> list[Any]:
    """The partitions along the rows."""
    if not is_dask(collection):
        known = hasattr(X, "chunks") and not np.isnan(X.chunks[0]).any()
        values = np.asarray(collection)
        if not known or values.shape[:1] != X.shape[:1]:
            raise ValueError(
                f"{what} must be a Dask collection that is cut as X is, got "
                f"{type(collection).__name__} of shape {values.shape}."
            )
        return [_dask().delayed(v) for v in np.split(values, np.cumsum(X.chunks[0])[:-1])]
    if not hasattr(collection, "chunks"):  # a data frame or a series
        return list(collection.to_delayed())
    if collection.ndim == 2:
        collection = collection.rechunk({1: -1})
    rows = getattr(X, "chunks", (np.array([np.nan]),))[0]
    if not np.isnan(collection.chunks[0]).any() and not np.isnan(rows).any():
        if sum(collection.chunks[0]) != sum(rows):
            raise ValueError(f"X has {sum(rows)} rows and {what} has {sum(collection.chunks[0])}.")
        collection = collection.rechunk({0: rows})
    return list(np.ravel(collection.to_delayed()))


def _sizes(X: Any, parts: list[Any]) -> tuple[int, ...]:
    """Rows of each partition, counted where Dask does not know."""
    if hasattr(X, "chunks") and not np.isnan(X.chunks[0]).any():
        return tuple(map(int, X.chunks[0]))
    dask = _dask()
    count = dask.delayed(len)
    return tuple(dask.compute(*(count(part) for part in parts)))


def _groups(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Neighbours together until there are rows enough for a task."""
    held: list[int] = []
    for k in range(len(sizes)):
        held.append(k)
        if sum(sizes[i] for i in held) >= _ROWS:
            yield held
            held = []
    if any(sizes[i] for i in held):
        yield held


def _block(parts: list[tuple[Any, Any, Any]], first: int, number: int) -> Block:
    blocks: list[Block] = []
    for k, (X, y, weight) in enumerate(parts):
        blocks.append(check_finite(checked(X, y, weight, first, number + k)))
        first += len(blocks[-1].y)
    return joined(blocks)


def lazily(function: Callable[[Any], Any], X: Any, dtype: Any, width: int | None) -> Any:
    """A Dask array of what a function makes of each partition, with so many columns or none."""
    array = importlib.import_module("dask.array")
    d = [] if width is None else [1]
    if hasattr(X, "chunks"):
        X = X.rechunk({1: -1})
        chunks = (X.chunks[0],) if width is None else (X.chunks[0], (width,))
        drop = [1] if width is None else None
        return X.map_blocks(
            function,
            dtype=dtype,
            chunks=chunks,
            drop_axis=drop,
            meta=np.empty((0,) * (1 + len(d)), dtype),
        )
    shape = (np.nan,) if width is None else (np.nan, width)
    delayed = _dask().delayed(function, pure=True)
    parts = [array.from_delayed(delayed(part), shape, dtype) for part in X.to_delayed()]
    return array.concatenate(parts, allow_unknown_chunksizes=True)


def _dask() -> Any:
    try:
        import dask
    except ImportError:
        raise ImportError("Dask is not there: pip install 'postlin[dask]'.") from None
    return dask


def _distributed() -> Any:
    import distributed

    return distributed
