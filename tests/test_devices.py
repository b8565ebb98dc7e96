"""Matrices elsewhere than in NumPy's memory: the same numbers, for every method and every kernel."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

import postlin
from postlin import EP, ConvergenceWarning
from postlin.inference.result import EXACT
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel
from postlin.likelihoods import REGISTRY as LIKELIHOODS
from postlin.likelihoods import NoisyThreshold
from postlin.linalg import arrays
from postlin.linalg.arrays import HOST, Place, cholesky, like, on_host, place_named, place_of, ratio
from postlin.rules import REGISTRY as RULES
from postlin.rules.weights import UNIT, Observations
from postlin.schedules import Parallel

N = 40
KERNEL = ConstantKernel(2.0) * RBF(1.0) + WhiteKernel(0.1)
ARD = [0.5, 1.0, 2.0]
KERNELS = {
    "rbf": KERNEL,
    "ard": ConstantKernel(2.0) * RBF(ARD) + WhiteKernel(0.1),
    **{f"matern {nu}": Matern(1.3, nu=nu) + WhiteKernel(0.1) for nu in (0.5, 1.5, 2.5, np.inf)},
    **{f"matern ard {nu}": Matern(ARD, nu=nu) + WhiteKernel(0.1) for nu in (0.5, 1.5, 2.5, np.inf)},
    "rational quadratic": RationalQuadratic(0.8, 1.7) + WhiteKernel(0.1),
    "periodic": ExpSineSquared(0.8, 2.5) + WhiteKernel(0.1),
    "dot product": DotProduct(0.7) + WhiteKernel(0.1),
    "power": Exponentiation(DotProduct(0.7) + 2.0 * Matern(1.1, nu=1.5), 2) + WhiteKernel(0.1),
    "constant": ConstantKernel(3.0),
    "far": RBF([1e-4, 1.0, 2.0]) + WhiteKernel(0.5),
}


@pytest.fixture(name="data", scope="module")
def labelled_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    X[5] = X[3]  # a distance of zero off the diagonal
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
    return X, y


@pytest.fixture(name="K", scope="module")
def covariance(data):
    return KERNEL(data[0])


def _evaluated(X, y, place, kernel=KERNEL, likelihood="probit", rule="pl", **options):
    likelihood = LIKELIHOODS[likelihood]() if isinstance(likelihood, str) else likelihood
    rule = RULES[rule]() if isinstance(rule, str) else rule
    model = ExactModel(X, y, rule, Parallel(), 1e-10, 100, place=place, **options)
    fitted = model.infer(Hyperparameters(kernel, likelihood))
    assert fitted.converged
    return fitted.value_and_gradient(EXACT)


def _agree(X, y, put, **options):
    expected, gradient = _evaluated(X, y, HOST, **options)
    found, slope = _evaluated(X, y, place_of(put(np.zeros(1))), **options)
    assert found == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(slope, gradient, rtol=1e-7, atol=1e-7 * max(1.0, abs(gradient).max()))


METHODS = [
    (rule, name)
    for rule in RULES
    for name in LIKELIHOODS
    if (rule, name) != ("laplace", "noisy_threshold")
]


@pytest.mark.parametrize(("rule", "likelihood"), METHODS)
def test_methods_agree_with_numpy(rule, likelihood, put, data):
    _agree(*data, put, rule=rule, likelihood=likelihood)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_agree_with_numpy(kernel, put, data):
    X, y = data
    # the periodic kernel is a covariance on a line only
    _agree(X[:, :1] if kernel == "periodic" else X, y, put, kernel=KERNELS[kernel])


@pytest.mark.parametrize("rule", list(RULES))
def test_weights_agree_with_numpy(rule, put, data):
    weight = np.random.default_rng(1).integers(1, 4, size=N).astype(float)
    _agree(*data, put, rule=rule, weights=Observations(weight))


@pytest.mark.parametrize("weighted", [False, True])
def test_noise_in_the_likelihood_agrees_with_numpy(weighted, put, data):
    weights = Observations(np.linspace(0.5, 2.0, N)) if weighted else UNIT
    noisy = NoisyThreshold(0.05, epsilon_bounds=(1e-3, 0.3))
    _agree(*data, put, likelihood=noisy, fold_noise=True, weights=weights)


def test_negative_sites_agree_with_numpy(put, data):
    X, y = data
    y = np.where(np.arange(N) % 13 == 0, -y, y)
    kernel = ConstantKernel(20.0) * RBF(3.0) + WhiteKernel(0.1)
    options = {"likelihood": NoisyThreshold(0.05), "rule": EP()}
    _agree(X, y, put, kernel=kernel, **options)
    K = kernel(X)
    there, here = (
        postlin.infer(k, y, likelihood="noisy_threshold", inference="ep") for k in (put(K), K)
    )
    assert (here.sites.tau < 0).any()
    new = K[:, :5]
    for found, expected in zip(
        there.predict_latent(put(new), K[0, :5]), here.predict_latent(new, K[0, :5]), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_sites_too_weak_for_the_factor_agree_with_numpy(put, data):
    X, y = data
    _agree(X, y, put, kernel=ConstantKernel(1e-4) * RBF(1.0) + WhiteKernel(1e-5))


def test_infer_leaves_matrices_where_they_are(put, data, K):
    _, y = data
    options = {"weights": np.linspace(0.5, 2.0, N), "prior_mean": np.linspace(-1.0, 1.0, N)}
    here = postlin.infer(K, y, **options)
    there = postlin.infer(put(K), put(y), **{name: put(value) for name, value in options.items()})
    assert there.log_evidence == pytest.approx(here.log_evidence, rel=1e-9)
    assert isinstance(there.mean, np.ndarray)
    np.testing.assert_allclose(there.mean, here.mean, rtol=1e-8)
    np.testing.assert_allclose(there.variance, here.variance, rtol=1e-8)
    assert there.spectral_radius() == pytest.approx(here.spectral_radius(), rel=1e-6)
    matrices = [
        (there.covariance, here.covariance),
        (there.evidence_gradient(), here.evidence_gradient()),
    ]
    for found, expected in matrices:
        assert place_of(found) == place_of(put(K))
        np.testing.assert_allclose(on_host(found), expected, rtol=1e-7, atol=1e-9)
    posteriors = [result.iterate.posterior for result in (there, here)]
    dense = [posterior.correlation.dense() for posterior in posteriors]
    np.testing.assert_allclose(*dense, atol=1e-9)
    again = postlin.infer(put(K), y, start=there.sites, **options)
    assert again.n_iter <= 1


def test_predictions_of_infer_take_arrays_of_either_kind(put, data, K):
    _, y = data
    there, cross = postlin.infer(put(K), y), K[:, :4]
    expected = postlin.infer(K, y).predict_proba(cross, K[0, 0])
    for bring in (put, np.asarray):
        found = there.predict_proba(bring(cross), bring(np.full(4, K[0, 0])))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_single_precision_is_widened_where_it_is(put, data, K):
    _, y = data
    single = K.astype(np.float32)
    there, here = postlin.infer(put(single), y), postlin.infer(single.astype(float), y)
    assert there.log_evidence == pytest.approx(here.log_evidence, rel=1e-9)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda K: K[:, :3], r"K must be a square matrix, got shape \(40, 3\)"),
        (lambda K: K[:0, :0], "K is empty"),
        (lambda K: K + 1j, "K must be a square matrix of numbers"),
        (
            lambda K: K + np.where(np.arange(N) == 17, np.nan, 0.0),
            r"K must be finite, but K\[0, 17\] is nan",
        ),
        (lambda K: K + np.eye(N, k=-30), r"K must be symmetric, but K\[30, 0\]"),
        (
            lambda K: K - np.eye(N) * np.diag(K)[20],
            r"the prior variance K\[\d+, \d+\] = .* is out of range",
        ),
        (
            lambda K: np.eye(N) + 2 * np.eye(N, k=11) + 2 * np.eye(N, k=-11),
            "its leading 12 x 12 block is not",
        ),
    ],
)
def test_what_is_no_covariance_is_refused_there_too(spoil, message, put, data, K):
    _, y = data
    with pytest.raises(ValueError, match=message):
        postlin.infer(put(spoil(K)), y)


@pytest.mark.parametrize("schedule", ["sequential", "hybrid"])
def test_sweeps_are_for_the_cpu(schedule, put, data, K):
    _, y = data
    with pytest.raises(
        ValueError, match=f"schedule='{schedule}' works on the CPU with NumPy only, not with"
    ):
        postlin.infer(put(K), y, schedule=schedule)


@pytest.mark.parametrize("rule", ["pl", "cl", "ep"])
def test_no_sweeps_are_advised_where_there_are_none(rule, put, data, K):
    _, y = data
    for matrix, advised in ((K, True), (put(K), False)):
        result = postlin.infer(matrix, y, inference=rule)
        model = ExactModel(np.zeros((len(y), 1)), y, result.problem.rule, Parallel(), 1e-8, 60)
        model.place = place_of(matrix)
        (warning,) = model.warnings(replace(result.record, converged=False))
        assert isinstance(warning, ConvergenceWarning)
        assert ("schedule='sequential'" in str(warning)) == advised


def test_memory_is_that_of_the_device(put, data, K, monkeypatch):
    _, y = data
    monkeypatch.setattr(Place, "has_memory", True)
    monkeypatch.setattr(Place, "available_memory", lambda place: 2.0**14)
    with pytest.raises(MemoryError, match=r"40 points .* GiB are available on .*at most 22 rows"):
        postlin.infer(put(K), y)


def test_devices_that_are_none():
    torch = pytest.importorskip("torch")
    assert place_named("cpu").is_host
    with pytest.raises(ValueError, match="device='nonsense' cannot hold PyTorch doubles"):
        place_named("nonsense")
    with pytest.raises(ValueError, match=r"device=3\.5 cannot hold PyTorch doubles"):
        place_named(3.5)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device='cuda' asks for a GPU and PyTorch finds none"):
            place_named("cuda")


def test_a_device_needs_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="device='cuda' needs PyTorch"):
        place_named("cuda")


def test_other_arrays_need_array_api_compat(put, monkeypatch):
    x = put(np.array([1.0, 2.0]))
    arrays._compat.cache_clear()
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(
        ImportError, match=r"need the package array-api-compat.*pip install array-api-compat"
    ):
        place_of(x)
    assert place_of(np.zeros(2)).is_host
    assert place_of([1.0, 2.0]).is_host


def test_subclasses_belong_to_the_library_of_their_base():
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    assert str(place_of(parameter)) == "torch on cpu"
    assert place_of(torch.Size([2])).is_host  # it is a tuple
    assert on_host(torch.Size([2])) == (2,)


def test_small_parts(put):
    x = put(np.array([1.0, 2.0]))
    assert like(x, np.array(["a"])).tolist() == ["a"]
    assert place_of(like(x, np.array([1, 2]))) == place_of(x)
    np.testing.assert_array_equal(on_host(ratio(x, put(np.array([0.0, 4.0])))), [0.0, 0.5])
    assert cholesky(put(np.diag([1.0, 2.0, -1.0, 1.0])))[1] == 3
