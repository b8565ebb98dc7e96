"""More than two classes: taken apart, put together, learned together, left out."""

from itertools import combinations

import numpy as np
import pytest
from reference import central_difference
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.preprocessing import StandardScaler

from postlin import GPClassifier
from postlin.estimator.strategies import couple
from postlin.rules import REGISTRY as RULES

STRATEGIES = ("one_vs_rest", "one_vs_one")
KERNEL = 4.0 * RBF(1.5) + WhiteKernel(0.1, "fixed")


@pytest.fixture(scope="module")
def iris():
    """Standardised, in no order."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return StandardScaler().fit_transform(X)[order], y[order]


@pytest.fixture(scope="module")
def waves():
    """Three classes by the largest of three waves, some of them wrong; names in no order."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, size=(150, 2))
    heights = np.stack([np.sin(1.5 * X[:, 0]), np.cos(1.5 * X[:, 1]), np.sin(X.sum(axis=1))], axis=1)
    codes = np.where(rng.random(150) < 0.1, rng.integers(3, size=150), heights.argmax(axis=1))
    return X, np.array(["sea", "air", "earth"])[codes]


@pytest.fixture(scope="module")
def learned(waves):
    """A fit of each kind on 90 rows, hyperparameters learned."""
    X, y = waves[0][:90], waves[1][:90]
    return {kind: GPClassifier(KERNEL, multi_class=kind).fit(X, y) for kind in STRATEGIES}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_probabilities_are_those_of_the_classes_in_order(learned, waves, kind):
    X, y = waves[0][90:], waves[1][90:]
    model = learned[kind]
    p = model.predict_proba(X)
    assert list(model.classes_) == ["air", "earth", "sea"]
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert (p >= 0).all()
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert model.score(X, y) > 0.6
    for c, label in enumerate(model.classes_):  # a column belongs to its class
        assert p[y == label].mean(axis=0).argmax() == c


def test_one_against_the_rest_is_binary_fits_normalised(waves):
    X, y = waves
    model = GPClassifier(KERNEL).fit(X[:60], y[:60])
    each = [
        GPClassifier(KERNEL).fit(X[:60], y[:60] == label).predict_proba(X[60:])[:, 1]
        for label in model.classes_
    ]
    by_hand = np.stack(each, axis=1) / np.sum(each, axis=0)[:, None]
    # all but the first begin at another point, and end where the slope is as small
    np.testing.assert_allclose(model.predict_proba(X[60:]), by_hand, atol=1e-4)


def test_one_against_one_is_fits_of_pairs(waves):
    X, y = waves
    model = GPClassifier(KERNEL, multi_class="one_vs_one").fit(X[:60], y[:60])
    pairs = []
    for one, other in combinations(model.classes_, 2):
        chosen = np.isin(y[:60], [one, other])
        fit = GPClassifier(KERNEL).fit(X[:60][chosen], y[:60][chosen])
        assert list(fit.classes_) == [one, other]
        pairs.append(fit.predict_proba(X[60:]))
    by_hand = couple(np.stack(pairs, axis=1), 3)
    # all but the first begin at another point, and end where the slope is as small
    np.testing.assert_allclose(model.predict_proba(X[60:]), by_hand, atol=1e-4)


def disagreement(p, r):
    """The objective of Wu, Lin and Weng (2004), their equation (22), written out."""
    return sum(
        (r[j, i] * p[i] - r[i, j] * p[j]) ** 2 for i in range(len(p)) for j in range(len(p)) if i != j
    )


def as_matrix(pairs, n_classes):
    r = np.zeros((n_classes, n_classes))
    for (i, j), (first, second) in zip(combinations(range(n_classes), 2), pairs, strict=True):
        r[i, j], r[j, i] = first, second
    return r


@pytest.mark.parametrize("n_classes", [3, 4, 7])
def test_coupling_minimises_the_disagreement(n_classes):
    rng = np.random.default_rng(n_classes)
    first = rng.beta(0.6, 0.6, size=(8, n_classes * (n_classes - 1) // 2))
    pairs = np.stack([first, 1 - first], axis=2)
    for ours, pair in zip(couple(pairs, n_classes), pairs, strict=True):
        r = as_matrix(pair, n_classes)
        found = minimize(
            disagreement,
            np.full(n_classes, 1 / n_classes),
            args=(r,),
            method="SLSQP",
            bounds=[(0, 1)] * n_classes,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            options={"ftol": 1e-16, "maxiter": 1000},
        )
        np.testing.assert_allclose(ours, found.x, atol=1e-5)
        assert disagreement(ours, r) <= disagreement(found.x, r) + 1e-12


@pytest.mark.parametrize("n_classes", [3, 5, 10])
def test_consistent_pairs_are_recovered(n_classes):
    p = np.random.default_rng(0).dirichlet(np.full(n_classes, 0.5), size=20)
    pairs = np.stack(
        [
            p[:, [i, j]] / p[:, [i, j]].sum(axis=1, keepdims=True)
            for i, j in combinations(range(n_classes), 2)
        ],
        axis=1,
    )
    np.testing.assert_allclose(couple(pairs, n_classes), p, atol=1e-9)


def test_certain_pairs_leave_probabilities_finite():
    """All eight ways in which three pairs can be certain, cycles included."""
    certain = np.array([[0.0, 1.0], [1.0, 0.0]])
    pairs = np.array(
        [[certain[a], certain[b], certain[c]] for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    )
    for tiny in (0.0, 1e-300, 1e-17, 1e-9):
        p = couple(np.where(pairs == 0, tiny, pairs - tiny), 3)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
        for found, pair in zip(p, pairs, strict=True):
            wins = (as_matrix(pair, 3) > 0.5).sum(axis=1)
            if wins.max() == 2:  # one class beats both others
                assert found[wins.argmax()] == pytest.approx(1.0, abs=1e-6)
            else:  # a cycle
                np.testing.assert_allclose(found, 1 / 3, atol=1e-6)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_results_do_not_depend_on_the_number_of_processes(waves, kind):
    X, y = waves
    kernel = ConstantKernel(4.0, (0.1, 1e3)) * RBF(1.5, (0.1, 10.0)) + WhiteKernel(0.1, "fixed")
    model = GPClassifier(kernel, multi_class=kind, n_restarts_optimizer=1, random_state=7)
    fits = [clone(model).set_params(n_jobs=jobs).fit(X[:45], y[:45]) for jobs in (None, 1, 2)]
    for answer in (
        lambda fit: fit.predict_proba(X),
        lambda fit: fit.kernel_.theta,
        lambda fit: fit.log_marginal_likelihood_value_,
        lambda fit: fit.loo_predict_proba_,
    ):
        first, *others = map(answer, fits)
        for other in others:
            np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_shared_kernel_maximises_the_sum(learned, waves, kind):
    X, y = waves[0][:90], waves[1][:90]
    shared = GPClassifier(KERNEL, multi_class=kind, shared_kernel=True).fit(X, y)
    fits = shared.base_estimator_.estimators_
    theta = fits[0].kernel_.theta
    assert len(fits) == 3
    for fit in fits:
        np.testing.assert_array_equal(fit.kernel_.theta, theta)

    apart = learned[kind]
    reached = shared.log_marginal_likelihood_value_
    for fit in apart.base_estimator_.estimators_:
        assert reached >= apart.log_marginal_likelihood(fit.kernel_.theta) - 1e-6
    assert apart.log_marginal_likelihood_value_ >= reached - 1e-6
    slope = central_difference(lambda t: 3 * apart.log_marginal_likelihood(t), theta, 1e-3)
    assert np.abs(slope).max() < 5e-3
    np.testing.assert_allclose(shared.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_evidence_of_many_classes(waves, kind):
    X, y = waves
    model = GPClassifier(KERNEL, multi_class=kind, optimizer=None, tol=1e-10).fit(X[:45], y[:45])
    each = [fit.log_marginal_likelihood_value_ for fit in model.base_estimator_.estimators_]
    assert model.log_marginal_likelihood_value_ == pytest.approx(np.mean(each))
    assert isinstance(model.kernel_, CompoundKernel)
    assert len(model.kernel_.kernels) == 3

    one, all_of_them = KERNEL.theta + 0.2, np.tile(KERNEL.theta, 3) + 0.1 * np.arange(6)
    for theta in (one, all_of_them):
        value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
        assert value == pytest.approx(model.log_marginal_likelihood(theta), abs=1e-9)
        numeric = central_difference(model.log_marginal_likelihood, theta)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        model.log_marginal_likelihood(np.tile(one, 3)), model.log_marginal_likelihood(one)
    )
    with pytest.raises(ValueError, match="theta must hold 2 log-parameters, or 6 for all 3 kernels"):
        model.log_marginal_likelihood(np.zeros(5))


def test_evidence_of_many_classes_can_be_written_into_the_kernels(waves):
    X, y = waves
    model = GPClassifier(KERNEL, optimizer=None).fit(X[:45], y[:45])
    theta = np.tile(KERNEL.theta, 3) + 0.1 * np.arange(6)
    value = model.log_marginal_likelihood(theta, clone_kernel=False)
    np.testing.assert_allclose(model.kernel_.theta, theta)
    assert model.log_marginal_likelihood(theta) == pytest.approx(value)


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("inference", RULES)
def test_leave_one_out_is_refitting(iris, kind, inference):
    """Every row left out in turn at fixed hyperparameters, within 0.01."""
    X, y = iris[0][:45], iris[1][:45]
    model = GPClassifier(KERNEL, multi_class=kind, inference=inference, optimizer=None).fit(X, y)
    loo = model.loo_predict_proba_
    refitted = []
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        refitted.append(clone(model).fit(X[others], y[others]).predict_proba(X[i : i + 1])[0])
    assert np.abs(loo - refitted).max() < 0.01
    own = np.searchsorted(model.classes_, y)
    assert model.loo_log_score_ == pytest.approx(np.log(loo[np.arange(len(y)), own]).sum())


@pytest.mark.parametrize("kind", STRATEGIES)
def test_integer_weights_are_repeated_rows(waves, kind):
    X, y = waves[0][:40], waves[1][:40]
    w = np.random.default_rng(0).integers(0, 4, size=len(y))
    model = GPClassifier(KERNEL, multi_class=kind, optimizer=None, tol=1e-11)
    weighted = clone(model).fit(X, y, sample_weight=w)
    repeated = clone(model).fit(X.repeat(w, axis=0), y.repeat(w))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-8)
    assert weighted.log_marginal_likelihood_value_ == pytest.approx(
        repeated.log_marginal_likelihood_value_, abs=1e-8
    )
    np.testing.assert_allclose(
        weighted.loo_predict_proba_.repeat(w[w > 0], axis=0), repeated.loo_predict_proba_, atol=1e-3
    )
    by_class = GPClassifier(KERNEL, multi_class=kind, optimizer=None, class_weight="balanced")
    counts = np.unique(y, return_counts=True)[1]
    by_hand = len(y) / (3 * counts[np.searchsorted(np.unique(y), y)])
    np.testing.assert_allclose(
        by_class.fit(X, y).predict_proba(X),
        clone(model).fit(X, y, sample_weight=by_hand).predict_proba(X),
        atol=1e-6,
    )


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_class_with_one_member(waves, kind):
    X, y = waves[0][:40].copy(), waves[1][:40].astype("<U7")
    X[5], y[5] = 4.0, "a loner"
    model = GPClassifier(KERNEL, multi_class=kind, optimizer=None).fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (40, 4)
    assert list(model.classes_) == ["a loner", "air", "earth", "sea"]
    assert p[:, 0].argmax() == 5
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    loo = model.loo_predict_proba_  # without its only member, what is left of a class is the prior
    assert np.isfinite(loo).all()
    assert loo[5, 0] < p[5, 0]
    assert np.isfinite(model.loo_log_score_)


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.filterwarnings("ignore:Number of classes in training fold")
def test_a_class_that_a_fold_has_not_seen(waves, kind):
    X, y = waves[0][:45], np.sort(waves[1][:45])  # three folds in order: one class each, roughly
    model = GPClassifier(KERNEL, multi_class=kind, optimizer=None)
    p = cross_val_predict(model, X, y, cv=KFold(3), method="predict_proba")
    assert p.shape == (45, 3)
    assert np.isfinite(p).all()


@pytest.mark.parametrize("kind", STRATEGIES)
def test_warm_start_goes_on_in_every_problem(waves, kind):
    X, y = waves[0][:60], waves[1][:60]
    model = GPClassifier(KERNEL, multi_class=kind, warm_start=True).fit(X, y)
    first, evaluations = model.kernel_.theta, sum(d.n_evaluations for d in model.diagnostics_)
    model.fit(X, y)
    np.testing.assert_allclose(model.kernel_.theta, first, atol=1e-2)
    assert sum(d.n_evaluations for d in model.diagnostics_) < evaluations
    model.fit(X[y != "sea"], y[y != "sea"])  # two classes now: a fresh start
    assert model.predict_proba(X).shape == (60, 2)


def test_attributes_of_two_classes_say_where_those_of_many_are(learned):
    model = learned["one_vs_rest"]
    for name in ("approximation_", "likelihood_", "evidence_path_", "X_train_", "y_train_"):
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=rf"base_estimator_\.estimators_\[k\]\.{name}"):
            getattr(model, name)
        for fit in model.base_estimator_.estimators_:
            assert getattr(fit, name) is not None
    assert model.converged_
    assert model.n_iter_ >= 1


@pytest.mark.parametrize("kind", STRATEGIES)
def test_latent_values_have_a_column_for_each_problem(learned, waves, kind):
    model, X = learned[kind], waves[0][:7]
    mean, variance = model.latent_mean_and_variance(X)
    assert mean.shape == variance.shape == (7, 3)
    for k, fit in enumerate(model.base_estimator_.estimators_):
        np.testing.assert_array_equal(mean[:, k], fit.latent_mean_and_variance(X).mean)
    assert model.sample_latent(X, 5, random_state=0).shape == (7, 3, 5)


def test_an_unknown_strategy_is_refused(waves):
    with pytest.raises(ValueError, match="multi_class must be one of 'one_vs_rest', 'one_vs_one'"):
        GPClassifier(multi_class="softmax").fit(*waves)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("inference", ["pl", "cl", "ep"])
def test_leave_one_out_is_refitting_on_all_of_wine(kind, inference):
    bunch = load_wine()
    X, y = StandardScaler().fit_transform(bunch.data), bunch.target
    model = GPClassifier(1.0 * RBF(1.0), multi_class=kind, inference=inference).fit(X, y)
    kernel = model.base_estimator_.estimators_[0].kernel_
    same = GPClassifier(kernel, multi_class=kind, inference=inference, optimizer=None).fit(X, y)
    loo = same.loo_predict_proba_
    refitted = []
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        refitted.append(clone(same).fit(X[others], y[others]).predict_proba(X[i : i + 1])[0])
    assert np.abs(loo - refitted).max() < 0.01


def test_problems_that_begin_where_the_first_ended_find_their_own_optima(three_classes_of_digits):
    X, y = three_classes_of_digits
    model = GPClassifier().fit(X, y)
    first, *others = model.base_estimator_.estimators_
    for c, fit in enumerate(others, 1):
        assert np.allclose(fit.evidence_path_[0][0], first.hyperparameters.theta)
        alone = GPClassifier().fit(X, y == c)
        assert fit.log_marginal_likelihood_value_ > alone.log_marginal_likelihood_value_ - 1e-3


@pytest.fixture(scope="module")
def three_classes_of_digits():
    X, y = load_digits(n_class=3, return_X_y=True)
    return X[:150] / 16.0, y[:150]
