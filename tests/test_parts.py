"""Searches in parts of the rows, which prepare the search in all rows, and the steps that end it."""

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import ConvergenceWarning, GPClassifier
from postlin.learning import parts
from postlin.learning.groups import neighbourhoods
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import LARGE, ExactModel
from postlin.learning.parts import Parts
from postlin.learning.training import train
from postlin.likelihoods import Probit
from postlin.linalg.minimise import Worth, minimise
from postlin.rules import PL
from postlin.rules.weights import Observations
from postlin.schedules import Parallel

NOISE = WhiteKernel(0.1, "fixed")
KERNEL = ConstantKernel(10.0, (1e-5, 1e10)) * RBF(2.0, (1e-5, 1e5)) + NOISE


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(LARGE, 3))
    return X, np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=len(X)) > 0, 1.0, -1.0)


@pytest.mark.parametrize("n", [1000, 1003])
def test_groups_are_a_partition_into_halves_of_halves(n):
    X = np.random.default_rng(0).normal(size=(n, 4)) * [1.0, 5.0, 1.0, 1.0]
    groups = neighbourhoods(X, 4)
    assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(n))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    spreads = [X[group, 1].std() for group in groups]  # cut along the longest direction
    assert max(spreads) < 0.7 * X[:, 1].std()


@pytest.mark.parametrize("X", [np.ones((8, 2)), np.full((8, 2), 1e99) * [[1.0, -1.0]], np.eye(8)])
def test_any_rows_can_be_grouped(X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        groups = neighbourhoods(X, 4)
    assert sorted(np.concatenate(groups)) == list(range(8))


def test_parts_share_the_rows_the_labels_and_the_weights(rows):
    X, y = rows
    weight = np.linspace(0.5, 2.0, len(y))
    model = ExactModel(X, y, PL(), Parallel(), 1e-8, 100, weights=Observations(weight))
    parts = Parts.of([model], 4)
    for index, part in parts.groups[0]:
        assert np.array_equal(part.X, X[index])
        assert np.array_equal(part.y, y[index])
        assert np.array_equal(part.weights.count, weight[index])
    sites = model.infer(Hyperparameters(KERNEL, Probit()), tol=1e-2).start
    (again,) = parts.joined(parts.split([sites]))
    assert np.array_equal(again.tau, sites.tau)
    assert np.array_equal(again.nu, sites.nu)


def test_parts_first_reach_the_optimum_of_all_rows_in_few_evaluations(rows):
    X, y = rows
    seen = []
    model = GPClassifier(KERNEL, callback=seen.append).fit(X, y)
    whole = ExactModel(X, y, PL(), Parallel(), 1e-8, 100)
    at = Hyperparameters(KERNEL, Probit())
    alone = train([whole], at, "bfgs", rng=None, starts=[None], worth=Worth())
    best = alone.best[0].log_evidence
    assert model.log_marginal_likelihood_value_ >= best - 1e-3
    assert len(seen) == len(model.evidence_path_) <= 0.7 * len(alone.path)
    assert [s.number for s in seen] == list(range(1, len(seen) + 1))
    assert model.converged_
    # to a tolerance of its own, not the rough one of a search
    value = model.log_marginal_likelihood(model.kernel_.theta)
    assert model.log_marginal_likelihood_value_ == pytest.approx(value, abs=1e-6)


def test_where_parts_learn_nothing_all_rows_are_searched_as_ever():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(LARGE, 2))
    y = rng.random(LARGE) < 0.5
    model = GPClassifier().fit(X, y)
    start = np.log([10.0, np.sqrt((X.std(axis=0) ** 2).sum())])
    assert np.allclose(model.evidence_path_[0][0], start)


def test_an_interrupt_keeps_the_best_point(rows):
    def stop(evaluation):
        if evaluation.number == 2:
            raise KeyboardInterrupt

    X, y = rows
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = GPClassifier(KERNEL, callback=stop, keep_on_interrupt=True).fit(X, y)
    best = max(value for _, value in model.evidence_path_)
    assert model.log_marginal_likelihood_value_ == pytest.approx(best, abs=0.05)


def quadratic(H, centre, *, off=0.0):
    """An objective whose curvature along a step differs from H by the part ``off``."""

    def objective(x):
        d = x - centre
        slope = (1.0 + off) * H @ d
        return float(0.5 * d @ slope), slope

    return objective


@pytest.mark.parametrize("off", [0.0, 0.1, 0.6])
def test_the_last_step_is_taken_without_a_slope_where_the_model_holds(off):
    H, centre = np.diag([4.0, 1.0]), np.array([0.4, -0.1])
    objective, values = quadratic(H, centre, off=off), []

    def value_at(x):
        values.append(x)
        return objective(x)[0]

    bounds, worth = np.array([[-5.0, 5.0]] * 2), Worth(least=1e-4, leap=0.03)
    end = minimise(objective, np.zeros(2), bounds, worth, curvature=H, value_at=value_at)
    assert end.value <= 1e-4
    if off == 0.0:  # one step up to the reach, and the leap
        assert len(values) == 1
        assert np.allclose(end.x, centre)


def test_the_first_step_goes_towards_a_forecast_which_may_be_wrong():
    H, centre = np.diag([4.0, 1.0]), np.array([2.0, -1.0])
    objective, asked = quadratic(H, centre), []
    bounds = np.array([[-5.0, 5.0]] * 2)
    for there in (centre, np.array([-4.0, 4.0]), None):

        def counted(x):
            asked.append(x)
            return objective(x)

        asked.clear()
        forecast = lambda x, slope, there=there: (there, H)  # noqa: E731
        end = minimise(counted, np.zeros(2), bounds, Worth(), forecast=forecast)
        assert np.allclose(end.x, centre, atol=1e-6)
        if there is not None:  # in its direction, and no farther than any step
            assert np.allclose(asked[1], 1.5 * there / np.abs(there).max())


def test_groups_that_are_clusters_far_apart_learn_what_is_inside_of_them(rows, monkeypatch):
    # a length scale between the clusters explains many labels, and one inside of them nearly all
    monkeypatch.setattr(parts, "LARGE", 200)
    monkeypatch.setattr(parts, "_LEAST", 50)
    X = rows[0][:200]
    cluster = X[:, 0] > 0
    y = np.where(np.where(cluster, 1.5, -1.5) + X[:, 1] + X[:, 2] > 0, 1, -1)
    found = [GPClassifier().fit(X + far * cluster[:, None], y) for far in (1e2, 1e5)]
    ends = [model.log_marginal_likelihood_value_ for model in found]
    assert ends[1] > ends[0] - 1.0
