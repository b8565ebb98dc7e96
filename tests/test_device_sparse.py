"""Inducing points elsewhere than in NumPy's memory: the same evidence, gradients and fits."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

import postlin
from postlin import PL, GPClassifier
from postlin.learning.hyperparameters import Hyperparameters, WithPoints
from postlin.learning.sparse_model import SparseModel
from postlin.likelihoods import REGISTRY as LIKELIHOODS
from postlin.likelihoods import NoisyThreshold
from postlin.linalg.arrays import HOST, on_host, place_of
from postlin.rules import REGISTRY as RULES
from postlin.streaming import views
from postlin.streaming.views import ArrayRows

torch = pytest.importorskip("torch")
PLACE = place_of(torch.zeros(1))
KERNEL = ConstantKernel(4.0) * RBF([1.0, 1.5]) + WhiteKernel(0.1)
N, M = 300, 15


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, 2))
    f = X[:, 0] + np.sin(2 * X[:, 1])
    y = np.where(f + 0.4 * rng.standard_normal(N) > 0, 1.0, -1.0)
    return X, y


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Several chunks, of which the last keep no coordinates."""
    monkeypatch.setattr(views, "CHUNK", 100)
    monkeypatch.setattr(views, "_FREE", 8.0 * 2 * M * 200 + 1)


def _evaluated(X, y, place, likelihood, rule, kernel=KERNEL, weight=None, **options):
    rows = ArrayRows(X, y, weight, chunk=100)
    model = SparseModel(rows, X[:M], rule, tol=1e-9, place=place, **options)
    at = Hyperparameters(kernel, likelihood)
    box = np.stack([X.min(axis=0), X.max(axis=0)], axis=1)
    found = model.infer(WithPoints.of(at, model.Z, box))
    assert found.converged
    assert not found.improper
    return found.value_and_gradient(1e-10)


def _agree(X, y, likelihood, rule, **options):
    expected, gradient = _evaluated(X, y, HOST, likelihood, rule, **options)
    value, slope = _evaluated(X, y, PLACE, likelihood, rule, **options)
    assert isinstance(value, float)
    assert value == pytest.approx(expected, rel=1e-10)
    size = np.abs(gradient).max()
    np.testing.assert_allclose(slope, gradient, rtol=1e-8, atol=1e-8 * size)


METHODS = [
    (rule, name)
    for rule in RULES
    for name in LIKELIHOODS
    if (rule, name) not in (("laplace", "noisy_threshold"), ("ep", "noisy_threshold"))
]


@pytest.mark.parametrize(("rule", "likelihood"), METHODS)
def test_methods_agree_with_numpy(rule, likelihood, rows):
    _agree(*rows, LIKELIHOODS[likelihood](), RULES[rule]())


def test_weights_noise_and_quadrature_agree_with_numpy(rows):
    X, y = rows
    weight = np.linspace(0.3, 3.0, N)
    noisy = NoisyThreshold(0.05, epsilon_bounds=(1e-3, 0.3))
    for likelihood, rule, options in (
        (LIKELIHOODS["probit"](), PL(), {"weight": weight}),
        (noisy, PL(), {"fold_noise": True, "weight": weight}),
        (LIKELIHOODS["probit"](), PL(evidence_order=10), {}),
    ):
        _agree(X, y, likelihood, rule, **options)


KERNELS = {
    "matern": 2.0 * Matern([1.0, 2.0], nu=0.5) + WhiteKernel(0.1),
    "sum": RationalQuadratic(0.8, 1.7) + 0.5 * Matern(1.1, nu=2.5) * RBF(2.0) + WhiteKernel(0.1),
    "dot product": DotProduct(0.7) + 2.0 * RBF(1.0) + WhiteKernel(0.1),
    "far": RBF([1e-4, 1.0]) + ConstantKernel(0.5) + WhiteKernel(0.5),
    "periodic": ExpSineSquared(0.8, 2.5) * RBF(3.0) + WhiteKernel(0.1),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_agree_with_numpy(kernel, rows):
    X, y = rows
    X = X[:, :1] if kernel == "periodic" else X
    _agree(X, y, LIKELIHOODS["probit"](), PL(), kernel=KERNELS[kernel])


def _fits(X, y, **options):
    model = GPClassifier(KERNEL, **{"inducing": M, "random_state": 0, "optimizer": None, **options})
    return clone(model).fit(torch.asarray(X), torch.asarray(y)), clone(model).fit(X, y)


def test_fits_agree_with_numpy(rows):
    X, y = rows
    there, here = _fits(X, y)
    new = X[:20] + 0.1
    for asked in (new, torch.asarray(new)):
        p = there.predict_proba(asked)
        assert type(p) is type(asked)
        np.testing.assert_allclose(on_host(p), here.predict_proba(new), rtol=1e-8)
        one, other = (
            there.sample_latent(asked, 3, random_state=0),
            here.sample_latent(new, 3, random_state=0),
        )
        np.testing.assert_allclose(on_host(one), other, atol=1e-5)
    np.testing.assert_allclose(there.loo_predict_proba_, here.loo_predict_proba_, rtol=1e-7)
    value, slope = there.log_marginal_likelihood(there.kernel_.theta, eval_gradient=True)
    expected, gradient = here.log_marginal_likelihood(here.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(expected)
    np.testing.assert_allclose(slope, gradient, rtol=1e-5, atol=1e-5)


def test_copies_are_in_numpys_memory(rows, tmp_path):
    X, y = rows
    there, _ = _fits(X, y)
    content = pickle.dumps(there)
    assert b"torch" not in content
    again = pickle.loads(content)
    np.testing.assert_allclose(again.predict_proba(X), there.predict_proba(X), rtol=1e-8)
    postlin.save(there, tmp_path / "model")
    loaded = postlin.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(X), there.predict_proba(X), rtol=1e-8)


def test_streams_and_rows_that_do_not_fit(rows, monkeypatch):
    X, y = rows
    there, here = _fits(X, y)
    monkeypatch.setattr(views, "_FREE", 0.0)  # every chunk is moved in every pass
    monkeypatch.setattr(postlin.estimator.sparse_fitting, "place_of", lambda _: PLACE)
    halves = [(X[:170], y[:170]), (X[170:], y[170:])]
    model = clone(here).fit(postlin.stream(lambda: halves))
    assert not model.base_estimator_.model.place.is_host
    np.testing.assert_allclose(model.predict_proba(X), here.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), rtol=1e-8)


def test_checkpoints_and_samples(rows, tmp_path, monkeypatch):
    from postlin.learning import sampled

    for name, size in {"FEW": 80, "MANY": 200, "HELD": 30, "_RARE": 10}.items():
        monkeypatch.setattr(sampled, name, size)
    X, y = map(torch.asarray, rows)
    kernel = ConstantKernel(4.0) * RBF(1.0) + WhiteKernel(0.1, "fixed")
    model = GPClassifier(kernel, inducing=6, random_state=0, checkpoint=tmp_path / "fit")
    first = model.fit(X, y).predict_proba(rows[0])
    again = clone(model).fit(X, y)
    np.testing.assert_allclose(again.predict_proba(rows[0]), first, rtol=1e-10)
    plain = clone(model).set_params(checkpoint=None).fit(*rows)
    np.testing.assert_allclose(plain.predict_proba(rows[0]), first, atol=1e-3)


def test_a_killed_inference_goes_on(rows, tmp_path, monkeypatch):
    X, y = map(torch.asarray, rows)
    options = {"kernel": KERNEL, "inducing": 6, "random_state": 0, "optimizer": None}
    total, passes = views.PlacedRows.total, []

    def killed(self, share):
        passes.append(type(share).__name__)
        if len(passes) == 8:
            raise RuntimeError("killed")
        return total(self, share)

    with monkeypatch.context() as patch:
        patch.setattr(views.PlacedRows, "total", killed)
        patch.setattr(postlin.learning.checkpoint, "EVERY", 0.0)
        with pytest.raises(RuntimeError, match="killed"):
            GPClassifier(**options, checkpoint=tmp_path / "fit").fit(X, y)
    plain = GPClassifier(**options).fit(*rows)
    passes[:] = [""] * 8
    monkeypatch.setattr(views.PlacedRows, "total", killed)
    resumed = GPClassifier(**options, checkpoint=tmp_path / "fit").fit(X, y)
    assert len(passes) - 8 < resumed.n_iter_ - 4  # seven passes were known
    np.testing.assert_allclose(resumed.predict_proba(rows[0]), plain.predict_proba(rows[0]), rtol=1e-6)


def test_what_cannot_be_used_there(rows):
    X, y = map(torch.asarray, rows)
    with pytest.raises(ValueError, match="works on the CPU with NumPy only"):
        GPClassifier(PairwiseKernel() + WhiteKernel(0.1), inducing=5).fit(X, y)


def test_rows_on_a_cluster_are_not_moved_to_a_device(rows, monkeypatch):
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr(postlin.estimator.sparse_fitting, "place_of", lambda _: PLACE)
    X, y = (da.from_array(part, chunks=(N, *part.shape[1:])) for part in rows)
    with pytest.raises(ValueError, match="the rows are read by Dask's workers"):
        GPClassifier(KERNEL, inducing=5).fit(X, y)
