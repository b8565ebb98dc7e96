"""What is proved of cavity linearisation, and hard problems on which it must hold."""

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import density, integrate
from sklearn.gaussian_process.kernels import RBF

import postlin
from postlin import CL, PL, ConvergenceWarning, Sites
from postlin.exceptions import ImproperCavityError
from postlin.learning import training
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel
from postlin.likelihoods import (
    REGISTRY,
    ConditionalMoments,
    DensityLikelihood,
    NoisyThreshold,
    Probit,
    WithNoise,
)
from postlin.rules import REGISTRY as RULES
from postlin.rules.sites import SiteView
from postlin.schedules import REGISTRY as SCHEDULES
from postlin.schedules import Parallel


class Cauchit(DensityLikelihood):
    """p(+1|f) = ½ + arctan(f)/π, which is not log-concave."""

    name = "cauchit"
    log_concave = False

    def log_density(self, y, f):
        far = np.arctan2(1.0, -y * f) / np.pi  # without cancellation
        return np.log(far)


LIKELIHOODS = {name: kind() for name, kind in REGISTRY.items()} | {
    "no flips": NoisyThreshold(1e-9),
    "many flips": NoisyThreshold(0.4),
    "folded": WithNoise(NoisyThreshold(0.01), 0.3),
    "cauchit": Cauchit(),
}
COUNTS = ConditionalMoments(np.exp, np.exp)


def at(mean, variance):
    """A view without a site, whose cavity is the marginal."""
    m, v = np.atleast_1d(mean, variance)
    zero = np.zeros_like(m)
    return SiteView(m, v, zero, zero, np.ones_like(m))


def joined(m, v, sites):
    """Mean and variance of N(m, v) × site."""
    new = 1 / (1 / v + sites.tau)
    return new * (m / v + sites.nu), new


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_mean_is_that_of_cavity_times_likelihood_and_the_variance_the_average_over_labels(name):
    rng = np.random.default_rng(0)
    for _ in range(8):
        m, v = rng.normal() * 2, 10.0 ** rng.uniform(-1.5, 1)
        average = 0.0
        for y in (-1.0, 1.0):
            z = integrate(lambda f, y=y: density(name, y, f), m, v)
            mean = integrate(lambda f, y=y: f * density(name, y, f), m, v) / z
            spread = integrate(lambda f, y=y, a=mean: (f - a) ** 2 * density(name, y, f), m, v)
            average += spread
            found = joined(m, v, CL().propose(REGISTRY[name](), np.array([y]), at(m, v)).sites)
            assert found[0][0] == pytest.approx(mean, rel=1e-7, abs=1e-8)
        assert found[1][0] == pytest.approx(average, rel=1e-8)


@pytest.mark.parametrize("name", LIKELIHOODS)
@given(st.floats(-60, 60), st.floats(-14, 14), st.sampled_from([-1.0, 1.0]))
@settings(max_examples=60, deadline=None)
def test_sites_are_positive_and_take_less_than_two_thirds_of_the_variance(name, z, log_v, y):
    """ρ v is a squared correlation of f with a label, and none exceeds 2/π, that with the sign of f."""
    v = 10.0**log_v
    sites, _ = CL().set_sites(LIKELIHOODS[name], np.array([y]), at(z * np.sqrt(v), v))
    assert np.isfinite(sites).all()
    assert sites.tau[0] >= 0
    assert v * sites.tau[0] <= (2 / np.pi) / (1 - 2 / np.pi) * (1 + 1e-9)
    proposed = CL().propose(LIKELIHOODS[name], np.array([y]), at(z * np.sqrt(v), v)).sites
    np.testing.assert_allclose(proposed, sites, rtol=1e-9, atol=1e-300)


@given(st.floats(-3, 3), st.floats(-6, 1), st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_sites_of_counts_are_positive_too(m, log_v, y):
    sites, _ = CL().set_sites(COUNTS, np.array([float(y)]), at(m, 10.0**log_v))
    assert np.isfinite(sites).all()
    assert sites.tau[0] > 0


@dataclass(frozen=True)
class Watched(CL):
    """CL that fails where it meets a cavity that is not proper, or a negative site."""

    name: ClassVar[str] = "watched"

    def propose(self, likelihood, y, view):
        assert (view.gap > 0).all()
        assert (view.tau >= 0).all()
        return super().propose(likelihood, y, view)

    def set_sites(self, likelihood, y, view):
        # arrays are predictions for the end of a Newton step, no posteriors
        assert np.ndim(view.gap) > 0 or (view.gap > 0 and view.tau >= 0)
        return super().set_sites(likelihood, y, view)


def hard_problem(seed):
    """Repeated rows, contradictory or one-sided labels, weights of all sizes, extreme kernels."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 3, 10, 25]))
    X = rng.normal(size=(n, int(rng.integers(1, 4))))
    X = X[rng.integers(0, max(1, n // 3), n)] if rng.random() < 0.4 else X
    y = [np.sign(X[:, 0]), rng.choice([-1.0, 1.0], n), np.full(n, rng.choice([-1.0, 1.0]))]
    squared = np.sum((X[:, None] - X) ** 2, axis=-1)
    variance, noise = 10.0 ** rng.choice([-12, -2, 0, 2, 4, 6]), 10.0 ** rng.choice([-12, -6, -2, 0])
    K = variance * (np.exp(-0.5 * squared / 10.0 ** rng.uniform(-2, 3)) + noise * np.eye(n))
    weights = [None, 10.0 ** rng.uniform(-6, 3, n), rng.integers(1, 900, n)][
        rng.choice(3, p=[0.6, 0.2, 0.2])
    ]
    options = {
        "likelihood": list(LIKELIHOODS.values())[rng.integers(len(LIKELIHOODS))],
        "schedule": list(SCHEDULES)[rng.integers(len(SCHEDULES))],
        "prior_mean": rng.normal() * np.sqrt(variance) if rng.random() < 0.3 else 0.0,
        "weights": weights,
    }
    return K, y[rng.integers(3)], options


@given(st.integers(0, 2**31))
@settings(max_examples=120, deadline=None)
def test_no_cavity_is_improper_at_any_iterate(seed):
    K, y, options = hard_problem(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = postlin.infer(K, y, inference=Watched(), **options)
    assert (found.sites.tau >= 0).all()
    assert np.isfinite(found.log_evidence)
    assert (found.variance > 0).all()
    assert (found.variance <= K.diagonal() * (1 + 1e-12)).all()
    if found.converged and options["weights"] is None:  # v_c/v = 1/(1 − τ v) ≤ 1/(1 − 2/π)
        assert (found.sites.tau * found.variance <= 2 / np.pi + 1e-6).all()


def test_a_cavity_that_others_made_improper_is_an_error():
    view = SiteView(*(np.array([x]) for x in (0.0, 1.0, 2.0, 0.0, -1.0)))
    for method in (CL().propose, CL().set_sites, CL().propose_cautiously):
        with pytest.raises(ImproperCavityError):
            method(Probit(), np.ones(1), view)


def test_a_start_with_improper_cavities_is_not_used(data):
    crab = data("crab", 30)
    K = crab.covariance(4.0, 2.0)
    start = postlin.Sites(np.where(np.arange(30) == 0, -0.5, 1.0), np.zeros(30))
    found = postlin.infer(K, crab.y, inference="cl", start=start)
    assert found.converged
    assert found.log_evidence == pytest.approx(postlin.infer(K, crab.y, inference="cl").log_evidence)


@pytest.mark.parametrize("likelihood", ["probit", "logit", "noisy_threshold"])
@pytest.mark.parametrize(
    ("K", "y"),
    [
        (1e4 * np.eye(2), [1.0, -1.0]),
        (1e-12 * np.eye(2), [1.0, -1.0]),
        (np.array([[100.0, 99.0], [99.0, 100.0]]), [1.0, -1.0]),
        (1e4 * np.ones((6, 6)) + 0.1 * np.eye(6), [1.0, -1.0, 1.0, -1.0, 1.0, 1.0]),
        (1e4 * np.ones((9, 9)) + np.eye(9), [1.0] * 9),
    ],
    ids=["wide", "narrow", "two", "contradictory", "one-sided"],
)
def test_hard_problems_converge(K, y, likelihood):
    found = postlin.infer(K, np.array(y), likelihood=likelihood, inference="cl")
    assert found.converged
    assert np.isfinite(found.evidence_gradient()).all()
    assert found.log_evidence < 0


@pytest.mark.parametrize("likelihood", ["probit", "logit", "noisy_threshold"])
def test_heavy_and_light_rows_converge(data, likelihood):
    crab = data("crab", 40)
    weights = np.where(np.arange(40) % 2, 300.0, 1e-6)
    found = postlin.infer(
        crab.covariance(4.0, 2.0), crab.y, likelihood=likelihood, inference="cl", weights=weights
    )
    assert found.converged


def test_of_several_fixed_points_the_better_is_kept_and_reported():
    """Contradictory rows with a log-concave likelihood: the other rules have one fixed point here."""
    y, at = np.array([1.0, 1.0, 1.0, -1.0, -1.0]), Hyperparameters(20.0 * RBF(0.14), Probit())
    worse = Sites(np.array([2e-4, 2e-4, 2e-4, 1e-6, 1e-6]), np.where(y > 0, 0.8, -1.1905))
    for rule in RULES.values():
        model = ExactModel(np.zeros((5, 1)), y, rule(), Parallel(), 1e-8, 60)
        fits = [model.infer(at, worse)]
        found = fits[0].log_evidence
        said = training._from_the_prior([model], at, fits)
        assert fits[0].converged
        assert bool(said) == (rule is CL)
        if rule is CL:
            assert "use inference='pl'" in said
            assert fits[0].log_evidence > found + 1


def test_a_label_that_is_impossible_for_its_cavity_is_averaged_away():
    """What the guide warns of: with probit, opposite labels of close rows leave too much variance."""
    K, y = 100.0 * np.array([[1.0, 0.96], [0.96, 1.0]]), np.array([1.0, -1.0])
    cl, ep = (postlin.infer(K, y, inference=rule) for rule in ("cl", "ep"))
    ratio = np.sqrt(cl.variance / ep.variance)
    assert (ratio > 5).all()
    assert (ratio < 15).all()
    assert cl.log_evidence < ep.log_evidence - 0.5
    noisy = [postlin.infer(K, y, likelihood="noisy_threshold", inference=r) for r in ("cl", "ep")]
    assert noisy[0].log_evidence == pytest.approx(noisy[1].log_evidence, abs=0.2)


def test_a_wrong_label_hurts_less_than_with_pl(data):
    """With the noisy threshold PL cannot be undecided about a point, CL can."""
    crab = data("crab", 80)
    y = np.where(np.arange(80) % 13 == 0, -crab.y, crab.y)
    K = crab.covariance(20.0, 6.0)
    evidence = {
        rule: postlin.infer(K, y, likelihood="noisy_threshold", inference=rule).log_evidence
        for rule in ("pl", "cl", "ep")
    }
    assert abs(evidence["cl"] - evidence["ep"]) < 0.2 * abs(evidence["pl"] - evidence["ep"])


def test_the_rate_of_wrong_labels_is_learned(data):
    crab = data("crab", 120)
    y = np.where(np.arange(120) % 10 == 0, -crab.y, crab.y)
    likelihood = NoisyThreshold(0.05, epsilon_bounds=(1e-4, 0.4))
    model = postlin.GPClassifier(likelihood=likelihood, inference="cl").fit(crab.X, y)
    assert model.converged_
    assert 0.03 < model.likelihood_.epsilon < 0.2


def test_moments_of_a_binary_likelihood_give_its_own_posterior(data):
    from scipy.special import ndtr

    crab = data("crab", 30)
    K = crab.covariance(4.0, 2.0)
    moments = ConditionalMoments(lambda f: 2 * ndtr(f) - 1, lambda f: 4 * ndtr(f) * ndtr(-f))
    general, binary = (
        postlin.infer(K, crab.y, likelihood=kind, inference="cl") for kind in (moments, Probit())
    )
    np.testing.assert_allclose(general.mean, binary.mean, atol=1e-7)
    np.testing.assert_allclose(general.variance, binary.variance, atol=1e-7)


def test_a_weak_likelihood_makes_cavity_and_marginal_one(data):
    """Where a site hardly changes its marginal PL and CL agree, to first order in the site."""
    crab = data("crab", 30)
    gaps = []
    for scale in (1e-2, 1e-3):
        K = scale * crab.covariance(1.0, 2.0)
        pl, cl = (postlin.infer(K, crab.y, inference=rule, tol=1e-12) for rule in (PL(), CL()))
        gaps.append(np.abs(pl.mean - cl.mean).max() / np.abs(pl.mean).max())
    assert gaps[1] < 0.2 * gaps[0]
