"""Tables of log Z and roots of singular covariances, on which the Monte Carlo of ``verify`` stands."""

import numpy as np
import pytest

from postlin.likelihoods import REGISTRY, Logit, NoisyThreshold, Probit, WithNoise
from postlin.likelihoods.tables import Tables
from postlin.linalg.factor import PivotedRoot

LIKELIHOODS = [*(make() for make in REGISTRY.values()), WithNoise(NoisyThreshold(), 0.1)]


def direct(likelihood, positive, m, v):
    jet = likelihood.jet(np.where(positive, 1.0, -1.0) + 0 * m, m, v + 0 * m)
    return jet.log_z, jet.g


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_tables_of_many_variances_agree_with_jets(likelihood):
    rng = np.random.default_rng(0)
    v = 0.01 + rng.gamma(1.0, 2.0, size=30)
    low, high = -3.0 - rng.random(30), 2.0 + rng.random(30)
    tables = Tables(likelihood, low, high, v, accuracy=1e-8)
    m, positive = rng.uniform(low, high, size=(200, 30)), rng.random(30) < 0.5
    value, slope = tables(positive, m)
    log_z, g = direct(likelihood, positive, m, v)
    np.testing.assert_array_less(np.abs(value - log_z), 1e-7 * (1 + np.abs(log_z)))
    np.testing.assert_allclose(slope, g, atol=2e-4)


@pytest.mark.parametrize("likelihood", [Probit(), Logit(), WithNoise(NoisyThreshold(), 0.1)], ids=repr)
def test_one_table_serves_all_points_even_outside_of_it(likelihood):
    rng = np.random.default_rng(1)
    tables = Tables(likelihood, np.array([-5.0]), np.array([5.0]), np.zeros(1), accuracy=1e-9)
    m, positive = 20.0 * rng.standard_normal((50, 40)), rng.random(40) < 0.5
    m[0, :3] = -5.0, 5.0, np.nextafter(5.0, 0.0)
    value, slope = tables(positive, m)
    log_z, g = direct(likelihood, positive, m, 0.0)
    np.testing.assert_allclose(value, log_z, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(slope, g, rtol=1e-4, atol=1e-5)


def test_a_likelihood_that_is_too_steep_for_tables_is_computed():
    likelihood = WithNoise(NoisyThreshold(), 1e-12)
    tables = Tables(likelihood, np.array([-50.0]), np.array([50.0]), np.zeros(1), accuracy=1e-9)
    m = np.array([[-1.0, -1e-6, 2e-7, 3.0]])
    positive = np.array([True, False, True, False])
    for found, jet in zip(tables(positive, m), direct(likelihood, positive, m, 0.0), strict=True):
        np.testing.assert_array_equal(found, jet)


@pytest.mark.parametrize("variance", [1e-12, 0.1])
def test_means_that_are_no_numbers_have_no_probability(variance):
    likelihood = WithNoise(NoisyThreshold(), variance)
    tables = Tables(likelihood, np.array([-50.0]), np.array([50.0]), np.zeros(1), accuracy=1e-9)
    value, slope = tables(np.array([True, True, True]), np.array([[np.nan, np.inf, 1.0]]))
    assert list(value[0, :2]) == [-np.inf, -np.inf]
    assert np.isfinite(value[0, 2])
    assert not slope[0, :2].any()


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_pivoted_root_makes_the_covariance_whatever_its_scale(noise):
    x = np.linspace(-2, 2, 60)
    scale = np.exp(3.0 * x)
    K = scale[:, None] * (np.exp(-0.5 * (x[:, None] - x) ** 2) + noise * np.eye(60)) * scale
    root = PivotedRoot(K)
    assert root.rank == (60 if noise else root.rank)
    assert noise or root.rank < 20
    error = (root.matrix @ root.matrix.T - K) / np.sqrt(np.outer(K.diagonal(), K.diagonal()))
    assert np.abs(error).max() < 2e-10
    z = np.random.default_rng(0).standard_normal((root.rank, 3))
    np.testing.assert_allclose(root.whitened((root.matrix @ z)[root.pivots]), z, atol=1e-9)
