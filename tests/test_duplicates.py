"""Rows that occur more than once are searched with weights, and the fit is that of all rows."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import GPClassifier
from postlin.kernels import can_merge
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel
from postlin.learning.parts import Distinct
from postlin.learning.training import train
from postlin.likelihoods import Logit, NoisyThreshold, Probit
from postlin.rules import REGISTRY
from postlin.schedules import Parallel

SMOOTH = ConstantKernel(10.0) * RBF(1.5)
KERNEL = SMOOTH + WhiteKernel(0.1, "fixed")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 2))[rng.integers(60, size=140)]
    return X, np.where(X[:, 0] + 0.8 * rng.normal(size=len(X)) > 0, 1.0, -1.0)


def model_of(X, y, rule):
    return ExactModel(X, y, REGISTRY[rule](), Parallel(), 1e-9, 100)


@pytest.mark.parametrize("kernel", [KERNEL, SMOOTH, SMOOTH + WhiteKernel(0.3)])
@pytest.mark.parametrize("rule", ["pl", "ep", "cl", "laplace"])
@pytest.mark.parametrize("likelihood", [Probit(), Logit()])
def test_weights_in_place_of_repetitions_keep_the_evidence_and_its_gradient(
    rows, kernel, rule, likelihood
):
    X, y = rows
    model, at = model_of(X, y, rule), Hyperparameters(kernel, likelihood)
    distinct = Distinct.of(X, y)
    assert len(distinct.firsts) == len(np.unique(np.column_stack([X, y]), axis=0)) < len(y)
    merged = model.merged(distinct.firsts, distinct.count)
    all_rows, few = model.infer(at), merged.infer(at)
    value, slope = all_rows.value_and_gradient()
    assert few.log_evidence == pytest.approx(value, abs=1e-6)
    assert few.value_and_gradient()[1] == pytest.approx(slope, abs=1e-5)
    start = model.spread(few.start, distinct.number, distinct.count)
    assert model.infer(at, start).n_factorisations <= 2
    again = merged.infer(at, model.gathered(all_rows.start, distinct.number))
    assert again.n_factorisations <= 2


@pytest.mark.parametrize("likelihood", ["probit", NoisyThreshold(epsilon_bounds=(1e-3, 0.3))])
def test_a_fit_of_repeated_rows_is_that_of_all_rows(rows, likelihood):
    X, y = rows
    fit = GPClassifier(KERNEL, likelihood=likelihood).fit(X, y)
    assert fit.approximation_.mean.shape == y.shape
    at = fit.base_estimator_.hyperparameters
    folds = fit.base_estimator_.model.fold_noise
    model = ExactModel(X, y, REGISTRY["pl"](), Parallel(), 1e-9, 100, fold_noise=folds)
    alone = train([model], at, "bfgs", rng=None, starts=[None])
    assert fit.log_marginal_likelihood_value_ == pytest.approx(alone.best[0].log_evidence, abs=1e-4)
    assert fit.converged_


def test_what_cannot_be_merged(rows):
    X, y = rows
    assert Distinct.of(X[:90], y[:90]) is None  # few rows
    assert Distinct.of(np.arange(200.0)[:, None], np.ones(200)) is None
    inside = ConstantKernel(1.0) * (RBF(1.0) + WhiteKernel(0.1))
    assert not can_merge(inside)
    assert not can_merge(inside + WhiteKernel(0.1))
    assert not can_merge(WhiteKernel(1.0))


def test_rows_with_weights_of_their_own_are_left_alone(rows):
    X, y = rows
    weight = np.full(len(y), 0.5)
    model = GPClassifier(KERNEL, optimizer=None).fit(X, y, weight)
    assert not model.base_estimator_.model.can_merge(KERNEL)
