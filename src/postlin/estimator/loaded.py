"""A model from a file is checked: its parts belong together, and it predicts."""

import warnings
from dataclasses import replace
from typing import Any, cast

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.pipeline import Pipeline

from postlin.estimator.classifier import GPClassifier
from postlin.estimator.fits import Fit
from postlin.estimator.joint_fit import JointFit
from postlin.estimator.strategies import Joint, OneVsOne, OneVsRest, Strategy
from postlin.inference.result import Record
from postlin.kernels import kernels_of
from postlin.learning.hyperparameters import Hyperparameters
from postlin.likelihoods import BinaryLikelihood
from postlin.likelihoods.softmax import Softmax
from postlin.rules.sites import SiteRule
from postlin.rules.weights import Observations, Weights
from postlin.schedules import Schedule

#: A model makes predictions when it is loaded if its matrices have at most this many entries together,
#: 200 MB: that takes a second. Larger ones are known by the shapes and values of their arrays alone.
_ENTRIES = 5000**2
#: The number of rows that it predicts then.
_ROWS = 8
#: The largest whole number among the options of rules and likelihoods, which set numbers of nodes.
_MOST = 2**20
#: The largest site or weight: larger ones overflow at some rows and not at others.
_LARGEST = 1e100


def check_model(model: GPClassifier | Pipeline, features: int | None) -> None:
    """Raise an error unless a fitted model predicts; ``features`` as ``transformed`` returns it."""
    classifier = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if _reads_tables(model):
        from postlin.tables.preparation import check_preparation

        check_preparation(model)
    if features is not None:
        _require(transformed(model) == features, "its steps do not fit together")
    _check_labels(classifier)
    fits = classifier._decomposition.estimators_
    for fit in fits:
        _check_fit(fit, classifier)
    _check_observed(classifier)
    first: Any = fits[0]
    local = first.method == "local"
    entries = np.prod(first.near.rows.X.shape) if local else sum(fit.size**2 for fit in fits)
    if entries <= _ENTRIES or first.takes_passes:
        _predict(classifier)


def transformed(model: GPClassifier | Pipeline) -> int | None:
    """The number of features of a pipeline that turns zeros into rows of its classifier; else None."""
    if not isinstance(model, Pipeline):
        return None
    try:
        n = int(model.n_features_in_)
        with warnings.catch_warnings(action="ignore"):  # about names of features
            rows = np.asarray(model[:-1].transform(_blank(model, n)), float)
    except Exception:  # steps can be anything that takes other rows than numbers
        return None
    return n if rows.shape == (1, model[-1].n_features_in_) and np.isfinite(rows).all() else None


def _reads_tables(model: GPClassifier | Pipeline) -> bool:
    """Whether a pipeline begins with the steps of ``postlin.tables``, which need pandas."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    return type(first).__module__ == "postlin.tables.preparation"


def _blank(model: Pipeline, n: int) -> Any:
    """A row of zeros, or a row of a table in which every value is missing."""
    if not _reads_tables(model):
        return np.zeros((1, n))
    from postlin.tables.preparation import blank_row, columns_of

    columns = columns_of(model)
    assert columns is not None
    return blank_row(columns)


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _numbers(values: Any, shape: tuple[int, ...], what: str, most: float = np.inf) -> np.ndarray:
    """An array of finite numbers of this shape, of which none is larger than ``most``."""
    array = values if isinstance(values, np.ndarray) else np.empty(0, object)
    _require(array.dtype.kind in "biuf" and array.shape == shape, f"{what} has another shape or type")
    _require(np.isfinite(array).all() and (np.abs(array) <= most).all(), f"{what} is out of range")
    return array


def _check_labels(model: GPClassifier) -> None:
    """Check the labels, the strategy for them and the names of the features."""
    classes, strategy = model.classes_, model._decomposition
    _require(isinstance(classes, np.ndarray) and classes.ndim == 1, "its labels are no list")
    n = len(classes)
    _require(type(model.n_classes_) is int and n == model.n_classes_ > 1, "a label is missing")
    _require(np.array_equal(np.unique(classes), classes), "its labels are not sorted")
    _require(isinstance(strategy, Strategy) and strategy.n_classes == n, "a class is missing")
    known = {OneVsRest: n, OneVsOne: n * (n - 1) // 2, Joint: 1}
    fits = strategy.estimators_
    _require(isinstance(fits, list) and len(fits) == known[type(strategy)], "a problem is missing")
    _require(all(type(fit) is type(fits[0]) for fit in fits), "its problems are of different kinds")
    first = fits[0] if len(fits) == 1 else strategy
    _require(model.base_estimator_ is first, "its problems are mixed up")
    if takes_rows(model):
        d = model.n_features_in_
        names = getattr(model, "feature_names_in_", np.full(d, "", object))
        _require(type(d) is int and np.shape(names) == (d,), "the name of a feature is missing")
        _require(all(isinstance(name, str) for name in names), "the name of a feature is none")


def takes_rows(model: GPClassifier) -> bool:
    """Whether the kernel takes rows of numbers, whose features scikit-learn counts."""
    kernel = model._decomposition.estimators_[0].hyperparameters.kernel
    return bool(kernels_of(kernel)[0].requires_vector_input)


def _check_fit(fit: Fit, classifier: GPClassifier) -> None:
    """Check the parts of a fit."""
    _require(isinstance(fit, Fit) and isinstance(fit.name, str), "a problem is none")
    at, model = fit.hyperparameters, fit.model
    _require(isinstance(at, Hyperparameters) and isinstance(at.kernel, Kernel), "a kernel is none")
    _require(np.isfinite(at.theta).all(), "a hyperparameter is not finite")
    _require(
        isinstance(model.rule, SiteRule) and isinstance(model.schedule, Schedule), "a rule is none"
    )
    for part in (model.rule, at.likelihood):
        sizes = [value for value in vars(part).values() if isinstance(value, int)]
        _require(all(size <= _MOST for size in sizes), "an option is out of range")
    replace(cast(Any, model.rule))  # which checks the options of the rule
    _require(
        isinstance(fit.record, Record) and isinstance(fit.record.converged, bool), "a record is none"
    )
    if fit.curvature is not None:
        _numbers(fit.curvature, (len(at.theta),) * 2, "a curvature")
    _require(np.isfinite(float(fit.log_marginal_likelihood_value_)), "an evidence is not finite")
    shapes = _shapes(fit, classifier)
    _require(len(fit._kept) == len(shapes), "a site is missing")
    for values, shape in zip(fit._kept, shapes, strict=True):
        _numbers(values, shape, "a site", _LARGEST)


def _shapes(fit: Fit, classifier: GPClassifier) -> list[tuple[int, ...]]:
    """The shapes of the arrays from which a fit is restored; its model is checked."""
    model: Any = fit.model
    joint = isinstance(fit, JointFit)
    _require(
        isinstance(fit.likelihood_, Softmax if joint else BinaryLikelihood), "a likelihood is none"
    )
    if not joint:
        base = getattr(fit, "near").base if fit.method == "local" else model  # noqa: B009
        mean = base.prior_mean
        _require(type(mean) is float and np.isfinite(mean), "the prior mean is none")
    if fit.method == "local":
        return _check_near(fit, classifier)
    if fit.takes_passes:
        m = len(model.Z)
        _numbers(model.Z, (m, classifier.n_features_in_), "an inducing point")
        _numbers(np.array([model.jitter]), (1,), "the jitter")
        _require(type(fit.n_rows) is int, "the number of rows is none")
        return [(m, m), (m,)]
    n, d = len(model.y), classifier.n_classes_ - 1
    _require(len(model.X) == n == fit.n_rows, "a row is missing")
    if np.asarray(model.X).dtype.kind != "O":  # which kernels on other objects than rows have
        features = (classifier.n_features_in_,) if takes_rows(classifier) else np.shape(model.X)[1:]
        _numbers(model.X, (n, *features), "a row")
    signs = _numbers(model.y, (n,), "a label")
    _require(np.isin(signs, np.arange(d + 1) if joint else (-1, 1)).all(), "a label is none")
    _check_weights(model.weight if joint else model.weights, n)
    if not joint:
        _require(isinstance(model.corrected, bool), "a setting is none")
        if model.corrected:
            model.rule.check_correction(fit.likelihood_)
            model.weights.check_correction()
    return [(n, d, d), (n, d)] if joint else [(n,), (n,)]


def _check_near(fit: Any, classifier: GPClassifier) -> list[tuple[int, ...]]:
    """Check what the problems of a fit with neighbours share; no sites are kept."""
    near, d, C = fit.near, classifier.n_features_in_, classifier.n_classes_
    problems = len(classifier._decomposition.estimators_)
    rows, n = near.rows, fit.n_rows
    _require(type(n) is int and len(rows.code) == n and rows.X.shape == (n, d), "a row is missing")
    if isinstance(rows.X, np.ndarray):
        _numbers(rows.X, (n, d), "a row")
    _require(np.isin(_numbers(rows.code, (n,), "a class"), np.arange(C)).all(), "a class is none")
    _check_weights(rows.weight, n)
    _require(type(near.k) is int and 2 <= near.k <= n, "the number of neighbours is none")
    _require(type(near.total) is int and near.k <= near.total <= 4 * near.k, "the reach is none")
    _require(type(fit.number) is int and 0 <= fit.number < problems, "a problem is none")
    _require(np.isin(_numbers(near.base.signs, (problems, C), "a label"), (-1, 0, 1)).all(), "a label")
    _require(near.at is fit.hyperparameters, "a kernel is mixed up")
    if near.whole is not None:
        whole, m = near.whole, len(near.whole.Z)
        _numbers(whole.Z, (m, d), "an inducing point")
        _require(len(whole.states) == problems, "a state is missing")
        for B, b in whole.states:
            _numbers(B, (m, m), "a state", _LARGEST)
            _numbers(b, (m,), "a state", _LARGEST)
        if whole.members is not None:
            members = _numbers(whole.members, np.shape(whole.members), "a row")
            _require(((members >= 0) & (members < n)).all(), "a row is missing")
    return [(0,), (0,)]


def _check_weights(weights: Any, n: int) -> None:
    """Check the weights of n rows."""
    if isinstance(weights, Observations):
        _require(0.0 <= float(weights.noise) < np.inf, "a noise is out of range")
        weights = weights.weight
    elif isinstance(weights, Weights):
        return
    _require(
        weights is None or (_numbers(weights, (n,), "a weight", _LARGEST) >= 0).all(),
        "a weight is negative",
    )


def _check_observed(classifier: GPClassifier) -> None:
    """Check which rows were used, their classes and their weights."""
    observed, fits = classifier._observed, classifier._decomposition.estimators_
    _require((observed is None) == fits[0].takes_passes, "the rows are missing")
    if observed is None:
        return
    kept, codes, weight = observed
    n = len(kept)
    _require(_numbers(kept, (n,), "a row").dtype.kind in "iu", "a row is none")
    _require(
        np.isin(_numbers(codes, (n,), "a class"), np.arange(classifier.n_classes_)).all(), "a class"
    )
    _check_weights(weight, n)
    for fit in fits:
        rows = _numbers(np.asarray(fit.rows), (fit.n_rows,), "a row")
        _require(np.isin(rows, np.arange(n)).all(), "a row is missing")


def _predict(classifier: GPClassifier) -> None:
    """Predict some rows."""
    strategy = classifier._decomposition
    first: Any = strategy.estimators_[0]
    known = first.inducing_points_ if first.takes_passes else first.X_train_
    with warnings.catch_warnings(action="ignore"):
        p, best = strategy.predict_proba(known[:_ROWS]), strategy.predict(known[:_ROWS])
    _require(p.shape == (len(best), classifier.n_classes_), "a probability is missing")
    _require(np.allclose(p.sum(axis=1), 1.0, rtol=0.0, atol=1e-6), "probabilities do not sum to one")
    _require((p >= 0).all() and len(classifier.classes_[best]) == len(p), "a probability is negative")
