"""Which binary problems of a query differ, so that each is solved once.

The problems of a query share its neighbours and their covariances, and have labels of their own. Those
of classes that no neighbour has are one problem, in which all neighbours belong to the rest. Problems
with opposite labels have opposite means, if the likelihood is symmetric: where all neighbours are of
one class there is one problem to solve, and where they are of two classes there are two, however many
classes there are.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.linalg.threads import slices
from postlin.streaming.places import Integers


class Cases(NamedTuple):
    """The problems to solve, ordered by number and query, and what is asked of them.

    The asked-for problems of the queries are given one after another; several may have one case.
    """

    query: Integers  # of each case, and the number of its problem
    problem: Integers
    asked: tuple[Integers, Integers]  # queries, and numbers of their problems
    case: Integers  # of what is asked for, and −1 where that has opposite labels
    sign: Array

    @classmethod
    def all_of(cls, wanted: np.ndarray) -> "Cases":
        """A case for each problem (queries, problems) that is wanted."""
        problem, query = np.nonzero(wanted.T)
        return cls(query, problem, (query, problem), np.arange(len(query)), np.ones(len(query)))

    @classmethod
    def distinct(
        cls, wanted: np.ndarray, signs: Array, code: np.ndarray, weight: Array, *, symmetric: bool
    ) -> "Cases":
        """The wanted problems whose neighbours, of these classes and weights, differ in labels.

        ``signs`` (problems, classes) holds the labels of the classes.
        """
        every = cls.all_of(wanted)
        there = np.stack(
            [((code == c) & (weight > 0.0)).any(axis=1) for c in range(signs.shape[1])], axis=1
        )
        labels = np.where(there[every.query], signs[every.problem], 0.0).astype(np.int8)
        first = np.take_along_axis(labels, np.argmax(labels != 0, axis=1)[:, None], axis=1)
        sign = np.where(symmetric & (first < 0), -1, 1).astype(np.int8)
        as_bytes = np.ascontiguousarray(sign * labels).view(f"V{labels.shape[1]}")[:, 0]
        kinds, kind = np.unique(as_bytes, return_inverse=True)
        _, at, case = np.unique(every.query * len(kinds) + kind, return_index=True, return_inverse=True)
        order = np.argsort(at)  # the first of several problems stands for all, so these are in order
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        at = at[order]
        return cls(
            every.query[at],
            every.problem[at],
            every.asked,
            place[case],
            sign[:, 0] * sign[at[place[case]], 0].astype(float),
        )

    def pieces(self, most: int) -> list[slice]:
        """Parts of at most so many cases, of nearly equal sizes."""
        n = max(1, len(self.query))
        return slices(len(self.query), -(-n // -(-n // most)))

    def runs(self, part: slice | None = None) -> list[slice]:
        """The parts of a part, or of all, that have one problem, and so every query once at most."""
        first, last = (0, len(self.problem)) if part is None else (part.start, part.stop)
        edges = np.flatnonzero(np.diff(self.problem[first:last])) + 1 + first
        return [slice(a, b) for a, b in pairwise([first, *edges.tolist(), last]) if a < b]
