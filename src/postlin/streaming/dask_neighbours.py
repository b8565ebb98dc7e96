"""The search for neighbours on a Dask cluster: every worker indexes the rows that it holds.

Queries go to all parts of the rows, and what these find is merged as a tree. Then each part hands out
its rows among the neighbours, and a worker puts them together, so that rows never pass through the
client. The parts are kept in the memory of the workers; Dask makes those of a worker that died again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.linalg.threads import blas_threads
from postlin.streaming.chunks import Chunk
from postlin.streaming.dask import FAN_IN, dask_module
from postlin.streaming.neighbours import Found, Neighbours, merge
from postlin.streaming.places import Integers
from postlin.streaming.sources import Source

if TYPE_CHECKING:
    from dask.delayed import Delayed


class Part(NamedTuple):
    """Rows with their labels, and the search among them."""

    chunk: Chunk
    search: Neighbours


class Gathered(NamedTuple):
    """The neighbours (q, k) of queries, with their rows (q, k, d), labels and weights (q, k).

    Where a query has fewer neighbours than others, ``found`` says so, and the weights are zero.
    """

    found: Found
    X: Array
    y: np.ndarray
    weight: Array


class Share(NamedTuple):
    """The neighbours that a part holds, and where they belong among all."""

    at: tuple[np.ndarray, ...]
    rows: Chunk


@dataclass(frozen=True, eq=False)
class DaskNeighbours:
    """The parts of a source's rows on a cluster, or in Dask's own scheduler without a client."""

    parts: "tuple[Delayed, ...]"
    client: Any = None

    @classmethod
    def of(
        cls,
        source: Source,
        lengths: Array,
        client: Any = None,
        *,
        exact: bool | None = None,
        k: int = 64,
        seed: int = 0,
    ) -> "DaskNeighbours":
        """Load and index every chunk of the source where it is."""
        dask, loads = dask_module(), source.loads_anywhere()
        assert loads is not None
        part = dask.delayed(_part, pure=False)
        tasks = [part(dask.delayed(load, traverse=False), lengths, exact, k, seed) for load in loads]
        return cls((), client)._kept(tasks)

    def rescaled(self, lengths: Array) -> "DaskNeighbours":
        """The same rows with other length scales."""
        task = dask_module().delayed(_rescaled, pure=False)
        return self._kept([task(part, lengths) for part in self.parts])

    def _kept(self, tasks: "Sequence[Delayed]") -> "DaskNeighbours":
        """The parts that the tasks return, computed now and held by the workers."""
        persist = dask_module().persist if self.client is None else self.client.persist
        kept = persist(*tasks) if self.client is None else persist(list(tasks))
        return replace(self, parts=tuple(kept))

    def search(self, rows: Any, k: int, leave_out: Any = None) -> "Delayed":
        """A task that returns ``Found``; queries and what to leave out are arrays or tasks."""
        dask = dask_module()
        query, merged = dask.delayed(_query, pure=False), dask.delayed(merge, pure=False)
        rows = dask.delayed(rows, traverse=False)
        found = [query(part, rows, k, leave_out) for part in self.parts]
        while len(found) > 1:
            found = [merged(found[i : i + FAN_IN]) for i in range(0, len(found), FAN_IN)]
        task: Delayed = found[0]
        return task

    def neighbourhoods(self, rows: Any, k: int, leave_out: Any = None) -> "Delayed":
        """A task that returns ``Gathered``, the neighbours with their rows and labels."""
        dask = dask_module()
        found, share = self.search(rows, k, leave_out), dask.delayed(_share, pure=False)
        shares = [share(part, found) for part in self.parts]
        task: Delayed = dask.delayed(_together, pure=False)(found, shares)
        return task

    def query(self, rows: Array, k: int, *, leave_out: Integers | None = None) -> Found:
        """The k nearest rows of each query among all parts."""
        found: Found = self.result(self.search(rows, k, leave_out))
        return found

    def result(self, task: Any) -> Any:
        """What a task returns, computed where the parts are."""
        return task.compute() if self.client is None else self.client.compute(task).result()


def _part(load: Any, lengths: Array, exact: bool | None, k: int, seed: int) -> Part:
    with blas_threads(1):
        chunk = load if isinstance(load, Chunk) else load()
        search = Neighbours.of(
            chunk.X, lengths, exact=exact, first=chunk.first, k=k, seed=seed, n_jobs=1
        )
    return Part(chunk, search)


def _rescaled(part: Part, lengths: Array) -> Part:
    return part._replace(search=part.search.rescaled(lengths))


def _query(part: Part, rows: Array, k: int, leave_out: Integers | None) -> Found:
    return part.search.query(rows, k, leave_out=leave_out)


def _share(part: Part, found: Found) -> Share:
    within = found.indices - part.chunk.first
    at = np.nonzero((found.indices >= 0) & (within >= 0) & (within < len(part.chunk.X)))
    return Share(at, part.chunk.where(within[at]))


def _together(found: Found, shares: Sequence[Share]) -> Gathered:
    chunk = shares[0].rows
    shape = found.indices.shape
    y = np.zeros(shape, np.result_type(*(share.rows.y.dtype for share in shares)))
    all_of = Gathered(found, np.zeros((*shape, chunk.X.shape[1])), y, np.zeros(shape))
    for at, rows in shares:
        all_of.X[at], all_of.y[at], all_of.weight[at] = rows.X, rows.y, rows.weight
    return all_of
