"""The plane of two features: its grid, what is computed on it, and the panels that show it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from postlin._typing import Array
from postlin.estimator.classifier import GPClassifier
from postlin.plotting.common import pyplot

RESPONSES = ("probability", "latent_std")


def checked(response: str | Sequence[str] | None, model: GPClassifier) -> tuple[str, ...]:
    """The panels wanted, checked."""
    many = model.n_classes_ > 2
    if response is None:
        return RESPONSES[:1] if many else RESPONSES
    wanted = (response,) if isinstance(response, str) else tuple(response)
    if not wanted or set(wanted) - set(RESPONSES):
        names = " or ".join(map(repr, RESPONSES))
        raise ValueError(f"response must be {names} or both, got {response!r}.")
    if many and "latent_std" in wanted:
        raise ValueError(
            f"latent_std is shown for two classes: of {model.n_classes_} every problem or class "
            "has its own."
        )
    return wanted


def axis(column: Array, margin: float, n: int) -> Array:
    """Evenly spaced values a margin beyond those of the column."""
    low, high = float(column.min()), float(column.max())
    beyond = margin * (high - low or 1.0)
    return np.linspace(low - beyond, high + beyond, n)


def all_points(axis0: Array, axis1: Array, estimator: Any) -> Any:
    """All points; with column names where the estimator was fitted to a data frame."""
    points = np.stack(np.meshgrid(axis0, axis1), axis=-1).reshape(-1, 2)
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return points
    from pandas import DataFrame

    return DataFrame(points, columns=names)


def _probability(estimator: Any, model: GPClassifier, grid: Any) -> Array:
    p: Array = estimator.predict_proba(grid)
    return p


def _std(estimator: Any, model: GPClassifier, grid: Any) -> Array:
    rows = estimator[:-1].transform(grid) if isinstance(estimator, Pipeline) else grid
    return np.sqrt(model.latent_mean_and_variance(rows).variance)


COMPUTE: dict[str, Callable[[Any, GPClassifier, Any], Array]] = {
    "probability": _probability,
    "latent_std": _std,
}
#: The shape of a response beyond the two of the grid.
REST: dict[str, tuple[int, ...]] = {"probability": (-1,), "latent_std": ()}


def panels_for(ax: Any, n: int, height: float) -> list[Any]:
    """As many axes as there are panels: new ones, so high, those given, or the one given divided."""
    if ax is None:
        figure = pyplot().figure(figsize=(5.0 * n, height), layout="constrained")
        return list(figure.subplots(1, n, squeeze=False)[0])
    given = list(np.ravel(np.asarray(ax, object)))
    if len(given) == n:
        return given
    place = given[0].get_subplotspec() if len(given) == 1 else None
    if place is None:
        raise ValueError(f"ax must be {n} axes, one for every response, got {len(given)}.")
    given[0].set_axis_off()
    figure = given[0].figure
    return [figure.add_subplot(part) for part in place.subgridspec(1, n)]
