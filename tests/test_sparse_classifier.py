"""GPClassifier with inducing points: from all kinds of data, saved and stopped."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    WhiteKernel,
)
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import postlin
from postlin import GPClassifier
from postlin.likelihoods import NoisyThreshold
from postlin.plotting import DecisionDisplay

KERNEL = ConstantKernel(4.0) * RBF(1.0) + WhiteKernel(0.1, "fixed")
FIXED = {"kernel": KERNEL, "optimizer": None}


@parametrize_with_checks([GPClassifier(10.0 * RBF(2.0) + WhiteKernel(), inducing=4, optimizer=None)])
def test_scikit_learn_checks(estimator, check):
    if getattr(check, "func", check).__name__ == "check_array_api_input":
        pytest.skip("needs SCIPY_ARRAY_API=1 at import")
    check(estimator)


def table(n=600, classes=("no", "yes"), seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    noise = 0.4 * rng.standard_normal(n)
    score = X[:, 0] + np.sin(2 * X[:, 1]) + noise
    edges = np.quantile(score, np.linspace(0, 1, len(classes) + 1)[1:-1])
    return X, np.array(classes)[np.searchsorted(edges, score)]


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def fitted(data):
    return GPClassifier(KERNEL, inducing=20, random_state=0).fit(*data)


def test_inducing_points_at_all_rows_are_exact_inference(data):
    X, y = data[0][:120], data[1][:120]
    exact = GPClassifier(**FIXED).fit(X, y)
    sparse = GPClassifier(**FIXED, inducing=X).fit(X, y)
    new = np.random.default_rng(1).standard_normal((50, 2))
    assert sparse.log_marginal_likelihood_value_ == pytest.approx(
        exact.log_marginal_likelihood_value_, abs=1e-3
    )
    np.testing.assert_allclose(sparse.predict_proba(new), exact.predict_proba(new), atol=1e-4)
    for one, other in zip(
        sparse.latent_mean_and_variance(new), exact.latent_mean_and_variance(new), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-3)
    np.testing.assert_allclose(
        sparse.diagnostics_.loo_probability, exact.diagnostics_.loo_probability, atol=1e-4
    )
    one, other = (m.diagnostics_.hard_rows(3) for m in (sparse, exact))
    assert [row.row for row in one] == [row.row for row in other]
    np.testing.assert_allclose([r[1:] for r in one], [r[1:] for r in other], rtol=1e-2, atol=1e-4)
    draws = [m.sample_latent(new[:3], 4000, random_state=0) for m in (sparse, exact)]
    np.testing.assert_allclose(np.cov(draws[0]), np.cov(draws[1]), atol=0.15)


def test_learning_ends_where_the_gradient_vanishes(fitted, data):
    value, gradient = fitted.log_marginal_likelihood(fitted.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(fitted.log_marginal_likelihood_value_, abs=1e-4)
    assert np.abs(gradient).max() < 0.05
    assert fitted.converged_
    assert fitted.inducing_points_.shape == (20, 2)
    assert fitted.score(*data) > 0.85
    assert "20 inducing points" in fitted.summary()
    assert "passes: " in fitted.summary()
    assert "600 rows" in fitted.summary()
    shown = clone(fitted).set_params(optimizer=None).fit(*data)
    assert "20 inducing points" in shown._repr_html_()
    assert shown.base_estimator_._each is None  # no pass for a picture


def sources(X, y, folder):
    """The same rows in other clothes."""
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(kind=y)
    pq.write_table(pa.Table.from_pandas(frame), folder / "rows.parquet", row_group_size=100)
    np.save(folder / "X.npy", X)
    yield (np.load(folder / "X.npy", mmap_mode="r"), y)
    yield (X.tolist(), y.tolist())
    yield (frame[["u", "v"]], frame.kind)
    yield (postlin.parquet(folder / "rows.parquet", target="kind"),)
    yield (postlin.stream(lambda: ((X[i : i + 70], y[i : i + 70]) for i in range(0, len(X), 70))),)


def test_all_sources_of_rows_give_one_model(data, tmp_path):
    X, y = data
    model = GPClassifier(**FIXED, inducing=15, random_state=0)
    expected = model.fit(X, y).predict_proba(X)
    for rows in sources(X, y, tmp_path):
        found = clone(model).fit(*rows)
        new = pd.DataFrame(X, columns=["u", "v"]) if hasattr(found, "feature_names_in_") else X
        np.testing.assert_allclose(found.predict_proba(new), expected, rtol=1e-9)
        assert list(found.classes_) == ["no", "yes"]
        assert found.n_features_in_ == 2
    assert list(clone(model).fit(*rows).loo_predict_proba_.shape) == [600, 2]


@pytest.mark.parametrize("strategy", ["one_vs_rest", "one_vs_one"])
@pytest.mark.parametrize("shared", [False, True])
def test_many_classes_from_a_stream(strategy, shared):
    X, y = table(400, ("a", "b", "c"))
    model = GPClassifier(
        KERNEL, inducing=X[:25], multi_class=strategy, shared_kernel=shared, optimizer=None
    )
    stream = postlin.stream(lambda: [(X[:150], y[:150]), (X[150:], y[150:])])
    p = model.fit(stream).predict_proba(X)
    np.testing.assert_allclose(p, clone(model).fit(X, y).predict_proba(X), rtol=1e-9)
    alone = []
    for fit in model._estimators:
        positive, negative = fit.name.split(" against ")
        kept = np.isin(y, [positive, negative]) if strategy == "one_vs_one" else np.full(400, True)
        two = GPClassifier(KERNEL, inducing=X[:25], optimizer=None)
        alone.append(two.fit(X[kept], y[kept] == positive).predict_proba(X)[:, 1])
        own = np.exp(fit.log_probabilities(X)[:, 1])
        np.testing.assert_allclose(own, alone[-1], rtol=1e-6)
    assert model.score(X, y) > 0.7
    assert "400 rows" in model.summary()
    if strategy == "one_vs_rest":
        assert model.loo_predict_proba_.shape == (400, 3)
        assert model.loo_log_score_ > 400 * np.log(1 / 3)
    else:
        with pytest.raises(AttributeError, match="use 'one_vs_rest'"):
            _ = model.loo_predict_proba_


def test_weights_are_repetitions(data):
    X, y = data[0][:200], data[1][:200]
    times = np.random.default_rng(0).integers(0, 4, size=200)
    model = GPClassifier(**FIXED, inducing=X[:10])
    weighted = model.fit(X, y, sample_weight=times).predict_proba(X)
    again = np.repeat(np.arange(200), times)
    repeated = clone(model).fit(X[again], y[again])
    np.testing.assert_allclose(weighted, repeated.predict_proba(X), rtol=1e-6)
    assert model.loo_log_score_ == pytest.approx(repeated.loo_log_score_, rel=1e-6)
    assert model.loo_predict_proba_.shape == ((times > 0).sum(), 2)
    balanced = clone(model).set_params(class_weight="balanced").fit(X[50:], y[50:])
    by_hand = len(y[50:]) / (2 * np.array([(y[50:] == label).sum() for label in ("no", "yes")]))
    same = clone(model).fit(X[50:], y[50:], sample_weight=by_hand[(y[50:] == "yes").astype(int)])
    np.testing.assert_allclose(balanced.predict_proba(X), same.predict_proba(X), rtol=1e-9)


def test_learned_noise_and_learned_points(data):
    X, y = data[0][:80], data[1][:80]
    start = GPClassifier(**FIXED, inducing=4, random_state=0).fit(X, y)
    model = GPClassifier(KERNEL, inducing=4, learn_inducing=True, random_state=0).fit(X, y)
    fixed = GPClassifier(KERNEL, inducing=4, random_state=0).fit(X, y)
    assert model.log_marginal_likelihood_value_ > fixed.log_marginal_likelihood_value_ + 0.1
    assert not np.allclose(model.inducing_points_, start.inducing_points_)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.inducing_points_, model.inducing_points_)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    noisy = GPClassifier(
        KERNEL, inducing=X[:10], likelihood=NoisyThreshold(0.02, epsilon_bounds=(1e-3, 0.3))
    ).fit(X, y)
    assert 1e-3 < noisy.likelihood_.epsilon < 0.3


def test_a_coarse_search_comes_first_and_ends_nearby(data, caplog):
    X, y = data
    with caplog.at_level("INFO", "postlin"):
        model = GPClassifier(KERNEL, inducing=15, coarse_rows=200, random_state=0).fit(X, y)
    assert "searching on 200 of 600 rows first" in caplog.text
    fine = GPClassifier(KERNEL, inducing=15, random_state=0).fit(X, y)
    np.testing.assert_allclose(
        model.log_marginal_likelihood_value_, fine.log_marginal_likelihood_value_, atol=1e-2
    )


def test_warm_start_and_threads(data):
    X, y = data
    model = GPClassifier(KERNEL, inducing=X[:20], warm_start=True, n_jobs=2).fit(X, y)
    n, value = len(model.evidence_path_), model.log_marginal_likelihood_value_
    model.fit(X, y)
    assert len(model.evidence_path_) < n
    assert model.log_marginal_likelihood_value_ == pytest.approx(value, abs=1e-4)
    model.set_params(inducing=None).fit(X[:100], y[:100])  # another kind of fit is none to start from
    assert model.approximation_.mean.shape == (100,)


def test_cross_validation(data):
    scores = cross_val_score(GPClassifier(**FIXED, inducing=15, random_state=0), *data, cv=3)
    assert scores.mean() > 0.85


# what is kept


def test_models_are_small_and_hold_no_rows(fitted, data, tmp_path):
    X, _ = data
    content = pickle.dumps(fitted)
    assert len(content) < 40_000
    postlin.save(fitted, tmp_path / "model.postlin")
    assert (tmp_path / "model.postlin").stat().st_size < 300_000
    for again in (pickle.loads(content), postlin.load(tmp_path / "model.postlin")):
        assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
        assert again.summary() == fitted.summary()
        assert again.log_marginal_likelihood() == fitted.log_marginal_likelihood()
        for ask in (
            lambda m=again: m.loo_predict_proba_,
            lambda m=again: m.diagnostics_.hard_rows(),
            lambda m=again: m.log_marginal_likelihood(eval_gradient=True),
        ):
            with pytest.raises(AttributeError, match="rows are no part of a model"):
                ask()
    with pytest.raises(AttributeError, match="keeps no rows"):
        _ = fitted.X_train_
    with pytest.raises(AttributeError, match="keeps no labels"):
        _ = fitted.y_train_
    with pytest.raises(AttributeError, match="spectral radius is not known"):
        _ = fitted.diagnostics_.spectral_radius


def test_relevance_needs_no_rows(data):
    X, y = data
    model = GPClassifier(4.0 * RBF([1.0, 3.0]), optimizer=None, inducing=10).fit(X, y)
    assert pickle.loads(pickle.dumps(model)).relevance_.names == ["x0", "x1"]


def test_predictions_for_many_rows_take_little_memory(fitted):
    X = np.zeros((300_000, 2))
    tracemalloc.start()
    fitted.predict_proba(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150 * 2**20  # of a million rows 500


# what is refused


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"inducing": 0}, "inducing must be None, a positive number"),
        ({"inducing": 601}, "more points than there are rows, 600"),
        ({"inducing": np.zeros((3, 2))}, "its row 1 repeats row 0"),
        ({"inducing": 5, "schedule": "sequential"}, "parallel schedule only"),
        ({"inducing": 5, "multi_class": "joint"}, "'joint' has no inducing points"),
        ({"inducing": 5, "coarse_rows": 0}, "coarse_rows must be .auto., a positive integer"),
        ({"inducing": 5, "kernel": CompoundKernel([RBF()])}, "cannot be a CompoundKernel"),
        ({"inducing": 5, "kernel": RBF([1.0] * 3)}, "inducing points: 3 length scales for 2 features"),
        (
            {"inducing": 5, "kernel": ConstantKernel(0.0, "fixed") * RBF()},
            "singular to rounding: .*drop one, use fewer, or use a kernel .* a variance above zero",
        ),
        ({"inducing": 5, "kernel": ConstantKernel(-1.0, "fixed") * RBF()}, "variances .* are negative"),
        ({"learn_inducing": True}, "learn_inducing is for fits with inducing points"),
        ({"coarse_rows": 100}, "coarse_rows is for fits with inducing points"),
        ({"inducing": 5, "checkpoint": 3}, "checkpoint must be a path or None, got 3"),
        ({"inducing": [[0.0, 1.0], [1.0]]}, "inducing must be None, a positive number"),
        ({"inducing": np.array([[1.0 + 2.0j, 0.0]])}, "inducing must hold numbers"),
        ({"checkpoint": "file.npz"}, "checkpoint is for fits with inducing points"),
    ],
)
def test_parameters_that_cannot_be_used(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        GPClassifier(**parameters).fit(*data)


def test_data_that_cannot_be_used(data):
    X, y = data
    stream = postlin.stream(lambda: [(X, y)])
    with pytest.raises(ValueError, match="X is a StreamSource: set n_neighbors='auto' or inducing"):
        GPClassifier().fit(stream)
    with pytest.raises(ValueError, match="pass neither y nor sample_weight"):
        GPClassifier(inducing=5).fit(stream, y)
    with pytest.raises(ValueError, match="y holds one class only, no"):
        GPClassifier(inducing=5).fit(postlin.stream(lambda: [(X, np.full(600, "no"))]))
    with pytest.raises(ValueError, match="row 7 of X holds NaN"):
        GPClassifier(inducing=5).fit(np.where(np.arange(600)[:, None] == 7, np.nan, X), y)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(600,\)"):
        GPClassifier(inducing=5).fit(X, y, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="class_weight must be finite and positive"):
        GPClassifier(inducing=5, class_weight={"no": 0.0}).fit(X, y)


def test_a_fit_that_fails_leaves_the_last_one_whole(data):
    X, y = data
    for inducing in (5, None):
        model = GPClassifier(**FIXED, inducing=inducing)
        frame = pd.DataFrame(X[:50], columns=["u", "v"])
        with pytest.raises(ValueError, match="one class only"):
            model.fit(np.zeros((50, 3)), np.full(50, "no"))
        assert not hasattr(model, "n_features_in_")
        for ask in (model.predict, lambda X: model.inducing_points_):
            with pytest.raises(NotFittedError):
                ask(X)
        before = model.fit(frame, y[:50]).predict_proba(frame)
        with pytest.raises(ValueError, match="one class only"):
            model.fit(np.zeros((50, 3)), np.full(50, "no"))
        assert list(model.feature_names_in_) == ["u", "v"]
        assert np.array_equal(model.predict_proba(frame), before)


def test_no_probability_is_nan_where_the_kernel_overflows(data):
    X, y = data
    far = np.where(np.arange(3)[:, None] == 1, 1e160, X[:3])
    for inducing in (5, None):
        model = GPClassifier(DotProduct(), optimizer=None, inducing=inducing).fit(X[:50], y[:50])
        for ask in (model.predict_proba, model.latent_mean_and_variance):
            with pytest.raises(ValueError, match="the latent value at row 1 of X is not finite"):
                ask(far)


def test_streams_are_predicted_chunk_by_chunk(fitted, data):
    with pytest.raises(TypeError, match="predict chunk by chunk"):
        fitted.predict(postlin.stream(lambda: [data]))


def test_decisions_are_drawn_with_rows_that_are_given(fitted):
    for model in (fitted, pickle.loads(pickle.dumps(fitted))):
        with pytest.raises(ValueError, match="does not keep the rows that it was fitted to: give X"):
            DecisionDisplay.from_estimator(model)
        with pytest.raises(AttributeError, match="keeps no rows"):
            model._all_rows()
