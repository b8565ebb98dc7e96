"""All classes jointly, with matrices elsewhere than in NumPy's memory: the fits of NumPy's."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, Matern, WhiteKernel

from postlin import GPClassifier
from postlin.inference.joint.problem import JointMap
from postlin.inference.result import EXACT
from postlin.learning import joint_model
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.joint_model import JointModel
from postlin.likelihoods.softmax import Softmax
from postlin.linalg.arrays import HOST, on_host, place_of
from postlin.rules.joint import REGISTRY
from postlin.schedules import Parallel

N = 36
KERNEL = ConstantKernel(3.0) * RBF([1.0, 1.5]) + WhiteKernel(0.1)
RULES = [kind(nodes=64) if name == "pl" else kind() for name, kind in REGISTRY.items()]


@pytest.fixture(name="rows", scope="module")
def labelled_rows():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(N, 2))
    return X, np.digitize(X[:, 0] + 0.3 * rng.normal(size=N), [-0.7, 0.0, 0.7])


@pytest.fixture(name="new", scope="module")
def new_rows():
    return np.random.default_rng(7).normal(size=(9, 2))


def _model(rows, rule, place=HOST, weight=None):
    return JointModel(*rows, 4, rule, Parallel(), 1e-10, 200, weight=weight, place=place)


def _same(found, expected, **tolerance):
    np.testing.assert_allclose(on_host(found), expected, **{"rtol": 1e-6, "atol": 1e-9, **tolerance})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_evidence_and_gradient_are_those_of_numpy(rule, separate, weighted, rows, put):
    kernels = [
        ConstantKernel(2.0 + c) * Matern(1.0 + 0.2 * c, nu=1.5) + WhiteKernel(0.1) for c in range(4)
    ]
    at = Hyperparameters(CompoundKernel(kernels) if separate else KERNEL, Softmax())
    weight = np.random.default_rng(1).integers(1, 4, N).astype(float) if weighted else None
    found = []
    for place in (HOST, place_of(put(rows[0]))):
        fitted = _model(rows, rule, place, weight).infer(at)
        assert fitted.converged
        assert place_of(fitted.problem.prior.covariances[0]) == place
        found.append((*fitted.value_and_gradient(EXACT), fitted.spectral_radius()))
    (value, gradient, radius), (there, slope, its_radius) = found
    assert there == pytest.approx(value, rel=1e-10)
    _same(slope, gradient, atol=1e-7)
    assert its_radius == pytest.approx(radius, rel=1e-5)


def test_products_with_the_correlation_are_those_of_its_matrix(rows, put):
    """Brute force: dense algebra with the posterior covariance of all contrasts."""
    at, rng = Hyperparameters(KERNEL, Softmax()), np.random.default_rng(2)
    fitted = _model(rows, RULES[0], place_of(put(rows[0]))).infer(at)
    posterior, D = fitted.iterate.posterior, 3
    K = np.kron(KERNEL(rows[0]), np.eye(D))
    T = np.zeros_like(K)
    for i, block in enumerate(posterior.sites.tau):
        T[D * i : D * i + D, D * i : D * i + D] = block
    covariance = np.linalg.inv(np.linalg.inv(K) + T)
    _same(posterior.covariance, covariance, atol=1e-8)
    inverse = np.linalg.inv(posterior.root)
    blocks = covariance.reshape(N, D, N, D).transpose(0, 2, 1, 3)
    C = np.einsum("iab,ijbc,jdc->ijad", inverse, blocks, inverse)
    jacobian = JointMap(fitted.problem, fitted.iterate)
    q, P = rng.normal(size=(N, D)), rng.normal(size=(N, D, D))
    P = P + np.swapaxes(P, 1, 2)
    _same(jacobian.times(q), np.einsum("ijab,jb->ia", C, q), atol=1e-8)
    _same(jacobian.sandwich(P), np.einsum("ijab,jbc,ijdc->iad", C, P, C), atol=1e-8)
    columns = jacobian.columns(5, repeated=False)
    expected = C[:, 5].copy()
    expected[5] = 0.0
    _same(columns, expected, atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"shared_kernel": False}, {"inference": "laplace"}], ids=repr)
def test_a_whole_fit_and_what_it_tells(options, rows, new, put):
    options = {"inference": RULES[0], "optimizer": None, **options}
    model = GPClassifier(KERNEL, multi_class="joint", **options)
    X, y = rows
    there, here = clone(model).fit(put(X), put(y)), clone(model).fit(X, y)
    _same(there.predict_proba(put(new)), here.predict_proba(new))
    assert place_of(there.predict_proba(put(new))) == place_of(put(new))
    for found, expected in zip(
        there.latent_mean_and_variance(new), here.latent_mean_and_variance(new), strict=True
    ):
        _same(found, expected)
    _same(there.loo_predict_proba_, here.loo_predict_proba_, rtol=1e-5)
    draws, ours = (m.sample_latent(new, 3, random_state=0) for m in (there, here))
    _same(draws, ours, atol=1e-6)
    value, gradient = there.log_marginal_likelihood(here.kernel_.theta + 0.1, eval_gradient=True)
    expected, slope = here.log_marginal_likelihood(here.kernel_.theta + 0.1, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-9)
    _same(gradient, slope, atol=1e-6)
    for copied in (pickle.loads(pickle.dumps(there)), copy.deepcopy(there)):
        _same(copied.predict_proba(new), here.predict_proba(new))
        assert isinstance(copied.approximation_.problem.prior.covariances[0], np.ndarray)


def test_leaving_out_weighted_rows(rows, put):
    X, y = rows
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    model = GPClassifier(KERNEL, multi_class="joint", optimizer=None, inference=RULES[0])
    there = clone(model).fit(put(X), put(y), sample_weight=put(weight))
    here = clone(model).fit(X, y, sample_weight=weight)
    _same(there.loo_predict_proba_, here.loo_predict_proba_, rtol=1e-5)


def test_searches_on_parts_of_the_rows_work_there(rows, new, put, monkeypatch):
    monkeypatch.setattr(joint_model, "LARGE", 100)
    monkeypatch.setattr(joint_model, "_FEWEST", 50)
    X, y = rows
    there, here = (
        GPClassifier(KERNEL, multi_class="joint", inference=RULES[0]).fit(bring(X), y)
        for bring in (put, np.asarray)
    )
    assert len(there.evidence_path_) == len(here.evidence_path_)
    assert there.log_marginal_likelihood_value_ == pytest.approx(
        here.log_marginal_likelihood_value_, abs=1e-6
    )
    _same(there.predict_proba(new), here.predict_proba(new), rtol=1e-3)


def test_models_are_copied_without_their_place(rows, put):
    model = _model(rows, RULES[0], place_of(put(rows[0])))
    assert pickle.loads(pickle.dumps(model)).place == HOST
