"""Jets against high-precision integrals, and the laws that every likelihood obeys."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import JETS

from postlin.likelihoods import (
    REGISTRY,
    BinaryLikelihood,
    DensityLikelihood,
    Logit,
    NoisyThreshold,
    Probit,
    WithNoise,
)
from postlin.likelihoods.base import Response
from postlin.likelihoods.on_host import OnHost
from postlin.linalg.arrays import place_of

NAMES = sorted(REGISTRY)
TOLERANCE = {"log_z": 1e-10, "g": 1e-10, "h": 1e-10, "c": 1e-7, "d": 1e-5}
COUNT = {"probit": 400, "noisy_threshold": 400, "logit": 40}

scaled_mean = st.floats(-40, 40)
log_variance = st.floats(-12, 8)


def all_subclasses(kind):
    return {kind}.union(*(all_subclasses(k) for k in kind.__subclasses__()))


def test_every_registered_likelihood_has_a_reference():
    assert set(REGISTRY) == set(JETS)


def test_every_likelihood_of_the_package_is_registered_or_a_wrapper():
    ours = {k for k in all_subclasses(BinaryLikelihood) if k.__module__.startswith("postlin.")}
    assert ours - set(REGISTRY.values()) == {BinaryLikelihood, DensityLikelihood, OnHost, WithNoise}


def test_a_likelihood_in_numpy_alone_serves_tensors():
    torch = pytest.importorskip("torch")
    base = NoisyThreshold(epsilon_bounds=(1e-3, 0.2))
    rng = np.random.default_rng(0)
    m, v = rng.normal(size=9), rng.uniform(0.1, 9.0, 9)
    y = np.sign(rng.normal(size=9))
    moved = [torch.asarray(part) for part in (y, m, v)]
    there = OnHost(base, place_of(moved[0]))

    def numbers(result):
        parts = result if isinstance(result, tuple | list) else [result]
        return [
            x for part in parts for x in (numbers(part) if isinstance(part, tuple | list) else [part])
        ]

    for name in ("jets", "slopes", "jet_changes"):
        found, expected = getattr(there, name)(*moved[1:]), getattr(base, name)(m, v)
        assert all(torch.is_tensor(part) for part in numbers(found))
        np.testing.assert_array_equal(numbers(found), numbers(expected))
    for name in ("jet", "regression", "log_average", "regression_changes", "density_changes"):
        found, expected = getattr(there, name)(*moved), getattr(base, name)(y, m, v)
        np.testing.assert_array_equal(numbers(found), numbers(expected))
    assert type(there.jet(*moved)) is type(base.jet(y, m, v))


def assert_jet_matches(likelihood, reference, y, m, v):
    exact = reference(mp.mpf(y * m), mp.mpf(v))
    jet = likelihood.jet(np.array([y]), np.array([m]), np.array([v]))
    for order, (name, tolerance) in enumerate(TOLERANCE.items()):
        truth = exact[order] * (-1 if order % 2 and y < 0 else 1)
        error = abs(mp.mpf(float(jet[order][0])) - truth)
        assert error <= tolerance * abs(truth) + mp.mpf("1e-14"), (name, y, m, v, float(truth))


@pytest.mark.parametrize("name", NAMES)
def test_jet_matches_high_precision_over_the_whole_range(name):
    rng = np.random.default_rng(1)
    for k in range(COUNT[name]):
        v = 10 ** rng.uniform(-12, 8)
        m = rng.uniform(-3, 3) * np.sqrt(v) if k % 3 == 0 else rng.uniform(-40, 40) * np.sqrt(v)
        assert_jet_matches(REGISTRY[name](), JETS[name], rng.choice([-1.0, 1.0]), m, v)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_jet_matches_high_precision_at_many_points(name):
    rng = np.random.default_rng(2)
    for _ in range(10 * COUNT[name]):
        v = 10 ** rng.uniform(-12, 8)
        m = rng.uniform(-40, 40) * np.sqrt(v)
        assert_jet_matches(REGISTRY[name](), JETS[name], rng.choice([-1.0, 1.0]), m, v)


@pytest.mark.parametrize("z", [-40.0, -1.0, 0.0, 1.0, 40.0])
@pytest.mark.parametrize("v", [1e-12, 1.0, 1e8])
@pytest.mark.parametrize("name", NAMES)
def test_jet_at_the_corners_of_the_range(name, v, z):
    m = z * np.sqrt(v)
    assert_jet_matches(REGISTRY[name](), JETS[name], 1.0, m, v)


@pytest.mark.parametrize("name", NAMES)
@given(scaled_mean, log_variance)
def test_probabilities_of_the_two_labels_sum_to_one(name, z, lv):
    v = 10.0**lv
    plus, minus = REGISTRY[name]().jets(np.array([z * np.sqrt(v)]), np.array([v]))
    assert np.exp(plus.log_z) + np.exp(minus.log_z) == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("name", NAMES)
@given(scaled_mean, log_variance)
def test_labels_are_symmetric(name, z, lv):
    v = np.array([10.0**lv])
    m = z * np.sqrt(v)
    likelihood = REGISTRY[name]()
    one, other = likelihood.jet(np.ones(1), m, v), likelihood.jet(-np.ones(1), -m, v)
    for order, (a, b) in enumerate(zip(one, other, strict=True)):
        assert a[0] == pytest.approx((-1) ** order * b[0], rel=1e-8, abs=1e-15)


@pytest.mark.parametrize("name", NAMES)
@given(scaled_mean, log_variance)
def test_everything_is_finite_and_linearisation_leaves_noise(name, z, lv):
    v = np.array([10.0**lv])
    m = z * np.sqrt(v)
    likelihood = REGISTRY[name]()
    for jet in likelihood.jets(m, v):
        assert all(np.isfinite(part).all() for part in jet)
        assert 1 + jet.h * v > -1e-12  # the tilted variance is not negative
    regression = likelihood.regression(np.ones(1), m, v)
    assert 0 <= regression.rho[0] * v[0] < 1  # Ω > 0: the paper's claim


@pytest.mark.parametrize("name", NAMES)
@given(st.floats(-4, 4), st.floats(-2, 2))
@settings(max_examples=30)
def test_derivatives_in_the_variance_follow_from_those_in_the_mean(name, z, lv):
    v = 10.0**lv
    m, step = z * np.sqrt(1 + v), 1e-5 * v
    likelihood = REGISTRY[name]()
    y = np.ones(1)
    low, here, high = (likelihood.jet(y, np.array([m]), np.array([v + s])) for s in (-step, 0.0, step))
    scale = 1 / np.sqrt(v)
    assert (high.log_z - low.log_z) / (2 * step) == pytest.approx(
        here.log_z_by_v, rel=1e-6, abs=1e-7 * scale**2
    )
    assert (high.g - low.g) / (2 * step) == pytest.approx(here.g_by_v, rel=1e-6, abs=1e-7 * scale**3)
    assert (high.h - low.h) / (2 * step) == pytest.approx(here.h_by_v, rel=1e-6, abs=1e-7 * scale**4)


@given(st.floats(-40, 40), st.floats(-6, 6), st.sampled_from([-1.0, 1.0]))
def test_probit_has_the_regression_that_follows_from_its_jets(z, lv, label):
    v, y = np.array([10.0**lv]), np.array([label])
    m = z * np.sqrt(1 + v)
    short, long = Probit().regression(y, m, v), BinaryLikelihood.regression(Probit(), y, m, v)
    for name, a, b in zip(Response._fields, short, long, strict=True):
        assert a == pytest.approx(b, rel=1e-11, abs=1e-300), name


@pytest.mark.parametrize("name", ["probit", "logit"])
@given(scaled_mean, log_variance)
def test_log_concave_likelihoods_stay_log_concave(name, z, lv):
    v = np.array([10.0**lv])
    assert (REGISTRY[name]().jet(np.ones(1), z * np.sqrt(v), v).h <= 1e-20).all()


@pytest.mark.parametrize("kind", [Probit, Logit])
def test_zero_variance_is_the_density(kind):
    f = np.linspace(-8, 8, 33)
    exact = kind().jet(np.ones(33), f, np.zeros(33))
    nearly = kind().jet(np.ones(33), f, np.full(33, 1e-12))
    for a, b in zip(exact, nearly, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize(
    ("order", "v", "tolerance"), [(10, 0.1, 1e-8), (10, 1.0, 1e-4), (32, 1.0, 1e-8), (32, 9.0, 1e-3)]
)
def test_gauss_hermite_logit_is_as_accurate_as_documented(order, v, tolerance):
    m = np.linspace(-3, 3, 25)
    paper, exact = (Logit(k).jet(np.ones(25), m, np.full(25, v)) for k in (order, None))
    for a, b in zip(paper[:3], exact[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance)


def test_noise_folded_in_is_noise_in_the_variance():
    m, v = np.array([0.3, -2.0]), np.array([0.5, 3.0])
    noisy = WithNoise(Probit(), 0.7).jet(np.array([1.0, -1.0]), m, v)
    rng = np.random.default_rng(0)
    f = (
        m
        + np.sqrt(v) * rng.standard_normal((400_000, 2))
        + np.sqrt(0.7) * rng.standard_normal((400_000, 2))
    )
    from scipy.special import ndtr

    np.testing.assert_allclose(np.exp(noisy.log_z), ndtr(f * [1, -1]).mean(axis=0), atol=4e-3)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, -0.1, 1.0, np.nan])
def test_epsilon_outside_its_range_is_refused(epsilon):
    with pytest.raises(ValueError, match=r"epsilon must lie strictly between 0 and 0\.5"):
        NoisyThreshold(epsilon)


@pytest.mark.parametrize("order", [0, -1, 2.5, "ten", True])
def test_order_must_be_a_positive_integer(order):
    with pytest.raises(ValueError, match="order must be a positive integer"):
        Logit(order)


def test_negative_noise_is_refused():
    with pytest.raises(ValueError, match="variance must be finite and not negative"):
        WithNoise(Probit(), -1.0)


def test_tiny_epsilon_approaches_the_step_without_noise():
    m, v = np.array([-2.0, 0.5]), np.array([1.0, 2.0])
    from scipy.special import log_ndtr

    np.testing.assert_allclose(
        NoisyThreshold(1e-14).jet(np.ones(2), m, v).log_z, log_ndtr(m / np.sqrt(v)), rtol=1e-11
    )
