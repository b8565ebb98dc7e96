"""Reading data: a built-in set by name, or a CSV or Parquet file with a target column."""

from pathlib import Path

import numpy as np
import pandas as pd

from postlin import datasets
from postlin._typing import Array
from postlin.workbench.cli.errors import BadInputError
from postlin.workbench.evaluation.folds import Data

#: Data sets that are known by name.
BUILT_IN = (*datasets.NAMES, *datasets.MANY_CLASSES)


def load_data(source: str, target: str | None) -> Data:
    """A built-in data set, or a file whose column ``target`` (else the last) is the class."""
    if source in BUILT_IN:
        if target is not None:
            raise BadInputError(
                f"--target is for files; the built-in set {source!r} has its own classes."
            )
        return built_in(source)
    frame = read_frame(Path(source), hint=f"built-in sets are {', '.join(BUILT_IN)}")
    column = _target_column(frame, target)
    features = frame.drop(columns=[column])
    if features.shape[1] == 0:
        raise BadInputError(
            f"{source} has no column besides the target {column!r}: nothing to learn from."
        )
    classes, codes = _classes(frame[column], column)
    X = numeric(features, source)
    return Data(Path(source).stem, X, codes, classes, tuple(map(str, features.columns)))


def built_in(name: str) -> Data:
    """One of the sets that come with the package."""
    bunch = datasets.load(name)
    classes, codes = np.unique(bunch.y, return_inverse=True)
    return Data(name, bunch.X, codes, tuple(map(str, classes)), tuple(bunch.feature_names))


def _classes(labels: pd.Series, column: str) -> tuple[tuple[str, ...], np.ndarray]:
    """The classes' names and the labels as their indices, or a sentence that says why not."""
    if labels.isna().any():
        raise BadInputError(
            f"the target column {column!r} has {int(labels.isna().sum())} missing values (first in "
            "data row "
            f"{int(np.flatnonzero(labels.isna())[0]) + 1}): remove these rows."
        )
    # numbers in their own order, in which 10 comes after 9
    are_numbers = pd.api.types.is_numeric_dtype(labels) and labels.dtype != bool
    values = labels.to_numpy() if are_numbers else labels.astype(str).to_numpy(dtype=object)
    classes, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(classes) == 1:
        raise BadInputError(
            f"the target column {column!r} must have two classes or more, it has 1 "
            f"({str(classes[0])!r}): choose another with --target."
        )
    if len(classes) > 2 and (len(classes) > len(labels) / 2 or (_fractions(labels) and 1 in counts)):
        raise BadInputError(
            f"the target column {column!r} has {len(classes)} different values in {len(labels)} rows "
            f"(the first is {str(labels.iloc[0])!r}), which are no classes: choose another with "
            "--target."
        )
    return tuple(map(str, classes)), codes


def _fractions(labels: pd.Series) -> bool:
    """Whether these are measurements rather than labels, to look at."""
    return bool(pd.api.types.is_float_dtype(labels) and (labels % 1 != 0).any())


def read_frame(path: Path, hint: str = "") -> pd.DataFrame:
    """A table from a file, or a sentence that says why not."""
    if not path.exists():
        raise BadInputError(f"there is no file {str(path)!r}" + (f" ({hint})." if hint else "."))
    if path.is_dir():
        raise BadInputError(f"{str(path)!r} is a folder, not a CSV or Parquet file.")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path)
    except ImportError:
        raise BadInputError("reading Parquet files needs pyarrow: pip install pyarrow.") from None
    except pd.errors.EmptyDataError:
        raise BadInputError(f"{str(path)!r} is empty.") from None
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{str(path)!r} cannot be read as a table: {reason}") from None
    if len(frame) == 0:
        raise BadInputError(f"{str(path)!r} has a header but no rows.")
    frame.columns = [str(c).strip() for c in frame.columns]
    return frame


def numeric(features: pd.DataFrame, source: str) -> Array:
    """Features as numbers; columns that are not, and missing values, are named."""
    for name in features.columns:
        column = features[name]
        if column.dtype == bool:
            continue
        if not pd.api.types.is_numeric_dtype(column):
            odd = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            example = repr(column[odd].iloc[0]) if odd.any() else str(column.dtype)
            raise BadInputError(
                f"column {name!r} of {source} is not numeric (for example {example}): encode it as "
                "numbers or "
                "leave it out."
            )
    missing = features.isna().sum()
    if missing.any():
        named = ", ".join(f"{c!r} ({k})" for c, k in missing[missing > 0].head(5).items())
        row = int(np.flatnonzero(features.isna().any(axis=1))[0]) + 1
        raise BadInputError(
            f"{source} has {int(missing.sum())} missing values, in {named}, first in data row {row}: "
            "fill them in "
            "(for example with the column's median) or remove these rows."
        )
    X: Array = features.to_numpy(dtype=float)
    if not np.isfinite(X).all():
        row, column_index = np.argwhere(~np.isfinite(X))[0]
        raise BadInputError(
            f"column {features.columns[column_index]!r} of {source} is infinite in data row {row + 1}."
        )
    return X


def _target_column(frame: pd.DataFrame, target: str | None) -> str:
    if target is None:
        return str(frame.columns[-1])
    if target not in frame.columns:
        raise BadInputError(
            f"there is no column {target!r}; the columns are {', '.join(map(str, frame.columns))}."
        )
    return target
