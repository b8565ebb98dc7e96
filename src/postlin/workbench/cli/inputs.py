"""What a person gives the command line: tables, built-in data sets and options, checked."""

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import typer

from postlin import datasets
from postlin._typing import Array
from postlin.workbench.evaluation.baselines import BASELINES
from postlin.workbench.evaluation.folds import Data
from postlin.workbench.evaluation.methods import (
    ALL_METHODS,
    DEFAULT_METHODS,
    JOINT_METHODS,
    LIKELIHOODS,
    LOCAL_METHODS,
    RULES,
    SOFTMAX,
    STRATEGIES,
    MultiClass,
    possible,
)

#: The most bytes of a line of a CSV file, and the most characters of a name in a message.
_LONGEST_LINE, _LONGEST_NAME = 2**24, 80
#: The most names of columns that a message lists.
_MOST_NAMES = 30

#: The names of the data sets that come with the package.
BUILT_IN = (*datasets.NAMES, *datasets.MANY_CLASSES)

Source = Annotated[
    str, typer.Argument(help="The name of a built-in data set, or the path of a CSV or Parquet file.")
]
Target = Annotated[
    str | None, typer.Option(help="The column that holds the class; by default the last one.")
]
METHODS_HELP = (
    "PL (posterior linearisation), EP (expectation propagation), CL (cavity linearisation) and L "
    "(Laplace's method). PPL, SPL, PEP, SEP, PCL and SCL are the same with a parallel or sequential "
    "schedule, as the paper calls them; joint fits can use PL and L."
)
BASELINES_HELP = (
    "The baselines are majority (the class frequencies), logistic (logistic regression) and boosting "
    "(gradient-boosted trees), by scikit-learn on the same folds."
)
LIKELIHOODS_HELP = "probit (the default), logit and noisy_threshold; joint fits use softmax."
MULTI_CLASS_HELP = (
    "one_vs_rest and one_vs_one, which split many classes into binary problems, and joint, which "
    "treats them in one softmax model."
)
Jobs = Annotated[int, typer.Option(min=1, help="Number of processes, each with one BLAS thread.")]
Dask = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler whose workers replace local processes.")
]


class BadInputError(Exception):
    """Input that the user can correct; the message says what is wrong and what to do about it."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn bad input into one line on standard error and exit code 2."""
    try:
        yield
    except (BadInputError, ValueError, MemoryError, ImportError) as error:
        sys.stderr.write(f"postlin: {' '.join(str(error).split())}\n")
        sys.exit(2)
    except KeyboardInterrupt as stop:
        told = str(stop) or "interrupted; there is nothing to keep."
        sys.stderr.write(f"postlin: {told}\n")
        sys.exit(130)


class Choice(NamedTuple):
    """A method, its likelihood, and its strategy for many classes (None for two classes)."""

    method: str
    likelihood: str  # empty for baselines
    multi_class: MultiClass | None


def parse(text: str, known: tuple[str, ...], what: str) -> list[str]:
    """The different parts of 'A,B,C', each of which must be known."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in parts if part not in known]
    if unknown or not parts:
        raise BadInputError(f"{what} must be some of {', '.join(known)}, got {text!r}.")
    return list(dict.fromkeys(parts))


def combinations(
    methods: str, likelihoods: str, known: tuple[str, ...] = ALL_METHODS
) -> list[tuple[str, str]]:
    """The possible pairs of a known method and a likelihood; having none is an error."""
    with_likelihoods = parse(likelihoods, LIKELIHOODS, "--likelihoods")
    wanted = parse(methods, known, "--methods")
    pairs = [
        (m, likelihood) for likelihood in with_likelihoods for m in wanted if possible(m, likelihood)
    ]
    if not pairs:
        raise BadInputError(
            "L cannot use noisy_threshold, whose gradient is zero almost everywhere: use PL or EP."
        )
    return pairs


def with_baselines(methods: str | None) -> tuple[str | None, list[Choice]]:
    """The other methods, None for the default ones and "" for none, and the baselines asked for."""
    if methods is None:
        return None, [Choice(name, "", None) for name in BASELINES]
    named = parse(methods, (*ALL_METHODS, *BASELINES), "--methods")
    others = ",".join(name for name in named if name not in BASELINES)
    return others, [Choice(name, "", None) for name in named if name in BASELINES]


def choices(
    methods: str | None,
    likelihoods: str | None,
    multi_class: str,
    n_classes: int,
    only: str | None = None,
) -> list[Choice]:
    """What the options ask for, given the number of classes.

    The default is PL, EP and CL with probit, and PL alone jointly. ``only`` is an option that parallel
    methods for two classes alone have; with it the default is PL.
    """
    wanted = parse(multi_class, STRATEGIES, "--multi-class")
    if only is not None:
        methods = methods or "PL"
        if set(parse(methods, ALL_METHODS, "--methods")) - set(LOCAL_METHODS):
            raise BadInputError(f"with {only} the methods are {', '.join(RULES)}.")
        if n_classes > 2 and "joint" in wanted:
            raise BadInputError(
                f"with {only} many classes are split into binary problems: use --multi-class "
                "one_vs_rest or one_vs_one."
            )
    several = [strategy for strategy in STRATEGIES if strategy in wanted]
    strategies: list[MultiClass | None] = [None] if n_classes == 2 else [*several]
    binary = [strategy for strategy in strategies if strategy != "joint"]
    found = []
    if binary:
        pairs = combinations(methods or ",".join(DEFAULT_METHODS), likelihoods or "probit")
        found = [Choice(*pair, strategy) for strategy in binary for pair in pairs]
    if "joint" in strategies:
        found += [Choice(m, SOFTMAX, "joint") for m in _joint(methods, likelihoods, not binary)]
    return found


def _joint(methods: str | None, likelihoods: str | None, alone: bool) -> list[str]:
    """The methods to use jointly; unsuitable ones are an error if joint is the only strategy."""
    named = ["PL"] if methods is None else parse(methods, ALL_METHODS, "--methods")
    usable = [method for method in named if method in JOINT_METHODS]
    others = [method for method in named if method not in JOINT_METHODS]
    if others and (alone or not usable):
        raise BadInputError(
            f"{' and '.join(others)} cannot treat all classes jointly: with --multi-class joint "
            f"use PL or L, or use --multi-class one_vs_rest."
        )
    if alone and likelihoods is not None:
        raise BadInputError(
            f"--multi-class joint has a likelihood of its own, softmax: leave {likelihoods!r} out, or "
            "use --multi-class one_vs_rest."
        )
    return usable


def read_data(source: str, target: str | None) -> Data:
    """A built-in data set, or a file whose column ``target`` (by default the last) holds the class."""
    if source in BUILT_IN:
        if target is not None:
            raise BadInputError(
                f"--target is for files; the built-in set {source!r} has its own classes."
            )
        return built_in(source)
    frame = read_frame(Path(source), hint=f"built-in sets are {', '.join(BUILT_IN)}")
    column = str(frame.columns[-1]) if target is None else target
    if column not in frame.columns:
        raise BadInputError(f"there is no column {column!r}; the columns are {listed(frame.columns)}.")
    features = frame.drop(columns=[column])
    if features.shape[1] == 0:
        raise BadInputError(
            f"{source} has no column besides the target {column!r}: there is nothing to learn from."
        )
    classes, codes = _classes(frame[column], column)
    X = numeric(features, source)
    return Data(Path(source).stem, X, codes, classes, tuple(features.columns))


def built_in(name: str) -> Data:
    """A data set that comes with the package."""
    bunch = datasets.load(name)
    classes, codes = np.unique(bunch.y, return_inverse=True)
    return Data(name, bunch.X, codes, tuple(map(str, classes)), tuple(bunch.feature_names))


def _classes(labels: pd.Series, column: str) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the classes, and the class index of every row."""
    missing = np.flatnonzero(labels.isna())
    if len(missing):
        raise BadInputError(
            f"the target column {column!r} has {len(missing)} missing values (first in data row "
            f"{missing[0] + 1}): remove these rows."
        )
    # Numbers are sorted as numbers, so that 10 comes after 9.
    are_numbers = pd.api.types.is_numeric_dtype(labels) and labels.dtype != bool
    values = labels.to_numpy() if are_numbers else labels.astype(str).to_numpy(dtype=object)
    classes, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(classes) == 1:
        raise BadInputError(
            f"the target column {column!r} must have two classes or more, it has 1 "
            f"({shortened(str(classes[0]))!r}): choose another column with --target."
        )
    fractions = pd.api.types.is_float_dtype(labels) and (labels % 1 != 0).any()
    if len(classes) > 2 and (len(classes) > len(labels) / 2 or (fractions and 1 in counts)):
        raise BadInputError(
            f"the target column {column!r} has {len(classes)} different values in {len(labels)} rows "
            f"(the first is {shortened(str(labels.iloc[0]))!r}), which do not look like classes: "
            "choose another column with --target."
        )
    return tuple(map(str, classes)), codes


def read_frame(path: Path, hint: str = "") -> pd.DataFrame:
    """The table in a CSV or Parquet file; ``hint`` is added if there is no such file."""
    _check_file(path, hint)
    try:
        frame = _read(path)
    except ImportError:
        raise BadInputError("reading Parquet files needs pyarrow: pip install pyarrow.") from None
    except pd.errors.EmptyDataError:
        raise BadInputError(f"{str(path)!r} is empty.") from None
    except BadInputError:
        raise
    except Exception as error:
        reason = shortened(str(error).split("\n")[0])
        raise BadInputError(f"{str(path)!r} cannot be read as a table: {reason}") from None
    if len(frame) == 0:
        raise BadInputError(f"{str(path)!r} has a header but no rows.")
    frame.columns = [str(c).strip() for c in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise BadInputError(
            f"{str(path)!r} has two columns {shortened(twice[0])!r} (spaces around a name do not "
            "count): rename one."
        )
    return frame


def _check_file(path: Path, hint: str) -> None:
    """Raise ``BadInputError`` unless there is an ordinary file."""
    try:
        exists, is_folder, is_file = path.exists(), path.is_dir(), path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        exists = is_folder = is_file = False
    if not exists:
        raise BadInputError(
            f"there is no file {shortened(str(path))!r}" + (f" ({hint})." if hint else ".")
        )
    if is_folder:
        raise BadInputError(f"{str(path)!r} is a folder, not a CSV or Parquet file.")
    if not is_file:
        raise BadInputError(
            f"{str(path)!r} is a pipe or a device: write the table to an ordinary file first."
        )


def _read(path: Path) -> pd.DataFrame:
    if path.suffix.lower() in (".parquet", ".pq"):
        with path.open("rb") as file:  # pyarrow takes square brackets in a path for a pattern
            return pd.read_parquet(file)
    _check_lines(path)
    with warnings.catch_warnings(action="ignore"):  # about types, which are checked later
        return pd.read_csv(path, low_memory=False)


def _check_lines(path: Path) -> None:
    """Raise ``BadInputError`` if a line is so long that it would fill the memory."""
    number, length = 1, 0
    with path.open("rb") as file:
        while block := file.read(_LONGEST_LINE):
            first, *others = block.split(b"\n")
            length += len(first)
            if length > _LONGEST_LINE:
                raise BadInputError(
                    f"line {number} of {str(path)!r} is longer than {_LONGEST_LINE // 2**20} MiB: this "
                    "is no table in CSV."
                )
            number += len(others)
            length = len(others[-1]) if others else length


def listed(names: Iterable[str]) -> str:
    """The names in a message; the first of them, if there are many."""
    some = [shortened(name) for name in names]
    return ", ".join(some[:_MOST_NAMES]) + ", …" * (len(some) > _MOST_NAMES)


def shortened(text: str) -> str:
    """A text of any length, made fit for a message."""
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"


def numeric(features: pd.DataFrame, source: str) -> Array:
    """The features as a matrix; an error names columns that are not numeric, finite and complete."""
    for name, column in features.items():
        if not pd.api.types.is_numeric_dtype(column):
            odd = pd.to_numeric(column, errors="coerce").isna() & column.notna()
            example = shortened(repr(column[odd].iloc[0])) if odd.any() else str(column.dtype)
            raise BadInputError(
                f"column {name!r} of {source} is not numeric (for example {example}): encode it as "
                "numbers or leave it out."
            )
    missing = features.isna().sum()
    if missing.any():
        named = ", ".join(f"{c!r} ({k})" for c, k in missing[missing > 0].head(5).items())
        row = int(np.flatnonzero(features.isna().any(axis=1))[0]) + 1
        raise BadInputError(
            f"{source} has {int(missing.sum())} missing values, in {named}, first in data row {row}: "
            "fill them in (for example with the column's median) or remove these rows."
        )
    X: Array = features.to_numpy(dtype=float)
    if not np.isfinite(X).all():
        row, index = np.argwhere(~np.isfinite(X))[0]
        raise BadInputError(
            f"column {features.columns[index]!r} of {source} is infinite in data row {row + 1}."
        )
    return X
