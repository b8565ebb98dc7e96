"""Neighbours elsewhere than in NumPy's memory: functions, likelihoods, search, inference and fits."""

import numpy as np
import pytest
from scipy import special
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from test_local import hostile, moved, some_problems

from postlin import EP, GPClassifier
from postlin.inference.local.solver import solve
from postlin.kernels.stacks import full_stack, metric
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.local_model import LocalModel
from postlin.learning.local_search import scored
from postlin.likelihoods import Logit, NoisyThreshold, Probit, WithNoise
from postlin.linalg import arrays
from postlin.linalg.arrays import HOST, Place, on_host, place_of
from postlin.linalg.functions import functions
from postlin.rules import PL
from postlin.streaming.neighbours import Neighbours
from postlin.streaming.surroundings import ArraySurroundings

KERNEL = ConstantKernel(5.0) * Matern([1.0, 2.0, 0.7], nu=0.5) + WhiteKernel(0.1)


def test_functions_are_those_of_numpy_and_scipy():
    torch = pytest.importorskip("torch")
    x = np.concatenate([-np.geomspace(1e3, 1e-3, 40), [0.0], np.geomspace(1e-3, 1e3, 60)])
    x = np.concatenate([x, [np.inf, -np.inf, 1e200, -1e200, np.nan]])
    there, f = torch.asarray(x), functions(torch.asarray(x))
    for name in ("erf", "erfcx", "expit", "log_expit", "log_ndtr", "ndtr"):
        expected = getattr(special, name)(x)
        np.testing.assert_allclose(getattr(f, name)(there), expected, 1e-13, 1e-300, err_msg=name)
    ordinary = there[there.abs() <= 20.0]
    np.testing.assert_allclose(f.scaled_erfc(ordinary), special.erfcx(ordinary.numpy()), rtol=1e-13)
    np.testing.assert_array_equal(f.isfinite(there), np.isfinite(x))
    np.testing.assert_array_equal(f.clip(there, -1.0, 2.0), np.clip(x, -1.0, 2.0))
    np.testing.assert_array_equal(f.minimum(there, -there), -np.abs(x))
    assert f.rows([[there, there], [there, there]]).shape == (2, 2, len(x))


@pytest.mark.parametrize(
    ("likelihood", "accuracy"),
    [
        (Probit(), 1e-10),
        (Logit(), 1e-10),
        (Logit(order=10), 1e-5),  # whose cumulants cancel
        (NoisyThreshold(0.03), 1e-10),
        (WithNoise(NoisyThreshold(0.1), 0.4), 1e-10),
    ],
    ids=repr,
)
def test_likelihoods_have_the_same_jets_in_torch(likelihood, accuracy):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    m = rng.normal(size=400) * 10.0 ** rng.uniform(-2, 3, 400)
    v = 10.0 ** rng.uniform(-6, 6, 400)
    y = np.where(rng.random(400) < 0.5, 1.0, -1.0)

    def parts(y, m, v):
        yield from likelihood.jet(y, m, v)
        yield from likelihood.regression(y, m, v)
        yield from likelihood.slopes(m, v)
        for jet in likelihood.jets(m, v):
            yield from jet
        for change in [*likelihood.regression_changes(y, m, v), *likelihood.density_changes(y, m, v)]:
            yield from change

    with np.errstate(all="ignore"):
        expected = list(parts(y, m, v))
    for found, wanted in zip(parts(*map(torch.asarray, (y, m, v))), expected, strict=True):
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=accuracy * np.abs(wanted).max())


@pytest.mark.parametrize("policy", ["clamp", "skip", "small_variance"])
def test_policies_for_negative_sites_are_the_same(policy, put):
    problems = hostile(NoisyThreshold(0.05), EP(policy), 8, 5, seed=4)
    found, reference = solve(moved(problems, put)), solve(problems)
    sure = reference.converged & found.converged
    assert sure.sum() >= 4
    np.testing.assert_allclose(on_host(found.tau)[sure], reference.tau[sure], rtol=1e-6, atol=1e-9)


def test_a_trial_moves_few_numbers_of_each_problem_to_the_host(monkeypatch):
    torch = pytest.importorskip("torch")
    n, sizes = 40, []
    problems = moved(some_problems(Probit(), PL(), n=n, k=9), torch.asarray)
    plain = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: (sizes.append(x.numel()), plain(x))[1])
    found = solve(problems)
    assert found.converged.all()
    assert max(sizes) <= 3 * n
    assert len(sizes) <= 3 * found.n_factorisations.max() + 5


def test_squared_distances_of_near_points_do_not_cancel(put):
    X = np.random.default_rng(0).normal(size=(3, 5, 2))
    X[:, 1] = X[:, 0] + 1e-9
    K = full_stack(Matern(1.0, nu=0.5), put(X)).K
    np.testing.assert_allclose(on_host(K), full_stack(Matern(1.0, nu=0.5), X).K, rtol=1e-14)
    assert (1.0 - on_host(K)[:, 0, 1] > 1e-9).all()


@pytest.mark.parametrize("columns", [30, 700, 1500, 1537])
def test_the_smallest_entries_are_found_among_groups_of_columns(columns, put):
    A = np.random.default_rng(columns).integers(0, 400, (6, columns)).astype(float)  # with ties
    A[0] = np.arange(columns)  # all in one group of neighbouring columns
    A[1] = -np.arange(columns)
    for there in (A, put(A)):
        found, largest = (np.asarray(on_host(part)) for part in arrays.smallest(there, 7))
        expected = np.sort(A, axis=1)[:, :7]
        np.testing.assert_array_equal(np.sort(np.take_along_axis(A, found, axis=1)), expected)
        np.testing.assert_array_equal(largest, expected[:, -1])
        assert all(len(set(row)) == 7 for row in found)


@pytest.fixture(name="rows", scope="module")
def labelled_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    X[50:60] = X[40:50]
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] + 0.4 * rng.normal(size=150) > 0) + 1 * (X[:, 2] > 1)


FITS = [
    {},
    {"inducing": 12},
    {"likelihood": "logit", "inference": "ep"},
    {"likelihood": "noisy_threshold", "inference": "cl", "multi_class": "one_vs_one"},
    {"inference": "laplace", "fold_noise": True},
]


@pytest.mark.parametrize("options", FITS, ids=str)
def test_predictions_are_those_of_numpy(options, rows, put):
    (X, y), new = rows, np.random.default_rng(1).normal(size=(20, 3))
    found = [
        GPClassifier(KERNEL, n_neighbors=12, optimizer=None, random_state=0, **options).fit(rows, y)
        for rows in (X, put(X))
    ]
    here, there = (model.predict_proba(new) for model in found)
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-10)
    weight = np.random.default_rng(2).choice([0.5, 1.0, 3.0], len(y))
    here, there = (
        model.fit(rows, y, weight).predict_proba(new)
        for model, rows in zip(found, (X, put(X)), strict=True)
    )
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-10)


def test_learning_on_a_device_with_its_own_memory_ends_where_numpy_does(rows, monkeypatch):
    """It begins on the processor and on the device at once, and fits the global part there."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(Place, "has_memory", property(lambda place: not place.is_host))
    monkeypatch.setattr(Place, "available_memory", lambda place: 2.0**30)
    X, y = rows[0][:60], rows[1][:60] > 0
    here, there = (
        GPClassifier(KERNEL, n_neighbors=8, inducing=6, random_state=0).fit(rows, y)
        for rows in (X, torch.asarray(X))
    )
    np.testing.assert_allclose(there.kernel_.theta, here.kernel_.theta, rtol=1e-6)
    np.testing.assert_allclose(there.predict_proba(X[:9]), here.predict_proba(X[:9]), atol=1e-7)


@pytest.mark.parametrize(
    "likelihood", [Probit(), NoisyThreshold(0.05, epsilon_bounds=(1e-3, 0.3))], ids=repr
)
@pytest.mark.parametrize("fold_noise", [False, True])
def test_scores_and_gradients_are_those_of_numpy(likelihood, fold_noise, rows, put):
    (X, y), at = rows, Hyperparameters(KERNEL, likelihood)
    signs = np.where(np.eye(3) > 0, 1.0, -1.0)
    found = []
    for place in (HOST, place_of(put(X))):
        search = Neighbours.of(X, metric(KERNEL, 3), exact=True, place=place)
        around = ArraySurroundings(X, y, None, search)
        model = LocalModel(signs, True, PL(), 1e-10, 100, fold_noise, place=place)
        found.append(scored(model, at, around, around.drawn(40, 0), 12, gradient=True))
    here, there = found
    assert there.value == pytest.approx(here.value, rel=1e-10)
    np.testing.assert_allclose(there.gradient, here.gradient, rtol=1e-7, atol=1e-8)
