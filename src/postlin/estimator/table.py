"""``table_classifier``: a classifier that takes tables as they are."""

import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sklearn.pipeline import Pipeline

from postlin.estimator.classifier import GPClassifier

if TYPE_CHECKING:
    from postlin.tables.preparation import Impute, Scaling


def table_classifier(
    columns: Any,
    *,
    numbers: Collection[str] = (),
    categories: Collection[str] = (),
    left_out: Collection[str] = (),
    impute: "Impute" = "median",
    scaling: "Scaling" = "standardise",
    **parameters: Any,
) -> Pipeline:
    """Return an unfitted pipeline that takes tables with numbers, categories, dates and missing values.

    Numbers are standardised, and their missing values replaced, with a column for each number that
    tells where. Categories and truth values become columns of zeros and ones; levels that occur once,
    or that only new rows have, share a column. Dates become day, month, weekday and hour. All of this
    is learned by ``fit``, in cross-validation in each fold anew, and saved with the model.

    Parameters
    ----------
    columns
        A data frame (of pandas or polars) with the features, whose columns tell what they hold; or a
        dict from the names of columns to ``"number"`` or ``"category"``. Columns of a frame that
        seem to identify rows, are constant, empty or equal to another are left out, with a warning.
    numbers
        Names of columns of the frame that hold numbers, whatever they look like.
    categories
        Names of columns of the frame that hold categories, whatever they look like.
    left_out
        Names of columns of the frame that are not to be used.
    impute
        What replaces missing numbers: the ``"median"``, the ``"mean"`` or the ``"most_frequent"``.
    scaling
        ``"standardise"``, ``"whiten"`` (which decorrelates all features) or ``"none"``.
    **parameters
        Parameters of ``GPClassifier``.

    Examples
    --------
    >>> import pandas as pd
    >>> import postlin
    >>> table = pd.DataFrame(
    ...     {"age": [31, 45, None, 62, 28, 57], "job": ["a", "b", "b", None, "a", "b"]}
    ... )
    >>> model = postlin.table_classifier(table).fit(table, [0, 1, 1, 1, 0, 1])
    >>> model.predict(pd.DataFrame({"age": [30], "job": ["c"]})).tolist()
    [0]

    """
    try:
        from postlin.tables.columns import Wishes, declared, find_columns
        from postlin.tables.preparation import Preparation, as_frame
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise ImportError("table_classifier needs pandas: pip install pandas.") from None
    if isinstance(columns, dict):
        found = declared(columns)
    else:
        findings = find_columns(as_frame(columns), Wishes(numbers, categories, left_out))
        if findings.problems:
            raise ValueError("; ".join(findings.problems) + ".")
        if left := [remark for remark in findings.remarks if "left out" in remark]:
            warnings.warn(f"{'; '.join(left)}.", UserWarning, stacklevel=2)
        found = findings.columns
    steps = Preparation(found, impute, scaling).steps()
    return Pipeline([*steps, ("classifier", GPClassifier(**parameters))])
