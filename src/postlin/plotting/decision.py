"""What a classifier of two features predicts, everywhere in their plane."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.pipeline import Pipeline

from postlin._typing import Array
from postlin.estimator.classifier import GPClassifier
from postlin.plotting import common
from postlin.plotting.common import COLOURS, INK, Display, Fitted, Style, look, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from pandas import DataFrame

    AxesOrPanels = Axes | Sequence[Axes] | np.ndarray | None

_RESPONSES = ("probability", "latent_std")


@dataclass(eq=False, repr=False)
class DecisionDisplay(Display):
    """Probabilities over two features, and the latent standard deviation beside them.

    Parameters
    ----------
    axis0, axis1 : arrays, values of the first and of the second feature
    responses : dict of "probability", an array (len(axis1), len(axis0), classes), and of "latent_std",
        an array (len(axis1), len(axis0)); each has a panel
    classes : the labels
    X, y : rows to draw on top, and their labels (None: unknown)
    names : the names of the two features

    """

    axis0: Array
    axis1: Array
    responses: dict[str, Array]
    classes: np.ndarray
    _: KW_ONLY
    X: Array | None = None
    y: np.ndarray | None = None
    names: Sequence[str] = ("x0", "x1")

    @classmethod
    def from_estimator(
        cls,
        estimator: Fitted,
        X: object = None,
        y: object = None,
        *,
        response: str | Sequence[str] | None = None,
        grid_resolution: int = 100,
        margin: float = 0.1,
        ax: AxesOrPanels = None,
        **kwargs: object,
    ) -> Self:
        """Draw the predictions of a fit to two features, or of a pipeline that ends in one.

        ``X`` and ``y`` are the rows to draw: by default the training rows, which a pipeline does not
        keep. ``response`` is "probability", "latent_std" or both, the default for two classes.
        ``margin`` is how far the picture reaches beyond the rows, as a fraction of their range.
        """
        model = common.classifier_of(estimator)
        wanted = _checked(response, model)
        n_features = getattr(estimator, "n_features_in_", model.n_features_in_)
        if n_features != 2:
            raise ValueError(
                f"DecisionDisplay shows two features and the estimator has {n_features}: fit it to two "
                "columns."
            )
        if X is None:
            X, y = _training_rows(estimator, model)
        names = getattr(estimator, "feature_names_in_", getattr(X, "columns", ("x0", "x1")))
        rows = np.asarray(X, float)
        axis0, axis1 = (_axis(column, margin, grid_resolution) for column in rows.T)
        responses = _responses(estimator, wanted, axis0, axis1)
        labels = None if y is None else np.asarray(y)
        display = cls(
            axis0, axis1, responses, model.classes_, X=rows, y=labels, names=[*map(str, names)]
        )
        return display.plot(ax, **kwargs)

    def plot(self, ax: AxesOrPanels = None, **kwargs: object) -> Self:
        """Draw; further arguments go to the filled contours.

        ``ax`` is one axes, which is divided if there are two panels, or one axes for each panel.
        ``ax_`` is one axes, or an array of them.
        """
        height = 4.0 + common.legend_height([readable(label) for label in self.classes])
        panels = _panels(ax, len(self.responses), height)
        self.figure_ = panels[0].figure
        self.ax_: Axes | np.ndarray = panels[0] if len(panels) == 1 else np.array(panels)
        self.surfaces_: dict[str, ScalarMappable] = {}
        for panel, (name, values) in zip(panels, self.responses.items(), strict=True):
            if name == "latent_std":
                self._latent_std(panel, values, kwargs)
            elif len(self.classes) == 2:
                self._two_classes(panel, values[..., 1], kwargs)
            else:
                self._many_classes(panel, values, kwargs)
            self._points(panel)
            panel.set(xlim=self.axis0[[0, -1]], ylim=self.axis1[[0, -1]])
            panel.set(xlabel=readable(self.names[0]), ylabel=readable(self.names[1]))
        if self.X is not None and self.y is not None:
            common.legend_above(panels[0])
        return self

    def _two_classes(self, ax: Axes, p: Array, kwargs: Style) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        colours = LinearSegmentedColormap.from_list("classes", [COLOURS[0], "white", COLOURS[1]])
        style: Style = {"levels": np.linspace(0, 1, 11), "cmap": colours, "alpha": 0.75} | kwargs
        filled = self.surfaces_["probability"] = ax.contourf(self.axis0, self.axis1, p, **style)
        _bar(ax, filled, f"probability of {readable(self.classes[1])}", [0, 0.2, 0.4, 0.6, 0.8, 1])
        self._boundary(ax, p - 0.5)

    def _latent_std(self, ax: Axes, std: Array, kwargs: Style) -> None:
        style: Style = {"levels": 10, "cmap": "Greys", "alpha": 0.85} | kwargs
        filled = self.surfaces_["latent_std"] = ax.contourf(self.axis0, self.axis1, std, **style)
        _bar(ax, filled, "latent standard deviation")
        if "probability" in self.responses:
            self._boundary(ax, self.responses["probability"][..., 1] - 0.5)

    def _many_classes(self, ax: Axes, p: Array, kwargs: Style) -> None:
        """Draw the colour of the most probable class, the paler the less probable it is."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb

        n = len(self.classes)
        rgb = np.array([to_rgb(look(k).colour) for k in range(n)])
        strength = 0.1 + 0.65 * (np.max(p, axis=2, keepdims=True) - 1 / n) / (1 - 1 / n)
        shaded = 1 + strength * (rgb[np.argmax(p, axis=2)] - 1)
        half_a_step = np.array([-0.5, 0.5])
        ends = [a[[0, -1]] + (a[1] - a[0]) * half_a_step for a in (self.axis0, self.axis1)]
        style: Style = {"origin": "lower", "aspect": "auto", "interpolation": "bilinear"}
        style |= {"extent": np.ravel(ends)} | kwargs
        self.surfaces_["probability"] = ax.imshow(shaded, **style)
        greys = LinearSegmentedColormap.from_list("strength", [(0.95,) * 3, (0.45,) * 3])
        _bar(ax, ScalarMappable(Normalize(1 / n, 1), greys), "probability of the winning class")
        for k in range(n):
            others = np.max(np.delete(p, k, axis=2), axis=2)
            self._boundary(ax, p[..., k] - others)

    def _boundary(self, ax: Axes, difference: Array) -> None:
        """Draw the line where two classes are equally probable, if the picture has one."""
        if difference.min() < 0 < difference.max():
            ax.contour(self.axis0, self.axis1, difference, levels=[0], colors=[INK], linewidths=1.3)

    def _points(self, ax: Axes) -> None:
        if self.X is None:
            return
        style: Style = {"edgecolors": "white", "linewidths": 0.5, "zorder": 3}
        if self.y is None:
            ax.scatter(self.X[:, 0], self.X[:, 1], 28, color=INK, **style)
            return
        for k, label in enumerate(self.classes):
            colour, marker, size, _ = look(k)
            rows, name = self.X[self.y == label], readable(label)
            style |= {"color": colour, "marker": marker, "label": name}
            ax.scatter(rows[:, 0], rows[:, 1], 28 * size, **style)


def _bar(ax: Axes, surface: ScalarMappable, label: str, ticks: Iterable[float] | None = None) -> None:
    ax.figure.colorbar(surface, ax=ax, label=label, ticks=ticks, pad=0.02, aspect=28)


def _checked(response: str | Sequence[str] | None, model: GPClassifier) -> tuple[str, ...]:
    """Return the responses to draw, or raise an error if the model does not have them."""
    many = model.n_classes_ > 2
    if response is None:
        return _RESPONSES[:1] if many else _RESPONSES
    wanted = (response,) if isinstance(response, str) else tuple(response)
    if not wanted or set(wanted) - set(_RESPONSES):
        names = " or ".join(map(repr, _RESPONSES))
        raise ValueError(f"response must be {names} or both, got {response!r}.")
    if many and "latent_std" in wanted:
        raise ValueError(
            f"latent_std is shown for two classes: with {model.n_classes_} every problem or "
            "class has its own."
        )
    return wanted


def _training_rows(estimator: Fitted, model: GPClassifier) -> tuple[Array, np.ndarray]:
    if isinstance(estimator, Pipeline):
        raise ValueError("a pipeline does not keep the rows that it was fitted to: give X and y.")
    if model._estimators[0].takes_passes:
        raise ValueError(
            "a fit with inducing points does not keep the rows that it was fitted to: give X and y."
        )
    return model._all_rows(), common.training_labels(model)


def _axis(column: Array, margin: float, n: int) -> Array:
    """Return ``n`` evenly spaced values that reach a margin beyond those of the column."""
    low, high = float(column.min()), float(column.max())
    beyond = margin * (high - low or 1.0)
    return np.linspace(low - beyond, high + beyond, n)


def _responses(
    estimator: Fitted, wanted: tuple[str, ...], axis0: Array, axis1: Array
) -> dict[str, Array]:
    """Return each wanted response on the grid, with column names if a data frame was fitted."""
    shape = len(axis1), len(axis0)
    grid: Array | DataFrame = np.stack(np.meshgrid(axis0, axis1), axis=-1).reshape(-1, 2)
    if hasattr(estimator, "feature_names_in_"):
        from pandas import DataFrame

        grid = DataFrame(grid, columns=estimator.feature_names_in_)
    found = {}
    for name in wanted:
        if name == "probability":
            found[name] = estimator.predict_proba(grid).reshape(*shape, -1)
        else:
            rows = estimator[:-1].transform(grid) if isinstance(estimator, Pipeline) else grid
            variance = common.classifier_of(estimator).latent_mean_and_variance(rows).variance
            found[name] = np.sqrt(variance).reshape(shape)
    return found


def _panels(ax: AxesOrPanels, n: int, height: float) -> list[Axes]:
    """Return ``n`` axes: new ones of this height, those given, or the single one given, divided."""
    if ax is None:
        figure = common.pyplot().figure(figsize=(5.0 * n, height), layout="constrained")
        return list(figure.subplots(1, n, squeeze=False)[0])
    given: list[Axes] = list(np.ravel(np.asarray(ax, object)))
    if len(given) == n:
        return given
    place = given[0].get_subplotspec() if len(given) == 1 else None
    if place is None:
        raise ValueError(f"ax must be {n} axes, one for every response, got {len(given)}.")
    given[0].set_axis_off()
    parts = place.subgridspec(1, n)
    return [given[0].figure.add_subplot(parts[0, k]) for k in range(n)]
