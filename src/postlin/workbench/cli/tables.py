"""Tables that a person gives the command line: their columns, classes and rows to predict."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from postlin import datasets
from postlin.tables import cells
from postlin.tables.columns import Columns, Findings, Wishes, find_columns, shown
from postlin.tables.preparation import (
    Impute,
    Preparation,
    Scaling,
    columns_of,
    problems_of,
    unknown_levels,
)
from postlin.workbench.cli import outputs
from postlin.workbench.cli.inputs import BUILT_IN, BadInputError, built_in, listed, shortened
from postlin.workbench.cli.reading import FOUND_OUT, UNKNOWN, Kinds, Spelling, read_table
from postlin.workbench.evaluation.folds import Data

Sep = Annotated[
    str | None,
    typer.Option(
        help="What separates the columns of a text file: a character, tab or space; found by itself."
    ),
]
Decimal = Annotated[
    str | None, typer.Option(help="The decimal mark, a point or a comma; found by itself.")
]
Encoding = Annotated[
    str | None, typer.Option(help="The encoding of a text file, such as latin-1; found by itself.")
]
ImputeBy = Annotated[
    Impute, typer.Option("--impute", help="What replaces missing numbers; a column says where.")
]
Drop = Annotated[
    str | None, typer.Option(help="Columns not to learn from, separated by commas.", metavar="NAMES")
]
Id = Annotated[
    str | None, typer.Option("--id", help="Columns that identify rows; left out, too.", metavar="NAMES")
]
Categorical = Annotated[
    str | None,
    typer.Option(help="Columns that hold categories, even if they are numbers.", metavar="NAMES"),
]
Numeric = Annotated[
    str | None,
    typer.Option(help="Columns to use as numbers, whatever they look like.", metavar="NAMES"),
]
ScaleBy = Annotated[
    Scaling | None,
    typer.Option(
        "--scaling",
        help="Scaling of features; by default the paper's sets are whitened, others standardised.",
    ),
]


class Options(NamedTuple):
    """What a person says about a table; None for what is to be found out."""

    spelling: Spelling = FOUND_OUT
    impute: Impute = "median"
    drop: str | None = None
    ids: str | None = None
    categorical: str | None = None
    numeric: str | None = None
    scaling: Scaling | None = None

    def for_files(self) -> list[str]:
        """The names of the options set that say something about files."""
        of_columns = zip(
            _OF_COLUMNS, (self.drop, self.ids, self.categorical, self.numeric), strict=True
        )
        return [*self.spelling.named(), *(name for name, text in of_columns if text is not None)]


#: Options that name columns.
_OF_COLUMNS = "--drop", "--id", "--categorical", "--numeric"
#: Nothing is said about a table.
NO_WISHES = Options()


def named(text: str | None, columns: Any) -> list[str]:
    """The columns in 'a,b,c'; a name may hold a comma if it stands alone."""
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    return [text] if text in columns else [part for part in parts if part]


def read_data(
    source: str,
    target: str | None,
    options: Options = NO_WISHES,
    check: Callable[[Data], object] = lambda data: None,
) -> Data:
    """A built-in data set, or a file whose column ``target`` (by default the last) holds the class.

    ``check`` raises ``BadInputError`` for what else may be wrong. All problems are raised together.
    """
    if source in BUILT_IN:
        return _built_in(source, target, options, check)
    hint = f"built-in sets are {', '.join(BUILT_IN)}"
    said = options.categorical or ""
    kinds = Kinds(texts=[said, *named(said, ())], numbers=named(options.numeric, ()))
    frame, remarks = read_table(Path(source), options.spelling, target=target, kinds=kinds, hint=hint)
    column = str(frame.columns[-1]) if target is None else target
    if column not in frame.columns:
        raise BadInputError(f"there is no column {column!r}; the columns are {listed(frame.columns)}.")
    table = frame.drop(columns=[column])
    if table.shape[1] == 0:
        raise BadInputError(
            f"{source} has no column besides the target {column!r}: there is nothing to learn from."
        )
    found, problems = _found(table, column, options), list[str]()
    data = Data(
        Path(source.removesuffix(".gz")).stem,
        np.empty((len(table), 0)),
        np.zeros(len(table), int),
        (),
        (),
    )
    try:
        classes, codes = _classes(frame[column], column)
        data = replace(data, codes=codes, classes=classes)
        check(data)
    except BadInputError as error:
        problems += error.problems
    if found.problems:
        problems += [f"{source}: {problem}." for problem in found.problems]
        problems[-1] += f" Options for columns are {', '.join(_OF_COLUMNS[:-1])} and {_OF_COLUMNS[-1]}."
    if problems:
        raise BadInputError(*problems)
    preparation = Preparation(found.columns, options.impute, options.scaling or "standardise")
    told = (*remarks, *found.remarks, *_repeated(frame))
    data = replace(data, remarks=tuple(f"{source}: {remark}" for remark in told))
    return _prepared(data, table, preparation)


def _built_in(name: str, target: str | None, options: Options, check: Callable[[Data], object]) -> Data:
    """A built-in data set and its preparation."""
    if target is not None:
        raise BadInputError(f"--target is for files; the built-in set {name!r} has its own classes.")
    if told := options.for_files():
        raise BadInputError(f"{told[0]} is for files; the built-in set {name!r} is used as it is.")
    data = built_in(name)
    check(data)
    table = pd.DataFrame(data.X, columns=list(data.feature_names))
    usual: Scaling = "whiten" if name in datasets.NAMES else "standardise"
    columns = Columns(tuple(map(str, table.columns)))
    return _prepared(data, table, Preparation(columns, scaling=options.scaling or usual))


def _found(table: pd.DataFrame, target: str, options: Options) -> Findings:
    """What the columns hold, considering what the person says about them."""
    said = options.drop, options.ids, options.categorical, options.numeric
    drop, ids, categories, of_numbers = (named(text, [*table, target]) for text in said)
    groups = of_numbers, categories, [*drop, *ids]
    wishes = Wishes(*(tuple(name for name in names if name != target) for names in groups))
    found = find_columns(table, wishes)
    if any(target in names for names in groups):
        found.problems.insert(0, f"column {shown(target)} holds the classes, and is no feature")
    return found


def _prepared(data: Data, table: pd.DataFrame, preparation: Preparation) -> Data:
    """The data with the columns in use; ``ValueError`` if these cannot be prepared as is asked."""
    columns = preparation.columns
    used = table[columns.names].assign(
        **{name: cells.numbers(table[name])[0] for name in columns.numbers}
    )
    Pipeline(preparation.steps()).fit(used)  # first, so that data that cannot be whitened fail early
    return replace(data, X=used, feature_names=tuple(columns.names), preparation=preparation)


def _repeated(frame: pd.DataFrame) -> list[str]:
    """A remark about rows that are equal to others."""
    try:
        count = int(frame.duplicated().sum())
    except TypeError:  # lists in a column that is left out
        return []
    if count == 0:
        return []
    return [
        f"{count:,} of {len(frame):,} rows repeat another in all columns: where copies are held out, "
        "scores are too good"
    ]


class Rows(NamedTuple):
    """The rows of a table that a model can predict, and columns to keep beside the predictions."""

    X: pd.DataFrame
    kept: pd.DataFrame


def read_rows(fitted: Pipeline, path: Path, spelling: Spelling, keep: str | None = None) -> Rows:
    """The rows of a table that a model can predict, which must have the model's columns."""
    columns = columns_of(fitted)
    kinds = UNKNOWN if columns is None else Kinds(columns.categories, columns.numbers)
    frame, remarks = read_table(path, spelling, target="", kinds=kinds)
    needed = list(fitted.feature_names_in_) if columns is None else columns.names
    asked = named(keep, frame)
    problems = []
    if absent := [name for name in needed if name not in frame.columns]:
        problems.append(
            f"{str(path)!r} lacks the model's columns {listed(map(repr, absent))}; it has "
            f"{listed(frame.columns)}."
        )
    if strange := [name for name in asked if name not in frame.columns]:
        problems.append(f"--keep: {str(path)!r} has no column {listed(map(repr, strange))}.")
    problems += [f"{str(path)!r}: {problem}." for problem in _misfits(fitted, columns, frame, needed)]
    if problems:
        raise BadInputError(*problems)
    for name, levels in unknown_levels(fitted, frame).items():
        remarks.append(
            f"column {shortened(name)!r} holds levels that the model does not know, and treats as rare "
            f"ones: {listed(map(repr, levels))}"
        )
    for remark in remarks:
        outputs.note(f"{path}: {remark}")
    kept = (
        read_table(path, spelling, target="", kinds=Kinds(asked)).frame[asked] if asked else frame[[]]
    )
    return Rows(frame[needed], kept.astype(object).where(kept.notna(), ""))


def _misfits(
    fitted: Pipeline, columns: Columns | None, frame: pd.DataFrame, needed: list[str]
) -> list[str]:
    """Why a model cannot take the rows of a table, a sentence for each reason."""
    there = [name for name in needed if name in frame.columns]
    if columns is not None:
        dates = tuple((name, form) for name, form in columns.dates if name in there)
        numbers = tuple(name for name in columns.numbers if name in there)
        return problems_of(Columns(numbers, (), dates), frame)
    if isinstance(fitted.steps[0][1] if isinstance(fitted, Pipeline) else None, ColumnTransformer):
        return []  # made by hand, for columns of any kind
    incomplete = [name for name in there if frame[name].isna().any()]
    gaps = [f"column {name!r} has missing values, which this model cannot take" for name in incomplete]
    return [*problems_of(Columns(tuple(there)), frame), *gaps]


def _classes(labels: pd.Series, column: str) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the classes, and the class index of every row."""
    labels = labels.map(lambda label: label.strip() if isinstance(label, str) else label)
    missing = np.flatnonzero(labels.isna() | labels.eq(""))
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
    if len(classes) > 2 and cells.date_formats(cells.levels(labels).values):
        raise BadInputError(
            f"the target column {column!r} holds dates (the first is "
            f"{shortened(str(labels.iloc[0]))!r}): choose another column with --target."
        )
    if len(classes) > 2 and (len(classes) > len(labels) / 2 or (fractions and 1 in counts)):
        raise BadInputError(
            f"the target column {column!r} has {len(classes)} different values in {len(labels)} rows "
            f"(the first is {shortened(str(labels.iloc[0]))!r}), which do not look like classes: "
            "choose another column with --target."
        )
    return tuple(map(str, classes)), codes
