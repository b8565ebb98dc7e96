"""Leave-one-out where it is hard: improper cavities, and fits that have not converged."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import postlin
from postlin import ConvergenceWarning, GPClassifier
from postlin.inference import solver
from postlin.inference.exact import evidence
from postlin.schedules import Parallel

PARALLEL = Parallel()


def noisy_rows(n=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.3 * rng.normal(size=n) > 0


def test_improper_cavities_of_other_rows_are_solved_again():
    """Without a row, EP's cavity of another may be improper: then the other sites are solved again."""
    X, y = noisy_rows()
    model = GPClassifier(
        ConstantKernel(10.0) * RBF(1.0), likelihood="noisy_threshold", inference="ep", optimizer=None
    )
    loo = model.fit(X, y).loo_predict_proba_[:, 1]
    assert "leave-one-out error" in model.summary()
    for i in (7, 15, 19, 29):
        others = np.arange(len(y)) != i
        alone = model.fit(X[others], y[others]).predict_proba(X[i : i + 1])[0, 1]
        assert loo[i] == pytest.approx(alone, abs=0.01)


def test_only_rows_that_make_a_cavity_improper_are_solved_again(monkeypatch):
    solved = []
    X, y = noisy_rows()
    K = 10.0 * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=-1))
    found = postlin.infer(K, np.where(y, 1.0, -1.0), likelihood="noisy_threshold", inference="ep")
    original = evidence._without
    monkeypatch.setattr(evidence, "_without", lambda *args: solved.append(args[1]) or original(*args))
    evidence.left_out(found, PARALLEL, 60)
    assert 0 < len(solved) < len(y)


@pytest.mark.parametrize("multi_class", ["one_vs_rest", "joint"])
def test_without_convergence_the_cavities_are_the_answer(monkeypatch, multi_class):
    X, y = noisy_rows(30)
    classes = np.where(y, "a", np.where(X[:, 1] > 0, "b", "c"))
    model = GPClassifier(
        ConstantKernel(1e3) * RBF(0.5), optimizer=None, multi_class=multi_class, max_iter_predict=2
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X, classes)
    monkeypatch.setattr(solver._Search, "run", None)  # nothing is solved again
    assert "(from the cavities)" in model.summary()
    for fit in model._estimators:
        np.testing.assert_array_equal(fit.loo_log_probabilities(), fit.cavity_log_probabilities())


def test_a_row_takes_few_factorisations(monkeypatch):
    """A row whose other sites cannot be solved in a few factorisations keeps its cavity."""
    monkeypatch.setattr(evidence, "_EFFORT", 1)
    X, y = noisy_rows()
    K = 10.0 * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=-1))
    found = postlin.infer(K, np.where(y, 1.0, -1.0))
    expected = evidence.cavities(found)
    np.testing.assert_array_equal(evidence.left_out(found, PARALLEL, 60), expected)
