"""The prior mean of the latent function, for each kind of model, against independent results."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from postlin import GPClassifier, infer, load, save, stream
from postlin.learning.local_search import scored
from postlin.likelihoods import DensityLikelihood

KERNEL = 2.0 * RBF(1.2) + WhiteKernel(0.1, "fixed")


def slope(X):
    """A prior mean that follows the first feature."""
    return 0.8 * X[:, 0] - 0.3


class ShiftedProbit(DensityLikelihood):
    """p(y|f) = Φ(y (f + shift)), which with a zero mean is probit with the prior mean ``shift``."""

    name = "shifted"
    log_concave = True
    shift = -0.9

    def log_density(self, y, f):
        return norm.logcdf(y * (f + self.shift))


KINDS = {
    "exact": {},
    "ep": {"inference": "ep"},
    "cl": {"inference": "cl"},
    "laplace": {"inference": "laplace"},
    "sequential": {"schedule": "sequential"},
    "folded": {"fold_noise": True},
    "inducing": {"inducing": "rows"},
    "neighbours": {"n_neighbors": 30},
    "both": {"n_neighbors": 30, "inducing": "some"},
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 2))
    y = np.where(X[:, 0] + 0.5 * np.sin(3 * X[:, 1]) + 0.5 * rng.normal(size=30) > -0.4, "b", "a")
    return X, y, rng.normal(size=(7, 2))


def fitted(kind, table, **how):
    X, y, _ = table
    options = dict(KINDS[kind])
    if options.get("inducing") == "rows":
        options["inducing"] = X
    elif options.get("inducing") == "some":
        options["inducing"] = X[::3]
    how = {"kernel": KERNEL, "optimizer": None, "random_state": 0, **options, **how}
    return GPClassifier(**how).fit(X, y)


def truth(table, mean, **how):
    """Evidence, latent values and probabilities by ``infer`` with the prior mean at the rows."""
    X, y, new = table
    found = infer(KERNEL(X), np.where(y == "b", 1.0, -1.0), prior_mean=mean(X), **how)
    cross, variance = KERNEL(X, new), KERNEL.diag(new)
    latent = found.predict_latent(cross, variance, prior_mean=mean(new))
    return found.log_evidence, latent, found.predict_proba(cross, variance, prior_mean=mean(new))


@pytest.mark.parametrize("kind", ["exact", "ep", "cl", "laplace", "sequential"])
def test_a_fit_is_infer_with_this_prior_mean(kind, table):
    model = fitted(kind, table, prior_mean=slope)
    evidence, latent, p = truth(table, slope, **KINDS[kind])
    assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, abs=1e-7)
    fit = model.base_estimator_
    np.testing.assert_allclose(fit.latent_mean_and_variance(table[2]), latent, atol=1e-6)
    np.testing.assert_allclose(fit.latent_mean(table[2]), latent.mean, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(table[2])[:, 1], p, atol=1e-7)
    assert abs(evidence - truth(table, lambda X: np.zeros(len(X)), **KINDS[kind])[0]) > 0.5


@pytest.mark.parametrize("mean", [-0.7, slope])
@pytest.mark.parametrize("kind", ["folded", "inducing", "neighbours", "both"])
def test_other_kinds_are_exact_where_they_know_all_rows(kind, table, mean):
    one, other = fitted("exact", table, prior_mean=mean), fitted(kind, table, prior_mean=mean)
    atol = 0.01 if kind == "folded" else 2e-5  # folded noise is another fixed point
    np.testing.assert_allclose(one.predict_proba(table[2]), other.predict_proba(table[2]), atol=atol)
    if kind in ("folded", "inducing"):
        gap = one.log_marginal_likelihood_value_ - other.log_marginal_likelihood_value_
        assert abs(gap) < (0.1 if kind == "folded" else 1e-4)


@pytest.mark.parametrize("kind", ["exact", "ep", "inducing", "neighbours", "both", "folded"])
def test_a_constant_mean_shifts_the_likelihood(kind, table):
    if kind == "both":
        KINDS["both"]["n_neighbors"] = 12
    shifted = fitted(kind, table, likelihood=ShiftedProbit())
    model = fitted(kind, table, prior_mean=ShiftedProbit.shift)
    new = table[2]
    np.testing.assert_allclose(model.predict_proba(new), shifted.predict_proba(new), atol=2e-5)
    np.testing.assert_allclose(model.loo_predict_proba_, shifted.loo_predict_proba_, atol=2e-4)
    assert model.log_marginal_likelihood_value_ == pytest.approx(
        shifted.log_marginal_likelihood_value_, abs=2e-4
    )


@pytest.mark.parametrize("kind", ["ep", "inducing", "neighbours"])
def test_rows_far_apart_have_the_evidence_and_probabilities_of_the_prior(kind):
    X = 100.0 * np.arange(6.0)[:, None]
    y = np.array([0, 1, 1, 0, 1, 0])

    def mean(rows):
        return np.cos(rows[:, 0])

    how = {"inducing": {"inducing": X}, "neighbours": {"n_neighbors": 3}}.get(kind, {})
    model = GPClassifier(KERNEL, inference="ep", optimizer=None, prior_mean=mean, **how).fit(X, y)
    sign = 2 * y - 1
    if kind != "neighbours":
        exact = norm.logcdf(sign * mean(X) / np.sqrt(1 + 2.1)).sum()
        assert model.log_marginal_likelihood_value_ == pytest.approx(exact, abs=1e-5)
    new = np.array([[50.0], [1050.0]])
    expected = norm.cdf(mean(new) / np.sqrt(1 + 2.1))
    np.testing.assert_allclose(model.predict_proba(new)[:, 1], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["exact", "ep", "cl", "laplace", "folded", "inducing"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_the_evidence_is_that_of_differences(kind, weighted, table):
    X, y, _ = table
    kernel = 2.0 * RBF(1.2) + WhiteKernel(0.1)
    inducing = {"inducing": X[::3]} if kind == "inducing" else KINDS[kind]
    model = GPClassifier(kernel, optimizer=None, tol=1e-10, prior_mean=slope, **inducing)
    model.fit(X, y, np.linspace(0.5, 2.0, 30) if weighted else None)
    model.base_estimator_.model.tol = (
        1e-11  # with inducing points 1e-6 is the least that one can ask for
    )
    theta, step = model.kernel_.theta, 1e-4
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    differences = [
        (model.log_marginal_likelihood(theta + d) - model.log_marginal_likelihood(theta - d))
        / (2 * step)
        for d in step * np.eye(3)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=2e-4, atol=2e-5)


def test_the_score_of_neighbours_is_climbed_with_the_mean(table):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = rng.uniform(size=150) < norm.cdf(3.0 * X[:, 0] - 2.0)

    def mean(rows):
        return 3.0 * rows[:, 0] - 2.0

    how = {"n_neighbors": 16, "random_state": 0}
    informed = GPClassifier(KERNEL, prior_mean=mean, **how).fit(X, y)
    assert informed.loo_log_score_ > GPClassifier(KERNEL, **how).fit(X, y).loo_log_score_ - 0.01
    new = np.array([[9.0, 9.0], [-9.0, 9.0]])
    np.testing.assert_array_equal(informed.predict(new), [True, False])


def test_samples_follow_the_posterior(table):
    for kind in ("exact", "inducing"):
        fit = fitted(kind, table, prior_mean=slope).base_estimator_
        drawn = fit.sample(table[2], 20_000, np.random.RandomState(0))
        mean, variance = fit.latent_mean_and_variance(table[2])
        np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=0.06)
        np.testing.assert_allclose(drawn.var(axis=1), variance, rtol=0.1)


def test_the_correction_and_the_exact_posterior_have_the_mean_too(table):
    X, y, new = table
    plain = fitted("exact", table, prior_mean=-0.9, corrected=True)
    shifted = fitted("exact", table, likelihood=ShiftedProbit(), corrected=True)
    np.testing.assert_allclose(plain.predict_proba(new), shifted.predict_proba(new), atol=1e-6)
    model = fitted("exact", table, prior_mean=slope)
    found = model.verify(new, n_particles=1500, n_runs=2, random_state=0)
    # importance sampling from the prior, with the white noise in the likelihood
    rng = np.random.default_rng(1)
    K = (2.0 * RBF(1.2))(np.concatenate([X, new]))
    root = np.linalg.cholesky(K + 1e-9 * np.eye(len(K)))
    f = root @ rng.standard_normal((len(K), 400_000)) + slope(np.concatenate([X, new]))[:, None]
    p = norm.cdf(f / np.sqrt(1.1))
    sign = np.where(y == "b", 1, -1)
    log_w = np.log(np.where(sign[:, None] > 0, p[:30], 1 - p[:30])).sum(axis=0)
    w = np.exp(log_w - log_w.max())
    assert found.log_evidence == pytest.approx(np.log(w.mean()) + log_w.max(), abs=0.15)
    np.testing.assert_allclose(found.probabilities[:, 1], p[30:] @ w / w.sum(), atol=0.03)


def test_classes_against_the_rest_have_the_mean_each(table):
    X, _, new = table
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    model = GPClassifier(KERNEL, optimizer=None, prior_mean=-1.0).fit(X, y)
    parts = [
        GPClassifier(KERNEL, optimizer=None, prior_mean=-1.0).fit(X, y == c).predict_proba(new)[:, 1]
        for c in range(3)
    ]
    expected = np.stack(parts, axis=1)
    np.testing.assert_allclose(
        model.predict_proba(new), expected / expected.sum(axis=1, keepdims=True), atol=1e-8
    )
    for way in ("one_vs_one", "joint"):
        with pytest.raises(ValueError, match="prior_mean has no meaning with multi_class"):
            GPClassifier(prior_mean=1.0, multi_class=way).fit(X, y)
        GPClassifier(KERNEL, optimizer=None, prior_mean=1.0, multi_class=way).fit(X, y > 0)


@pytest.mark.parametrize("kind", ["exact", "inducing", "neighbours"])
def test_a_number_is_saved_and_a_function_refused(kind, table, tmp_path):
    model = fitted(kind, table, prior_mean=-0.7)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.prior_mean == -0.7
    np.testing.assert_allclose(again.predict_proba(table[2]), model.predict_proba(table[2]), atol=1e-12)
    with pytest.raises(ValueError, match=r"prior_mean of the model is a function, .* pickle"):
        save(fitted(kind, table, prior_mean=slope), tmp_path / "m")


@pytest.mark.parametrize(
    ("mean", "said"),
    [
        ("zero", "prior_mean must be a finite number, or a function"),
        (np.nan, "prior_mean must be a finite number, or a function"),
        (True, "prior_mean must be a finite number, or a function"),
        ([0.1, 0.2], "prior_mean must be a finite number, or a function"),
        (lambda X: X, r"an array of shape \(30,\), and returned one of shape \(30, 2\)"),
        (lambda X: 0.0, "must return one number for each row"),
        (lambda X: X[:, 0] * np.inf, "prior_mean returned -?inf at row"),
        (lambda X: ["a"] * len(X), "prior_mean must return numbers, and returned list"),
    ],
)
def test_other_prior_means_are_refused(mean, said, table):
    with pytest.raises(ValueError, match=said):
        fitted("exact", table, prior_mean=mean)


def test_the_parameter_is_one_of_scikit_learn(table):
    model = GPClassifier(prior_mean=slope)
    assert clone(model).get_params()["prior_mean"] is slope
    assert GPClassifier().get_params()["prior_mean"] == 0.0


def test_data_that_are_read_in_passes_have_the_mean(table):
    X, y, new = table
    chunks = stream(lambda: [(X[:13], y[:13]), (X[13:], y[13:])])
    how = {"kernel": KERNEL, "optimizer": None, "inducing": X[::4], "prior_mean": slope}
    one, other = GPClassifier(**how).fit(chunks), GPClassifier(**how).fit(X, y)
    np.testing.assert_allclose(one.predict_proba(new), other.predict_proba(new), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_of_the_score_of_neighbours_is_that_of_differences(classes, table):
    X = table[0]
    y = np.digitize(X[:, 0], [-0.4, 0.5][: classes - 1])
    kernel = 2.0 * RBF([1.2, 1.0]) + WhiteKernel(0.1)
    how = {"n_neighbors": 9, "random_state": 0, "inducing": X[::5] if classes == 2 else None}
    model = GPClassifier(kernel, optimizer=None, prior_mean=slope, tol=1e-10, **how).fit(X, y)
    near = model._estimators[0].near
    local, at = dataclasses.replace(near.model, tol=1e-10), near.at
    rows, queries = near.around, near.around.drawn(30, 0)

    def score(theta, **how):
        return scored(local, at.at(theta), rows, queries, 9, **how)

    step = 1e-5
    gradient = score(at.theta, gradient=True).gradient
    differences = [
        (score(at.theta + d).value - score(at.theta - d).value) / (2 * step)
        for d in step * np.eye(len(at.theta))
    ]
    if classes == 3:  # a global part is held fixed, and does not follow the kernel
        np.testing.assert_allclose(gradient, differences, rtol=1e-4, atol=1e-5)
    assert np.isfinite(gradient).all()
