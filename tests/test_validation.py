"""Bad input to ``infer``: one clear error each, before any work."""

import numpy as np
import pytest

import postlin
from postlin import EP, PL, Sites, _validation
from postlin.schedules import Hybrid, Parallel, Sequential

GOOD = np.eye(2)
Y = np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("K", "y", "options", "message"),
    [
        (np.ones((2, 3)), Y, {}, "K must be a square matrix"),
        (np.ones(4), Y, {}, "K must be a square matrix"),
        (np.empty((0, 0)), [], {}, "K is empty"),
        ([[1.0, 0.5], [0.4, 1.0]], Y, {}, r"K must be symmetric, but K\[0, 1\]"),
        ([[-1.0, 0.0], [0.0, 1.0]], Y, {}, r"prior variance K\[0, 0\] = -1 is out of range"),
        ([[np.nan, 0.0], [0.0, 1.0]], Y, {}, r"K\[0, 0\] is nan"),
        ([[0.0, 0.0], [0.0, 1.0]], Y, {}, r"prior variance K\[0, 0\] = 0 is out of range"),
        (1e100 * GOOD, Y, {}, "out of range"),
        ("abc", Y, {}, "K must be a square matrix of numbers, got str"),
        (1j * GOOD, Y, {}, "K must be a square matrix of numbers"),
        ([[1.0], [1.0, 2.0]], Y, {}, "K must be a square matrix of numbers"),
        (GOOD, Y, {"prior_mean": "a"}, "prior_mean must be a number"),
        (GOOD, Y, {"tol": True}, "tol must be a positive number"),
        (GOOD, [1.0, np.inf], {}, r"y\[1\] is inf"),
        (GOOD, [1.0], {}, r"y must have shape \(2,\)"),
        (GOOD, ["a", "b"], {}, "y must hold numbers"),
        (GOOD, [0.0, 1.0], {}, r"only -1 and \+1 for the probit likelihood, but y\[0\] is 0"),
        (GOOD, Y, {"prior_mean": [0.0, 1.0, 2.0]}, "prior_mean must be"),
        (GOOD, Y, {"prior_mean": np.nan}, "prior_mean must be finite"),
        (GOOD, Y, {"start": Sites(np.ones(3), np.ones(3))}, "sites for 2 points"),
        (GOOD, Y, {"start": Sites(np.array([1, np.nan]), np.ones(2))}, "start holds NaN"),
        (GOOD, Y, {"start": 3.0}, "start must be Sites"),
        (GOOD, Y, {"tol": -1.0}, "tol must be a positive number"),
        (GOOD, Y, {"max_iter": 2.5}, "max_iter must be a positive integer"),
        (
            GOOD,
            Y,
            {"likelihood": "gauss"},
            "likelihood must be one of 'probit', 'logit', 'noisy_threshold'",
        ),
        (GOOD, Y, {"inference": None}, "inference must be one of 'pl', 'cl', 'ep', 'laplace'"),
        (GOOD, Y, {"schedule": 5}, "schedule must be one of 'parallel', 'sequential', 'hybrid'"),
    ],
)
def test_one_clear_sentence(K, y, options, message):
    with pytest.raises(ValueError, match=message):
        postlin.infer(K, y, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EP("forget"), "negative_sites must be one of 'keep'"),
        (lambda: EP(small_variance=0), "small_variance must be positive"),
        (lambda: PL(evidence_order=0), "evidence_order must be a positive integer"),
        (lambda: Parallel(iterations=0), "iterations must be a positive integer"),
        (lambda: Sequential(block=0), "block must be a positive integer"),
        (lambda: Hybrid(first=0), "first must be a positive integer"),
    ],
)
def test_options_are_checked_where_they_are_given(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_indefinite_matrix_is_refused():
    K = np.array([[1.0, 3.0], [3.0, 1.0]])
    with pytest.raises(ValueError, match="K is not positive semi-definite"):
        postlin.infer(K, Y)


def test_cross_covariance_must_fit():
    result = postlin.infer(GOOD, Y)
    with pytest.raises(ValueError, match="did you pass its transpose"):
        result.predict_latent(np.ones((5, 2)), np.ones(5))


def test_memory_is_estimated_first(monkeypatch):
    monkeypatch.setattr(_validation, "available_memory", lambda: 2.0**20)
    with pytest.raises(MemoryError, match=r"exact inference on 400 points.*at most 181 rows"):
        postlin.infer(np.eye(400), np.ones(400))


def test_available_memory_is_a_positive_number():
    assert _validation.available_memory() > 2**20


def test_labels_as_integers_are_fine():
    assert postlin.infer(GOOD.astype(int), [1, -1]).converged
