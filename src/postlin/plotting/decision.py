"""What a classifier of two features says, everywhere in their plane."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.pipeline import Pipeline

from postlin._typing import Array
from postlin.plotting.common import (
    COLOURS,
    INK,
    Display,
    classifier_of,
    legend_above,
    legend_height,
    look,
    readable,
    training_labels,
)
from postlin.plotting.plane import COMPUTE, REST, all_points, axis, checked, panels_for


class DecisionDisplay(Display):
    """Probabilities over two features, and the latent standard deviation beside them.

    Parameters
    ----------
    axis0, axis1 : arrays, values of the first and of the second feature
    responses : dict of "probability", an array (len(axis1), len(axis0), classes), and of "latent_std",
        an array (len(axis1), len(axis0)); a panel for each
    classes : the labels
    X, y : rows to draw on top, and their labels (None: unknown)
    names : of the two features

    """

    def __init__(
        self,
        axis0: Array,
        axis1: Array,
        responses: dict[str, Array],
        classes: np.ndarray,
        *,
        X: Array | None = None,
        y: np.ndarray | None = None,
        names: Sequence[str] = ("x0", "x1"),
    ) -> None:
        self.axis0, self.axis1 = axis0, axis1
        self.responses = responses
        self.classes = classes
        self.X, self.y = X, y
        self.names = list(names)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        response: str | Sequence[str] | None = None,
        grid_resolution: int = 100,
        margin: float = 0.1,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """From a fit with two features, or a pipeline that ends in one.

        ``X`` and ``y`` are the rows shown: those learned from if not given, which a pipeline does not
        keep. ``response`` is "probability", "latent_std" or both, the default for two classes.
        ``margin`` is what the picture shows beyond the rows, in parts of their range.
        """
        model = classifier_of(estimator)
        wanted = checked(response, model)
        n_features = getattr(estimator, "n_features_in_", model.n_features_in_)
        if n_features != 2:
            raise ValueError(
                f"DecisionDisplay shows two features and the estimator has {n_features}: fit it to two "
                "columns."
            )
        if X is None:
            if isinstance(estimator, Pipeline):
                raise ValueError(
                    "a pipeline does not keep the rows that it was fitted to: give X and y."
                )
            if model._estimators[0].takes_passes:
                raise ValueError(
                    "a fit with inducing points does not keep the rows that it was fitted to: give X "
                    "and y."
                )
            X, y = model._all_rows(), training_labels(model)
        rows = np.asarray(X, float)
        names = getattr(estimator, "feature_names_in_", getattr(X, "columns", ("x0", "x1")))
        axis0, axis1 = (axis(column, margin, grid_resolution) for column in rows.T)
        grid = all_points(axis0, axis1, estimator)
        shape = len(axis1), len(axis0)
        computed = {
            name: COMPUTE[name](estimator, model, grid).reshape(*shape, *REST[name]) for name in wanted
        }
        display = cls(
            axis0,
            axis1,
            computed,
            model.classes_,
            X=rows,
            y=None if y is None else np.asarray(y),
            names=[str(name) for name in names],
        )
        return display.plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw; further arguments go to the filled contours.

        ``ax`` is one axes, which is divided where there are two panels, or one for each. ``ax_`` is
        one, or an array of them.
        """
        height = 4.0 + legend_height([readable(label) for label in self.classes])
        panels = panels_for(ax, len(self.responses), height)
        self.figure_ = panels[0].figure
        self.ax_ = panels[0] if len(panels) == 1 else np.array(panels)
        self.surfaces_: dict[str, Any] = {}
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
            legend_above(panels[0])
        return self

    def _two_classes(self, ax: Any, p: Array, kwargs: dict[str, Any]) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        colours = LinearSegmentedColormap.from_list("classes", [COLOURS[0], "white", COLOURS[1]])
        style = {"levels": np.linspace(0, 1, 11), "cmap": colours, "alpha": 0.75} | kwargs
        filled = self.surfaces_["probability"] = ax.contourf(self.axis0, self.axis1, p, **style)
        self._bar(ax, filled, f"probability of {readable(self.classes[1])}", [0, 0.2, 0.4, 0.6, 0.8, 1])
        self._boundary(ax, p - 0.5)

    def _latent_std(self, ax: Any, std: Array, kwargs: dict[str, Any]) -> None:
        style = {"levels": 10, "cmap": "Greys", "alpha": 0.85} | kwargs
        filled = self.surfaces_["latent_std"] = ax.contourf(self.axis0, self.axis1, std, **style)
        self._bar(ax, filled, "latent standard deviation", None)
        if "probability" in self.responses:
            self._boundary(ax, self.responses["probability"][..., 1] - 0.5)

    def _many_classes(self, ax: Any, p: Array, kwargs: dict[str, Any]) -> None:
        """The colour of the winning class, the paler the less probable it is."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb

        n = len(self.classes)
        rgb = np.array([to_rgb(look(k).colour) for k in range(n)])
        strength = 0.1 + 0.65 * (np.max(p, axis=2, keepdims=True) - 1 / n) / (1 - 1 / n)
        shaded = 1 + strength * (rgb[np.argmax(p, axis=2)] - 1)
        step0, step1 = self.axis0[1] - self.axis0[0], self.axis1[1] - self.axis1[0]
        extent = (
            self.axis0[0] - step0 / 2,
            self.axis0[-1] + step0 / 2,
            self.axis1[0] - step1 / 2,
            self.axis1[-1] + step1 / 2,
        )
        style = {"extent": extent, "origin": "lower", "aspect": "auto", "interpolation": "bilinear"}
        self.surfaces_["probability"] = ax.imshow(shaded, **(style | kwargs))
        greys = LinearSegmentedColormap.from_list("strength", [(0.95,) * 3, (0.45,) * 3])
        scale = ScalarMappable(Normalize(1 / n, 1), greys)
        self._bar(ax, scale, "probability of the winning class", None)
        for k in range(n):
            others = np.max(np.delete(p, k, axis=2), axis=2)
            self._boundary(ax, p[..., k] - others)

    def _boundary(self, ax: Any, difference: Array) -> None:
        """Where two classes are equally probable, if anywhere in the picture."""
        if difference.min() < 0 < difference.max():
            ax.contour(self.axis0, self.axis1, difference, levels=[0], colors=[INK], linewidths=1.3)

    def _bar(self, ax: Any, surface: Any, label: str, ticks: Any) -> None:
        ax.figure.colorbar(surface, ax=ax, label=label, ticks=ticks, pad=0.02, aspect=28)

    def _points(self, ax: Any) -> None:
        if self.X is None:
            return
        style: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5, "zorder": 3}
        if self.y is None:
            ax.scatter(*self.X.T, color=INK, s=28, **style)
            return
        for k, label in enumerate(self.classes):
            colour, marker, size = look(k)
            rows, name = self.X[self.y == label], readable(label)
            ax.scatter(*rows.T, s=28 * size, color=colour, marker=marker, label=name, **style)
