"""What predictions rest on: the importance of features, and how probabilities depend on them."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from postlin._typing import Array
from postlin.workbench.evaluation.folds import Data, Results, Task, held_out, make_model
from postlin.workbench.evaluation.scores import negative_log_density

#: So many folds are fitted once more as take this many seconds in all, but at least one, and of each at
#: most so many held-out rows have a part in the importance of features.
_SECONDS, _ROWS = 10.0, 300
#: Shuffles of each feature, and one where there are more features than this.
_SHUFFLES, _MANY = 5, 40
#: Features whose effect is shown, values of each, and rows over which probabilities are averaged.
_SHOWN, _VALUES, _AVERAGED = 4, 24, 100
#: Values of each of two features in a decision map.
_GRID = 60


class Dependence(NamedTuple):
    """The mean probability of each class if all rows had a value of a feature: (classes, values)."""

    feature: str
    values: list[Any]
    is_number: bool
    probability: Array


class Plane(NamedTuple):
    """Probabilities over two features, (len(axis1), len(axis0), classes)."""

    axis0: Array
    axis1: Array
    probability: Array


class Explanation(NamedTuple):
    """Features, the most important first; importance is the rise of the log-loss without the feature.

    ``spread`` is the standard deviation over shuffles and folds. ``plane`` is there for two features.
    """

    features: list[str]
    importance: Array
    spread: Array
    rows: int
    dependence: list[Dependence]
    plane: Plane | None


def explain(data: Data, results: Results, jobs: int = 1) -> Explanation:
    """What the predictions of one method with these results rest on; some folds are fitted again."""
    table = data.table
    tasks = list(results)
    spent = np.cumsum([result.seconds for result in results.values()])
    chosen = tasks[: max(1, int(np.sum(spent <= _SECONDS)))]
    first, rises = _explain_fold(data, tasks[0])
    others = Parallel(n_jobs=jobs)(delayed(_rises)(data, task) for task in chosen[1:])
    rises = np.hstack([rises, *others])
    order = np.argsort(-rises.mean(axis=1), kind="stable")
    names = [str(table.columns[k]) for k in order]
    assert data.preparation is not None
    columns = data.preparation.columns
    shown = [
        n for n in names if n in (*columns.numbers, *columns.categories) and table[n].nunique() > 1
    ]
    used = shown[:_SHOWN]
    rows = sum(min(len(held_out(data, task)), _ROWS) for task in chosen)
    some = table.iloc[_some(len(table), _AVERAGED)]
    dependence = [_dependence(first, some, table[name], name in columns.numbers) for name in used]
    plane = _plane(first, table) if table.shape[1] == len(columns.numbers) == len(used) == 2 else None
    importance, spread = rises.mean(axis=1)[order], rises.std(axis=1)[order]
    return Explanation(names, importance, spread, rows, dependence, plane)


def _some(n: int, most: int) -> np.ndarray:
    """The places of at most so many of n rows, chosen at random and in order."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def _fitted(data: Data, task: Task) -> tuple[Any, np.ndarray]:
    """A pipeline that takes rows of the table, fitted as the fold was, and the held-out rows."""
    test = held_out(data, task)
    train = np.setdiff1d(np.arange(len(data.codes)), test)
    preparation = data.preparation
    assert preparation is not None
    model = Pipeline([*preparation.steps(), ("classifier", make_model(task))])
    with warnings.catch_warnings(action="ignore"):
        model.fit(data.table.iloc[train], data.codes[train])
    return model, test


def _explain_fold(data: Data, task: Task) -> tuple[Any, Array]:
    """The fitted pipeline, and the rise of the log-loss for each feature and shuffle."""
    table = data.table
    with threadpool_limits(1, user_api="blas"):
        model, test = _fitted(data, task)
        rows = test[_some(len(test), _ROWS)]
        shuffles = _SHUFFLES if table.shape[1] <= _MANY else 1
        found = permutation_importance(
            model,
            table.iloc[rows],
            data.codes[rows],
            scoring=_minus_log_loss,
            n_repeats=shuffles,
            random_state=task.seed,
        )
    return model, np.asarray(found.importances, float)


def _rises(data: Data, task: Task) -> Array:
    return _explain_fold(data, task)[1]


def _minus_log_loss(model: Any, X: pd.DataFrame, y: np.ndarray) -> float:
    return -negative_log_density(y, model.predict_proba(X))


def _dependence(model: Any, rows: pd.DataFrame, column: pd.Series, is_number: bool) -> Dependence:
    """The partial dependence on a feature, between its 2nd and 98th percentile, or at its levels."""
    name, known = str(column.name), column.dropna()
    values = known.unique() if not is_number else np.unique(known.to_numpy(float))
    if is_number and len(values) > _VALUES:
        low, high = np.quantile(known.to_numpy(float), [0.02, 0.98])
        values = np.linspace(float(low), float(high), _VALUES)
    values = values[:_VALUES]
    found = partial_dependence(
        model,
        rows.astype({name: float}) if is_number else rows,
        [name],
        response_method="predict_proba",
        method="brute",
        categorical_features=None if is_number else [name],
        custom_values={name: values},
    )
    p = np.asarray(found["average"], float)
    return Dependence(name, list(values), is_number, p if len(p) > 1 else np.vstack([1 - p, p]))


def _plane(model: Any, table: pd.DataFrame) -> Plane:
    """Probabilities on a grid over two features, which are numbers."""
    axes = []
    for name in table.columns:
        low, high = float(table[name].min()), float(table[name].max())
        beyond = 0.05 * (high - low)
        axes.append(np.linspace(low - beyond, high + beyond, _GRID))
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    p = model.predict_proba(pd.DataFrame(grid, columns=table.columns))
    return Plane(axes[0], axes[1], p.reshape(_GRID, _GRID, -1))
