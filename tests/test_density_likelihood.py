"""Likelihoods given by log p(y|f) alone, against closed forms and high-precision integrals."""

import warnings

import mpmath as mp
import numpy as np
import pytest
from reference import central_difference, log_jet
from scipy.special import expit, log_expit, log_ndtr, ndtr
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import postlin
from postlin import GPClassifier
from postlin.likelihoods import DensityLikelihood, Jet, Logit, NoisyThreshold, Probit, WithNoise
from postlin.rules import REGISTRY as RULES

STEEPNESS = 1000.0
TOLERANCE = (1e-9, 1e-9, 1e-9, 1e-7, 1e-7)


class Plain(DensityLikelihood):
    """log p(y|f) as a function of y f."""

    name = "plain"
    symmetric = True

    def __init__(self, function):
        self.function = function

    def log_density(self, y, f):
        return self.function(y * f)


class WithDerivatives(Plain):
    """Logit, with its derivatives."""

    def log_density_derivatives(self, y, f):
        p, q = expit(y * f), expit(-y * f)
        return y * q, -p * q, y * p * q * (p - q), p * q * (6 * p * q - 1)


class Step(DensityLikelihood):
    """The noisy threshold."""

    name = "step"
    differentiable = False

    def log_density(self, y, f):
        return np.log(np.where(np.where(f > 0, y, -y) > 0, 0.99, 0.01))


class UnevenLogLog(DensityLikelihood):
    """p(+1|f) = 1 − exp(−exp(f)): not symmetric, and e^f overflows."""

    name = "log_log"

    def log_density(self, y, f):
        return np.where(y > 0, np.log(-np.expm1(-np.exp(f))), -np.exp(f))


def cauchit(z):
    """log(½ + arctan(z)/π), without cancellation on either side."""
    tail = np.arctan2(1.0, np.abs(z)) / np.pi
    return np.where(z > 0, np.log1p(-tail), np.log(tail))


def flipped_probit(z):
    return np.log(0.03 + 0.94 * ndtr(z))


class SteepProbit(Probit):
    """Φ(1000 y f), in closed form."""

    def jets(self, m, v):
        scale = STEEPNESS ** np.arange(5)
        both = super().jets(STEEPNESS * m, STEEPNESS**2 * v)
        return tuple(Jet(*(part * s for part, s in zip(jet, scale, strict=True))) for jet in both)


PROBIT, LOGIT, CAUCHIT = Plain(log_ndtr), Plain(log_expit), Plain(cauchit)
FLIPPED, STEEP = Plain(flipped_probit), Plain(lambda z: log_ndtr(STEEPNESS * z))
KNOWN = WithDerivatives(log_expit)
ALL = [PROBIT, LOGIT, KNOWN, CAUCHIT, FLIPPED, STEEP, Step(), UnevenLogLog()]
IDS = ["probit", "logit", "derivatives", "cauchit", "flipped", "steep", "step", "log-log"]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def grid(largest=8.0):
    z, log_v = np.meshgrid(np.linspace(-largest, largest, 33), np.linspace(-6, 6, 25))
    v = 10.0 ** log_v.ravel()
    return z.ravel() * np.sqrt(v), v


def assert_close(jet, exact, v, width, rounding=0.0):
    """Relative to a value, or where c and d change sign to a hundredth of their size beside it."""
    for k, (found, true, tolerance) in enumerate(zip(jet, exact, TOLERANCE, strict=True)):
        beside = 0.01 * np.abs(exact.g) / (width**2 + v) ** (0.5 * (k - 1)) if k > 2 else 0.0
        allowed = tolerance * (np.abs(true) + beside) + rounding * (64.0 / (width**2 + v)) ** (0.5 * k)
        assert (np.abs(found - true) <= allowed).all(), Jet._fields[k]


@pytest.mark.parametrize(
    ("own", "exact", "width"),
    [
        (PROBIT, Probit(), 1.0),
        (LOGIT, Logit(), 1.7),
        (KNOWN, Logit(), 1.7),
        (STEEP, SteepProbit(), 1e-3),
    ],
    ids=["probit", "logit", "derivatives", "steep"],
)
def test_jets_are_those_of_the_closed_form(own, exact, width):
    m, v = grid()
    for found, true in zip(own.jets(m, v), exact.jets(m, v), strict=True):
        assert_close(found, true, v, width)


def test_jets_of_a_flipped_probit():
    """Where p is flat, log p holds no more than its rounding errors about the derivatives."""
    m, v = grid()
    exact = NoisyThreshold(0.03).jets(m, 1.0 + v)
    for found, true in zip(FLIPPED.jets(m, v), exact, strict=True):
        assert_close(found, true, v, 1.0, rounding=1e-12)


def test_jets_of_a_step():
    m, v = grid(5.0)
    for found, true in zip(Step().jets(m, v), NoisyThreshold(0.01).jets(m, v), strict=True):
        for k in range(5):
            np.testing.assert_allclose(
                found[k] * v ** (k / 2), true[k] * v ** (k / 2), rtol=1e-9, atol=3e-12 * 8**k
            )


HERMITE = (
    lambda x: 1,
    lambda x: x,
    lambda x: x**2 - 1,
    lambda x: x**3 - 3 * x,
    lambda x: x**4 - 6 * x**2 + 3,
)


def cauchit_jet(m, v):
    """Z and its derivatives in forty digits, from moments of f."""
    m, v = mp.mpf(m), mp.mpf(v)
    s = mp.sqrt(v)
    edges = {m + k * s for k in range(-12, 13, 2)} | {mp.mpf(k) for k in (-30, -3, -1, 0, 1, 3, 30)}
    edges = sorted(e for e in edges if abs(e - m) <= 12 * s)

    def integrand(f, k):
        x = (f - m) / s
        return mp.atan2(1, -f) / mp.pi * mp.npdf(x) * HERMITE[k](x) / s ** (k + 1)

    derivatives = [mp.quad(lambda f, k=k: integrand(f, k), edges) for k in range(5)]
    return Jet(*(float(part) for part in log_jet(derivatives)))


@pytest.mark.parametrize("v", [1e-5, 0.01, 0.3, 4.0, 1e3])
@pytest.mark.parametrize("z", [-5.0, -0.7, 2.0])
def test_jets_of_a_cauchit(z, v):
    m = z * np.sqrt(v)
    assert_close(CAUCHIT.jet(1.0, m, v), cauchit_jet(m, v), v, 1.0)


@pytest.mark.parametrize(
    ("own", "exact"), [(PROBIT, Probit()), (LOGIT, Logit()), (KNOWN, Logit())], ids=IDS[:3]
)
def test_zero_variance_is_the_density(own, exact):
    f = np.linspace(-8, 8, 33)
    for found, true in zip(own.jets(f, 0 * f), exact.jets(f, 0 * f), strict=True):
        assert_close(found, true, 0.0, 1.0)


@pytest.mark.parametrize("own", ALL, ids=IDS)
def test_everything_is_finite_and_sums_to_one(own):
    m, v = grid(40.0)
    extreme = np.meshgrid(
        [-1e8, -1e4, -30.0, -1e-8, 0.0, 300.0], [0.0, 1e-300, 1e-30, 1e-12, 1.0, 1e12]
    )
    m, v = np.append(m, extreme[0]), np.append(v, extreme[1])
    if isinstance(own, UnevenLogLog):
        m = np.clip(m, -500.0, 5.0)  # its formula knows no more than that
    plus, minus = own.jets(m, v)
    for jet in (plus, minus):
        assert all(np.isfinite(part).all() for part in jet)
        assert (1 + jet.h * v > -1e-12)[v <= 1e8].all()
    np.testing.assert_allclose(np.exp(plus.log_z) + np.exp(minus.log_z), 1.0, atol=1e-13)


def test_scalars_and_arrays_of_any_shape_agree():
    m, v = np.array([[0.3], [-2.0]]), np.array([0.0, 1e-3, 2.0])
    plus, minus = PROBIT.jets(m, v)
    assert plus.g.shape == minus.d.shape == (2, 3)
    for k in range(3):
        alone = PROBIT.jets(m[1, 0], v[k])[1]
        assert alone.c == pytest.approx(minus.c[1, k], rel=1e-9)


PAIRS = [
    (PROBIT, Probit()),
    (LOGIT, Logit()),
    (KNOWN, Logit()),
    (WithNoise(PROBIT, 0.3), WithNoise(Probit(), 0.3)),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("own", "exact"), PAIRS, ids=[*IDS[:3], "noise"])
def test_inference_is_that_of_the_closed_form(data, own, exact, rule):
    crab = data("crab", 40)
    K = crab.covariance(4.0, 2.0)
    found, true = (postlin.infer(K, crab.y, likelihood=kind, inference=rule) for kind in (own, exact))
    assert found.converged
    assert found.log_evidence == pytest.approx(true.log_evidence, abs=1e-7)
    np.testing.assert_allclose(found.evidence_gradient(), true.evidence_gradient(), atol=1e-6)
    predictions = [result.predict_proba(K, K.diagonal()) for result in (found, true)]
    np.testing.assert_allclose(*predictions, atol=1e-8)


@pytest.mark.parametrize("schedule", ["sequential", "hybrid"])
def test_other_schedules_work_too(data, schedule):
    crab = data("crab", 25)
    K = crab.covariance(4.0, 2.0)
    evidence = [
        postlin.infer(K, crab.y, likelihood=kind, inference="ep", schedule=schedule).log_evidence
        for kind in (LOGIT, Logit())
    ]
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-7)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "own", [PROBIT, CAUCHIT, FLIPPED, UnevenLogLog()], ids=["probit", *IDS[3:5], "log-log"]
)
def test_the_gradient_of_the_evidence_is_exact(data, own, rule):
    crab = data("crab", 40)
    kernel = ConstantKernel(2.0) * RBF(3.0) + WhiteKernel(0.3)
    model = GPClassifier(kernel, likelihood=own, inference=rule, optimizer=None, tol=1e-11)
    model.fit(crab.X, crab.y)
    _, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    numeric = central_difference(model.log_marginal_likelihood, kernel.theta, 1e-4)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


def test_a_step_cannot_be_used_by_laplace():
    with pytest.raises(ValueError, match="cannot use the step likelihood"):
        postlin.infer(np.eye(2), np.array([-1.0, 1.0]), likelihood=Step(), inference="laplace")
    result = postlin.infer(np.eye(2), np.array([-1.0, 1.0]), likelihood=Step())
    assert result.log_evidence == pytest.approx(2 * np.log(0.5), abs=1e-9)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: log_ndtr(z) - 0.1, "probabilities that sum to one over both labels"),
        (lambda z: np.nan * z, "probabilities that sum to one over both labels"),
        (lambda z: log_ndtr(z).sum(), r"log_density returned shape \(\) for input of shape \(1,\)"),
        (lambda z: np.where(np.abs(z) > 1, np.nan, log_ndtr(z)), "returned NaN where the posterior"),
    ],
)
def test_functions_that_are_no_log_density_are_refused(function, message):
    with pytest.raises(ValueError, match=message):
        Plain(function).jets(np.zeros(1), np.ones(1))
