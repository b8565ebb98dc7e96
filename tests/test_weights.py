"""Weights: integer ones are repeated rows, fractions lie between, zeros are not there."""

import numpy as np
import pytest
from reference import central_difference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import postlin
from postlin import GPClassifier
from postlin.likelihoods import REGISTRY as LIKELIHOODS
from postlin.likelihoods import ConditionalMoments
from postlin.rules import REGISTRY as RULES
from postlin.rules.binary import EP, PL
from postlin.schedules import REGISTRY as SCHEDULES

SMOOTH = ConstantKernel(10.0) * RBF(2.0)
NOISY = SMOOTH + WhiteKernel(0.3)


@pytest.fixture(scope="module")
def rows(data):
    crab = data("crab", 40)
    return crab.X, crab.y, np.random.default_rng(0).integers(0, 4, size=40)


def pair(rows, **options):
    """A fit with weights and one with repeated rows."""
    X, y, w = rows
    model = GPClassifier(**{"kernel": NOISY, "optimizer": None, "tol": 1e-11, **options})
    weighted = model.fit(X, y, sample_weight=w)
    repeated = GPClassifier(**model.get_params(deep=False)).fit(X.repeat(w, axis=0), y.repeat(w))
    return weighted, repeated


def assert_same(weighted, repeated, rows):
    X, _, w = rows
    value, gradient = weighted.log_marginal_likelihood(eval_gradient=True)
    expected, slope = repeated.log_marginal_likelihood(eval_gradient=True)
    assert value == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(gradient, slope, atol=1e-8)
    for found, wanted in zip(
        weighted.latent_mean_and_variance(X), repeated.latent_mean_and_variance(X), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-8)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-8)
    # leave-one-out predictions are iterated to 1e-4
    np.testing.assert_allclose(
        weighted.loo_predict_proba_.repeat(w[w > 0], axis=0), repeated.loo_predict_proba_, atol=1e-3
    )
    assert weighted.loo_log_score_ == pytest.approx(repeated.loo_log_score_, abs=1e-2)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("kernel", [SMOOTH, NOISY], ids=["smooth", "noisy"])
def test_integer_weights_are_repeated_rows(rows, likelihood, rule, schedule, kernel):
    if rule == "laplace" and likelihood == "noisy_threshold":
        pytest.skip("Laplace needs a derivative")
    assert_same(
        *pair(rows, kernel=kernel, likelihood=likelihood, inference=rule, schedule=schedule), rows
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_with_noise_folded_into_the_likelihood(rows, likelihood, rule):
    assert_same(*pair(rows, likelihood=likelihood, inference=rule, fold_noise=True), rows)


@pytest.mark.parametrize("rule", [PL(evidence_order=10), EP(evidence_order=10)], ids=["pl", "ep"])
def test_the_papers_evidence_has_weights_too(rows, rule):
    assert_same(*pair(rows, inference=rule), rows)


@pytest.mark.parametrize("policy", ["clamp", "skip", "small_variance"])
@pytest.mark.filterwarnings("ignore::postlin.NegativeSiteWarning")
def test_policies_for_negative_sites(policy):
    """In one plain iteration from the prior: fixed points with policies need not be unique."""
    K = np.array([[1.0, 0.8], [0.8, 1.0]])
    twice = np.repeat(np.arange(2), [1, 3])
    options = {"likelihood": "noisy_threshold", "inference": EP(policy), "tol": 1e-10}
    options["schedule"] = SCHEDULES["parallel"](iterations=1)
    mean = np.array([-0.5, -3.0])
    weighted = postlin.infer(K, np.ones(2), weights=[1.0, 3.0], prior_mean=mean, **options)
    repeated = postlin.infer(K[np.ix_(twice, twice)], np.ones(4), prior_mean=mean[twice], **options)
    np.testing.assert_allclose(weighted.mean[twice], repeated.mean, atol=1e-8)
    np.testing.assert_allclose(weighted.sites.tau, np.bincount(twice, repeated.sites.tau), rtol=1e-7)


def test_conditional_moments():
    x = np.linspace(-2, 2, 9)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2)
    counts, w = np.round(np.exp(np.sin(x))), np.array([1, 2, 3] * 3)
    likelihood = ConditionalMoments(np.exp, np.exp)
    index = np.arange(9).repeat(w)
    weighted = postlin.infer(K, counts, likelihood=likelihood, weights=w, tol=1e-11)
    repeated = postlin.infer(K[np.ix_(index, index)], counts[index], likelihood=likelihood, tol=1e-11)
    assert weighted.log_evidence == pytest.approx(repeated.log_evidence, abs=1e-8)
    np.testing.assert_allclose(weighted.mean[index], repeated.mean, atol=1e-8)
    by_pair = np.zeros((9, 9))
    np.add.at(by_pair, np.ix_(index, index), repeated.evidence_gradient())
    np.testing.assert_allclose(weighted.evidence_gradient(), by_pair, atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_gradient_is_exact_for_any_weights(rows, likelihood, rule):
    if rule == "laplace" and likelihood == "noisy_threshold":
        pytest.skip("Laplace needs a derivative")
    X, y, _ = rows
    w = np.random.default_rng(1).uniform(0.05, 2.5, size=len(y))
    model = GPClassifier(NOISY, likelihood=likelihood, inference=rule, optimizer=None, tol=1e-11)
    model.fit(X, y, sample_weight=w)
    theta = model.kernel_.theta
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    numeric = central_difference(model.log_marginal_likelihood, theta)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_a_small_weight_is_next_to_nothing_and_nearly_one_nearly_all(rows, rule):
    X, y, _ = rows
    model = GPClassifier(NOISY, inference=rule, optimizer=None)

    def evidence(w):
        weights = np.ones(len(y))
        weights[:5] = w
        return model.fit(X, y, sample_weight=weights).log_marginal_likelihood_value_

    assert evidence(1e-9) == pytest.approx(evidence(0.0), abs=1e-7)
    assert evidence(1 - 1e-9) == pytest.approx(evidence(1.0), abs=1e-7)
    assert evidence(1 + 1e-9) == pytest.approx(evidence(1.0), abs=1e-7)


def test_class_weights_multiply_sample_weights(rows):
    X, y, w = rows
    given = {-1: 2.0, 1: 3.0}
    ours = GPClassifier(NOISY, optimizer=None, class_weight=given).fit(X, y, sample_weight=w)
    by_hand = GPClassifier(NOISY, optimizer=None).fit(X, y, sample_weight=w * np.where(y > 0, 3.0, 2.0))
    np.testing.assert_array_equal(ours.predict_proba(X), by_hand.predict_proba(X))


def test_balanced_classes_have_the_same_weight_in_sum(rows):
    X, y, _ = rows
    few = np.concatenate([np.flatnonzero(y > 0)[:5], np.flatnonzero(y < 0)])
    plain = GPClassifier(NOISY, optimizer=None).fit(X[few], y[few])
    balanced = GPClassifier(NOISY, optimizer=None, class_weight="balanced").fit(X[few], y[few])
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, "sample_weight must be finite and not negative, but that of row 3 is -1"),
        (np.nan, "contains NaN"),
    ],
)
def test_bad_weights(rows, weight, message):
    X, y, _ = rows
    w = np.ones(len(y))
    w[3] = weight
    with pytest.raises(ValueError, match=message):
        GPClassifier().fit(X, y, sample_weight=w)


def test_no_weight_at_all(rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match="zero"):
        GPClassifier().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="one class only"):
        GPClassifier().fit(X, y, sample_weight=(y > 0).astype(float))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0], "that of row 1 is -2"),
        ([1.0], r"must have shape \(2,\)"),
        ("heavy", "must be an array of numbers"),
    ],
)
def test_bad_weights_for_infer(weights, message):
    with pytest.raises(ValueError, match=message):
        postlin.infer(np.eye(2), [1, -1], weights=weights)


def test_score_takes_weights(rows):
    X, y, w = rows
    model = GPClassifier(NOISY, optimizer=None).fit(X, y)
    right = model.predict(X) == y
    assert model.score(X, y, sample_weight=w) == pytest.approx(np.average(right, weights=w))
