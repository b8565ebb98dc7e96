"""Joint fits of many rows: searches on parts of them first, and steps that save factorisations."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import special_ortho_group
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import GPClassifier
from postlin.inference.joint.posterior import JointPrior
from postlin.inference.joint.problem import JointProblem
from postlin.inference.solver import solve
from postlin.learning import joint_model
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.joint_model import JointModel
from postlin.likelihoods.softmax import Softmax, contrasts
from postlin.rules.joint import JointPL
from postlin.rules.sites import Sites
from postlin.rules.weights import JointWeights
from postlin.schedules import Parallel


@pytest.fixture(scope="module")
def rows():
    """Four overlapping classes in three dimensions, sorted by class."""
    rng = np.random.default_rng(5)
    y = np.repeat(np.arange(4), [40, 30, 50, 20])
    turn = special_ortho_group.rvs(3, random_state=1)
    return (1.3 * np.eye(4)[y][:, :3] + 0.8 * rng.normal(size=(140, 3))) @ turn, y


@pytest.fixture
def in_parts(monkeypatch):
    """Make small problems count as large."""
    monkeypatch.setattr(joint_model, "LARGE", 300)
    monkeypatch.setattr(joint_model, "_FEWEST", 90)


def problem_at(X, y, sd, length):
    K = sd**2 * RBF(length)(X) + 1e-3 * np.eye(len(X))
    C = y.max() + 1
    prior, unit = JointPrior.of([K], contrasts(C)), JointWeights.unit(len(y), C - 1)
    return JointProblem(prior, y, C, JointPL(nodes=256), unit)


def test_parts_grow_by_halves_and_hold_those_before_and_every_class(in_parts, rows):
    X, y = rows
    model = JointModel(X, y, 4, JointPL(), Parallel(), 1e-8, 100)
    parts = joint_model._parts(model)
    assert [len(part) for part in parts] == [35, 70]
    assert np.isin(parts[0], parts[1]).all()
    for part in parts:
        np.testing.assert_allclose(np.bincount(y[part]) * len(y) / len(part), np.bincount(y), atol=4)


@pytest.mark.parametrize("weighted", [False, True])
def test_searches_in_parts_end_at_the_optimum_of_all_rows(monkeypatch, rows, weighted):
    X, y = rows
    weight = np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0) if weighted else None
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(1.5)
    kernel = kernel + WhiteKernel(0.1) if weighted else kernel
    found = {}
    for large in (10**6, 300):
        monkeypatch.setattr(joint_model, "LARGE", large)
        monkeypatch.setattr(joint_model, "_FEWEST", 90)
        model = GPClassifier(kernel, multi_class="joint", inference=JointPL(nodes=128))
        found[large] = model.fit(X, y, sample_weight=weight)
    whole, parted = found[10**6], found[300]
    gap = whole.log_marginal_likelihood_value_ - parted.log_marginal_likelihood_value_
    assert abs(gap) < 1e-3
    paths = [len(model.base_estimator_.evidence_path_) for model in (whole, parted)]
    assert paths[1] <= 0.7 * paths[0]


def test_an_interrupt_in_a_part_keeps_what_was_found_there(in_parts, rows, monkeypatch):
    X, y = rows
    before, calls = JointModel.infer, []

    def infer(self, at, start=None, tol=None):
        calls.append(len(self.y))
        if len(calls) == 6:
            raise KeyboardInterrupt
        return before(self, at, start, tol)

    monkeypatch.setattr(JointModel, "infer", infer)
    model = GPClassifier(multi_class="joint", keep_on_interrupt=True, inference=JointPL(nodes=64))
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(X, y)
    assert set(calls[:6]) == {35}
    assert calls[6:] == [35, 140]
    assert model.kernel_ != model.kernel
    assert model.score(X, y) > 0.6


def test_the_callback_sees_all_rows_only(in_parts, rows):
    X, y = rows
    seen = []
    model = GPClassifier(multi_class="joint", callback=seen.append, inference=JointPL(nodes=64))
    model.fit(X, y)
    values = [evaluation.log_evidence for evaluation in seen]
    assert max(values) == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-3)
    assert len(values) == len(model.base_estimator_.evidence_path_)


@pytest.mark.parametrize("scale", [3.0, 100.0])
def test_the_site_of_an_observation_that_is_added_alone(rows, scale):
    """It is the fixed point of that site while all others stay as they are."""
    X, y = rows
    some, last = np.arange(0, 140, 4), 45
    problem = problem_at(X[some], y[some], scale, 1.5)
    iterate, _ = solve(problem, Parallel(), start=None, tol=1e-8, max_iter=100)
    k = RBF(1.5)
    cross = problem.prior._replace(covariances=[scale**2 * k(X[some], X[[last]])])
    mean, variance = iterate.posterior.predict(cross, [np.array([scale**2 + 1e-3])])
    found = problem.alone(mean, variance, y[[last]])
    # in the problem with one row more, whose other sites are kept
    both = problem_at(X[[*some, last]], y[[*some, last]], scale, 1.5)
    tau, nu = np.zeros((36, 3, 3)), np.zeros((36, 3))
    tau[:-1], nu[:-1] = iterate.posterior.sites
    for _ in range(60):
        proposed = both.iterate(Sites(tau, nu)).proposal.sites
        tau[-1] += 0.5 * (proposed.tau[-1] - tau[-1])
        nu[-1] += 0.5 * (proposed.nu[-1] - nu[-1])
    size = np.linalg.norm(tau[-1])
    np.testing.assert_allclose(found.tau[0], tau[-1], atol=0.05 * size)
    np.testing.assert_allclose(found.nu[0], nu[-1], atol=0.05 * np.linalg.norm(nu[-1]))


def test_an_observation_without_a_marginal_gets_no_site(rows):
    X, y = rows
    problem = problem_at(X, y, 1.0, 1.0)
    found = problem.alone(np.zeros((2, 3)), np.zeros((2, 3, 3)), y[:2])
    assert not found.tau.any()
    assert not found.nu.any()


def test_sites_of_further_rows_count_their_weights(rows):
    X, y = rows
    weight = np.full(len(y), 3.0)
    kernel = 2.0 * RBF(1.5) + WhiteKernel(0.2)
    at = Hyperparameters(kernel, Softmax())
    model = JointModel(X, y, 4, JointPL(nodes=64), Parallel(), 1e-6, 100, weight=weight)
    part = model.on(np.arange(0, 140, 4))
    found = part.infer(at)
    one = replace(model, weight=None).predicted_sites(found, at, part, np.array([1, 2]))
    three = model.predicted_sites(found, at, part, np.array([1, 2]))
    np.testing.assert_allclose(three.tau, 3.0 * one.tau)
    np.testing.assert_allclose(three.nu, 3.0 * one.nu)
