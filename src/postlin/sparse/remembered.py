"""A sparse model that writes down what it computes, and computes nothing twice."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from postlin._typing import Array
from postlin.hyperparameters import Hyperparameters
from postlin.sparse.approximation import SparseApproximation
from postlin.sparse.checkpoint import Journal
from postlin.sparse.draws import Draw
from postlin.sparse.model import SparseFitted, SparseModel
from postlin.sparse.posterior import SparsePosterior, State
from postlin.sparse.rows import ArrayRows, Chunk, Rows
from postlin.sparse.solver import SparseRecord

S = TypeVar("S")


class JournalRows(Rows):
    """Rows whose sums are written down; those that are known are not made again."""

    def __init__(self, rows: Rows, journal: Journal) -> None:
        self.n, self.n_features, self.engine = rows.n, rows.n_features, rows.engine
        self._rows, self._journal = rows, journal

    def total(self, share: Callable[[Chunk], S]) -> S:
        """As written, or one pass."""
        name = type(share).__name__
        if isinstance(share, Draw):
            return self._rows.total(share)
        total: Any = self._journal.known(name)
        if total is None:
            total = self._rows.total(share)
            self._journal.add(name, total)
        return total  # type: ignore[no-any-return]
