"""Evidence and gradient: exact cases, other libraries, finite differences."""

import numpy as np
import pytest
from reference import central_difference, density

import postlin
from postlin import EP, PL
from postlin.likelihoods import REGISTRY, NoisyThreshold, Probit, WithNoise
from postlin.rules import REGISTRY as RULES

NAMES = sorted(REGISTRY)
COMBINATIONS = [
    (rule, likelihood)
    for rule in sorted(RULES)
    for likelihood in NAMES
    if (rule, likelihood) != ("laplace", "noisy_threshold")
]


def kernel_family(X, ard=False):
    """θ → K, and the slopes of K by θ = (log variance, log length scales…)."""
    differences = (X[:, None] - X) ** 2
    groups = np.moveaxis(differences, -1, 0) if ard else [differences.sum(-1)]

    def covariance(theta):
        exponent = sum(d / np.exp(2 * t) for d, t in zip(groups, theta[1:], strict=True))
        return np.exp(theta[0] - 0.5 * exponent) + 0.1 * np.eye(len(X))

    def slopes(theta):
        smooth = covariance(theta) - 0.1 * np.eye(len(X))
        return [smooth] + [smooth * d / np.exp(2 * t) for d, t in zip(groups, theta[1:], strict=True)]

    return covariance, slopes, 1 + len(groups)


def assert_gradient_is_exact(X, y, theta, ard=False, rtol=1e-6, **options):
    covariance, slopes, size = kernel_family(X, ard)
    theta = np.asarray(theta, float) if not ard else np.r_[theta[0], np.full(size - 1, theta[1])]
    result = postlin.infer(covariance(theta), y, tol=1e-10, **options)
    K_bar = result.evidence_gradient()
    np.testing.assert_array_equal(K_bar, K_bar.T)
    gradient = np.array([np.sum(K_bar * d) for d in slopes(theta)])

    def evidence(t):
        return postlin.infer(covariance(t), y, tol=1e-10, start=result.sites, **options).log_evidence

    numeric = central_difference(evidence, theta)
    np.testing.assert_allclose(gradient, numeric, rtol=rtol, atol=rtol * np.abs(numeric).max())


@pytest.mark.parametrize("theta", [(1.4, 0.7), (5.3, 1.4)])
@pytest.mark.parametrize("name", ["crab", "ionosphere"])
@pytest.mark.parametrize(("rule", "likelihood"), COMBINATIONS)
def test_gradient_matches_differences(data, rule, likelihood, name, theta):
    d = data(name, 80)
    assert_gradient_is_exact(d.X, d.y, theta, inference=rule, likelihood=likelihood)


@pytest.mark.parametrize(("rule", "likelihood"), COMBINATIONS)
def test_gradient_matches_differences_with_ard(data, rule, likelihood):
    d = data("crab", 60)
    assert_gradient_is_exact(d.X, d.y, (2.0, 0.9), ard=True, inference=rule, likelihood=likelihood)


@pytest.mark.parametrize("rule", [PL(evidence_order=10), EP(evidence_order=10)])
@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_gradient_of_the_papers_evidence_matches_differences(data, rule, likelihood):
    d = data("crab", 60)
    assert_gradient_is_exact(d.X, d.y, (1.4, 0.7), inference=rule, likelihood=likelihood)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("base", [Probit(), NoisyThreshold(0.02)])
def test_gradient_by_the_noise_in_the_likelihood_matches_differences(data, rule, base):
    d = data("crab", 50)
    K = d.covariance(9.0, 2.0, 0.0)

    def infer(noise):
        return postlin.infer(K, d.y, likelihood=WithNoise(base, noise), inference=rule, tol=1e-10)

    numeric = (infer(0.1 + 1e-5).log_evidence - infer(0.1 - 1e-5).log_evidence) / 2e-5
    assert infer(0.1).evidence_gradient_by_parameters()["variance"] == pytest.approx(numeric, rel=1e-6)


def test_gradient_through_negative_sites(data):
    d = data("crab", 80)
    y = np.where(np.arange(80) % 13 == 0, -d.y, d.y)
    result = postlin.infer(d.covariance(20.0, 6.0), y, likelihood="noisy_threshold", inference="ep")
    assert (result.sites.tau < 0).any()
    assert_gradient_is_exact(
        d.X, y, (np.log(20.0), np.log(6.0)), likelihood="noisy_threshold", inference="ep"
    )


def test_dropping_the_implicit_part_would_be_wrong(data):
    """The part of K̄ at fixed sites is far from the truth for PL."""
    d = data("crab", 60)
    K = d.covariance(4.0, 2.0)
    result = postlin.infer(K, d.y)
    posterior = result.iterate.posterior
    direct = posterior.pull_back(np.zeros(60), np.zeros(60))
    smooth = K - 0.1 * np.eye(60)
    assert np.sum(direct * smooth) != pytest.approx(
        np.sum(result.evidence_gradient() * smooth), rel=0.05
    )


@pytest.mark.parametrize("likelihood", NAMES)
@pytest.mark.parametrize("rule", ["ep", "pl", "cl"])
def test_one_point_has_its_exact_evidence(rule, likelihood):
    """With one point the cavity is the prior, whatever the site."""
    result = postlin.infer(
        np.array([[3.0]]), np.array([-1.0]), likelihood=likelihood, inference=rule, prior_mean=0.4
    )
    from reference import integrate

    truth = np.log(integrate(lambda f: density(likelihood, -1, f), 0.4, 3.0))
    assert result.log_evidence == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("likelihood", NAMES)
@pytest.mark.parametrize("rule", ["ep", "pl", "cl"])
def test_evidence_is_close_to_the_truth(rule, likelihood):
    """Three correlated points, the integral by a grid."""
    K = np.array([[2.0, 1.0, 0.3], [1.0, 2.0, 1.0], [0.3, 1.0, 2.0]])
    y = np.array([1.0, 1.0, -1.0])
    axis = np.linspace(-9, 9, 121)
    f = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    prior = np.exp(-0.5 * np.einsum("...i,ij,...j->...", f, np.linalg.inv(K), f))
    values = np.prod([density(likelihood, y[i], f[..., i]) for i in range(3)], axis=0)
    truth = np.log(np.sum(prior * values) / prior.sum())
    tolerance = {"pl": 0.5, "ep": 0.15, "cl": 0.2}[rule] if likelihood == "noisy_threshold" else 0.06
    assert postlin.infer(K, y, likelihood=likelihood, inference=rule).log_evidence == pytest.approx(
        truth, abs=tolerance
    )


@pytest.mark.parametrize("rule", [PL, EP])
@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_the_papers_quadrature_tends_to_the_exact_integral(data, rule, likelihood):
    d = data("crab", 40)
    K = d.covariance(2.0, 3.0)
    exact = postlin.infer(K, d.y, likelihood=likelihood, inference=rule()).log_evidence
    errors = [
        abs(
            postlin.infer(K, d.y, likelihood=likelihood, inference=rule(evidence_order=k)).log_evidence
            - exact
        )
        for k in (5, 10, 60)
    ]
    assert errors[2] < 1e-4 < 0.5
    assert errors[2] < errors[0]


def test_the_papers_quadrature_is_badly_wrong_on_ionosphere(data):
    d = data("ionosphere")
    K = d.covariance(1e4, 1.0)
    exact = postlin.infer(K, d.y).log_evidence
    paper = postlin.infer(K, d.y, inference=PL(evidence_order=10)).log_evidence
    assert abs(paper - exact) > 5


def test_laplace_logit_is_scikit_learns(data):
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    d = data("thyroid", 100)
    kernel = ConstantKernel(30.0) * RBF(1.5) + WhiteKernel(0.1, "fixed")
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(d.X, d.y)
    ours = postlin.GPClassifier(kernel, likelihood="logit", inference="laplace", optimizer=None).fit(
        d.X, d.y
    )
    for theta in (kernel.theta, kernel.theta + 0.5):
        value, gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
        our_value, our_gradient = ours.log_marginal_likelihood(theta, eval_gradient=True)
        assert our_value == pytest.approx(value, abs=1e-5)
        np.testing.assert_allclose(our_gradient, gradient, rtol=1e-4, atol=1e-5)


def test_evidence_with_a_prior_mean_is_consistent():
    """Shifting the latent values and the likelihood's threshold is the same thing for n = 1."""
    result = postlin.infer(np.array([[2.0]]), np.ones(1), prior_mean=0.8)
    exact = Probit().jet(np.ones(1), np.array([0.8]), np.array([2.0])).log_z[0]
    assert result.log_evidence == pytest.approx(exact, rel=1e-12)
