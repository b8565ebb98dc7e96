"""The correction towards the exact posterior, against integrals that contain no approximation."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import density, integrate
from scipy.special import log_ndtr, ndtr
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel

import postlin
from postlin import EP, PL, GPClassifier
from postlin.inference.exact import expansion
from postlin.inference.exact.expansion import Expansion
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.likelihoods import REGISTRY as LIKELIHOODS
from postlin.likelihoods import ConditionalMoments, DensityLikelihood, NoisyThreshold, Probit, WithNoise
from postlin.linalg import factor
from postlin.linalg.arrays import on_host
from postlin.rules import REGISTRY as RULES
from postlin.rules.sites import Sites, SiteView

KERNEL = ConstantKernel(10.0) * RBF(1.5) + WhiteKernel(0.1)
WITH = sorted(name for name, rule in RULES.items() if rule.has_correction)


class OwnProbit(DensityLikelihood):
    """Probit, given by its density alone."""

    name = "own_probit"

    def log_density(self, y, f):
        """log Φ(y f)."""
        return log_ndtr(y * f)


def covariance(seed, n, scale=3.0):
    """A covariance of n + 1 points, the last one new, and labels of the others."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 1, 2))
    K = scale * np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(-1)) + 0.2 * np.eye(n + 1)
    return K, rng.choice([-1.0, 1.0], size=n)


def orthant(K, y, noise=1.0):
    """∫ Π Φ(yᵢ fᵢ/√noise) N(f; 0, K) df, a probability of signs; noise = 0 makes it one of steps."""
    signed = (K + noise * np.eye(len(y))) * np.outer(y, y)
    if len(y) == 1:
        return 0.5
    r = signed / np.sqrt(np.outer(signed.diagonal(), signed.diagonal()))
    if len(y) == 2:
        return 0.25 + np.arcsin(r[0, 1]) / (2 * np.pi)
    if len(y) == 3:
        return 0.125 + np.arcsin(r[np.triu_indices(3, 1)]).sum() / (4 * np.pi)
    gaussian = multivariate_normal(np.zeros(len(y)), signed, maxpts=200_000, abseps=1e-6, releps=1e-5)
    return gaussian.cdf(np.zeros(len(y)))


def at_three_places(latent, noise, y):
    """∫ Π Φ(yᵢ f/√(1 + noise)) N(f; 0, K) df with two labels at each of three places, on a fine grid.

    Steps are small beside the width of Φ, so that the trapezoidal rule is exact to five digits.
    """
    root, z = np.linalg.cholesky(latent), np.arange(-8.0, 8.0, 0.12)
    weight = 0.12 * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    total, f = 1.0, np.zeros((3, 1, 1, 1))
    for i in range(3):
        along = [1, 1, 1]
        along[i] = len(z)
        f = f + root[:, i, None, None, None] * z.reshape(along)
        both = (ndtr(label * f[i] / np.sqrt(1.0 + noise)) for label in y[2 * i : 2 * i + 2])
        total = total * weight.reshape(along) * next(both) * next(both)
    return total.sum()


def with_flips(K, y, epsilon):
    """``orthant`` of steps whose labels are wrong at the rate ε."""
    flips = itertools.product((1.0, -1.0), repeat=len(y))
    weight = {1.0: 1.0 - epsilon, -1.0: epsilon}
    return sum(np.prod([weight[s] for s in f]) * orthant(K, y * f, 0.0) for f in flips)


def by_quadrature(K, y, p, order=40):
    """∫ Π p(yᵢ|fᵢ) N(f; 0, K) df by nested Gauss–Hermite quadrature."""
    x, w = np.polynomial.hermite_e.hermegauss(order)
    w = w / w.sum()
    nodes = np.array(list(itertools.product(x, repeat=len(y))))
    weights = np.prod(list(itertools.product(w, repeat=len(y))), axis=1)
    return weights @ np.prod(p(y, nodes @ np.linalg.cholesky(K).T), axis=1)


#: Each likelihood with its exact evidence.
EXACT = {
    "probit": (Probit(), orthant),
    "logit": (
        LIKELIHOODS["logit"](),
        lambda K, y: by_quadrature(K, y, lambda y, f: density("logit", y, f)),
    ),
    "noisy_threshold": (NoisyThreshold(0.05), lambda K, y: with_flips(K, y, 0.05)),
    "with_noise": (
        WithNoise(NoisyThreshold(0.05), 1.0),
        lambda K, y: with_flips(K + np.eye(len(y)), y, 0.05),
    ),
    "own": (OwnProbit(), orthant),
}


def test_every_likelihood_has_an_exact_evidence():
    assert set(LIKELIHOODS) <= set(EXACT)


@pytest.mark.parametrize("rule", WITH)
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("n", [2, 3])
def test_tiny_problems_come_closer_to_their_exact_evidence(name, rule, n):
    likelihood, exact = EXACT[name]
    errors = []
    for seed in range(12):
        K, y = covariance(seed, n, 1.5)
        K = K[:n, :n]
        found = postlin.infer(K, y, likelihood=likelihood, inference=rule)
        values = np.array([found.log_evidence, found.corrected_log_evidence])
        errors.append(np.abs(values - np.log(exact(K, y))))
    before, after = np.mean(errors, axis=0)
    assert after < 0.25 * before
    assert after < 2e-3


@pytest.mark.parametrize("rule", WITH)
@pytest.mark.parametrize("name", EXACT)
def test_tiny_problems_come_closer_to_their_exact_probabilities(name, rule):
    likelihood, exact = EXACT[name]
    errors = []
    for seed in range(12):
        K, y = covariance(seed, 2, 1.5)
        found = postlin.infer(K[:2, :2], y, likelihood=likelihood, inference=rule)
        p = exact(K, np.append(y, 1.0)) / exact(K[:2, :2], y)
        both = [found.predict_proba(K[:2, 2:], K[2:, 2], corrected=c)[0] for c in (False, True)]
        errors.append(np.abs(np.array(both) - p))
    before, after = np.mean(errors, axis=0)
    assert after < 0.5 * before
    assert after < 2e-3


@pytest.mark.parametrize(("rule", "part"), [("pl", 0.3), ("ep", 0.75)])
def test_probabilities_come_closer_to_those_of_the_exact_posterior(rule, part):
    """The exact ones are ratios of orthant probabilities (Genz) of seven and six dimensions."""
    errors = []
    for seed in range(6):
        K, y = covariance(seed, 6, 20.0)
        found = postlin.infer(K[:6, :6], y, inference=rule)
        p = orthant(K, np.append(y, 1.0)) / orthant(K[:6, :6], y)
        both = [found.predict_proba(K[:6, 6:], K[6:, 6], corrected=c)[0] for c in (False, True)]
        errors.append(np.abs(np.array(both) - p))
    before, after = np.mean(errors, axis=0)
    assert after < part * before


def ratio_of(likelihood_name, y, view):
    """p(y|f)/(s site(f)) of one point, normalised under its marginal by quadrature."""

    def ratio(f):
        return density(likelihood_name, y, f, 0.05) * np.exp(0.5 * view.tau * f**2 - view.nu * f)

    scale = integrate(ratio, view.mean, view.variance)
    return lambda f: ratio(f) / scale


@pytest.mark.parametrize("name", sorted(LIKELIHOODS))
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_moments_are_integrals_of_the_ratio(name, label):
    m, v, tau, nu = 0.3, 1.7, 0.2, -0.4
    view = SiteView(*np.array([[m], [v], [tau], [nu], [1.0 - tau * v]]))
    likelihood, _ = EXACT[name]
    found = expansion.moments(view, likelihood.jet(np.array([label]), *view.cavity))[:, 0]
    ratio = ratio_of(name, label, SiteView(m, v, tau, nu, 1.0))
    for order, value in enumerate(found, start=1):
        hermite = np.polynomial.hermite_e.HermiteE.basis(order)
        exact = integrate(lambda f, h=hermite: h((f - m) / np.sqrt(v)) * ratio(f), m, v)
        assert value == pytest.approx(exact, abs=1e-7)


def test_an_improper_cavity_has_no_moments():
    view = SiteView(*np.array([[0.0], [1.0], [2.0], [0.0], [-1.0]]))
    at = np.zeros(1), np.ones(1)
    assert not expansion.moments(view, Probit().jet(np.ones(1), *at)).any()


@pytest.mark.parametrize("rule", WITH)
def test_pairs_are_expectations_of_products_of_ratios(rule):
    """Σ log E[rᵢ rⱼ] over pairs, by Monte Carlo of its definition with antithetic samples."""
    K, y = covariance(1, 4, 2.0)
    K = 0.5 * K[:4, :4] + 0.5 * np.diag(K[:4, :4].diagonal())  # weaker correlations
    found = postlin.infer(K, y, inference=rule)
    view = found.iterate.posterior.view
    rng = np.random.default_rng(0)
    z = rng.standard_normal((200_000, 4))
    f = view.mean + np.concatenate([z, -z]) @ np.linalg.cholesky(found.covariance).T
    ratios = ndtr(y * f) * np.exp(0.5 * view.tau * f**2 - view.nu * f)
    scale = [
        integrate(
            lambda t, i=i: ndtr(y[i] * t) * np.exp(0.5 * view.tau[i] * t**2 - view.nu[i] * t), m, v
        )
        for i, (m, v) in enumerate(zip(view.mean, view.variance, strict=True))
    ]
    products = (ratios / scale).T @ (ratios / scale) / len(ratios) - 1.0
    pairs = products[np.triu_indices(4, 1)].sum()
    assert own(found).series.pairs == pytest.approx(pairs, rel=0.05, abs=5e-4)


def own(found):
    """The series about the rule's own Gaussian, where no moments are matched."""
    return Expansion(found.problem, found.iterate, is_matched=False)


def dense(found, cross, prior_variance):
    """R, 1/(1 + |t|) and Σ h̃ ρˡ by loops over rows, from the moments and the dense covariance."""
    view = found.iterate.posterior.view
    h = expansion.moments(view, found.problem.likelihood.jet(found.problem.y, *view.cavity))
    sigma, n = np.sqrt(view.variance), len(view.mean)
    C = np.array(on_host(found.covariance)) / np.outer(sigma, sigma) - np.eye(n)
    faculty = [1.0, 2.0, 6.0, 24.0]
    pairs = sum(
        h[k, i] * h[k, j] * C[i, j] ** (k + 1) / faculty[k]
        for k in range(4)
        for i in range(n)
        for j in range(i)
    )
    d = np.array(
        [[sum(C[i, j] ** (k + 1) * h[k, j] for j in range(n)) for i in range(n)] for k in range(4)]
    )
    e = np.zeros((4, n))
    for k, order in itertools.product(range(4), range(4)):
        if k + order + 2 <= 4:
            e[order] += h[k + order + 1] * d[k] / faculty[k]
    t = sum(e[k] @ d[k] / faculty[k] for k in range(4)) / (2 * pairs)
    a = 1.0 / (1.0 + abs(t))
    K, tau = np.array(on_host(found.problem.K)), view.tau
    covariances = np.linalg.solve(np.eye(n) + K * tau, cross)
    latent = found.predict_latent(cross, prior_variance)
    rho = covariances / np.outer(sigma, np.sqrt(latent.variance))
    return pairs, a, np.array([(h[k] + a * e[k]) @ rho ** (k + 1) for k in range(4)])


@pytest.mark.parametrize("few", [True, False], ids=["few rows", "many rows"])
@pytest.mark.parametrize("rule", ["pl", "ep"])
def test_the_sums_are_those_of_the_definition(data, monkeypatch, rule, few):
    """With few and many rows, and with sites of negative precision, which EP has."""
    if not few:
        monkeypatch.setattr(factor, "FEW_ROWS", 10)
        monkeypatch.setattr(factor, "_WIDE", 16)
    crab = data("crab", 60)
    K = crab.covariance(9.0, 1.0, 0.5)
    known, new = slice(0, 50), slice(50, 60)
    y = np.where(np.arange(50) % 7 == 0, -crab.y[:50], crab.y[:50])
    found = postlin.infer(K[known, known], y, likelihood=NoisyThreshold(0.05), inference=rule)
    assert (found.sites.tau < 0).any() == (rule == "ep")
    cross, variance = K[known, new], K.diagonal()[new].copy()
    pairs, damping, sums = dense(found, cross, variance)
    known_as = own(found).series
    assert known_as.pairs == pytest.approx(pairs, rel=1e-8)
    assert known_as.damping == pytest.approx(damping, rel=1e-7)
    assert own(found).log_evidence == pytest.approx(found.log_evidence + damping * pairs, abs=1e-9)
    _, got = found.iterate.posterior.predict_with_powers(cross, variance, known_as.vectors)
    np.testing.assert_allclose(got, sums, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_what_is_corrected_does_not_depend_on_the_rule(data, likelihood):
    """EP's fixed point is the only one of a log-concave likelihood, and every rule leads there."""
    crab = data("crab", 70)
    K = crab.covariance(1000.0, 1.0, 0.1)
    known, new = slice(0, 60), slice(60, 70)
    y = np.where(np.arange(60) % 6 == 0, -crab.y[:60], crab.y[:60])
    rules = {
        rule: postlin.infer(K[known, known], y, likelihood=likelihood, inference=rule) for rule in WITH
    }
    exact = rules["ep"]
    assert abs(rules["cl"].log_evidence - exact.log_evidence) > 1.0
    variance = K.diagonal()[new].copy()
    p = exact.predict_proba(K[known, new], variance, corrected=True)
    for found in rules.values():
        assert found.corrected_log_evidence == pytest.approx(exact.corrected_log_evidence, abs=1e-6)
        again = found.predict_proba(K[known, new], variance, corrected=True)
        np.testing.assert_allclose(again, p, atol=1e-6)


@pytest.mark.parametrize("rule", WITH)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_labels_that_contradict_each_other_are_corrected_too(rule, noise):
    """CL is off by two to six nats there."""
    x = 0.7 * np.arange(3.0)
    latent = 100.0 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    K = np.repeat(np.repeat(latent, 2, axis=0), 2, axis=1) + noise * np.eye(6)
    for signs in ("+-+-+-", "+-++-+", "+++--+"):
        y = np.array([1.0 if sign == "+" else -1.0 for sign in signs])
        found = postlin.infer(K, y, inference=rule)
        exact = np.log(at_three_places(latent, noise, tuple(y)))
        assert abs(found.corrected_log_evidence - exact) < 0.03
        assert (abs(found.log_evidence - exact) > 2.0) == (rule == "cl")
        assert found.is_trustworthy == (rule != "cl")
        assert found.is_correction_trustworthy


def count_of_posteriors(monkeypatch, action):
    """How many posteriors, each with a factorisation, are made in an action."""
    made, make = [], GaussianPosterior.__init__
    with monkeypatch.context() as patch:
        patch.setattr(GaussianPosterior, "__init__", lambda *a: (made.append(1), make(*a))[1])
        action()
    return len(made)


@pytest.mark.parametrize(("rule", "most"), [("ep", 0), ("pl", 3), ("cl", 5)])
def test_moments_match_after_few_factorisations(data, monkeypatch, rule, most):
    crab = data("crab", 100)
    for scale in (10.0, 1000.0):
        found = postlin.infer(crab.covariance(scale, 1.0, 0.1), crab.y, inference=rule)
        assert count_of_posteriors(monkeypatch, lambda f=found: f.correction) <= most


def hard(load, n, part):
    """K, 1000 times an RBF kernel with white noise, and labels ±1, a part of them wrong."""
    rng = np.random.default_rng(0)
    X, y = load()
    y = np.where(y == y[0], 1.0, -1.0)
    wrong = rng.permutation(len(y))[: round(len(y) * part)]
    y[wrong] *= -1
    chosen = rng.permutation(len(y))[:n]
    X, y = ((X - X.mean(axis=0)) / X.std(axis=0))[chosen], y[chosen]
    kernel = ConstantKernel(1000.0) * RBF(0.5 * np.sqrt(X.shape[1])) + WhiteKernel(0.1)
    return kernel(X), y


@pytest.mark.filterwarnings("ignore::postlin.ConvergenceWarning")
@pytest.mark.parametrize("rule", WITH)
def test_where_moment_matching_fails_the_means_are_matched_and_the_result_is_flagged(rule):
    """EP's evidence exceeds one there, and its own series is absurd; CL always has a fixed point."""
    K, y = hard(lambda: make_moons(200, noise=0.3, random_state=0), 100, 0.05)
    found = postlin.infer(K, y, likelihood="noisy_threshold", inference=rule)
    assert found._expansion.problem.rule.name == "cl"
    assert not found.is_trustworthy
    assert not found.is_correction_trustworthy
    cl = postlin.infer(K, y, likelihood="noisy_threshold", inference="cl")
    assert found.corrected_log_evidence == pytest.approx(own(cl).log_evidence, abs=1e-4)
    p = found.predict_proba(K, K.diagonal().copy(), corrected=True)
    assert ((p > 0) & (p < 1)).all()


def test_many_sites_of_negative_precision_are_not_trusted():
    """EP converges, but the exact posterior has modes that it does not see."""
    trusted = []
    for part in (0.0, 0.15):
        K, y = hard(load_thyroid, 60, part)
        found = postlin.infer(K, y, likelihood="noisy_threshold", inference="ep")
        assert found.converged
        assert abs(found.correction) < 1.0
        trusted.append(found.is_correction_trustworthy)
    assert trusted == [True, False]


def load_thyroid():
    """Rows and labels."""
    thyroid = postlin.datasets.load("thyroid")
    return thyroid.X, thyroid.y


@pytest.mark.parametrize("name", EXACT)
def test_small_sums_change_probabilities_by_derivatives_of_z(name):
    likelihood, _ = EXACT[name]
    m, v = np.array([-1.2, 0.4, 2.5]), np.array([0.8, 2.0, 1.1])
    step = 1e-2 if name == "own" else 3e-3

    def p(shift):
        return np.exp(likelihood.jets(m + shift, v)[0].log_z)

    stencil = np.array([p(k * step) for k in range(-3, 4)])
    weights = {
        1: [-1, 9, -45, 0, 45, -9, 1],
        2: [2, -27, 270, -490, 270, -27, 2],
        3: [1, -8, 13, 0, -13, 8, -1],
        4: [-1, 12, -39, 56, -39, 12, -1],
    }
    divisors = {1: 60, 2: 180, 3: 8, 4: 6}
    for order in range(1, 5):
        slope = np.array(weights[order]) @ stencil / divisors[order] / step**order
        slope *= v ** (order / 2) / [1, 1, 2, 6, 24][order]
        sums = np.zeros((4, 3))
        sums[order - 1] = 1e-6
        log_p = expansion.corrected_log_probabilities(likelihood.jets(m, v), v, sums)
        np.testing.assert_allclose(np.exp(log_p).sum(axis=0), 1.0, rtol=1e-12)
        np.testing.assert_allclose((np.exp(log_p[1]) - p(0.0)) / 1e-6, slope, rtol=1e-3, atol=1e-4)


@given(st.floats(-1e30, 1e30), st.floats(1e-12, 1e30), st.integers(0, 10_000))
@settings(max_examples=40)
@pytest.mark.parametrize("name", sorted(LIKELIHOODS))
def test_corrected_probabilities_are_probabilities(name, m, v, seed):
    sums = np.random.default_rng(seed).normal(size=(4, 1)) * 10.0 ** (seed % 60 - 2)
    at = np.array([m]), np.array([v])
    log_p = expansion.corrected_log_probabilities(LIKELIHOODS[name]().jets(*at), at[1], sums)
    assert np.isfinite(log_p).all()
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-12)


def test_a_shift_of_the_mean_is_exact_for_probit():
    m, v, shift = np.array([-6.0, -1.0, 0.5, 5.0]), np.full(4, 2.0), 0.01
    sums = np.zeros((4, 4))
    sums[0] = shift / np.sqrt(v)
    log_p = expansion.corrected_log_probabilities(Probit().jets(m, v), v, sums)
    # to the cube that tanh takes off
    np.testing.assert_allclose(log_p[1], log_ndtr((m + shift) / np.sqrt(3.0)), rtol=1e-5)


def test_correlations_beyond_rounding_are_at_most_one():
    """The new point is a training point without noise, whose variance has no digit."""
    K = np.full((3, 3), 1e8)
    posterior = GaussianPosterior(K, np.zeros(3), Sites(np.full(3, 1e4), np.zeros(3)))
    _, sums = posterior.predict_with_powers(K, K.diagonal().copy(), np.ones((4, 3)))
    assert (np.abs(sums) <= 3.0 + 1e-12).all()


@pytest.mark.parametrize("rule", WITH)
@pytest.mark.parametrize("noise", [0.0, 0.3], ids=["smooth", "noisy"])
def test_integer_weights_are_repeated_rows(data, rule, noise):
    crab = data("crab", 40)
    w = np.random.default_rng(0).integers(0, 4, size=40)
    kernel = ConstantKernel(10.0) * RBF(2.0) + (WhiteKernel(noise) if noise else ConstantKernel(1e-9))
    model = GPClassifier(kernel, inference=rule, optimizer=None, tol=1e-11, corrected=True)
    weighted = clone(model).fit(crab.X, crab.y, sample_weight=w)
    repeated = clone(model).fit(crab.X.repeat(w, axis=0), crab.y.repeat(w))
    assert weighted.diagnostics_.correction == pytest.approx(repeated.diagnostics_.correction, abs=1e-7)
    new = data("crab", 60).X
    np.testing.assert_allclose(weighted.predict_proba(new), repeated.predict_proba(new), atol=1e-8)


@pytest.mark.parametrize("rule", WITH)
def test_devices_find_the_same(data, put, rule):
    crab = data("crab", 60)
    K = crab.covariance(9.0, 1.0, 0.5)
    y = np.where(np.arange(50) % 7 == 0, -crab.y[:50], crab.y[:50])
    known, new = slice(0, 50), slice(50, 60)
    options = {"likelihood": NoisyThreshold(0.05), "inference": rule}
    here = postlin.infer(K[known, known], y, **options)
    there = postlin.infer(put(K[known, known].copy()), y, **options)
    assert there.correction == pytest.approx(here.correction, rel=1e-6)
    variance = K.diagonal()[new].copy()
    expected = here.predict_proba(K[known, new], variance, corrected=True)
    found = there.predict_proba(put(K[known, new].copy()), variance, corrected=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.fixture(name="model", scope="module")
def corrected_model(data):
    crab = data("crab", 90)
    return GPClassifier(KERNEL, corrected=True).fit(crab.X, crab.y)


def test_a_row_is_predicted_alike_whatever_stands_beside_it(model, data):
    X = data("crab").X
    together = model.predict_proba(X)
    for rows in (slice(0, 1), slice(7, 8), slice(100, 137), slice(64, 200)):
        np.testing.assert_array_equal(model.predict_proba(X[rows]), together[rows])


def test_copies_predict_alike(model, data, tmp_path):
    X = data("crab").X
    expected, value = model.predict_proba(X), model.log_marginal_likelihood_corrected_
    postlin.save(model, tmp_path / "model")
    for again in (postlin.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.get_params()["corrected"] is True
        np.testing.assert_array_equal(again.predict_proba(X), expected)
        assert again.log_marginal_likelihood_corrected_ == value


def test_predictions_do_not_depend_on_what_was_asked_before(model, data):
    X = data("crab").X
    expected = model.predict_proba(X)
    again = pickle.loads(pickle.dumps(model))
    again.approximation_.covariance  # noqa: B018, which uses the factor up
    again.summary()
    np.testing.assert_array_equal(again.predict_proba(X), expected)


def test_what_a_corrected_classifier_tells(model, data):
    X = data("crab").X
    plain = GPClassifier(model.kernel_, optimizer=None).fit(model.X_train_, model.y_train_)
    p = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert 1e-4 < np.abs(p - plain.predict_proba(X)).max() < 0.1
    found = model.approximation_
    value = model.log_marginal_likelihood_value_ + found.correction
    assert model.log_marginal_likelihood_corrected_ == pytest.approx(value, abs=1e-9)
    assert plain.log_marginal_likelihood_corrected_ == pytest.approx(value, abs=1e-6)
    assert found.corrected_log_evidence == pytest.approx(value, abs=1e-9)
    learned = GPClassifier(KERNEL).fit(model.X_train_, model.y_train_)
    np.testing.assert_array_equal(learned.kernel_.theta, model.kernel_.theta)
    assert model.diagnostics_.correction == found.correction
    assert model.diagnostics_.is_trustworthy
    assert f"correction               {found.correction:+.4f}\n" in model.summary()
    for part, same in zip(
        plain.latent_mean_and_variance(X), model.latent_mean_and_variance(X), strict=True
    ):
        np.testing.assert_allclose(part, same, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", ["one_vs_rest", "one_vs_one"])
def test_many_classes_are_corrected_through_their_parts(data, strategy):
    crab = data("crab", 60)
    y = np.digitize(crab.X[:, 0] + 0.5 * crab.y, [-0.5, 0.5])
    model = GPClassifier(KERNEL, optimizer=None, multi_class=strategy, corrected=True).fit(crab.X, y)
    new = data("crab", 90).X
    parts = [
        GPClassifier(KERNEL, optimizer=None, corrected=True).fit(fit.X_train_, fit.y_train_)
        for fit in model.base_estimator_.estimators_
    ]
    log_p = np.log(np.stack([part.predict_proba(new) for part in parts], axis=1))
    np.testing.assert_allclose(
        model.predict_proba(new), model.base_estimator_.combine(log_p), rtol=1e-9
    )
    mean = np.mean([part.log_marginal_likelihood_corrected_ for part in parts])
    assert model.log_marginal_likelihood_corrected_ == pytest.approx(mean)
    assert "largest correction" in model.summary()


@pytest.mark.parametrize("fold_noise", [False, True])
def test_tensors_are_predicted_like_arrays(data, put, fold_noise):
    crab = data("crab", 45)
    model = GPClassifier(KERNEL, optimizer=None, corrected=True, fold_noise=fold_noise)
    here = clone(model).fit(crab.X, crab.y)
    there = clone(model).fit(put(crab.X), put(crab.y))
    new = data("crab", 70).X
    np.testing.assert_allclose(
        on_host(there.predict_proba(put(new))), here.predict_proba(new), rtol=1e-7
    )


def test_a_large_correction_is_a_warning_in_words(data):
    crab = data("crab", 80)
    y = np.where(np.arange(80) % 5 == 0, -crab.y, crab.y)
    model = GPClassifier(KERNEL, optimizer=None, likelihood="noisy_threshold").fit(crab.X, y)
    assert not model.diagnostics_.is_trustworthy
    assert "; do not trust the approximation\n" in model.summary()


def test_a_fit_says_where_it_needs_the_correction(data):
    """The correction of contradictory labels is large and right: a corrected fit can be trusted."""
    crab = data("crab", 70)
    y = np.where(np.arange(70) % 6 == 0, -crab.y, crab.y)
    kernel = ConstantKernel(1000.0) * RBF(1.0) + WhiteKernel(0.1)
    model = GPClassifier(kernel, optimizer=None, inference="cl").fit(crab.X, y)
    assert not model.diagnostics_.is_trustworthy
    assert "; do not trust the approximation without it\n" in model.summary()
    model.set_params(corrected=True).fit(crab.X, y)
    assert model.diagnostics_.is_trustworthy
    assert "do not trust" not in model.summary()


@pytest.mark.parametrize("likelihood", sorted(LIKELIHOODS))
@pytest.mark.parametrize("kernel", [ConstantKernel(1e8) * RBF(3.0), DotProduct(1.0)], ids=str)
def test_far_rows_keep_probabilities(data, kernel, likelihood):
    crab = data("crab", 40)
    model = GPClassifier(
        kernel + WhiteKernel(0.1), likelihood=likelihood, optimizer=None, corrected=True
    ).fit(crab.X, crab.y)
    for scale in (1.0, 1e6, 1e20):
        p = model.predict_proba(scale * crab.X)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::postlin.ConvergenceWarning")
@pytest.mark.parametrize("rule", WITH)
@pytest.mark.parametrize("scale", [1e12, 1e15])
def test_corrections_stay_finite_where_rounding_leaves_no_digit(rule, scale):
    rng = np.random.default_rng(0)
    y, w = np.sign(rng.normal(size=11)), rng.integers(1, 1000, 11)
    K = np.full((11, 11), scale)
    found = postlin.infer(K, y, weights=w, inference=rule)
    assert np.isfinite(found.correction)
    p = found.predict_proba(K, K.diagonal().copy(), corrected=True)
    assert ((p >= 0) & (p <= 1)).all()


ROWS = np.random.default_rng(0).normal(size=(30, 2))
LABELS = np.where(ROWS[:, 0] > 0, "b", "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corrected": "yes"}, r"^corrected must be True or False, got 'yes'\.$"),
        ({"corrected": 1}, r"^corrected must be True or False, got 1\.$"),
        (
            {"inference": "laplace"},
            r"^inference='laplace' has no correction, since the series diverges",
        ),
        (
            {"inference": PL(10)},
            r"^the correction belongs to the exact integral, which evidence_order=10",
        ),
        ({"inference": EP(evidence_order=10)}, "^the correction belongs to the exact integral"),
        ({"multi_class": "joint"}, "^multi_class='joint' has no correction"),
        ({"inducing": 5}, "^corrected=True is for exact inference, on all rows, and inducing is set"),
        (
            {"n_neighbors": 5},
            "^corrected=True is for exact inference, on all rows, and n_neighbors is set",
        ),
        (
            {"class_weight": "balanced"},
            r"^the correction needs weights that are 0 or at least 1, which count observations",
        ),
    ],
)
def test_what_cannot_be_corrected_is_refused_in_a_sentence(options, message):
    y = np.where(np.arange(30) < 12, "b", "a")
    with pytest.raises(ValueError, match=message) as caught:
        GPClassifier(KERNEL, **{"corrected": True, **options}).fit(ROWS, y)
    assert "\n" not in str(caught.value)


def test_an_approximation_without_a_correction_says_why():
    K, y = covariance(0, 5)
    K = K[:5, :5]
    poisson = ConditionalMoments(np.exp, np.exp)
    cases = [
        (postlin.infer(K, y, inference="laplace"), "the series diverges"),
        (postlin.infer(K, np.abs(y), likelihood=poisson), "the correction needs a density"),
        (postlin.infer(K, y, weights=np.full(5, 0.5)), "that of row 0 is 0.5"),
    ]
    for found, message in cases:
        for name in (
            "correction",
            "corrected_log_evidence",
            "is_trustworthy",
            "is_correction_trustworthy",
        ):
            with pytest.raises(AttributeError, match=message):
                getattr(found, name)
    with pytest.raises(ValueError, match="the series diverges"):
        cases[0][0].predict_proba(K, K.diagonal(), corrected=True)
    joint = GPClassifier(KERNEL, optimizer=None, multi_class="joint").fit(ROWS, np.arange(30) % 3)
    sparse = GPClassifier(KERNEL, optimizer=None, inducing=5).fit(ROWS, LABELS)
    near = GPClassifier(optimizer=None, n_neighbors=5).fit(ROWS, LABELS)
    for model in (joint, sparse, near):
        with pytest.raises(AttributeError, match="for exact inference with two classes only"):
            model.log_marginal_likelihood_corrected_  # noqa: B018
        assert "correction" not in model.summary()
    for model in (joint, sparse):
        with pytest.raises(AttributeError, match="for exact inference with two classes only"):
            model.approximation_.correction  # noqa: B018
