"""Matrices elsewhere than in NumPy's memory: the same numbers, for every method and every kernel."""

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

from postlin import tiles
from postlin.arrays import place_of
from postlin.gradient import EXACT
from postlin.hyperparameters import Hyperparameters
from postlin.likelihoods import REGISTRY as LIKELIHOODS
from postlin.model import Model
from postlin.rules import REGISTRY as RULES
from postlin.schedules import Parallel

torch = pytest.importorskip("torch")
strict = pytest.importorskip("array_api_strict")

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


def _strict(array):
    # a device that does not let arrays of others, or of NumPy's, in
    return strict.asarray(array, device=strict.Device("device1"))


PUT = {"torch": torch.asarray, "strict": _strict}


@pytest.fixture(params=list(PUT))
def put(request):
    return PUT[request.param]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(tiles, "_BLOCK", 7)
    monkeypatch.setattr(tiles, "_PANEL", 9 * N)


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
    model = Model(X, y, rule, Parallel(), 1e-10, 100, place=place, **options)
    fitted = model.infer(Hyperparameters(kernel, likelihood))
    assert fitted.approximation.converged
    return fitted.value_and_gradient(EXACT)


def _agree(X, y, put, **options):
    expected, gradient = _evaluated(X, y, None, **options)
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
