"""Watching and stopping a fit: callbacks, interrupts, logs, restarts, bounds."""

import logging
import warnings

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import ConvergenceWarning, Evaluation, GPClassifier, NotPositiveDefiniteError
from postlin.likelihoods import NoisyThreshold
from postlin.rules import REGISTRY as RULES

KERNEL = ConstantKernel(10.0) * RBF(1.0) + WhiteKernel(0.1, "fixed")
NAMES = ["k1__k1__constant_value", "k1__k2__length_scale"]


@pytest.fixture(scope="module")
def two(data):
    crab = data("crab", 60)
    return crab.X, crab.y


@pytest.fixture(scope="module")
def three():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2))
    noisy = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_normal(60)
    return X, np.digitize(noisy, [-0.7, 0.7])


class Watch:
    """Keeps what it is told; at the n-th evaluation it raises."""

    def __init__(self, error=None, after=3):
        self.seen, self.error, self.after = [], error, after

    def __call__(self, evaluation):
        self.seen.append(evaluation)
        if self.error is not None and len(self.seen) == self.after:
            raise self.error


@pytest.mark.parametrize("optimizer", ["bfgs", "fmin_l_bfgs_b"])
@pytest.mark.parametrize("inference", RULES)
def test_a_callback_sees_every_evaluation_in_order(two, optimizer, inference):
    watch = Watch()
    model = GPClassifier(KERNEL, inference=inference, optimizer=optimizer, callback=watch).fit(*two)
    seen = watch.seen
    assert len(seen) > 3
    assert all(isinstance(e, Evaluation) for e in seen)
    assert [e.number for e in seen] == list(range(1, len(seen) + 1))
    assert all(e.names == NAMES for e in seen)
    assert all(np.isfinite(e.log_evidence) and np.isfinite(e.theta).all() for e in seen)
    assert all(e.gradient.shape == e.theta.shape == (2,) for e in seen)
    seconds = [e.seconds for e in seen]
    assert seconds == sorted(seconds)
    assert seconds[0] >= 0
    np.testing.assert_array_equal(seen[0].theta, KERNEL.theta)
    assert [e.log_evidence for e in seen] == [value for _, value in model.evidence_path_]
    assert max(e.log_evidence for e in seen) == pytest.approx(
        model.log_marginal_likelihood_value_, abs=1e-4
    )
    # the gradient is of the log evidence, uphill
    value, gradient = model.log_marginal_likelihood(seen[0].theta, eval_gradient=True)
    assert seen[0].log_evidence == pytest.approx(value, abs=1e-4)
    np.testing.assert_allclose(seen[0].gradient, gradient, rtol=1e-2, atol=1e-2)


@pytest.mark.filterwarnings("ignore:.*lower bound of epsilon")
def test_a_callback_without_gradients_and_with_a_learned_rate(two):
    watch = Watch()
    GPClassifier(KERNEL, optimizer="bfgs_finite_differences", callback=watch).fit(
        two[0][:30], two[1][:30]
    )
    assert all(e.gradient is None for e in watch.seen)
    watch = Watch()
    likelihood = NoisyThreshold(0.1, (1e-2, 0.3))
    model = GPClassifier(KERNEL, likelihood=likelihood, fold_noise=True, callback=watch)
    model.fit(*two)
    assert watch.seen[0].names == [*NAMES, "epsilon"]
    assert watch.seen[0].theta[2] == pytest.approx(np.log(0.1))


@pytest.mark.parametrize("shared", [False, True])
def test_callbacks_of_many_classes(three, shared):
    watch = Watch()
    model = GPClassifier(KERNEL, callback=watch, shared_kernel=shared).fit(*three)
    firsts = [e for e in watch.seen if e.number == 1]
    assert len(firsts) == (1 if shared else 3)  # one search, or one for each problem
    lengths = [len(fit.evidence_path_) for fit in model.base_estimator_.estimators_]
    assert len(watch.seen) == (lengths[0] if shared else sum(lengths))
    if shared:
        best = max(e.log_evidence for e in watch.seen)
        assert best == pytest.approx(3 * model.log_marginal_likelihood_value_, abs=1e-3)


@pytest.mark.parametrize("many", [False, True], ids=["two", "three"])
@pytest.mark.parametrize("keep", [False, True])
def test_an_error_in_a_callback_is_the_callers(two, three, many, keep):
    X, y = three if many else two
    model = GPClassifier(KERNEL).fit(X, y)
    before, theta = model.predict_proba(X), model.kernel_.theta
    model.set_params(callback=Watch(LookupError("mine")), keep_on_interrupt=keep)
    with pytest.raises(LookupError, match="mine"):
        model.fit(-X[:30], y[:30])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_array_equal(model.kernel_.theta, theta)
    assert model.summary()


@pytest.mark.parametrize("many", [False, True], ids=["two", "three"])
def test_an_interrupt_ends_the_fit_and_leaves_the_last_one(two, three, many):
    X, y = three if many else two
    model = GPClassifier(KERNEL).fit(X, y)
    before = model.predict_proba(X)
    model.set_params(callback=Watch(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(-X[:30], y[:30])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    fresh = GPClassifier(KERNEL, callback=Watch(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert not hasattr(fresh, "base_estimator_")


@pytest.mark.parametrize("optimizer", ["bfgs", "fmin_l_bfgs_b", "bfgs_finite_differences"])
def test_an_interrupt_can_keep_the_best_so_far(two, optimizer):
    watch = Watch(KeyboardInterrupt(), after=4)
    model = GPClassifier(KERNEL, optimizer=optimizer, callback=watch, keep_on_interrupt=True)
    with pytest.warns(
        ConvergenceWarning, match="interrupted: .* best found so far, after 4 evaluations"
    ):
        model.fit(*two)
    best = max(watch.seen, key=lambda e: e.log_evidence)
    np.testing.assert_allclose(model.kernel_.theta, best.theta)
    assert model.log_marginal_likelihood_value_ == pytest.approx(best.log_evidence, abs=1e-4)
    assert model.converged_
    assert model.score(*two) > 0.7
    assert np.isfinite(model.loo_log_score_)
    model.set_params(callback=None, warm_start=True, optimizer="bfgs").fit(*two)  # go on
    assert model.log_marginal_likelihood_value_ >= best.log_evidence - 1e-6


@pytest.mark.parametrize("after", [2, 15])
@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupt_keeps_the_best_of_many_classes(three, after, shared):
    """Problems whose turn has not come are fitted at the start; those before keep what they have."""
    whole = GPClassifier(KERNEL, shared_kernel=shared).fit(*three)
    lengths = [len(fit.evidence_path_) for fit in whole.base_estimator_.estimators_]
    after = min(after, lengths[0] - 1) if shared else after
    watch = Watch(KeyboardInterrupt(), after)
    model = GPClassifier(KERNEL, callback=watch, keep_on_interrupt=True, shared_kernel=shared)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(*three)
    assert len(watch.seen) == after
    p = model.predict_proba(three[0])
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert model.score(*three) > 0.5
    fits = model.base_estimator_.estimators_
    if shared:
        best = max(watch.seen, key=lambda e: e.log_evidence).theta
        for fit in fits:
            np.testing.assert_allclose(fit.kernel_.theta, best)
        return
    reached = next(k for k, total in enumerate(np.cumsum(lengths)) if total >= after)
    for fit, same in zip(fits[:reached], whole.base_estimator_.estimators_, strict=False):
        np.testing.assert_array_equal(fit.kernel_.theta, same.kernel_.theta)
    assert fits[reached].interrupted
    for fit in fits[reached + 1 :]:
        np.testing.assert_allclose(fit.kernel_.theta, KERNEL.theta)


@pytest.mark.parametrize(("verbose", "level"), [(1, logging.INFO), (2, logging.DEBUG)])
def test_verbose_logs_through_the_logger_of_the_library(two, capsys, verbose, level):
    logger = logging.getLogger("postlin")
    propagate, logger.propagate = logger.propagate, False  # no handlers of the test runner's
    try:
        model = GPClassifier(KERNEL, verbose=verbose).fit(*two)
    finally:
        logger.propagate = propagate
    lines = capsys.readouterr().err.splitlines()
    summaries = [line for line in lines if "evaluations" in line]
    assert len(summaries) == 1
    assert f"{model.log_marginal_likelihood_value_:.6f}" in summaries[0]
    evaluations = [line for line in lines if "factorisations" in line]
    assert len(evaluations) == (len(model.evidence_path_) if level == logging.DEBUG else 0)
    assert logger.handlers == []
    assert logger.level == logging.NOTSET


def test_silence_is_silent(two, capsys):
    GPClassifier(KERNEL).fit(*two)
    out, err = capsys.readouterr()
    assert out == err == ""


def test_the_log_has_a_record_for_every_evaluation(two, caplog):
    with caplog.at_level(logging.DEBUG, logger="postlin"):
        model = GPClassifier(KERNEL).fit(*two)
    records = [r for r in caplog.records if r.name == "postlin" and r.levelno == logging.DEBUG]
    assert len(records) == len(model.evidence_path_)


def test_restarts_are_log_uniform_within_the_bounds(two):
    starts = []

    def record(objective, theta, bounds):
        starts.append(np.array(theta))
        np.testing.assert_allclose(np.exp(bounds), [(1e-2, 1e4), (0.1, 10.0)])
        return theta, objective(theta, eval_gradient=False)

    kernel = ConstantKernel(10.0, (1e-2, 1e4)) * RBF(1.0, (0.1, 10.0)) + WhiteKernel(0.1, "fixed")
    n = 200
    model = GPClassifier(kernel, optimizer=record, n_restarts_optimizer=n, random_state=0)
    model.fit(two[0][:12], two[1][:12])
    assert len(starts) == n + 1
    np.testing.assert_array_equal(starts[0], kernel.theta)
    low, high = kernel.bounds.T
    uniform = np.sort((np.array(starts[1:]) - low) / (high - low), axis=0)
    assert uniform.min() > 0
    assert uniform.max() < 1
    # Kolmogorov and Smirnov: 1.95/√n is exceeded once in a thousand
    expected = (np.arange(n) + 0.5) / n
    assert (np.abs(uniform - expected[:, None]).max(axis=0) < 1.95 / np.sqrt(n)).all()
    best = max(model.evidence_path_, key=lambda point: point[1])
    np.testing.assert_array_equal(model.kernel_.theta, best[0])
    again = [s.copy() for s in starts]
    starts.clear()
    model.fit(two[0][:12], two[1][:12])
    np.testing.assert_array_equal(starts, again)


@pytest.mark.parametrize("optimizer", ["bfgs", "fmin_l_bfgs_b"])
@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            ConstantKernel(10.0, (5.0, 12.0)) * RBF(1.0, "fixed"),
            "rises at the upper bound of k1__constant_value, 12: widen",
        ),
        (
            ConstantKernel(1e3, "fixed") * RBF([3.0, 1.0], [(2.0, 20.0), (1e-3, 1e3)]),
            r"rises at the lower bound of k2__length_scale\[0\], 2: widen",
        ),
    ],
)
def test_a_parameter_at_its_bound_is_named(three, kernel, message, optimizer):
    X, y = three[0], np.sin(3 * three[0][:, 0]) * np.cos(2 * three[0][:, 1]) > 0
    model = GPClassifier(kernel, optimizer=optimizer)
    with pytest.warns(ConvergenceWarning, match=message):
        model.fit(X, y)
    assert (model.kernel_.theta >= kernel.bounds[:, 0] - 1e-12).all()
    assert (model.kernel_.theta <= kernel.bounds[:, 1] + 1e-12).all()


def test_bounds_do_not_matter_where_nothing_is_learned(two):
    kernel = ConstantKernel(10.0, (10.0, 12.0)) * RBF(1.0, (1.0, 1.0))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = GPClassifier(kernel, optimizer=None).fit(*two)
    assert not said
    np.testing.assert_array_equal(model.kernel_.theta, kernel.theta)


@pytest.mark.parametrize(
    "options", [{}, {"multi_class": "joint", "tol": 1e-6}, {"inducing": 12, "random_state": 0}], ids=str
)
def test_a_fit_that_keeps_a_theta_moves_to_it_as_a_whole(two, three, options):
    X, y = three if "multi_class" in options else two
    model = GPClassifier(KERNEL, optimizer=None, **options).fit(X, y)
    theta = model.kernel_.theta + np.array([0.5, -0.3])
    there = GPClassifier(KERNEL.clone_with_theta(theta), optimizer=None, **options).fit(X, y)
    model.loo_predict_proba_  # noqa: B018  # which is kept
    model.log_marginal_likelihood(theta)
    assert not np.allclose(model.predict_proba(X), there.predict_proba(X), atol=1e-3)
    value = model.log_marginal_likelihood(theta, clone_kernel=False)
    assert value == pytest.approx(there.log_marginal_likelihood_value_, abs=1e-5)
    assert model.log_marginal_likelihood_value_ == value
    np.testing.assert_allclose(model.kernel_.theta, theta)
    np.testing.assert_allclose(model.predict_proba(X), there.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(model.loo_predict_proba_, there.loo_predict_proba_, atol=1e-5)


def test_a_theta_without_a_posterior_leaves_the_fit_as_it_was(two, monkeypatch):
    model = GPClassifier(KERNEL, optimizer=None).fit(*two)
    before = model.predict_proba(two[0])

    def fails(*_):
        raise NotPositiveDefiniteError

    monkeypatch.setattr(type(model.base_estimator_.model), "infer", fails)
    with pytest.raises(NotPositiveDefiniteError):
        model.log_marginal_likelihood([1.0, 0.0], clone_kernel=False)
    np.testing.assert_array_equal(model.predict_proba(two[0]), before)
    np.testing.assert_array_equal(model.kernel_.theta, KERNEL.theta)
