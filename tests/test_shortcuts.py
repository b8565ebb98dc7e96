"""Shortcuts that save time or memory give what the long way gives, and save what they claim."""

import gc
import os
import platform
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import postlin
from postlin import GPClassifier
from postlin.estimator import fits as binary
from postlin.estimator.parameters import default_kernel
from postlin.inference.exact.problem import ExactProblem
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel
from postlin.likelihoods import REGISTRY, WithNoise
from postlin.likelihoods.base import select
from postlin.linalg.threads import keep_freed_memory
from postlin.rules import REGISTRY as RULES
from postlin.rules.sites import SiteView
from postlin.rules.weights import UNIT, Observations
from postlin.schedules import REGISTRY as SCHEDULES

LIKELIHOODS = {name: kind() for name, kind in REGISTRY.items()}
LIKELIHOODS["with noise"] = WithNoise(REGISTRY["noisy_threshold"](), 0.3)


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    m = np.concatenate([rng.normal(size=40) * 5, [-300.0, 300.0, 0.0]])
    v = np.concatenate([np.exp(3 * rng.normal(size=40)), [1e-4, 1e6, 1.0]])
    return np.where(rng.random(43) < 0.5, -1.0, 1.0), m, v


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_one_label_alone(name, points):
    likelihood = LIKELIHOODS[name]
    y, m, v = points
    expected = select(y > 0, *likelihood.jets(m, v))
    for one, other in zip(likelihood.jet(y, m, v), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_slopes_alone(name, points):
    likelihood = LIKELIHOODS[name]
    _, m, v = points
    plus, minus = likelihood.jets(m, v)
    for one, other in zip(likelihood.slopes(m, v), (plus.g, minus.g), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_sites_of_a_sweep_are_the_rules_own(name, rule, points):
    likelihood, rule = LIKELIHOODS[name], RULES[rule]()
    if rule.name == "laplace" and not likelihood.differentiable:
        pytest.skip("Laplace needs a derivative")
    y, m, v = (part[:40] for part in points)
    tau = 0.3 / v
    view = SiteView(m, v, tau, tau * m + 0.1, 1 - tau * v)
    expected = rule.propose(likelihood, y, view).sites
    found, _ = rule.set_sites(likelihood, y, view)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
    for i in range(len(y)):  # as scalars, one by one
        alone, _ = rule.set_sites(likelihood, y[i], SiteView(*(part[i] for part in view[:5])))
        np.testing.assert_allclose(alone, [expected.tau[i], expected.nu[i]], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_sites_alone_are_those_proposed(name, rule, weighted, points):
    likelihood, rule = LIKELIHOODS[name], RULES[rule]()
    if rule.name == "laplace" and not likelihood.differentiable:
        pytest.skip("Laplace needs a derivative")
    y, m, v = (part[:40] for part in points)
    weights = Observations(np.linspace(0.5, 3.0, 40), noise=0.2) if weighted else UNIT
    problem = ExactProblem(np.diag(2 * v), np.zeros(40), y, likelihood, rule, weights)
    tau = 0.3 / v
    view = SiteView(m, v, tau, tau * m + 0.1, 1 - tau * v)
    expected = problem._propose(view).sites
    np.testing.assert_allclose(problem.sites_for(view), expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("policy", ["clamp", "skip", "small_variance"])
@pytest.mark.parametrize("schedule", ["sequential", "hybrid"])
def test_policies_for_negative_sites_work_site_by_site(policy, schedule):
    K = np.array([[1.0, 0.8], [0.8, 1.0]])
    with pytest.warns(postlin.NegativeSiteWarning, match=policy):
        result = postlin.infer(
            K,
            np.ones(2),
            likelihood="noisy_threshold",
            inference=postlin.EP(policy),
            schedule=schedule,
            prior_mean=[-0.5, -3.0],
        )
    assert (result.sites.tau >= 0).all()


@pytest.mark.parametrize("rule", RULES)
def test_predictions_keep_their_digits_after_a_gradient(data, rule):
    d = data("crab", 80)
    K = d.covariance(1e4, 2.0)
    result = postlin.infer(K, d.y, inference=rule)
    before = result.predict_latent(K[:, :7], K.diagonal()[:7])
    result.evidence_gradient()
    after = result.predict_latent(K[:, :7], K.diagonal()[:7])
    np.testing.assert_allclose(after, before, rtol=1e-8)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    return GPClassifier(4.0 * RBF(1.0), optimizer=None).fit(X, X[:, 0] > 0), rng.normal(size=(55, 2))


@pytest.mark.parametrize("block", [60 * 16, 60 * 27])
def test_predictions_do_not_depend_on_blocks(fitted, block, monkeypatch):
    model, X = fitted
    whole = model.predict_proba(X), model.predict(X)
    monkeypatch.setattr(binary, "_BLOCK", block)
    np.testing.assert_allclose(model.predict_proba(X), whole[0], rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), whole[1])
    np.testing.assert_array_equal(model.predict(X), model.classes_[whole[0].argmax(axis=1)])


FAULTS = """
import resource
import numpy as np
from postlin.linalg.threads import keep_freed_memory
{}
for _ in range(20):
    few = [np.ones(2**18) for _ in range(5)]
    del few
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about a habit of glibc")
def test_freed_memory_is_not_fetched_again_page_by_page():
    default = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    without, kept = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS.format(call)], env=default))
        for call in ("", "keep_freed_memory()")
    )
    pages = 20 * 5 * 2**21 // 4096
    assert without - kept > 0.5 * pages


def peak_of(action):
    """The most memory that NumPy and Python hold during an action, above what they hold before."""
    keep_freed_memory()  # whose one block, never used, is none of the action's
    gc.collect()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


MATRIX = 8 * 1000**2


def stays_below(action, limit):
    """Whether an action needs less memory in one of three runs; other threads may add some in one."""
    return any(peak_of(action) < limit for _ in range(3))


@pytest.fixture(scope="module")
def large():
    X = np.random.default_rng(2).normal(size=(1000, 4))
    return X, np.where(np.sin(X[:, 0]) + X[:, 1] * X[:, 2] > 0, 1.0, -1.0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rule", RULES)
def test_inference_and_gradient_stay_within_three_matrices_beside_the_covariance(large, rule, schedule):
    X, y = large
    K = (4.0 * RBF(1.0) + WhiteKernel(0.1))(X)

    def run():
        result = postlin.infer(K, y, inference=rule, schedule=schedule)
        assert np.isfinite(result.log_evidence)
        result.evidence_gradient()

    assert stays_below(run, 3.3 * MATRIX)


@pytest.mark.parametrize(("length_scale", "matrices"), [(1.0, 4), ([1.0] * 4, 3)])
def test_an_evaluation_in_a_fit_stays_within_four_matrices(large, length_scale, matrices):
    X, y = large
    kernel = ConstantKernel(4.0) * RBF(length_scale) + WhiteKernel(0.1)

    def run():
        model = ExactModel(X, y, RULES["pl"](), SCHEDULES["parallel"](), 1e-8, 60)
        model.infer(Hyperparameters(kernel, REGISTRY["probit"]())).value_and_gradient()

    assert stays_below(run, (matrices + 0.5) * MATRIX)


def test_a_fit_stays_within_four_matrices_and_keeps_two(large):
    X, y = large
    model = GPClassifier(default_kernel().set_params(k1__k1__constant_value_bounds=(1e-5, 1e20)))
    assert stays_below(lambda: model.fit(X, y), 4.6 * MATRIX)
    gc.collect()
    tracemalloc.start()
    again = GPClassifier(model.kernel_, optimizer=None).fit(X, y)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert again.converged_
    assert kept < 2.3 * MATRIX


def test_prediction_needs_no_memory_that_grows_with_the_points(large):
    X, y = large
    model = GPClassifier(4.0 * RBF(1.0) + WhiteKernel(0.1), optimizer=None).fit(X, y)
    many = np.random.default_rng(3).normal(size=(40_000, 4))
    assert stays_below(lambda: model.predict(many), 0.3 * len(many) * len(X) * 8)


@pytest.mark.parametrize("rule", RULES)
def test_a_search_does_not_solve_its_last_point_twice(data, rule, monkeypatch):
    d = data("crab", 80)
    calls = []
    infer = ExactModel.infer
    monkeypatch.setattr(ExactModel, "infer", lambda *given: calls.append(given) or infer(*given))
    model = GPClassifier(inference=rule).fit(d.X, d.y)
    from_the_prior = not RULES[rule].is_unique  # once more, to compare fixed points
    assert len(calls) == len(model.evidence_path_) + from_the_prior
    assert model.converged_
    assert model.approximation_.residual <= 1e-8
    alone = GPClassifier(model.kernel_, inference=rule, optimizer=None).fit(d.X, d.y)
    ends = [fit.log_marginal_likelihood_value_ for fit in (model, alone)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-8)
    np.testing.assert_allclose(model.predict_proba(d.X), alone.predict_proba(d.X), rtol=1e-7)
