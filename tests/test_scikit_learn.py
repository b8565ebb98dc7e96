"""Beside scikit-learn's own class, and inside everything of scikit-learn that takes a classifier."""

import copy
import inspect
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import (
    RBF,
    GenericKernelMixin,
    Hyperparameter,
    Kernel,
    Matern,
    StationaryKernelMixin,
    WhiteKernel,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from postlin import GPClassifier

STRATEGIES = ("one_vs_rest", "one_vs_one")

#: Everything that scikit-learn's class offers, as a user would write it. ``seen`` collects answers.
SCRIPT = """
import numpy as np
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, WhiteKernel

X, y = load_iris(return_X_y=True)
X, two = X[::3, :2], y[::3] > 0

model = GaussianProcessClassifier(
    kernel=1.0 * RBF(1.0) + WhiteKernel(0.1, "fixed"), optimizer="fmin_l_bfgs_b",
    n_restarts_optimizer=1, max_iter_predict=80, warm_start=False, copy_X_train=True,
    random_state=0, multi_class="one_vs_rest", n_jobs=1,
)
seen["repr"] = repr(model)
seen["fit returns itself"] = model.fit(X, two) is model
seen["predict"] = model.predict(X)
seen["predict_proba"] = model.predict_proba(X)
seen["score"] = model.score(X, two)
seen["score, weighted"] = model.score(X, two, sample_weight=np.arange(len(two)))
seen["kernel_"] = model.kernel_.theta
seen["base_estimator_"] = model.base_estimator_.kernel_.theta
seen["base evidence"] = model.base_estimator_.log_marginal_likelihood_value_
seen["base training data"] = model.base_estimator_.X_train_
seen["classes_"], seen["n_classes_"] = model.classes_, model.n_classes_
seen["n_features_in_"] = model.n_features_in_
seen["evidence"] = model.log_marginal_likelihood()
seen["evidence again"] = model.log_marginal_likelihood_value_
seen["latent"] = model.latent_mean_and_variance(X)[0]
mean, variance = model.latent_mean_and_variance(X[:3])
seen["latent variance"] = variance
theta = np.array([0.5, 0.1])
seen["at theta"] = model.log_marginal_likelihood(theta)
value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
seen["value"], seen["gradient"] = value, gradient
model.log_marginal_likelihood(theta, clone_kernel=False)
seen["written"] = model.kernel_.theta
seen["parameters"] = model.get_params()["multi_class"]
seen["nested"] = model.get_params()["kernel__k1__k1__constant_value"]
seen["set_params"] = model.set_params(n_restarts_optimizer=0, kernel__k1__k2__length_scale=2.0) is model
seen["set_score_request"] = hasattr(type(model), "set_score_request")
seen["get_metadata_routing"] = type(model.get_metadata_routing()).__name__
seen["tags"] = model.__sklearn_tags__().estimator_type

frame = __import__("pandas").DataFrame(X, columns=["length", "width"])
seen["feature_names_in_"] = model.fit(frame, two).feature_names_in_

for multi_class in ("one_vs_rest", "one_vs_one"):
    for n_jobs in (None, 2):
        many = GaussianProcessClassifier(1.0 * RBF(1.0), multi_class=multi_class, n_jobs=n_jobs)
        many.fit(X, y[::3])
        key = multi_class, n_jobs
        seen[key, "predict"] = many.predict(X)
        seen[key, "score"] = many.score(X, y[::3])
        seen[key, "kernels"] = len(many.kernel_.kernels)
        seen[key, "kernel_"] = type(many.kernel_).__name__
        seen[key, "theta"] = many.kernel_.theta
        seen[key, "estimators_"] = len(many.base_estimator_.estimators_)
        seen[key, "evidence"] = many.log_marginal_likelihood()
        seen[key, "evidence of one theta"] = many.log_marginal_likelihood(np.array([0.5, 0.1]))
        seen[key, "evidence of all"] = many.log_marginal_likelihood(many.kernel_.theta)
        if multi_class == "one_vs_rest":
            seen[key, "predict_proba"] = many.predict_proba(X)


def optimizer(obj_func, initial_theta, bounds):
    value, gradient = obj_func(initial_theta)
    assert gradient.shape == initial_theta.shape and bounds.shape == (len(initial_theta), 2)
    assert np.isclose(obj_func(initial_theta, eval_gradient=False), value)
    return initial_theta, value


for chosen in (optimizer, None, "fmin_l_bfgs_b"):
    other = GaussianProcessClassifier(1.0 * RBF(1.0), optimizer=chosen, warm_start=True)
    other.fit(X, two).fit(X, two)
    seen[str(type(chosen))] = other.kernel_.theta

reference = np.ascontiguousarray(X)
held = GaussianProcessClassifier(1.0 * RBF(1.0), optimizer=None, copy_X_train=False).fit(reference, two)
seen["no copy"] = held.base_estimator_.X_train_ is reference
seen["default kernel"] = GaussianProcessClassifier(optimizer=None).fit(X, two).predict(X)
seen["default kernel, positional"] = GaussianProcessClassifier(RBF(2.0)).get_params()["kernel"].theta

for wrong in (
    lambda: GaussianProcessClassifier(CompoundKernel([RBF(), RBF()])).fit(X, two),
    lambda: GaussianProcessClassifier().fit(X, np.zeros(len(X))),
    lambda: GaussianProcessClassifier().fit(X[:3], two),
    lambda: GaussianProcessClassifier(optimizer="magic").fit(X, two),
    lambda: GaussianProcessClassifier(multi_class="softmax").fit(X, two),
    lambda: GaussianProcessClassifier(n_restarts_optimizer=-1).fit(X, two),
    lambda: GaussianProcessClassifier(max_iter_predict=0).fit(X, two),
    lambda: GaussianProcessClassifier().predict(X),
    lambda: GaussianProcessClassifier().log_marginal_likelihood(),
    lambda: GaussianProcessClassifier().predict_proba(X),
    lambda: GaussianProcessClassifier(colour="red"),
    lambda: model.predict(X[:, :1]),
    lambda: many.log_marginal_likelihood(np.zeros(5)),
):
    try:
        wrong()
        seen.setdefault("refused", []).append(None)
    except Exception as error:
        seen.setdefault("refused", []).append(type(error))
"""


#: What must be the same to the letter; values of probabilities and evidences need not be.
SAME = (
    "classes_", "n_classes_", "n_features_in_", "feature_names_in_", "parameters", "nested", "tags",
    "set_params", "set_score_request", "get_metadata_routing", "written", "no copy",
    "fit returns itself", "base training data", "default kernel, positional",
)  # fmt: skip


@pytest.fixture(scope="module")
def both():
    """The answers of either class."""
    theirs, ours = {}, {}
    with warnings.catch_warnings():  # of parameters at their bounds
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        exec(SCRIPT, {"GaussianProcessClassifier": GaussianProcessClassifier, "seen": theirs})
        exec(SCRIPT, {"GaussianProcessClassifier": GPClassifier, "seen": ours})
    return theirs, ours


def test_a_script_for_scikit_learn_runs_unchanged(both):
    theirs, ours = both
    assert ours.keys() == theirs.keys()
    for key, wanted in theirs.items():
        assert np.shape(ours[key]) == np.shape(wanted), key
        if isinstance(wanted, np.ndarray):
            assert isinstance(ours[key], np.ndarray), key
            assert ours[key].dtype.kind == wanted.dtype.kind, key
        elif isinstance(wanted, float):  # NumPy's included
            assert isinstance(ours[key], float), key
        else:
            assert type(ours[key]) is type(wanted), key


def test_its_answers_are_those_of_scikit_learn_where_they_can_be(both):
    theirs, ours = both
    counted = [key for key in theirs if key[1] in ("kernels", "kernel_", "estimators_")]
    assert len(counted) == 12
    for key in (*SAME, *counted):
        np.testing.assert_array_equal(ours[key], theirs[key], err_msg=str(key))
    for key in ("predict_proba", (("one_vs_rest", None), "predict_proba")):
        assert np.abs(ours[key] - theirs[key]).max() < 0.35  # another likelihood, a better integral
        np.testing.assert_allclose(ours[key].sum(axis=1), 1.0, atol=1e-12)
    agreed = [
        np.mean(ours[(kind, None), "predict"] == theirs[(kind, None), "predict"]) for kind in STRATEGIES
    ]
    assert min(agreed) > 0.8


def test_it_refuses_what_scikit_learn_refuses(both):
    theirs, ours = (seen["refused"] for seen in both)
    assert len(ours) == 13
    for here, there in zip(ours, theirs, strict=True):
        kind = next(e for e in (NotFittedError, ValueError, TypeError) if issubclass(there, e))
        assert issubclass(here, kind)


def test_every_public_name_of_theirs_is_ours():
    signature, theirs = (
        inspect.signature(c).parameters for c in (GPClassifier, GaussianProcessClassifier)
    )
    for name, parameter in theirs.items():
        assert name in signature, name
        assert signature[name].kind == parameter.kind
        if name != "optimizer":  # ours has a faster one
            assert signature[name].default == parameter.default, name
    for name in dir(GaussianProcessClassifier):
        if not name.startswith("_"):
            assert hasattr(GPClassifier, name), name
            method = getattr(GaussianProcessClassifier, name)
            if inspect.isfunction(method):
                wanted = list(inspect.signature(method).parameters)
                have = list(inspect.signature(getattr(GPClassifier, name)).parameters)
                assert have[: len(wanted)] == wanted, name


def numeric(name):
    if name == "iris":
        X, y = load_iris(return_X_y=True)
        X, y = X[50:], y[50:]
    elif name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
        X, y = X[:150], y[:150]
    else:
        rng = np.random.default_rng(0)
        X = rng.uniform(-3, 3, size=(90, 2))
        y = np.sin(X[:, 0]) + 0.4 * rng.standard_normal(90) > 0.3 * X[:, 1]
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("name", ["iris", "breast cancer", "waves"])
@pytest.mark.parametrize(
    "kernel",
    [4.0 * RBF(1.5), 9.0 * Matern(3.0, nu=2.5) + WhiteKernel(0.2), 0.5 * RBF(0.5)],
    ids=["rbf", "matern", "short"],
)
def test_laplace_with_the_logit_is_theirs(name, kernel):
    """scikit-learn stops Newton at a gain of 1e-10, so its mode is good to about 1e-5."""
    X, y = numeric(name)
    train, test = slice(0, None, 2), slice(1, None, 2)
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(X[train], y[train])
    ours = GPClassifier(kernel, likelihood="logit", inference="laplace", optimizer=None)
    ours.fit(X[train], y[train])
    assert ours.log_marginal_likelihood_value_ == pytest.approx(
        theirs.log_marginal_likelihood_value_, abs=1e-6
    )
    for shift in (0.0, 0.4):
        value, gradient = ours.log_marginal_likelihood(kernel.theta + shift, eval_gradient=True)
        wanted, slope = theirs.log_marginal_likelihood(kernel.theta + shift, eval_gradient=True)
        assert value == pytest.approx(wanted, abs=1e-6)
        np.testing.assert_allclose(gradient, slope, atol=1e-4)
    for found, wanted in zip(
        ours.latent_mean_and_variance(X[test]), theirs.latent_mean_and_variance(X[test]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    # theirs approximates the integral of the logistic function; ours does not
    p, q = ours.predict_proba(X[test]), theirs.predict_proba(X[test])
    assert np.abs(p - q).max() < 0.01
    np.testing.assert_array_equal(ours.predict(X[test]), theirs.predict(X[test]))
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    mean, variance = ours.latent_mean_and_variance(X[test])
    exact = expit(mean[:, None] + np.sqrt(variance)[:, None] * nodes) @ weights / weights.sum()
    np.testing.assert_allclose(p[:, 1], exact, atol=1e-6)


def test_laplace_with_the_logit_learns_what_theirs_learns():
    X, y = numeric("waves")
    kernel = 4.0 * RBF(1.5)
    theirs = GaussianProcessClassifier(kernel).fit(X, y)
    ours = GPClassifier(kernel, likelihood="logit", inference="laplace").fit(X, y)
    assert ours.log_marginal_likelihood_value_ == pytest.approx(
        theirs.log_marginal_likelihood_value_, abs=1e-4
    )
    np.testing.assert_allclose(ours.kernel_.theta, theirs.kernel_.theta, atol=0.02)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:60]
    return X[order], y[order]


QUICK = 4.0 * RBF(1.5) + WhiteKernel(0.1, "fixed")


def test_grid_search_over_kernels_and_strategies(iris):
    model = Pipeline([("scale", StandardScaler()), ("gp", GPClassifier(QUICK, optimizer=None))])
    grid = {"gp__kernel": [QUICK, 2.0 * Matern(1.0)], "gp__multi_class": STRATEGIES}
    search = GridSearchCV(model, grid, cv=3, scoring="neg_log_loss").fit(*iris)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict_proba(iris[0]).shape == (60, 3)
    nested = GridSearchCV(
        GPClassifier(QUICK, optimizer=None), {"kernel__k1__k2__length_scale": [0.5, 2.0]}, cv=3
    )
    assert set(nested.fit(*iris).best_params_) == {"kernel__k1__k2__length_scale"}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_cross_validation_and_calibration(iris, kind):
    model = make_pipeline(StandardScaler(), GPClassifier(QUICK, optimizer=None, multi_class=kind))
    assert cross_val_score(model, *iris, cv=3).mean() > 0.85
    calibrated = CalibratedClassifierCV(model, cv=3).fit(*iris)
    np.testing.assert_allclose(calibrated.predict_proba(iris[0]).sum(axis=1), 1.0)


def test_clone_keeps_parameters_and_nothing_else(iris):
    model = GPClassifier(QUICK, optimizer=None, class_weight="balanced").fit(*iris)
    copied = clone(model)
    assert not hasattr(copied, "base_estimator_")
    ours, theirs = copied.get_params(deep=False), model.get_params(deep=False)
    assert ours.pop("kernel") is not theirs.pop("kernel")
    assert ours == theirs
    assert copied.kernel.theta.tolist() == model.kernel.theta.tolist()


def test_set_output_of_a_pipeline_reaches_the_classifier_as_a_frame(iris):
    frame = pd.DataFrame(iris[0], columns=list("abcd"))
    model = make_pipeline(StandardScaler(), GPClassifier(QUICK, optimizer=None))
    model.set_output(transform="pandas").fit(frame, iris[1])
    assert model[-1].feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(
        model.predict(frame), clone(model).set_output(transform="default").fit(*iris).predict(iris[0])
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(iris, library):
    module = pytest.importorskip(library)
    frame = module.DataFrame({name: iris[0][:, k] for k, name in enumerate("abcd")})
    labels = module.Series(iris[1])
    model = GPClassifier(QUICK, optimizer=None).fit(frame, labels)
    assert model.feature_names_in_.tolist() == list("abcd")
    plain = GPClassifier(QUICK, optimizer=None).fit(*iris)
    np.testing.assert_allclose(model.predict_proba(frame), plain.predict_proba(iris[0]), atol=1e-12)
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        model.predict(frame[list("badc")])
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict_proba(frame[list("abc")].assign(e=0.0) if library == "pandas" else
                            frame.rename({"d": "e"}))  # fmt: skip
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(iris[0])


def test_weights_are_routed_to_fit_and_to_score(iris):
    X, y = iris
    w = np.random.default_rng(1).integers(1, 4, size=len(y)).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        gp = GPClassifier(QUICK, optimizer=None)
        gp.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        model = Pipeline([("scale", StandardScaler().set_fit_request(sample_weight=False)), ("gp", gp)])
        model.fit(X, y, sample_weight=w)
        by_hand = clone(gp).fit(StandardScaler().fit_transform(X), y, sample_weight=w)
        np.testing.assert_array_equal(model[-1].predict_proba(X), by_hand.predict_proba(X))
        grid = {"gp__multi_class": STRATEGIES}
        search = GridSearchCV(model, grid, cv=3).fit(X, y, sample_weight=w)
        refitted = search.best_estimator_[-1]
        assert refitted._rows()[2] is not None
        unasked = GPClassifier(QUICK, optimizer=None)
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            GridSearchCV(unasked, {"tol": [1e-8]}, cv=3).fit(X, y, sample_weight=w)


def fitted_ways(iris):
    X, y = StandardScaler().fit_transform(iris[0]), iris[1]
    yield GPClassifier(QUICK, optimizer=None).fit(X, y == 0)
    for kind in STRATEGIES:
        yield GPClassifier(QUICK, multi_class=kind, optimizer=None).fit(X, y)
    yield (
        GPClassifier(4.0 * RBF(1.0), inference="ep", likelihood="noisy_threshold")
        .set_params(optimizer=None, tol=1e-6)
        .fit(X, y == 0)
    )


def test_pickle_joblib_and_deepcopy_predict_the_same(iris, tmp_path):
    X = StandardScaler().fit_transform(iris[0])
    for model in fitted_ways(iris):
        before = model.predict_proba(X)
        joblib.dump(model, tmp_path / "model.joblib")
        for again in (
            pickle.loads(pickle.dumps(model)),
            joblib.load(tmp_path / "model.joblib"),
            copy.deepcopy(model),
        ):
            np.testing.assert_array_equal(again.predict_proba(X), before)
            np.testing.assert_array_equal(again.predict(X), model.predict(X))
            assert again.log_marginal_likelihood() == model.log_marginal_likelihood()
            np.testing.assert_allclose(again.loo_predict_proba_, model.loo_predict_proba_, atol=1e-8)
            assert again.summary() == model.summary()


@pytest.mark.parametrize("kind", STRATEGIES)
def test_pickles_hold_no_matrices(kind):
    """Their size grows with n, not with n²; after questions that need matrices, too."""
    rng = np.random.default_rng(0)
    sizes = []
    for n in (150, 300):
        X = rng.normal(size=(n, 2))
        y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
        model = GPClassifier(QUICK, multi_class=kind, optimizer=None).fit(X, y)
        model.loo_predict_proba_  # noqa: B018
        model.log_marginal_likelihood(eval_gradient=True)
        model.summary()
        sizes.append(len(pickle.dumps(model)))
    assert sizes[1] < 8 * 300**2 / 2
    assert sizes[1] < 2.5 * sizes[0]


@pytest.mark.parametrize(
    ("two", "three"),
    [(["no", "yes"], ["a", "b", "c"]), ([False, True], [5, -1, 3]), ([2, 1], [1.0, 2.0, 4.0])],
)
def test_labels_come_back_as_they_went_in(iris, two, three):
    X, y = iris
    for names, codes in ((two, (y > 0).astype(int)), (three, y)):
        labels = np.array(names)[codes]
        given = labels.tolist()
        model = GPClassifier(QUICK, optimizer=None).fit(X, given)
        predicted = model.predict(X)
        assert predicted.dtype == labels.dtype
        np.testing.assert_array_equal(model.classes_, np.unique(labels))
        assert np.mean(predicted == labels) > 0.9
        assert model.score(X, given) == pytest.approx(np.mean(predicted == labels))


class SequenceKernel(GenericKernelMixin, StationaryKernelMixin, Kernel):
    """Of strings: the mean over pairs of letters of 1 where equal, ``baseline`` where not."""

    def __init__(self, baseline=0.5, baseline_bounds=(1e-3, 0.999)):
        self.baseline = baseline
        self.baseline_bounds = baseline_bounds

    @property
    def hyperparameter_baseline(self):
        return Hyperparameter("baseline", "numeric", self.baseline_bounds)

    def _f(self, s, t):
        return np.mean([1.0 if a == b else self.baseline for a in s for b in t])

    def _g(self, s, t):
        return np.mean([0.0 if a == b else 1.0 for a in s for b in t])

    def __call__(self, X, Y=None, eval_gradient=False):
        Y = X if Y is None else Y
        K = np.array([[self._f(s, t) for t in Y] for s in X])
        if eval_gradient:
            return K, self.baseline * np.array([[[self._g(s, t)] for t in Y] for s in X])
        return K

    def diag(self, X):
        return np.array([self._f(s, s) for s in X])

    def clone_with_theta(self, theta):
        cloned = clone(self)
        cloned.theta = theta
        return cloned


WORDS = ["AGCT", "AGC", "AACT", "TAA", "AAA", "GAACA", "GGCC", "GCGC", "CCGG", "TTTA", "TTAT", "TTT"]
MARKS = np.repeat(["a", "g", "t"], [6, 3, 3])


@pytest.mark.parametrize("optimizer", [None, "bfgs"])
@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("two", [True, False], ids=["two", "three"])
def test_strings_with_a_kernel_of_ones_own(two, kind, optimizer):
    """As in scikit-learn's example of Gaussian processes on discrete data structures."""
    y = np.where(MARKS == "a", "a", "other") if two else MARKS
    kernel = 5.0 * SequenceKernel() + WhiteKernel(0.1, "fixed")
    model = GPClassifier(kernel, multi_class=kind, optimizer=optimizer).fit(WORDS, y)
    p = model.predict_proba(["AAAA", "GGGG", "TTTT"])
    assert p.shape == (3, 2 if two else 3)
    if not two:
        np.testing.assert_array_equal(model.predict(["AAAA", "GGGG", "TTTT"]), ["a", "g", "t"])
    assert model.predict(["AAAA"])[0] == "a"
    assert model.loo_predict_proba_.shape == (12, p.shape[1])
    assert model.sample_latent(["A", "G"], 3, random_state=0).shape[0] == 2
    assert "12 rows" in model.summary()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.predict_proba(WORDS), model.predict_proba(WORDS), atol=1e-12)
    if two and kind == "one_vs_rest" and optimizer is None:
        theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(WORDS, y)
        laplace = clone(model).set_params(inference="laplace", likelihood="logit").fit(WORDS, y)
        assert laplace.log_marginal_likelihood() == pytest.approx(
            theirs.log_marginal_likelihood(), abs=1e-6
        )


class Graph:
    """A few edges; nothing that NumPy could take for an array."""

    def __init__(self, edges):
        self.edges = frozenset(map(frozenset, edges))


class GraphKernel(GenericKernelMixin, Kernel):
    """The number of edges that two graphs share, as a fraction of the geometric mean of theirs."""

    def __init__(self):
        pass

    def __call__(self, X, Y=None, eval_gradient=False):
        Y = X if Y is None else Y
        K = np.array(
            [[len(a.edges & b.edges) / np.sqrt(len(a.edges) * len(b.edges)) for b in Y] for a in X]
        )
        return (K, np.empty((*K.shape, 0))) if eval_gradient else K

    def diag(self, X):
        return np.ones(len(X))

    def is_stationary(self):
        return False


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("classes", [2, 3])
def test_graphs_with_a_kernel_of_ones_own(kind, classes):
    rng = np.random.default_rng(0)
    graphs, y = [], []
    for k in range(18):
        group = k % classes
        chosen = rng.choice(6, size=4, replace=False)
        graphs.append(Graph([(10 * group + a, 10 * group + a + 1) for a in chosen] + [(99, 100)]))
        y.append(f"group {group}")
    model = GPClassifier(3.0 * GraphKernel() + WhiteKernel(0.1, "fixed"), multi_class=kind)
    model.fit(graphs[:12], y[:12])
    np.testing.assert_array_equal(model.predict(graphs[12:]), y[12:])
    np.testing.assert_allclose(model.predict_proba(graphs[12:]).sum(axis=1), 1.0, atol=1e-12)
    assert np.isfinite(model.loo_predict_proba_).all()
