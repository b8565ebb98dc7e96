"""The steps of a saved pipeline that read tables: their parameters are data, and checked."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from postlin._typing import Array
from postlin.tables.columns import Columns
from postlin.tables.preparation import Standardised, Whitening, columns_of


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
