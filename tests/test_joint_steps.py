"""Joint Newton steps that look further ahead than the next factorisation."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.gaussian_process.kernels import RBF

from postlin.inference.joint import problem as joint_problem
from postlin.inference.joint.posterior import JointPrior
from postlin.inference.joint.problem import JointProblem
from postlin.inference.solver import solve
from postlin.likelihoods.softmax import contrasts
from postlin.rules.joint import JointPL
from postlin.rules.weights import JointWeights
from postlin.schedules import Parallel


def problem_at(X, y, sd, length):
    K = sd**2 * RBF(length)(X) + 1e-3 * np.eye(len(X))
    C = y.max() + 1
    prior, unit = JointPrior.of([K], contrasts(C)), JointWeights.unit(len(y), C - 1)
    return JointProblem(prior, y, C, JointPL(nodes=256), unit)


def test_steps_between_predicted_marginals_save_factorisations(monkeypatch):
    """Variances are so large that softmax is a step between most nodes."""
    X, y = load_digits(return_X_y=True)
    X, y, counts, ends = X[:60] / 4, y[:60], [], []
    problem = problem_at(X, y, 100.0, 12.0)
    before, _ = solve(problem_at(X, y, 150.0, 14.0), Parallel(), start=None, tol=1e-3, max_iter=100)
    for many in (10**6, 0):
        monkeypatch.setattr(joint_problem, "_MANY", many)
        start = before.posterior.sites
        iterate, record = solve(problem, Parallel(), start=start, tol=1e-8, max_iter=100)
        assert record.converged
        counts.append(record.n_factorisations)
        ends.append(iterate.view)
    assert counts[1] <= 0.7 * counts[0]
    np.testing.assert_allclose(ends[1].mean, ends[0].mean, atol=1e-5)
    np.testing.assert_allclose(ends[1].root, ends[0].root, atol=1e-5)


def test_predicted_marginals_come_close_to_those_of_the_next_factorisation():
    rng = np.random.default_rng(5)
    y = rng.integers(4, size=60)
    X = 1.3 * np.eye(4)[y][:, :3] + 0.8 * rng.normal(size=(60, 3))
    problem = problem_at(X, y, 30.0, 2.0)
    iterate = problem.iterate(problem.cautious_sites(None))
    step = 0.3 * iterate.residual
    moved = iterate.moved(step)
    jacobian = joint_problem.JointMap(problem, iterate)
    ahead = jacobian._ahead(step)
    there = problem.iterate(moved)
    scale = np.sqrt(np.einsum("nab,nab->n", there.view.root, there.view.root)).max()
    np.testing.assert_allclose(ahead.view.mean, there.view.mean, atol=0.02 * scale)
    np.testing.assert_allclose(jacobian._step_to(moved), step, atol=1e-8)
