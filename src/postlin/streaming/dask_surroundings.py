"""Labelled rows on a Dask cluster, and what is done with the neighbourhoods of queries there.

Workers hold and index their rows. A block of queries is sent to them, its neighbourhood is gathered on
one of them, and the look at it runs there: rows never pass through the client.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from postlin._typing import Array, override
from postlin.linalg.threads import blas_threads, slices
from postlin.streaming.chunks import Chunk
from postlin.streaming.dask import dask_module
from postlin.streaming.dask_neighbours import DaskNeighbours, Gathered, Part
from postlin.streaming.places import Integers
from postlin.streaming.sources import Source
from postlin.streaming.surroundings import Look, Neighbourhoods, Queries, S, Surroundings
from postlin.streaming.survey import encode
from postlin.streaming.views import View

if TYPE_CHECKING:
    from dask.delayed import Delayed

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
