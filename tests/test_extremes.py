"""Extreme problems: what cannot be computed is said, and only our own warnings are heard."""

import warnings

import numpy as np
import pytest
from reference import central_difference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

import postlin
from postlin import EP, ConvergenceWarning, GPClassifier, NegativeSiteWarning
from postlin.learning.models import ExactModel
from postlin.likelihoods import NoisyThreshold, Probit
from postlin.rules import REGISTRY as RULES
from postlin.rules.sites import Sites

OURS = (ConvergenceWarning, NegativeSiteWarning)


def heard(function):
    """What a function returns, and the texts of its warnings, all of which must be our own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    assert all(issubclass(w.category, OURS) for w in caught), [str(w.message) for w in caught]
    return result, " ".join(str(w.message) for w in caught)


def same_row(variance, **options):
    """Inference for one row that has both labels hundreds of times."""
    y, w = np.array([1.0, -1, 1, 1, -1, 1]), np.array([300.0, 150, 12, 280, 220, 90])
    return heard(lambda: postlin.infer(np.full((6, 6), variance), y, weights=w, **options))


@pytest.mark.parametrize("inference", RULES)
@pytest.mark.parametrize("variance", 10.0 ** np.arange(4, 16))
def test_what_has_converged_has_the_right_evidence(inference, variance):
    """Under a rank-one prior the posterior has a limit, and the evidence falls by ½ log variance."""
    expected = same_row(1e3, inference=inference)[0].log_evidence - 0.5 * np.log(variance / 1e3)
    found, text = same_row(variance, inference=inference)
    assert np.isfinite(found.log_evidence)
    assert found.converged == ("rounding leaves" not in text)
    assert found.converged or variance > 1e6
    if found.converged:
        assert found.log_evidence == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("inference", RULES)
@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_numbers_stay_finite_where_rounding_leaves_no_digit(inference, schedule):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y, w = np.sign(rng.normal(size=11)), rng.integers(1, 1000, 11)
        K = np.full((11, 11), 10.0 ** (12 + seed % 4))
        found, text = heard(
            lambda K=K, y=y, w=w: postlin.infer(K, y, weights=w, inference=inference, schedule=schedule)
        )
        assert text
        assert np.isfinite(found.log_evidence)
        assert (found.variance > 0).all()
        assert np.isfinite(found.evidence_gradient()).all()
        assert np.isfinite(found.spectral_radius())


@pytest.mark.parametrize("likelihood", ["probit", "logit", "noisy_threshold"])
@pytest.mark.parametrize("inference", ["pl", "cl", "ep", EP("clamp")], ids=str)
def test_weights_of_all_sizes(likelihood, inference):
    rng = np.random.default_rng(2)
    x = rng.normal(size=9)
    K = 10.0 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    w = np.array([1e-300, 1e-30, 1e-12, 0.0, 1.0, 1e3, 1e6, 1e12, 1e15])
    for schedule in ("parallel", "sequential"):
        found, _ = heard(
            lambda schedule=schedule: postlin.infer(
                K, np.sign(x), weights=w, likelihood=likelihood, inference=inference, schedule=schedule
            )
        )
        assert np.isfinite(found.log_evidence)
        assert (found.variance > 0).all()
        assert np.isfinite(found.evidence_gradient()).all()


def test_weights_beyond_all_counting_are_refused():
    with pytest.raises(
        ValueError, match=r"weights must be at most 1e[+]15, but that of row 1 is 1e[+]300"
    ):
        postlin.infer(np.eye(2), [1, -1], weights=[1, 1e300])
    X = np.arange(8.0)[:, None]
    for options in ({}, {"inducing": 2}):
        with pytest.raises(ValueError, match=r"at most 1e[+]15, but that of row 7"):
            GPClassifier(**options).fit(X, X[:, 0] > 3, sample_weight=[*np.ones(7), 2e15])


@pytest.mark.parametrize("inducing", [None, 3])
@pytest.mark.parametrize("size", [1e101, 1e154, 1.7e308])
def test_features_whose_squares_overflow_are_refused(inducing, size):
    X = np.random.default_rng(0).normal(size=(12, 2))
    X[5, 1], X[7, 0] = size, -size
    with pytest.raises(ValueError, match=r"row 5 of X has .* in feature 1.*overflow: rescale"):
        GPClassifier(inducing=inducing).fit(X, X[:, 0] > 0)


@pytest.mark.parametrize("inducing", [None, 3])
def test_large_features_in_range_are_learned_from(inducing):
    X = 1e99 * np.random.default_rng(0).normal(size=(20, 2))
    model = GPClassifier(ConstantKernel(10.0) * RBF(1e99, "fixed"), inducing=inducing, random_state=0)
    heard(lambda: model.fit(X, X[:, 0] > 0))
    assert model.score(X, X[:, 0] > 0) > 0.8


def test_features_and_length_scales_whose_squares_underflow_are_refused():
    X = np.random.default_rng(0).normal(size=(12, 2))
    with pytest.raises(ValueError, match="squares of such numbers underflow"):
        GPClassifier().fit(1e-200 * X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="the length scale 1e-160 is below 1e-150"):
        GPClassifier(RBF(1e-160), optimizer=None).fit(X, X[:, 0] > 0)


def test_variances_of_inducing_points_beyond_all_range_are_refused():
    X = 1e90 * np.random.default_rng(0).normal(size=(12, 2))
    model = GPClassifier(DotProduct(), inducing=3, likelihood="logit", inference="ep")
    with pytest.raises(ValueError, match=r"not finite, or beyond 1e[+]75"):
        model.fit(X, X[:, 0] > 0)


def test_slopes_of_saturated_probits_do_not_overflow():
    """At z = 37 the Mills ratio is 1e300, and √(1 + v) times it is beyond all range."""
    plus, minus = Probit().slopes(np.array([37.4e8, -37.4e8]), np.full(2, 1e16))
    assert plus[0] == 0 or plus[0] < 1e-300
    assert plus[1] == pytest.approx(37.4e-8, rel=1e-2)
    np.testing.assert_array_equal(minus, -plus[::-1])


def flipped(n=22, seed=46):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y, np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=-1))


def test_skipped_sites_are_said_to_depend_on_the_start():
    x = np.random.default_rng(1).normal(size=(2, 12))
    K = 30.0 * np.exp(-0.5 * (x[0, :, None] - x[0]) ** 2) + 0.1 * np.eye(12)
    y = np.sign(x[0] + x[1])

    def infer(start=None):
        return postlin.infer(K, y, likelihood="noisy_threshold", inference=EP("skip"), start=start)

    first, text = heard(infer)
    assert first.converged
    assert "the result depends on the start" in text
    assert first.is_unusable
    held = first.iterate.proposal.overruled
    start = Sites(*(np.where(held, 1.5 * part, part) for part in first.sites))
    second, text = heard(lambda: infer(start))
    assert second.converged
    assert "the result depends on the start" in text
    assert abs(first.log_evidence - second.log_evidence) > 1e-4


def test_an_evidence_above_zero_is_said_to_be_none():
    rng = np.random.default_rng(272)
    n, x = int(rng.integers(2, 6)), rng.normal(size=2)
    K = 10.0 ** rng.integers(0, 7) * np.exp(-0.5 * (x[:, None] - x) ** 2 / 10.0 ** rng.integers(-1, 3))
    assert n == 2
    found, text = heard(
        lambda: postlin.infer(
            K, np.sign(rng.normal(size=2)), likelihood="noisy_threshold", inference=EP("small_variance")
        )
    )
    assert found.log_evidence > 0
    assert found.is_unusable
    assert "but no probability is above 1" in text


def test_no_search_uses_skipped_sites(monkeypatch):
    X, y, _ = flipped(30)
    used, clean, infer = [], set(), ExactModel.infer

    def watched(self, at, *args):
        found = infer(self, at, *args)
        if not found.iterate.proposal.overruled.any():
            clean.add(at.theta.tobytes())
        return found

    monkeypatch.setattr(ExactModel, "infer", watched)
    model = GPClassifier(
        ConstantKernel(1.0) * RBF(1.0),
        likelihood=NoisyThreshold(0.2),
        inference=EP("skip"),
        callback=used.append,
    )
    _, text = heard(lambda: model.fit(X, y))
    assert "no search for hyperparameters uses it" in text
    assert all(evaluation.theta.tobytes() in clean for evaluation in used)


def test_the_gradient_of_small_variances_is_that_of_differences():
    """Also where a replaced site has next to no precision, from which its mean cannot be computed."""
    rng = np.random.default_rng(516)
    n = int(rng.integers(5, 40))
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)
    variance, squared = 10.0 ** rng.uniform(-1, 3), 10 ** rng.uniform(-0.5, 1)
    smooth = variance * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=-1) / squared)
    noise, epsilon = rng.choice([1e-3, 0.1, 1]), rng.choice([0.01, 0.05, 0.2])
    rule = EP("small_variance", small_variance=0.1)

    def infer(t, start=None):
        options = {
            "likelihood": NoisyThreshold(epsilon),
            "inference": rule,
            "tol": 1e-11,
            "max_iter": 200,
        }
        K = np.exp(t[0]) * smooth + noise * np.eye(n)
        return heard(lambda: postlin.infer(K, y, start=start, **options))[0]

    found = infer([0.0])
    replaced = found.iterate.proposal.changed
    assert found.converged
    assert replaced.any()
    slope = float(np.sum(found.evidence_gradient() * smooth))
    (expected,) = central_difference(lambda t: infer(t, found.sites).log_evidence, [0.0])
    assert slope == pytest.approx(expected, rel=1e-4)
