"""The certificate: above one exactly where the undamped iteration does not stay at the solution."""

import numpy as np
import pytest

import postlin
from postlin import Sites
from postlin.inference.exact.problem import ExactMap
from postlin.rules import REGISTRY as RULES
from postlin.schedules import Parallel

SETTINGS = [
    (name, likelihood, variance, length_scale)
    for name in ("crab", "thyroid")
    for likelihood in ("probit", "logit", "noisy_threshold")
    for variance in (1e-2, 1.0, 1e2, 1e4)
    for length_scale in (0.5, 2.0, 8.0)
]


def test_certificate_tells_both_kinds_apart(data):
    rng = np.random.default_rng(0)
    counts = {True: 0, False: 0}
    for name, likelihood, variance, length_scale in SETTINGS:
        d = data(name, 100)
        K = d.covariance(variance, length_scale)
        result = postlin.infer(K, d.y, likelihood=likelihood)
        radius = result.spectral_radius()
        if abs(radius - 1) < 0.02:
            continue  # hundreds of iterations would not tell
        tau = result.sites.tau * np.exp(1e-5 * rng.standard_normal(100))
        nu = result.sites.nu * (1 + 1e-5 * rng.standard_normal(100))
        plain = postlin.infer(
            K, d.y, likelihood=likelihood, schedule=Parallel(iterations=600), start=Sites(tau, nu)
        )
        stays = plain.residual < 1e-7
        assert stays == (radius < 1), (name, likelihood, variance, length_scale, radius, plain.residual)
        counts[stays] += 1
    assert counts[True] >= 20
    assert counts[False] >= 10


def test_rate_of_the_plain_iteration_is_the_radius(data):
    d = data("crab", 60)
    K = d.covariance(1.0, 2.0)
    radius = postlin.infer(K, d.y).spectral_radius()
    residuals = postlin.infer(K, d.y, schedule=Parallel(iterations=30)).history.residuals
    rate = (residuals[10] / residuals[5]) ** 0.2
    assert rate == pytest.approx(radius, rel=0.05)


@pytest.mark.parametrize("rule", RULES)
def test_products_agree_with_the_matrix_written_out_and_with_differences(data, rule):
    d = data("crab", 30)
    result = postlin.infer(d.covariance(4.0, 1.5), d.y, inference=rule, likelihood="logit")
    linearised = ExactMap(result.problem, result.iterate)
    J = linearised.dense()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 30))
    np.testing.assert_allclose(linearised.apply(x.ravel()), J @ x.ravel(), atol=1e-12)
    np.testing.assert_allclose(linearised.apply_transposed(x.ravel()), J.T @ x.ravel(), atol=1e-12)
    # J x by differences of the map itself
    m, v = result.mean, result.variance
    step = 1e-6

    def mapped(s):
        tau = result.sites.tau + s * x[0] / v
        nu = result.sites.nu + s * (x[1] / np.sqrt(v) + m * x[0] / v)
        wanted = result.problem.iterate(Sites(tau, nu)).proposal.sites
        return np.array([v * wanted.tau, np.sqrt(v) * (wanted.nu - m * wanted.tau)])

    numeric = (mapped(step) - mapped(-step)) / (2 * step)
    np.testing.assert_allclose(linearised.apply(x.ravel()), numeric.ravel(), atol=1e-6)


def test_arnoldi_agrees_with_all_eigenvalues(data):
    d = data("thyroid", 170)
    result = postlin.infer(d.covariance(100.0, 2.0), d.y)
    eigenvalues = np.linalg.eigvals(ExactMap(result.problem, result.iterate).dense())
    assert result.spectral_radius() == pytest.approx(np.abs(eigenvalues).max(), rel=1e-6)
