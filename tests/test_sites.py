"""The site formula against the paper's (A, b, Ω) and against moment matching by quadrature."""

import numpy as np
import pytest
from reference import density, integrate

from postlin.likelihoods import REGISTRY
from postlin.rules.binary import CL, EP, PL, Laplace
from postlin.rules.sites import SiteView

NAMES = sorted(REGISTRY)


def view(m, v, tau, nu):
    m, v, tau, nu = (np.array([float(x)]) for x in (m, v, tau, nu))
    return SiteView(m, v, tau, nu, 1 - tau * v)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_pl_sites_are_the_papers_statistical_linear_regression(name, y):
    """Supplement's moments, with the total variance corrected to 4α(1−α)."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        m, v = rng.normal() * 2, rng.uniform(0.05, 6)
        alpha = integrate(lambda f: density(name, 1, f), m, v)
        covariance = integrate(lambda f: (f - m) * (2 * density(name, 1, f) - 1), m, v)
        A = covariance / v
        b = 2 * alpha - 1 - A * m
        omega = 4 * alpha * (1 - alpha) - A**2 * v
        sites = PL().propose(REGISTRY[name](), np.array([y]), view(m, v, 0, 0)).sites
        assert sites.tau[0] == pytest.approx(A**2 / omega, rel=1e-9)
        assert sites.nu[0] == pytest.approx(A * (y - b) / omega, rel=1e-9)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_pl_probit_sites_match_the_closed_form_to_the_last_digits(y):
    from scipy.stats import norm

    rng = np.random.default_rng(1)
    m, v = rng.normal(size=300), rng.uniform(0.05, 6, 300)
    r = np.sqrt(1 + v)
    alpha = norm.cdf(m / r)
    A = 2 / r * norm.pdf(m / r)
    b = 2 * alpha - 1 - A * m
    omega = 4 * alpha * norm.cdf(-m / r) - A**2 * v
    zero = np.zeros(300)
    sites = (
        PL().propose(REGISTRY["probit"](), np.full(300, y), SiteView(m, v, zero, zero, zero + 1)).sites
    )
    np.testing.assert_allclose(sites.tau, A**2 / omega, rtol=1e-12)
    np.testing.assert_allclose(sites.nu, A * (y - b) / omega, rtol=1e-12, atol=1e-12)


def test_the_supplements_total_variance_is_a_misprint():
    """Monte Carlo at m = 0.7, P = 2: 4α(1−α) and not 1−α²."""
    rng = np.random.default_rng(2)
    f = 0.7 + np.sqrt(2) * rng.standard_normal(1_000_000)
    from scipy.special import ndtr

    labels = np.where(rng.uniform(size=f.size) < ndtr(f), 1.0, -1.0)
    alpha = ndtr(0.7 / np.sqrt(3))
    assert labels.var() == pytest.approx(4 * alpha * (1 - alpha), abs=3e-3)
    assert abs(labels.var() - (1 - alpha**2)) > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_ep_matches_the_moments_of_cavity_times_likelihood(name):
    rng = np.random.default_rng(3)
    for _ in range(10):
        m_c, v_c, y = rng.normal() * 2, rng.uniform(0.1, 4), rng.choice([-1.0, 1.0])
        z = integrate(lambda f: density(name, y, f), m_c, v_c)
        mean = integrate(lambda f: f * density(name, y, f), m_c, v_c) / z
        variance = integrate(lambda f: (f - mean) ** 2 * density(name, y, f), m_c, v_c) / z
        # a posterior marginal whose cavity is N(m_c, v_c), with a site of its own
        tau, nu = 0.4 / v_c, 0.3
        v = 1 / (1 / v_c + tau)
        sites = (
            EP().propose(REGISTRY[name](), np.array([y]), view(v * (m_c / v_c + nu), v, tau, nu)).sites
        )
        new_variance = 1 / (1 / v_c + sites.tau[0])
        assert new_variance == pytest.approx(variance, rel=1e-8)
        assert new_variance * (m_c / v_c + sites.nu[0]) == pytest.approx(mean, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("name", ["probit", "logit"])
def test_laplace_takes_slope_and_curvature_of_the_log_density(name):
    f, step = 0.6, 1e-4
    log_p = [np.log(density(name, -1, f + k * step)) for k in (-1, 0, 1)]
    slope = (log_p[2] - log_p[0]) / (2 * step)
    curvature = -(log_p[2] - 2 * log_p[1] + log_p[0]) / step**2
    sites = Laplace().propose(REGISTRY[name](), np.array([-1.0]), view(f, 1.0, 0, 0)).sites
    assert sites.tau[0] == pytest.approx(curvature, rel=1e-6)
    assert sites.nu[0] == pytest.approx(curvature * f + slope, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "rule", [PL(), CL(), EP(), EP("clamp"), EP("skip"), EP("small_variance"), Laplace()]
)
def test_jacobians_match_differences(rule, name):
    likelihood = REGISTRY[name]()
    if isinstance(rule, Laplace) and name == "noisy_threshold":
        return
    rng = np.random.default_rng(4)
    m, v, y = rng.normal(size=40), rng.uniform(0.2, 3, 40), rng.choice([-1.0, 1.0], 40)
    tau, nu = rng.uniform(-0.2, 0.9, 40) / v, rng.normal(size=40)

    def propose(m, v, tau, shift):
        nu_here = nu + shift + m0 * (tau - tau0)
        return rule.propose(likelihood, y, SiteView(m, v, tau, nu_here, 1 - tau * v)).sites

    m0, tau0 = m, tau
    base = (m, v, tau, np.zeros(40))
    jacobian = rule.propose(likelihood, y, SiteView(m, v, tau, nu, 1 - tau * v)).jacobian()
    for column in range(4):
        step = 1e-6
        low, high = (
            propose(*(x + (s * step if k == column else 0) for k, x in enumerate(base)))
            for s in (-1, 1)
        )
        d_tau = (high.tau - low.tau) / (2 * step)
        d_shift = (high.nu - low.nu) / (2 * step) - m0 * d_tau
        if rule == EP("skip"):  # held sites count as constant
            held = rule.propose(likelihood, y, SiteView(m, v, tau, nu, 1 - tau * v)).overruled
            d_tau[held] = d_shift[held] = 0.0
        np.testing.assert_allclose(jacobian[0, column], d_tau, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(jacobian[1, column], d_shift, rtol=2e-5, atol=1e-6)
