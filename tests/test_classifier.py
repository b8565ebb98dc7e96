"""The estimator: scikit-learn's conventions, learning, prediction, errors."""

import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest
from reference import central_difference, integrate
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from postlin import EP, PL, ConvergenceWarning, GPClassifier, infer
from postlin.likelihoods import NoisyThreshold
from postlin.rules import REGISTRY as RULES
from postlin.schedules import Parallel

PAPER = ConstantKernel(10.0) * RBF(1.0) + WhiteKernel(0.1, "fixed")


@parametrize_with_checks(
    [GPClassifier(), GPClassifier(inference="ep"), GPClassifier(inference="laplace")]
)
def test_scikit_learn_checks(estimator, check):
    if getattr(check, "func", check).__name__ == "check_array_api_input":
        pytest.skip("needs SCIPY_ARRAY_API=1 at import")
    check(estimator)


@pytest.fixture(scope="module")
def crab(data):
    return data("crab", 200)


@pytest.fixture(scope="module")
def fitted(crab):
    return GPClassifier().fit(crab.X[:150], crab.y[:150])


def test_learning_reaches_a_stationary_point(fitted):
    value, gradient = fitted.log_marginal_likelihood(fitted.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(fitted.log_marginal_likelihood_value_, abs=1e-8)
    assert np.abs(gradient).max() < 1e-3
    assert fitted.converged_


@pytest.mark.parametrize("inference", RULES)
@pytest.mark.parametrize(
    "kernel",
    [PAPER, ConstantKernel(4.0) * RBF(np.full(6, 2.0)) + WhiteKernel(0.1), 2.0 * Matern(2.0, nu=1.5)],
)
def test_gradient_of_the_evidence_matches_differences(crab, inference, kernel):
    model = GPClassifier(kernel, inference=inference, optimizer=None, tol=1e-10)
    model.fit(crab.X[:60], crab.y[:60])
    _, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    numeric = central_difference(model.log_marginal_likelihood, kernel.theta)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("inference", RULES)
def test_gradient_with_folded_noise_matches_differences(crab, inference):
    kernel = 9.0 * RBF(2.0) + WhiteKernel(0.2)
    model = GPClassifier(
        kernel,
        likelihood="noisy_threshold",
        inference=inference,
        optimizer=None,
        fold_noise=True,
        tol=1e-10,
    ).fit(crab.X[:60], crab.y[:60])
    _, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    numeric = central_difference(model.log_marginal_likelihood, kernel.theta)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)


def test_the_fit_is_what_infer_gives_at_the_same_kernel(crab, fitted):
    K = fitted.kernel_(crab.X[:150])
    direct = infer(K, crab.y[:150])
    np.testing.assert_allclose(fitted.approximation_.mean, direct.mean, atol=1e-5)
    assert fitted.log_marginal_likelihood_value_ == pytest.approx(direct.log_evidence, abs=1e-7)


def test_probabilities_are_averages_over_the_latent_value(crab, fitted):
    from scipy.special import ndtr

    X = crab.X[150:156]
    mean, variance = fitted.latent_mean_and_variance(X)
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    for i in range(6):
        assert p[i, 1] == pytest.approx(integrate(ndtr, mean[i], variance[i]), rel=1e-8)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[p.argmax(axis=1)])


def test_it_classifies(crab, fitted):
    assert fitted.score(crab.X[150:], crab.y[150:]) > 0.9


@pytest.mark.parametrize("labels", [("M", "F"), (0, 1), (7.0, -2.0), (True, False)])
def test_labels_of_any_type(crab, labels):
    y = np.array([labels[0] if t > 0 else labels[1] for t in crab.y])
    model = GPClassifier(PAPER, optimizer=None).fit(crab.X[:50], y[:50])
    assert set(model.predict(crab.X[50:60])) <= set(labels)
    np.testing.assert_array_equal(model.classes_, np.unique(y))


def test_works_in_pipelines_and_searches(crab):
    model = make_pipeline(StandardScaler(), GPClassifier(PAPER, optimizer=None))
    assert cross_val_score(model, crab.X[:60], crab.y[:60], cv=3).mean() > 0.7
    search = GridSearchCV(
        GPClassifier(PAPER, optimizer=None), {"kernel__k1__k1__constant_value": [1.0, 10.0]}, cv=2
    )
    assert hasattr(search.fit(crab.X[:60], crab.y[:60]), "best_score_")


def test_clone_and_pickle(crab, fitted):
    assert clone(fitted).get_params()["inference"] == "pl"
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(crab.X), fitted.predict_proba(crab.X))
    again.log_marginal_likelihood(fitted.kernel_.theta, eval_gradient=True)


def test_objects_with_options_are_accepted(crab):
    model = GPClassifier(
        PAPER,
        likelihood=NoisyThreshold(0.05),
        inference=EP("keep", small_variance=0.1),
        schedule=Parallel(iterations=10),
        optimizer=None,
    ).fit(crab.X[:40], crab.y[:40])
    assert model.n_iter_ == 10


def test_optimiser_none_keeps_the_kernel(crab):
    model = GPClassifier(PAPER, optimizer=None).fit(crab.X[:40], crab.y[:40])
    np.testing.assert_array_equal(model.kernel_.theta, PAPER.theta)


def test_optimiser_may_be_a_function(crab):
    calls = []

    def optimiser(objective, theta, bounds):
        value, gradient = objective(theta, eval_gradient=True)
        calls.append(gradient)
        assert objective(theta, eval_gradient=False) == pytest.approx(value)
        return theta + 0.1, objective(theta + 0.1, eval_gradient=False)

    model = GPClassifier(PAPER, optimizer=optimiser).fit(crab.X[:40], crab.y[:40])
    np.testing.assert_allclose(model.kernel_.theta, PAPER.theta + 0.1)
    assert len(calls) == 1


def test_the_papers_optimiser_finds_the_same_optimum(crab):
    ours = GPClassifier().fit(crab.X[:80], crab.y[:80])
    theirs = GPClassifier(optimizer="bfgs_finite_differences").fit(crab.X[:80], crab.y[:80])
    assert theirs.log_marginal_likelihood_value_ == pytest.approx(
        ours.log_marginal_likelihood_value_, abs=1e-4
    )


def test_restarts_find_what_a_bad_start_misses(crab):
    def bad_at_first(objective, theta, bounds):  # an optimiser of one's own gets no other starts
        return theta, objective(theta, eval_gradient=False)

    bad = ConstantKernel(1e-4, (1e-5, 1e5)) * RBF(1e-3, (1e-4, 1e3)) + WhiteKernel(0.1, "fixed")
    with pytest.warns(ConvergenceWarning, match="cannot tell the rows apart"):
        alone = GPClassifier(bad, optimizer=bad_at_first).fit(crab.X[:60], crab.y[:60])
    helped = GPClassifier(bad, optimizer=bad_at_first, n_restarts_optimizer=9, random_state=0)
    helped.fit(crab.X[:60], crab.y[:60])
    assert helped.log_marginal_likelihood_value_ > alone.log_marginal_likelihood_value_ + 1


def test_warm_start_goes_on_from_the_last_fit(crab):
    model = GPClassifier(warm_start=True).fit(crab.X[:80], crab.y[:80])
    theta = model.kernel_.theta
    model.fit(crab.X[:80], crab.y[:80])
    np.testing.assert_allclose(model.kernel_.theta, theta, atol=1e-3)
    assert model.n_iter_ <= 3


def test_warm_start_with_another_kernel_uses_that_kernel(crab):
    model = GPClassifier(warm_start=True, optimizer=None).fit(crab.X[:40], crab.y[:40])
    model.set_params(kernel=2.0 * Matern(1.0) + WhiteKernel(0.1)).fit(crab.X[:40], crab.y[:40])
    assert "Matern" in str(model.kernel_)
    model.set_params(kernel=2.0 * RBF([1.0, 1.0])).fit(crab.X[:40, :2], crab.y[:40])
    assert model.n_features_in_ == 2


def test_a_fit_that_fails_leaves_the_last_one_whole(crab):
    model = GPClassifier(PAPER, optimizer=None).fit(crab.X[:40], crab.y[:40])
    before = model.predict_proba(crab.X)
    model.set_params(kernel=RBF([1.0, 2.0]))
    with pytest.raises(ValueError, match="cannot be evaluated on X"):
        model.fit(-crab.X[:40], np.where(crab.y[:40] > 0, "c", "d"))
    np.testing.assert_array_equal(model.predict_proba(crab.X), before)
    np.testing.assert_array_equal(model.classes_, [-1.0, 1.0])


def test_integers_are_numbers(crab):
    X = np.random.default_rng(0).integers(0, 17, size=(60, 30)).astype("u1")
    kernel = DotProduct() + WhiteKernel()
    whole, real = (
        GPClassifier(kernel, optimizer=None).fit(Z, crab.y[:60]) for Z in (X, X.astype(float))
    )
    np.testing.assert_array_equal(whole.predict_proba(X), real.predict_proba(X))


def test_kernels_that_are_no_covariance_are_refused(crab):
    from sklearn.gaussian_process.kernels import ExpSineSquared

    with pytest.raises(ValueError, match="makes no covariance of X: K is not positive semi-definite"):
        GPClassifier(100.0 * ExpSineSquared()).fit(crab.X[:60], crab.y[:60])


def test_one_length_scale_in_a_list(crab):
    listed, plain = (
        GPClassifier(RBF(one, "fixed") + WhiteKernel(0.1, (1e-12, 1e5))).fit(crab.X[:40], crab.y[:40])
        for one in ([1.0], 1.0)
    )
    assert listed.log_marginal_likelihood_value_ == plain.log_marginal_likelihood_value_


@pytest.mark.parametrize("theta", [[1.0], [1.0, 2.0, 3.0], [np.nan, 0.0], 0.0])
def test_theta_of_the_wrong_shape(fitted, theta):
    with pytest.raises(ValueError, match="theta must hold 2 finite log-parameters"):
        fitted.log_marginal_likelihood(theta)


def test_default_bounds_do_not_bind_on_the_papers_data(data):
    for name in ("crab", "glass", "thyroid", "ionosphere"):
        model = GPClassifier().fit(data(name).X, data(name).y)
        distance = np.abs(model.kernel_.theta[:, None] - model.kernel_.bounds)
        assert distance.min() > 0.5, (name, model.kernel_)


def test_training_data_are_copied_or_not(crab):
    X = crab.X[:40].copy()
    assert GPClassifier(PAPER, optimizer=None).fit(X, crab.y[:40]).X_train_ is not X
    assert GPClassifier(PAPER, optimizer=None, copy_X_train=False).fit(X, crab.y[:40]).X_train_ is X


def test_evidence_at_theta_can_be_written_into_the_kernel(crab):
    model = GPClassifier(PAPER, optimizer=None).fit(crab.X[:40], crab.y[:40])
    theta = PAPER.theta + 0.3
    value = model.log_marginal_likelihood(theta)
    np.testing.assert_array_equal(model.kernel_.theta, PAPER.theta)
    assert model.log_marginal_likelihood(theta, clone_kernel=False) == pytest.approx(value)
    np.testing.assert_allclose(model.kernel_.theta, theta)


@pytest.mark.parametrize(("verbose", "lines"), [(0, range(1)), (1, range(1, 2)), (2, range(5, 200))])
def test_verbose_shows_lines(verbose, lines):
    code = (
        "import numpy as np; from postlin import GPClassifier; x = np.linspace(-2, 2, 20)[:, None]; "
        f"GPClassifier(verbose={verbose}).fit(x, np.sign(np.sin(3 * x[:, 0])) > 0)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stderr.count("log evidence") in lines


def test_applications_with_handlers_get_the_records(crab, caplog):
    with caplog.at_level(logging.DEBUG, logger="postlin"):
        GPClassifier(verbose=2).fit(crab.X[:40], crab.y[:40])
    assert any("log evidence" in r.message for r in caplog.records)


def test_inference_that_did_not_converge_is_said(crab):
    with pytest.warns(ConvergenceWarning, match="residual"):
        model = GPClassifier(PAPER, optimizer=None, max_iter_predict=1).fit(crab.X[:60], crab.y[:60])
    assert not model.converged_


def test_before_fit():
    with pytest.raises(NotFittedError):
        GPClassifier().predict([[0.0]])
    with pytest.raises(NotFittedError):
        GPClassifier().log_marginal_likelihood()


X2 = np.arange(8.0).reshape(4, 2)
Y2 = np.array([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("options", "X", "y", "message"),
    [
        ({}, [[np.nan, 0], [1, 1]], [0, 1], "contains NaN"),
        ({}, [[np.inf, 0], [1, 1]], [0, 1], "contains infinity"),
        ({}, X2, [0, 1, np.nan, 1], "contains NaN"),
        ({}, X2, [1, 1, 1, 1], "one class only"),
        ({}, X2, [0, 1], "inconsistent numbers of samples"),
        ({}, X2, [0.1, 0.2, 0.3, 0.4], "Unknown label type"),
        (
            {"likelihood": "cauchy"},
            X2,
            Y2,
            r"likelihood must be one of 'probit', 'logit', 'noisy_threshold'",
        ),
        ({"inference": "vb"}, X2, Y2, r"inference must be one of 'pl', 'cl', 'ep', 'laplace'"),
        ({"schedule": "random"}, X2, Y2, r"schedule must be one of 'parallel', 'sequential', 'hybrid'"),
        ({"optimizer": "adam"}, X2, Y2, r"optimizer must be 'fmin_l_bfgs_b'"),
        ({"kernel": "rbf"}, X2, Y2, "kernel must be a scikit-learn kernel"),
        ({"tol": 0.0}, X2, Y2, "tol must be a positive number"),
        ({"max_iter_predict": 0}, X2, Y2, "max_iter_predict must be a positive integer"),
        ({"n_restarts_optimizer": -1}, X2, Y2, "n_restarts_optimizer must be 0 or more"),
        ({"callback": 3}, X2, Y2, "callback must be a function or None"),
        ({"n_jobs": "x"}, X2, Y2, "n_jobs must be None or an integer"),
        ({"n_jobs": 0}, X2, Y2, "n_jobs must be None or an integer"),
        ({"likelihood": "noisy_threshold", "inference": "laplace"}, X2, Y2, "gradient is"),
        (
            {"kernel": ConstantKernel(1.0, (3.0, 2.0)) * RBF(1.0)},
            X2,
            Y2,
            r"bounds of k1__constant_value, \(3, 2\), have no number between them",
        ),
        ({"kernel": RBF(1.0, (-1.0, 2.0))}, X2, Y2, r"bounds of length_scale, \(nan, 2\), have no"),
        ({"kernel": -1.0 * RBF(1.0)}, X2, Y2, "k1__constant_value must be a positive number"),
        ({"kernel": ConstantKernel(-1.0, "fixed") * RBF()}, X2, Y2, "makes no covariance of X"),
        ({"kernel": RBF(-1.0), "optimizer": None}, X2, Y2, "length_scale must be a positive number"),
        ({"kernel": RBF([1.0, 5.0], [(0.1, 10.0), (10.0, 0.1)])}, X2, Y2, r"length_scale\[1\]"),
        ({"kernel": RBF(1.0), "fold_noise": True}, X2, Y2, "fold_noise=True needs a kernel"),
    ],
)
def test_bad_input_gets_one_clear_sentence(options, X, y, message):
    with pytest.raises(ValueError, match=message):
        GPClassifier(**options).fit(X, y)


def test_a_start_outside_its_bounds_is_moved_to_the_nearest_with_a_warning(data):
    here = data("crab", 40)
    kernel = ConstantKernel(1.0, (2.0, 3.0)) * RBF([1.0] * 5 + [50.0], (0.1, 10.0))
    with pytest.warns(ConvergenceWarning) as record:
        model = GPClassifier(kernel, hyperprior=None).fit(here.X, here.y)
    (start,) = [str(w.message) for w in record if "starts with" in str(w.message)]
    assert "k1__constant_value = 1 outside (2, 3) and k2__length_scale[5] = 50 outside" in start
    assert record[0].filename == __file__
    theta, _ = model.evidence_path_[0]
    np.testing.assert_allclose(np.exp(theta), [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 10.0])


@pytest.mark.parametrize(("inference", "scale", "most"), [("laplace", 1e8, 3), ("pl", 1e12, 30)])
def test_a_row_is_predicted_alike_in_any_company(inference, scale, most):
    """Even where inference has not converged and large terms cancel."""
    rng = np.random.default_rng(0)
    X, y = scale * rng.normal(size=(40, 3)), rng.integers(2, size=40)
    kernel = DotProduct(1.0) + WhiteKernel(0.1)
    model = GPClassifier(kernel, inference=inference, max_iter_predict=most, optimizer=None)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    together = model.predict_proba(X)
    alone = np.concatenate([model.predict_proba(row[None]) for row in X])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-9)


def test_wrong_number_of_features(fitted):
    with pytest.raises(ValueError, match="expecting 6 features"):
        fitted.predict(np.zeros((2, 3)))


def test_too_many_rows_are_refused_before_memory_is_taken():
    n = 3_000_000
    X = np.broadcast_to(np.zeros(1), (n, 1))
    y = np.arange(n) % 2
    with pytest.raises(MemoryError, match=r"3,000,000 points needs about .* GiB.*random subset"):
        GPClassifier().fit(X, y)


def test_constant_columns_duplicates_and_huge_scales(crab):
    X = np.c_[crab.X[:40], np.ones(40), 1e8 * crab.X[:40, :1]]
    X = np.r_[X, X[:10]]
    y = np.r_[crab.y[:40], -crab.y[:10]]
    with pytest.warns(ConvergenceWarning, match="cannot tell the rows apart"):  # but for equal ones
        model = GPClassifier(PAPER, optimizer=None).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_two_rows():
    model = GPClassifier().fit([[0.0], [1.0]], ["a", "b"])
    np.testing.assert_array_equal(model.predict([[-0.5], [1.5]]), ["a", "b"])


def test_the_papers_protocol_as_a_whole(crab):
    model = GPClassifier(
        likelihood="probit",
        inference=PL(evidence_order=10),
        schedule=Parallel(iterations=10),
        optimizer="bfgs_finite_differences",
    ).fit(crab.X[:100], crab.y[:100])
    assert model.score(crab.X[100:], crab.y[100:]) > 0.85


def test_a_warm_start_on_other_folds_takes_few_evaluations(crab):
    model = GPClassifier(warm_start=True)
    counts, values = [], []
    for k in range(3):
        some = np.arange(len(crab.y)) % 3 != k
        model.fit(crab.X[some], crab.y[some])
        counts.append(len(model.evidence_path_))
        values.append(model.log_marginal_likelihood_value_)
        cold = GPClassifier().fit(crab.X[some], crab.y[some])
        assert values[-1] > cold.log_marginal_likelihood_value_ - 1e-4
    assert max(counts[1:]) <= 0.6 * counts[0]
