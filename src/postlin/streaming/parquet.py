"""Rows in Parquet files, a few row groups at a time."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from postlin.streaming.chunks import CHUNK, Chunk, checked, grouped
from postlin.streaming.sources import Source

if TYPE_CHECKING:  # pyarrow is imported when it is needed
    from pyarrow.dataset import ParquetFileFragment


#: The most characters of an error of pyarrow in a message.
_LONGEST_REASON = 200


class Columns(NamedTuple):
    """The names of the columns that hold features, labels and weights."""

    features: tuple[str, ...]
    target: str
    weight: str | None

    @property
    def all(self) -> list[str]:
        """The columns that are read."""
        return [*self.features, self.target, *([] if self.weight is None else [self.weight])]


def _loaded(fragment: "ParquetFileFragment", columns: Columns, first: int, number: int) -> Chunk:
    """The rows of some row groups of a file, checked."""
    with _reading(fragment.path):
        table = fragment.to_table(columns=columns.all, use_threads=False)
    X = np.empty((table.num_rows, len(columns.features)))
    for j, name in enumerate(columns.features):
        try:
            X[:, j] = table.column(name).to_numpy()
        except (TypeError, ValueError):
            raise ValueError(
                f"column {name!r} of {fragment.path!r} holds values that are not numbers: name the "
                "columns to use with features=[...]."
            ) from None
    y = table.column(columns.target).to_numpy()
    weight = None if columns.weight is None else table.column(columns.weight).to_numpy()
    return checked(X, y, weight, first, number)._replace(names=columns.features)


@dataclass(frozen=True, eq=False)
class ParquetSource(Source):
    """Rows of Parquet files that have the same columns."""

    paths: tuple[str, ...]
    columns: Columns
    classes: np.ndarray | None = None

    def loads(self) -> Iterator[Callable[[], Chunk]]:
        """One pass: neighbouring row groups of a file together, until there are enough rows."""
        first = number = 0
        for fragment in map(_fragment, self.paths):
            for groups in grouped(fragment.row_groups, lambda group: group.num_rows, CHUNK):
                part = fragment.subset(row_group_ids=[group.id for group in groups])
                yield partial(_loaded, part, self.columns, first, number)
                first, number = first + sum(group.num_rows for group in groups), number + 1

    def loads_anywhere(self) -> list[Callable[[], Chunk]]:
        """The loads of a pass, for any process that can read the files."""
        return list(self.loads())


def parquet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str,
    features: Sequence[str] | None = None,
    weight: str | None = None,
    classes: ArrayLike | None = None,
) -> Source:
    """Labelled rows in Parquet files, for ``GPClassifier(inducing=...).fit``.

    Parameters
    ----------
    paths : path or list of paths
        Files, or folders of files that end in ``.parquet``; read in this order.
    target : str
        The column of the labels.
    features : list of str or None
        The columns to learn from; None for all columns but ``target`` and ``weight``.
    weight : str or None
        The column of the rows' weights; None for weight one.
    classes : array-like or None
        The labels that may occur; None for those that the first pass finds.

    """
    files = _files([paths] if isinstance(paths, str | os.PathLike) else paths)
    names = [_fragment(file).physical_schema.names for file in files]
    used = [n for n in names[0] if n not in (target, weight)] if features is None else features
    columns = Columns(tuple(used), target, weight)
    for file, present in zip(files, names, strict=True):
        for name in columns.all:
            if name not in present:
                raise ValueError(f"{file!r} has no column {name!r}.")
    return ParquetSource(files, columns, None if classes is None else np.unique(classes))


def _files(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The absolute paths of the files; those in a folder come in alphabetical order."""
    found: list[Path] = []
    for path in map(Path, paths):
        found += sorted(path.glob("**/*.parquet")) if path.is_dir() else [path]
    if not found:
        raise ValueError(f"there are no Parquet files at {', '.join(map(str, paths))}.")
    for path in found:
        if path.exists() and not path.is_file():  # a pipe could be waited for forever
            raise ValueError(f"{str(path)!r} is not a Parquet file: it is no ordinary file.")
    return tuple(str(path.absolute()) for path in found)


def _fragment(path: str) -> "ParquetFileFragment":
    """A file with its row groups and the names of its columns, as pyarrow reads it."""
    try:
        from pyarrow import dataset, fs
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow.") from None
    # pre_buffer slows the reading of local files down: 42 ms, not 28, for 200,000 rows of 11 numbers
    layout = dataset.ParquetFileFormat(pre_buffer=False)
    fragment = layout.make_fragment(path, fs.LocalFileSystem())
    with _reading(path):
        fragment.ensure_complete_metadata()
    return fragment


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn the errors that pyarrow raises for a damaged file into one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, NotImplementedError, LookupError, MemoryError) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ValueError(f"{path!r} is not a Parquet file, or it is damaged: {reason}") from None
