"""The likelihood known by two functions: conjugate cases, Monte Carlo, finite differences."""

import numpy as np
import pytest
from reference import central_difference

import postlin
from postlin.likelihoods import ConditionalMoments, Probit
from postlin.rules import REGISTRY

#: The rules that need no density.
RULES = [name for name, rule in REGISTRY.items() if not rule.needs_density]


def gaussian(noise):
    return ConditionalMoments(lambda f: f, lambda f: np.full_like(f, noise))


def test_regression_of_a_gaussian_is_exact():
    y, m, v = np.array([1.0, -3.0]), np.array([0.2, 5.0]), np.array([0.5, 4.0])
    response = gaussian(0.3).regression(y, m, v)
    np.testing.assert_allclose(response.rho, 1 / (v + 0.3), rtol=1e-13)
    np.testing.assert_allclose(response.g, (y - m) / (v + 0.3), rtol=1e-13)


def test_binary_likelihood_by_its_moments_gives_the_binary_formula():
    rng = np.random.default_rng(0)
    m, v = rng.normal(size=20) * 2, rng.uniform(0.1, 9, 20)
    y = rng.choice([-1.0, 1.0], 20)
    from scipy.special import ndtr

    moments = ConditionalMoments(lambda f: 2 * ndtr(f) - 1, lambda f: 4 * ndtr(f) * ndtr(-f))
    general, binary = moments.regression(y, m, v), Probit().regression(y, m, v)
    for a, b in zip(general, binary, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_gaussian_observations_give_exact_regression(rule):
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-3, 3, 25))
    K = 2 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    y = np.sin(x) + 0.3 * rng.standard_normal(25)
    result = postlin.infer(K, y, likelihood=gaussian(0.09), inference=rule)
    noisy = K + 0.09 * np.eye(25)
    np.testing.assert_allclose(result.mean, K @ np.linalg.solve(noisy, y), atol=1e-8)
    np.testing.assert_allclose(result.covariance, K - K @ np.linalg.solve(noisy, K), atol=1e-8)
    _, log_det = np.linalg.slogdet(2 * np.pi * noisy)
    assert result.log_evidence == pytest.approx(-0.5 * y @ np.linalg.solve(noisy, y) - 0.5 * log_det)
    assert result.n_iter <= 3


@pytest.mark.parametrize("rule", RULES)
def test_counts_are_explained_and_predicted(rule):
    rng = np.random.default_rng(2)
    x = np.linspace(-2, 2, 40)
    rate = np.exp(1 + np.sin(2 * x))
    y = rng.poisson(rate).astype(float)
    K = np.exp(-0.5 * (x[:, None] - x) ** 2 / 0.36) + 1e-6 * np.eye(40)
    result = postlin.infer(K, y, likelihood=ConditionalMoments(np.exp, np.exp), inference=rule)
    assert result.converged
    predicted = result.predict_moments(K, K.diagonal().copy())
    assert np.corrcoef(predicted.mean, rate)[0, 1] > 0.8
    assert (predicted.variance > predicted.mean).all()  # a Poisson rate that is itself uncertain


def test_prediction_matches_monte_carlo():
    rng = np.random.default_rng(3)
    f = 0.4 + np.sqrt(0.5) * rng.standard_normal(1_000_000)
    counts = rng.poisson(np.exp(f))
    predicted = ConditionalMoments(np.exp, np.exp).predict(np.array([0.4]), np.array([0.5]))
    assert predicted.mean[0] == pytest.approx(counts.mean(), rel=1e-2)
    assert predicted.variance[0] == pytest.approx(counts.var(), rel=2e-2)


@pytest.mark.parametrize("rule", RULES)
def test_the_evidence_is_that_of_the_linearised_model(rule):
    """log N(y; A μ + b, A K A + Ω): PL takes (A, b, Ω) at the marginals, CL at the cavities."""
    rng = np.random.default_rng(5)
    x, likelihood = rng.uniform(-2, 2, 12), ConditionalMoments(np.exp, np.exp)
    y, K = rng.poisson(np.exp(np.sin(x))).astype(float), np.exp(-0.5 * (x[:, None] - x) ** 2)
    found = postlin.infer(K, y, likelihood=likelihood, inference=rule, prior_mean=0.2, tol=1e-11)
    m, v = found.mean, found.variance
    if rule == "cl":
        m, v = (m - v * found.sites.nu) / (1 - v * found.sites.tau), v / (1 - v * found.sites.tau)
    s = likelihood.linearise(m, v)
    error = y - (s.mean + s.slope * (0.2 - m))
    covariance = s.slope[:, None] * K * s.slope + np.diag(s.variance - s.slope**2 * v)
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    expected = -0.5 * error @ np.linalg.solve(covariance, error) - 0.5 * log_det
    assert found.log_evidence == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("weighted", [False, True])
def test_evidence_gradient_matches_differences(rule, weighted):
    rng = np.random.default_rng(4)
    x = rng.uniform(-2, 2, 15)
    y = rng.poisson(np.exp(np.sin(x))).astype(float)
    squared = (x[:, None] - x) ** 2
    weights = rng.uniform(0.3, 3, 15) if weighted else None

    def covariance(theta):
        return np.exp(theta[0] - 0.5 * squared / np.exp(2 * theta[1])) + 0.05 * np.eye(15)

    def infer(theta):
        return postlin.infer(
            covariance(theta),
            y,
            likelihood=ConditionalMoments(np.exp, np.exp),
            inference=rule,
            weights=weights,
            tol=1e-11,
        )

    theta = np.array([-0.3, 0.2])
    K_bar = infer(theta).evidence_gradient()
    numeric = central_difference(lambda t: infer(t).log_evidence, theta)
    implied = [np.sum(K_bar * d) for d in np.moveaxis(_kernel_slopes(covariance, theta), 0, 0)]
    np.testing.assert_allclose(implied, numeric, rtol=1e-6)


def _kernel_slopes(covariance, theta, step=1e-6):
    return np.array(
        [(covariance(theta + e) - covariance(theta - e)) / (2 * step) for e in np.eye(2) * step]
    )


@pytest.mark.parametrize("inference", ["ep", "laplace"])
def test_rules_that_need_a_density_cannot_use_it(inference):
    with pytest.raises(ValueError, match="needs a density"):
        postlin.infer(np.eye(2), np.ones(2), likelihood=gaussian(1.0), inference=inference)


def test_labels_have_no_probabilities_here():
    result = postlin.infer(np.eye(2), np.ones(2), likelihood=gaussian(1.0))
    with pytest.raises(ValueError, match="predict_moments"):
        result.predict_proba(np.eye(2), np.ones(2))


@pytest.mark.parametrize(
    ("mean", "variance", "message"),
    [
        (lambda f: f[..., 0], lambda f: f, "must act on arrays element by element"),
        (lambda f: f * np.nan, lambda f: f, "mean function returned nan"),
        (lambda f: f, lambda f: f - 1e9, "variance function returned -"),
    ],
)
def test_functions_that_misbehave_are_named(mean, variance, message):
    with pytest.raises(ValueError, match=message):
        postlin.infer(np.eye(2), np.ones(2), likelihood=ConditionalMoments(mean, variance))


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="mean must be a function"):
        ConditionalMoments(3.0, np.exp)
    with pytest.raises(ValueError, match="resolution must be positive"):
        ConditionalMoments(np.exp, np.exp, resolution=0)
