"""Rows grouped by the place at which they lie: a search for neighbours meets each place once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from postlin._typing import Array
from postlin.linalg.arrays import namespace, on_host, place_of
from postlin.linalg.threads import slices

#: Numbers of rows and places.
Integers = NDArray[np.int64]

#: Rows that are read at a time.
BLOCK = 65_536
#: An odd number near the golden part of 2³²: its multiples modulo 2³² mix the numbers of rows.
_MIXER, _MODULUS = 1_640_531_527, 2**32


def turns(number: Any) -> Any:
    """By which rows with these numbers take turns where distances are equal.

    The order looks random and depends on the numbers alone. In the order of the numbers themselves, the
    neighbours of a row among many equal rows would be of one class if the table is sorted by class.
    """
    return number * _MIXER % _MODULUS


@dataclass(frozen=True, eq=False)
class Places:
    """The rows at each place, in turn; places are in the order of their smallest row numbers."""

    members: Integers
    starts: Integers  # of each place among the members, and their number at the end
    first: int  # the number of the first row, if these are a part of others

    @classmethod
    def of(cls, rows: np.ndarray, first: int = 0) -> "Places":
        """Group equal rows. The length scales do not matter, so that one grouping serves them all."""
        keys = np.concatenate([_keys(rows[part]) for part in slices(len(rows), BLOCK)])
        places = cls._by(keys, first)
        if not places._hold(rows):  # two different rows have one key
            places = cls._by(np.unique(_doubles(rows), axis=0, return_inverse=True)[1].ravel(), first)
        return places

    @classmethod
    def _by(cls, keys: np.ndarray, number: int) -> "Places":
        order = np.argsort(keys, kind="stable")
        new = np.flatnonzero(np.diff(keys[order])) + 1
        starts = np.concatenate([[0], new])
        sizes = np.diff(np.append(starts, len(keys)))
        turn = np.argsort(order[starts])
        first, size = starts[turn], sizes[turn]
        ends = np.cumsum(size)
        members = order[np.arange(len(keys)) + np.repeat(first - ends + size, size)]
        if len(size) < len(keys):
            place = np.repeat(np.arange(len(size)), size)
            members = members[np.lexsort((turns(members + number), place))]
        return cls(members, np.concatenate([[0], ends]), number)

    def _hold(self, rows: np.ndarray) -> bool:
        """Whether all rows of each place are equal."""
        repeated = np.flatnonzero(np.repeat(self.sizes > 1, self.sizes))
        first = np.repeat(self.firsts, self.sizes)
        for part in slices(len(repeated), BLOCK):
            chosen = repeated[part]
            if (rows[self.members[chosen]] != rows[first[chosen]]).any():
                return False
        return True

    @property
    def distinct(self) -> bool:
        """Whether no two rows are equal; then places and rows have the same numbers."""
        return len(self) == len(self.members)

    @property
    def firsts(self) -> Integers:
        """A row of each place."""
        return self.members[self.starts[:-1]]

    @property
    def sizes(self) -> Integers:
        """The number of rows at each place."""
        return np.diff(self.starts)

    def nearest(
        self, found: Integers, squares: Array, k: int, own: Integers | None
    ) -> tuple[Integers, Array]:
        """The k rows with the smallest distances at the places found; of equal ones, by turn.

        The places ``found`` are in turn for each query. A query's ``own`` row is left out. Where there
        are fewer than k rows, −1 and infinity fill up. The arrays may be on a device; the result is in
        NumPy's memory.
        """
        if not self.distinct:
            return self._expanded(on_host(found), on_host(squares), k, own)
        rows, xp = found, namespace(found)
        if own is not None:
            mine = rows == place_of(rows).give(own)[:, None]
            rows, squares = xp.where(mine, -1, rows), xp.where(mine, np.inf, squares)
        order = xp.argsort(squares, axis=1, stable=True)[:, :k]
        near = on_host(xp.take_along_axis(rows, order, axis=1))
        return np.asarray(near), np.sqrt(on_host(xp.take_along_axis(squares, order, axis=1)))

    def _expanded(
        self, found: Integers, squares: Array, k: int, own: Integers | None
    ) -> tuple[Integers, Array]:
        """``nearest`` with all rows of a place in turn, up to k and one to leave out."""
        order = np.argsort(squares, axis=1, kind="stable")
        found, squares = np.take_along_axis(found, order, 1), np.take_along_axis(squares, order, 1)
        sizes = np.minimum(self.sizes[found], k + 1)
        enough = np.minimum((np.cumsum(sizes, axis=1) <= k).sum(axis=1), found.shape[1] - 1)
        sizes[squares > np.take_along_axis(squares, enough[:, None], 1)] = 0
        ends = np.cumsum(sizes.ravel())
        within = np.arange(ends[-1]) - np.repeat(ends - sizes.ravel(), sizes.ravel())
        rows = self.members[np.repeat(self.starts[found.ravel()], sizes.ravel()) + within]
        query = np.repeat(np.arange(len(found)), sizes.sum(axis=1))
        far = np.repeat(squares.ravel(), sizes.ravel())
        kept = slice(None) if own is None else rows != own[query]
        rows, query, far = rows[kept], query[kept], far[kept]
        order = np.lexsort((turns(rows + self.first), far, query))
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        chosen = rank < k  # the sort keeps the queries in their order
        at = (query[chosen], rank[chosen])
        indices, distances = np.full((len(found), k), -1), np.full((len(found), k), np.inf)
        indices[at], distances[at] = rows[order][chosen], np.sqrt(far[order][chosen])
        return indices, distances

    def __len__(self) -> int:
        return len(self.starts) - 1


def _doubles(rows: np.ndarray) -> Array:
    """The rows as doubles, with +0 for −0, which lies at the same place."""
    return np.asarray(rows, dtype=np.float64) + 0.0


def _keys(rows: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each row, the same for equal rows."""
    bits = np.ascontiguousarray(_doubles(rows)).view(np.uint64)
    keys = np.zeros(len(rows), np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is meant
        for column in bits.T:
            keys = (keys ^ column) * np.uint64(0x9E3779B97F4A7C15)
            keys ^= keys >> np.uint64(29)
    return keys
