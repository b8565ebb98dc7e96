"""Rows in Parquet files, a few row groups at a time."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from postlin.streaming.chunks import CHUNK, Block, check_finite, checked
from postlin.streaming.sources import Source


@dataclass(frozen=True)
class ParquetLoad:
    """Some row groups of a file, read when they are asked for."""

    path: str
    groups: tuple[int, ...]
    columns: "Columns"
    first: int
    number: int

    def __call__(self) -> Block:
        """The rows, checked."""
        with _opened(self.path) as file:
            table = file.read_row_groups(list(self.groups), columns=self.columns.all, use_threads=False)
        features, target, weight = self.columns
        X = np.empty((table.num_rows, len(features)))
        for j, name in enumerate(features):
            try:
                X[:, j] = table.column(name).to_numpy()
            except (TypeError, ValueError):
                raise ValueError(
                    f"column {name!r} of {self.path!r} holds values that are no numbers: name the "
                    "columns to use with features=[...]."
                ) from None
        y = table.column(target).to_numpy()
        w = None if weight is None else table.column(weight).to_numpy()
        block = checked(X, y, w, self.first, self.number)
        return check_finite(block._replace(names=features))


class Columns(NamedTuple):
    """Which columns are what."""

    features: tuple[str, ...]
    target: str
    weight: str | None

    @property
    def all(self) -> list[str]:
        """All that are read."""
        return [*self.features, self.target, *([] if self.weight is None else [self.weight])]


@dataclass(frozen=True)
class ParquetSource(Source):
    """Parquet files with the same columns."""

    paths: tuple[str, ...]
    columns: Columns
    classes: np.ndarray | None = None

    def loads(self) -> Iterator[ParquetLoad]:
        """Row groups of a file together, until there are rows enough for a chunk."""
        first = number = 0
        for path in self.paths:
            with _opened(path) as file:
                sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
            for groups in _together(sizes):
                rows = sum(sizes[g] for g in groups)
                if rows:
                    yield ParquetLoad(path, tuple(groups), self.columns, first, number)
                    first, number = first + rows, number + 1

    def loads_anywhere(self) -> list[ParquetLoad]:
        """Any process that sees the files can read them."""
        return list(self.loads())


def _together(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Neighbours together until there are rows enough."""
    held: list[int] = []
    for k, _ in enumerate(sizes):
        held.append(k)
        if sum(sizes[i] for i in held) >= CHUNK:
            yield held
            held = []
    if held:
        yield held


def parquet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    classes: Any = None,
) -> Source:
    """Labelled rows in Parquet files, for ``GPClassifier(inducing=...).fit``.

    Parameters
    ----------
    paths : path or list of paths
        Files, or folders of files that end in ``.parquet``; read in this order.
    target : str
        The column of the labels.
    features : list of str or None
        The columns to learn from; None for all others.
    weight : str or None
        The column of the rows' weights.
    classes : array-like or None
        The labels that may occur. None: those that the first pass finds.

    """
    files = _files([paths] if isinstance(paths, str | os.PathLike) else paths)
    with _opened(files[0]) as file:
        names = list(file.schema_arrow.names)
    used = [n for n in names if n not in (target, weight)] if features is None else list(features)
    columns = Columns(tuple(used), target, weight)
    for path in files:
        with _opened(path) as file:
            missing = [name for name in columns.all if name not in file.schema_arrow.names]
        if missing:
            raise ValueError(f"{path!r} has no column {missing[0]!r}.")
    known = None if classes is None else np.unique(classes)
    return ParquetSource(tuple(files), columns, known)


def _files(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    found = []
    for path in map(Path, paths):
        inside = sorted(path.glob("**/*.parquet")) if path.is_dir() else [path]
        found += [str(p.absolute()) for p in inside]
    if not found:
        raise ValueError(f"there are no Parquet files at {', '.join(map(str, paths))}.")
    return found


def _opened(path: str) -> Any:
    module = _pyarrow()
    try:
        return module.ParquetFile(path)
    except ValueError as error:
        raise ValueError(f"{path!r} is no Parquet file, or damaged: {error}") from None


def _pyarrow() -> Any:
    try:
        from pyarrow import parquet as module
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'postlin[parquet]'.") from None
    return module
