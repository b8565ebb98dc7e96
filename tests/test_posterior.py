"""Dense algebra against the textbook's inverses, for strong, weak, zero and negative sites."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dense_posterior

from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.rules.sites import Sites


def random_problem(seed, n=30, scale=1.0, low=-3, high=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    K = scale * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1)) + 0.1 * np.eye(n)
    tau = 10 ** rng.uniform(low, high, n) / scale
    return K, rng.normal(size=n), Sites(tau, rng.normal(size=n))


def assert_posterior_is_exact(K, mu, sites, rtol=1e-8):
    posterior = GaussianPosterior(K, mu, sites)
    mean, covariance = dense_posterior(K, mu, *sites)
    np.testing.assert_allclose(posterior.mean, mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=rtol, atol=rtol * K.max())
    np.testing.assert_allclose(posterior.variance, covariance.diagonal(), rtol=rtol)
    np.testing.assert_allclose(
        posterior.gap, 1 - sites.tau * covariance.diagonal(), rtol=1e-5, atol=1e-9
    )
    np.testing.assert_allclose(posterior.weights, np.linalg.solve(K, mean - mu), rtol=1e-5, atol=1e-6)
    sign, log_det = np.linalg.slogdet(np.eye(len(K)) + K * sites.tau)
    assert sign > 0
    assert posterior.half_log_det == pytest.approx(0.5 * log_det, rel=1e-9, abs=1e-10)
    return posterior


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e4])
def test_positive_sites(scale):
    assert_posterior_is_exact(*random_problem(0, scale=scale))


def test_sites_of_every_strength_down_to_none():
    K, mu, sites = random_problem(1)
    sites.tau[:5] = 0.0
    sites.tau[5:10] = 1e-300
    sites.tau[10:15] = 1e-9
    sites.tau[15:20] = 1e4
    assert_posterior_is_exact(K, mu, sites)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8))
def test_negative_sites_that_leave_a_posterior(seed, count):
    K, mu, sites = random_problem(seed, n=12)
    sites.tau[:count] = -np.random.default_rng(seed).uniform(0, 0.3, count) / np.linalg.eigvalsh(K)[-1]
    posterior = assert_posterior_is_exact(K, mu, sites)
    assert np.linalg.eigvalsh(posterior.covariance)[0] > 0


def test_negative_sites_that_leave_none():
    K, mu, sites = random_problem(2)
    sites.tau[0] = -100.0
    with pytest.raises(NotPositiveDefiniteError, match="negative sites"):
        GaussianPosterior(K, mu, sites)


def test_no_sites_is_the_prior():
    K, mu, _ = random_problem(3)
    posterior = GaussianPosterior(K, mu, Sites(np.zeros(30), np.zeros(30)))
    np.testing.assert_allclose(posterior.covariance, K, atol=1e-13)
    np.testing.assert_array_equal(posterior.mean, mu)
    assert posterior.log_normaliser == 0.0


def test_weak_sites_keep_their_digits():
    """(1 − [B⁻¹]ᵢᵢ)/τ would lose all of them here."""
    K, mu, sites = random_problem(4, n=60, low=-14, high=-10)
    assert_posterior_is_exact(K, mu, sites, rtol=1e-11)


@pytest.mark.parametrize("negative", [False, True])
def test_prediction_is_conditioning(negative):
    K, mu, sites = random_problem(5, n=30)
    if negative:
        sites.tau[20:23] = -0.05
    train, new = slice(0, 20), slice(20, 30)
    if negative:
        train, new = slice(10, 30), slice(0, 10)
    kept = Sites(sites.tau[train], sites.nu[train])
    posterior = GaussianPosterior(np.ascontiguousarray(K[train, train]), mu[train], kept)
    latent = posterior.predict(K[train, new], K.diagonal()[new], mu[new])
    everything = Sites(np.zeros(30), np.zeros(30))
    everything.tau[train], everything.nu[train] = kept
    mean, covariance = dense_posterior(K, mu, *everything)
    np.testing.assert_allclose(latent.mean, mean[new], rtol=1e-8)
    np.testing.assert_allclose(latent.variance, covariance.diagonal()[new], rtol=1e-8)


def test_predicted_variance_is_never_below_rounding():
    K = np.ones((3, 3))
    posterior = GaussianPosterior(K, np.zeros(3), Sites(np.full(3, 1e13), np.zeros(3)))
    assert (posterior.predict(K, np.ones(3)).variance > 0).all()


def test_log_normaliser_is_the_gaussian_integral():
    """Against the evidence of Gaussian observations, which sites are up to a factor."""
    K, mu, sites = random_problem(6, n=8)
    posterior = GaussianPosterior(K, mu, sites)
    noise = np.diag(1 / sites.tau)
    target = sites.nu / sites.tau - mu
    _, log_det = np.linalg.slogdet(2 * np.pi * (K + noise))
    log_density = -0.5 * target @ np.linalg.solve(K + noise, target) - 0.5 * log_det
    scale = 0.5 * np.log(2 * np.pi / sites.tau) + 0.5 * sites.nu**2 / sites.tau
    assert posterior.log_normaliser == pytest.approx(log_density + scale.sum(), rel=1e-10)


@pytest.mark.parametrize("negative", [False, True])
def test_pull_back_matches_differences(negative):
    K, mu, sites = random_problem(7, n=6)
    if negative:
        sites.tau[:2] = -0.05
    rng = np.random.default_rng(0)
    mean_bar, variance_bar = rng.normal(size=6), rng.normal(size=6)

    def objective(matrix):
        posterior = GaussianPosterior(matrix, mu, sites)
        return posterior.log_normaliser + mean_bar @ posterior.mean + variance_bar @ posterior.variance

    K_bar = GaussianPosterior(K, mu, sites).pull_back(mean_bar, variance_bar)
    np.testing.assert_array_equal(K_bar, K_bar.T)
    step = 1e-6
    for i in range(6):
        for j in range(i + 1):
            E = np.zeros((6, 6))
            E[i, j] = E[j, i] = step
            slope = (objective(K + E) - objective(K - E)) / (2 * step)
            assert np.sum(K_bar * E) / step == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_a_matrix_that_is_no_covariance_is_refused():
    with pytest.raises(NotPositiveDefiniteError, match="not positive semi-definite"):
        GaussianPosterior(
            np.array([[1.0, 5.0], [5.0, 1.0]]), np.zeros(2), Sites(np.ones(2), np.ones(2))
        )
