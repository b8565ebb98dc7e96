"""Labelled rows on a Dask cluster, their neighbours there, and what is done with neighbourhoods.

Every worker indexes the rows that it holds. Queries go to all parts of the rows, and what these find is
merged as a tree. Then each part hands out its rows among the neighbours, a worker puts them together,
and the look at them runs there: rows never pass through the client. The parts are kept in the memory of
the workers; Dask makes those of a worker that died again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from postlin._typing import Array, override
from postlin.linalg.threads import blas_threads, slices
from postlin.streaming.chunks import Chunk
from postlin.streaming.dask import FAN_IN, dask_module
from postlin.streaming.neighbours import Found, Neighbours, merge
from postlin.streaming.places import Integers
from postlin.streaming.sources import Source
from postlin.streaming.surroundings import Look, Neighbourhoods, Queries, S, Surroundings
from postlin.streaming.survey import encode
from postlin.streaming.views import View

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


#: Neighbours of the queries of a task, which are in blocks: more would unbalance the workers.
_NEIGHBOURS = 2**17


@dataclass(frozen=True, eq=False)
class _Coded(Source):
    """Chunks of the rows of positive weight, with codes of classes for labels, numbered in order."""

    tasks: "tuple[Delayed, ...]"

    def loads(self) -> Iterable[Any]:
        """One pass: functions that make Dask compute the chunks."""
        return [task.compute for task in self.tasks]

    def loads_anywhere(self) -> "list[Delayed]":
        """One pass: tasks that return the chunks."""
        return list(self.tasks)


@dataclass(frozen=True, eq=False)
class DaskSurroundings(Surroundings):
    """The rows of a source that workers hold."""

    n: int
    firsts: tuple[int, ...]  # the number of the first row of every part
    chunks: "tuple[Delayed, ...]"
    search: DaskNeighbours

    @classmethod
    def of(
        cls, source: Source, view: View, lengths: Array, client: Any, *, k: int, seed: int
    ) -> "DaskSurroundings":
        """Load, encode and index the rows where they are; the view knows the classes."""
        dask, loads = dask_module(), source.loads_anywhere()
        assert loads is not None
        coded, count = dask.delayed(_coded, pure=False), dask.delayed(_length, pure=False)
        tasks = [coded(dask.delayed(load, traverse=False), view) for load in loads]
        persist = dask.persist if client is None else client.persist
        tasks = list(persist(*tasks) if client is None else persist(tasks))
        sizes = np.array(_results([count(task) for task in tasks], client))
        firsts = tuple(int(first) for first in np.cumsum(sizes) - sizes)
        numbered = dask.delayed(_numbered, pure=False)
        kept = [numbered(task, first) for task, first in zip(tasks, firsts, strict=True)]
        kept = [task for task, size in zip(kept, sizes, strict=True) if size]
        search = DaskNeighbours.of(_Coded(tuple(kept)), lengths, client, k=k, seed=seed)
        return cls(int(sizes.sum()), firsts, tuple(kept), search)

    @override
    def rescaled(self, lengths: Array) -> "DaskSurroundings":
        return replace(self, search=self.search.rescaled(lengths))

    @override
    def each(self, look: Look[S], queries: Queries, k: int, width: int) -> list[S]:
        dask = dask_module()
        looked, shared = (
            dask.delayed(_looked, pure=False),
            dask.delayed(look, traverse=False, pure=False),
        )
        tasks = []
        for part in slices(len(queries), _width(k, width)):
            some = queries.where(part)
            near = self.search.neighbourhoods(some.X, min(k, self.n), some.number)
            tasks.append(looked(shared, near, dask.delayed(some, traverse=False), width))
        return [found for some in _results(tasks, self.search.client) for found in some]

    def lazily(
        self,
        look: Look[S],
        finish: Callable[[Array, list[S]], Array],
        X: Any,
        k: int,
        width: int,
        columns: int,
    ) -> Any:
        """A Dask array, cut as the Dask array X, of what ``finish`` makes of the looks at its rows.

        Partitions of X whose length is not known are counted at once.
        """
        dask, arrays = dask_module(), import_module("dask.array")
        if np.isnan(X.chunks[0]).any():
            X = X.compute_chunk_sizes()
        cut = X.rechunk({0: _width(k, width), 1: -1})
        shared = dask.delayed(look, traverse=False, pure=False)
        ended = dask.delayed(finish, traverse=False, pure=False)
        looked, finished = dask.delayed(_looked, pure=False), dask.delayed(_finished, pure=False)
        named = dask.delayed(Queries.new, pure=False)
        blocks = []
        for rows, size in zip(np.ravel(cut.to_delayed()), cut.chunks[0], strict=True):
            near = self.search.neighbourhoods(rows, min(k, self.n))
            found = looked(shared, near, named(rows), width)
            task = finished(ended, rows, found)
            blocks.append(arrays.from_delayed(task, (size, columns), dtype=np.float64))
        return arrays.concatenate(blocks).rechunk({0: X.chunks[0]})

    @override
    def drawn(self, count: int, seed: int) -> Queries:
        number = np.sort(np.random.default_rng(seed).permutation(self.n)[:count])
        pick = dask_module().delayed(_picked, pure=False)
        parts = _results([pick(chunk, number) for chunk in self.chunks], self.search.client)
        return Queries(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    @property
    @override
    def advice(self) -> str | None:
        return None

    @override
    def recall(self, k: int) -> float:
        sample = self.drawn(200, 1)
        measured = dask_module().delayed(_recalled, pure=False)
        tasks = [measured(part, sample.X, sample.number, k) for part in self.search.parts]
        return float(np.mean(_results(tasks, self.search.client)))


def _width(k: int, block: int) -> int:
    """The number of queries of a task."""
    return max(block, _NEIGHBOURS // k // block * block)


def _results(tasks: "list[Delayed]", client: Any) -> list[Any]:
    if client is None:
        return list(dask_module().compute(*tasks))
    return list(client.gather(client.compute(tasks)))


def _coded(load: Any, view: View) -> Chunk:
    with blas_threads(1):
        chunk = load if isinstance(load, Chunk) else load()
        codes, used = encode(chunk, view.survey.classes)
        weight = chunk.weight if view.factor is None else chunk.weight * view.factor[codes]
        return chunk._replace(y=codes, weight=weight).where(used)


def _length(chunk: Chunk) -> int:
    return len(chunk.y)


def _numbered(chunk: Chunk, first: int) -> Chunk:
    return chunk._replace(first=first)


def _picked(chunk: Chunk, number: Integers) -> tuple[Array, Integers, np.ndarray, Array]:
    own = number[(number >= chunk.first) & (number < chunk.first + len(chunk.y))]
    rows = chunk.where(own - chunk.first)
    return rows.X, own, rows.y, rows.weight


def _recalled(part: Part, X: Array, number: Integers, k: int) -> float:
    return part.search.share_found(X, k, number)


def _finished(finish: Callable[[Array, list[S]], Array], X: Array, found: list[S]) -> Array:
    return finish(X, found)


def _looked(look: Look[S], near: Gathered, queries: Queries, width: int) -> list[S]:
    """What the look returns for each block of the queries."""
    number = near.found.indices

    def at(block: slice) -> S:
        hoods = Neighbourhoods(number[block], near.X[block], near.y[block], near.weight[block])
        return look(hoods, queries.where(block))

    with blas_threads(1):
        return [at(block) for block in slices(len(queries), width)]
