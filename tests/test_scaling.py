"""The warning about features on very different scales: where they ruin a fit, and only there."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_moons
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from postlin import ConvergenceWarning, GPClassifier

SAID = r"standard deviations from .* to .* and the kernel one length scale for all: on 200 rows"


def table(scales, n=200):
    """The last feature decides the class."""
    X = np.random.default_rng(0).standard_normal((n, 2))
    return X * scales, np.sin(3 * X[:, 1]) > 0


@pytest.mark.parametrize("how", [{}, {"inducing": 40, "random_state": 0}])
def test_scales_that_ruin_a_fit_are_reported(how):
    X, y = table([1000.0, 1.0])
    with pytest.warns(ConvergenceWarning, match=SAID):
        model = GPClassifier(**how).fit(X, y)
    scaled = make_pipeline(StandardScaler(), GPClassifier(**how)).fit(X, y)
    test, truth = table([1000.0, 1.0], 400)
    assert model.score(test[200:], truth[200:]) < 0.65 < 0.85 < scaled.score(test[200:], truth[200:])


def test_many_classes_are_looked_at_too():
    X, _ = table([1000.0, 1.0])
    with pytest.warns(ConvergenceWarning, match="StandardScaler in front"):
        GPClassifier().fit(X, np.digitize(X[:, 1], [-0.5, 0.5]))


def quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model.fit(X, y)


def test_scales_that_do_no_harm_are_not_reported():
    X, y = table([1.0, 1000.0])  # the feature that matters is the one of large numbers
    quiet(GPClassifier(), X, y)
    noise = np.random.default_rng(1).integers(0, 2, 200)
    quiet(
        GPClassifier(), table([1000.0, 1.0])[0], noise
    )  # nothing is lost where nothing can be learned
    X, y = table([1000.0, 1.0])
    quiet(GPClassifier(optimizer=None), X, y)
    quiet(GPClassifier(10.0 * RBF([1000.0, 1.0]) + WhiteKernel(0.1, "fixed")), X, y)


@pytest.mark.parametrize(
    "data", [load_iris(return_X_y=True), make_moons(80, noise=0.2, random_state=0)]
)
def test_features_of_like_scales_are_not_looked_at(data, monkeypatch):
    from postlin.estimator import scaling

    monkeypatch.setattr(scaling, "_evidence", None)
    quiet(GPClassifier(), *data)
    quiet(
        make_pipeline(StandardScaler(), GPClassifier()),
        data[0] * np.logspace(0, 5, data[0].shape[1]),
        data[1],
    )
