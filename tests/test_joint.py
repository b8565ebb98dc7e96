"""Softmax posterior linearisation: sites, posterior, evidence, gradient, and the estimator."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import central_difference
from scipy.special import softmax
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict

import postlin
from postlin import GPClassifier
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.joint.evidence import adjoint_at, log_evidence, scales_at
from postlin.inference.joint.posterior import JointPosterior, JointPrior
from postlin.inference.joint.problem import JointMap, JointProblem
from postlin.inference.solver import solve
from postlin.learning.joint_model import JointSitePath
from postlin.likelihoods.softmax import Nodes, SoftmaxMoments, contrasts, normal_nodes
from postlin.linalg import threads as batches
from postlin.linalg.blocks import symmetric
from postlin.rules.joint import REGISTRY, JointLaplace, JointPL
from postlin.rules.joint_sites import JointView
from postlin.rules.sites import Sites
from postlin.rules.weights import JointWeights
from postlin.schedules import Parallel

KERNEL = ConstantKernel(4.0, (1e-5, 1e12)) * RBF(1.0) + WhiteKernel(0.1, "fixed")


def random_view(n, C, seed):
    """Marginals N(m, L Lᵀ) of all sizes, and labels."""
    rng = np.random.default_rng(seed)
    D = C - 1
    scale = 10.0 ** rng.uniform(-2, 1, size=(n, 1, 1))
    root = np.tril(rng.normal(size=(n, D, D))) * scale
    diagonal = np.einsum("nii->ni", root)
    diagonal[:] = np.abs(diagonal) + 0.1 * scale[:, 0]
    zero = np.zeros((n, D, D))
    view = JointView(3.0 * rng.normal(size=(n, D)), root, zero, zero[:, :, 0])
    return view, rng.integers(C, size=n)


def problem_of(K, y, C, rule, weight=None):
    prior = JointPrior.of(K if isinstance(K, list) else [K], contrasts(C))
    unit = JointWeights.unit(len(y), C - 1)
    return JointProblem(prior, y, C, rule, unit if weight is None else replace(unit, weight=weight))


def evidence_at(problem, iterate):
    return log_evidence(problem, iterate, scales_at(problem, iterate))


def solved(problem, tol=1e-10, start=None):
    iterate, record = solve(problem, Parallel(), start=start, tol=tol, max_iter=100)
    assert record.converged
    return iterate


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(24, 2))
    return X, rng.integers(3, size=24)


@pytest.mark.parametrize("C", [2, 3, 4, 7, 12])
def test_contrasts_are_orthonormal_and_see_no_constant(C):
    H = contrasts(C)
    np.testing.assert_allclose(H.T @ H, np.eye(C - 1), atol=1e-14)
    np.testing.assert_allclose(H.sum(axis=0), 0.0, atol=1e-14)


@pytest.mark.parametrize("D", [1, 2, 3, 5, 11])
def test_nodes_have_mean_zero_and_covariance_one(D):
    z, w = normal_nodes(D, 512)
    assert (w > 0).all()
    np.testing.assert_allclose(w.sum(), 1.0, rtol=1e-14)
    np.testing.assert_allclose(w @ z, 0.0, atol=1e-12)
    np.testing.assert_allclose((z.T * w) @ z, np.eye(D), atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(C=st.integers(2, 12), seed=st.integers(0, 2**31))
def test_sites_are_statistical_linear_regression_of_the_label(C, seed):
    """A, Ω and a pseudo-inverse, as the definition has it; T ⪰ 0 and T 1 = 0 in the classes' space."""
    view, y = random_view(6, C, seed)
    problem = problem_of(np.eye(6), y, C, JointPL())
    proposal = problem.propose(view)
    sites = proposal.sites
    H, z, w, _ = problem.nodes
    for i in range(6):  # in units of the marginal, where the regression is on z
        p = softmax((view.mean[i] + z @ view.root[i].T) @ H.T, axis=1)
        p_bar = w @ p
        if p_bar.min() < 1e-2:
            continue  # the pseudo-inverse itself has no digits left
        A = ((p - p_bar).T * w) @ z
        omega = np.diag(p_bar) - np.outer(p_bar, p_bar) - A @ A.T
        inverse = np.linalg.pinv(omega, rcond=1e-12, hermitian=True)
        np.testing.assert_allclose(proposal.scaled_tau[i], A.T @ inverse @ A, rtol=1e-9, atol=1e-10)
        pull = A.T @ inverse @ (np.eye(C)[y[i]] - p_bar)
        np.testing.assert_allclose(proposal.pull[i], pull, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(
            view.root[i].T @ sites.tau[i] @ view.root[i], A.T @ inverse @ A, atol=1e-8
        )
    in_classes = H @ sites.tau @ H.T
    np.testing.assert_allclose(
        in_classes @ np.ones(C), 0.0, atol=1e-12 * max(1.0, np.abs(in_classes).max())
    )
    assert (np.linalg.eigvalsh(in_classes) >= -1e-12 * np.abs(in_classes).max()).all()


@pytest.mark.parametrize("rule", REGISTRY)
@pytest.mark.parametrize("C", [2, 3, 5])
def test_changes_of_sites_against_differences_and_their_adjoint(rule, C):
    view, y = random_view(5, C, 1)
    rng = np.random.default_rng(2)
    D = C - 1
    problem = problem_of(np.eye(5), y, C, REGISTRY[rule]())
    b, E = rng.normal(size=(5, D)), symmetric(rng.normal(size=(5, D, D)))
    L, Lt = view.root, np.swapaxes(view.root, 1, 2)

    def sites(h):
        mean = view.mean + h * np.einsum("nde,ne->nd", L, b)
        moved = view._replace(mean=mean, root=np.linalg.cholesky(L @ (np.eye(D) + h * E) @ Lt))
        return problem.propose(moved).sites

    h = 1e-5
    up, down = sites(h), sites(-h)
    d_tau, d_nu = (up.tau - down.tau) / (2 * h), (up.nu - down.nu) / (2 * h)
    P = Lt @ d_tau @ L
    q = np.einsum("nde,ne->nd", Lt, d_nu - np.einsum("nde,ne->nd", d_tau, view.mean))
    proposal = problem.propose(view)
    for found, expected in zip(proposal.change(b, E), (P, q), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6 * max(1.0, np.abs(expected).max()))
    P_bar, q_bar = symmetric(rng.normal(size=P.shape)), rng.normal(size=q.shape)
    forward = np.sum(P_bar * proposal.change(b, E)[0]) + np.sum(q_bar * proposal.change(b, E)[1])
    b_bar, E_bar = proposal.pull_back(P_bar, q_bar)
    assert forward == pytest.approx(np.sum(b_bar * b) + np.sum(E_bar * E), rel=1e-9)


@pytest.mark.parametrize("C", [2, 3, 10])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e4])
def test_cautious_sites_of_hopeless_points_are_finite(C, spread):
    """Labels that are possible at one node, if at all."""
    rng = np.random.default_rng(C)
    n, D = 40, C - 1
    view, y = random_view(n, C, seed=0)
    mean = 50.0 * spread * rng.normal(size=(n, D))
    view = JointView(mean, spread * np.broadcast_to(np.eye(D), (n, D, D)), *view[2:])
    problem = problem_of(np.eye(n), y, C, JointPL())
    tau, nu = JointPL().propose_cautiously(problem.nodes, y, view)
    assert np.isfinite(tau).all()
    assert np.isfinite(nu).all()
    values = np.linalg.eigvalsh(tau)
    assert values.min() >= -1e-12
    assert values.max() <= 0.5 * (1.0 + 1e-9)


@pytest.mark.parametrize("shared", [True, False])
def test_the_posterior_against_dense_algebra(rows, shared):
    X, y = rows
    n, C, D = len(y), 3, 2
    H = contrasts(C)
    Ks = [KERNEL(X)] if shared else [(1.0 + k) * RBF(1.0 + k)(X) + 0.1 * np.eye(n) for k in range(C)]
    problem = problem_of(Ks, y, C, JointPL())
    iterate = problem.iterate(problem.cautious_sites(None))
    prior = sum(np.kron(K, np.outer(h, h)) for K, h in zip(Ks * (C if shared else 1), H, strict=True))
    T = np.zeros((n * D, n * D))
    for i in range(n):
        T[i * D : (i + 1) * D, i * D : (i + 1) * D] = iterate.view.tau[i]
    sigma = np.linalg.inv(np.linalg.inv(prior) + T)
    posterior = iterate.posterior
    np.testing.assert_allclose(posterior.covariance, sigma, atol=1e-10)
    np.testing.assert_allclose(posterior.mean.ravel(), sigma @ iterate.view.nu.ravel(), atol=1e-10)
    for i in range(n):
        block = sigma[i * D : (i + 1) * D, i * D : (i + 1) * D]
        np.testing.assert_allclose(posterior.variance[i], block, atol=1e-10)
    normaliser = 0.5 * iterate.view.nu.ravel() @ sigma @ iterate.view.nu.ravel()
    normaliser -= 0.5 * np.linalg.slogdet(np.eye(n * D) + prior @ T)[1]
    assert posterior.log_normaliser == pytest.approx(normaliser, rel=1e-10)


@pytest.mark.parametrize("rule", REGISTRY)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [3, 4])
def test_the_gradient_against_differences(rows, rule, weighted, C):
    X, _ = rows
    rng = np.random.default_rng(5)
    y = rng.integers(C, size=len(X))
    weight = rng.uniform(0.2, 2.5, size=len(X)) if weighted else None
    d2 = np.sum((X[:, None] - X) ** 2, axis=2)

    def covariance(theta):
        return np.exp(theta[0]) * np.exp(-0.5 * d2 / np.exp(2 * theta[1])) + 0.1 * np.eye(len(X))

    def evidence(theta):
        problem = problem_of(covariance(theta), y, C, REGISTRY[rule](), weight)
        return evidence_at(problem, solved(problem))

    theta = np.log([4.0, 1.0])
    problem = problem_of(covariance(theta), y, C, REGISTRY[rule](), weight)
    iterate = solved(problem)
    scales = scales_at(problem, iterate)
    adjoint = adjoint_at(problem, iterate, scales, 1e-11)
    (K_bar,) = iterate.posterior.pull_back(adjoint.mean_bar, adjoint.variance_bar)
    value = log_evidence(problem, iterate, scales) + adjoint.correction
    assert value == pytest.approx(evidence(theta), abs=1e-8)
    h = 1e-5
    steps = [(covariance(theta + h * e) - covariance(theta - h * e)) / (2 * h) for e in np.eye(2)]
    found = [np.sum(K_bar * step) for step in steps]
    np.testing.assert_allclose(found, central_difference(evidence, theta), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", REGISTRY)
def test_two_classes_are_the_binary_logit_problem(rows, rule):
    """f₁ − f₀ has twice the prior variance of either, and minus √2 times the contrast."""
    X, y = rows
    y = y % 2
    K = KERNEL(X)
    joint = solved(problem_of(K, y, 2, REGISTRY[rule]()))
    binary = postlin.infer(
        2 * K, np.where(y == 1, 1.0, -1.0), likelihood="logit", inference=rule, tol=1e-10
    )
    np.testing.assert_allclose(-np.sqrt(2) * joint.posterior.mean[:, 0], binary.mean, atol=1e-6)
    np.testing.assert_allclose(2 * joint.posterior.variance[:, 0, 0], binary.variance, atol=1e-6)
    found = evidence_at(problem_of(K, y, 2, REGISTRY[rule]()), joint)
    assert found == pytest.approx(binary.log_evidence, abs=1e-6)


def test_softmax_moments_against_monte_carlo():
    view, _ = random_view(4, 4, 7)
    root = np.minimum(np.abs(view.root), 1.5) * np.sign(view.root)
    H = contrasts(4)
    moments = SoftmaxMoments.at(view.mean, root, Nodes.of(4, 4096))
    z = np.random.default_rng(0).standard_normal((400_000, 3))
    for i in range(4):
        p = softmax((view.mean[i] + z @ root[i].T) @ H.T, axis=1)
        np.testing.assert_allclose(moments.mean[i], p.mean(axis=0), atol=5 * p.std() / 600)


def test_integer_weights_are_repeated_rows_where_there_is_no_white_noise(rows):
    X, y = rows
    w = np.random.default_rng(0).integers(1, 4, size=len(y))
    kernel = ConstantKernel(4.0) * RBF(1.0)
    options = {"kernel": kernel, "multi_class": "joint", "optimizer": None, "tol": 1e-10}
    weighted = GPClassifier(**options).fit(X, y, sample_weight=w)
    repeated = GPClassifier(**options).fit(X.repeat(w, axis=0), y.repeat(w))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-8)
    (value, slope), (other, its) = (
        m.log_marginal_likelihood(eval_gradient=True) for m in (weighted, repeated)
    )
    assert value == pytest.approx(other, abs=1e-8)
    np.testing.assert_allclose(slope, its, atol=1e-7)


@pytest.mark.parametrize("rule", REGISTRY)
def test_random_settings_converge_or_say_so(rule):
    rng = np.random.default_rng(11)
    for _ in range(25):
        C, n = int(rng.integers(3, 7)), int(rng.integers(12, 50))
        X = rng.normal(size=(n, 2))
        y = np.argmax(X @ rng.normal(size=(2, C)) + rng.gumbel(size=(n, C)) * rng.uniform(0, 2), axis=1)
        y[:C] = np.arange(C)
        kernel = ConstantKernel(10.0 ** rng.uniform(-1, 4)) * RBF(10.0 ** rng.uniform(-1, 1))
        model = GPClassifier(kernel, multi_class="joint", inference=rule, optimizer=None)
        try:
            model.fit(X, y)
        except ConvergenceWarning as warning:
            assert "factorisations" in str(warning)  # noqa: PT017
            continue
        p = model.predict_proba(rng.normal(size=(30, 2)))
        assert model.converged_
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
        assert np.isfinite(model.log_marginal_likelihood_value_)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[::3], np.array(["setosa", "versicolor", "virginica"])[y[::3]]


@pytest.fixture(scope="module")
def fitted(iris):
    return GPClassifier(KERNEL, multi_class="joint").fit(*iris)


def test_the_estimator_learns(fitted, iris):
    X, y = iris
    start = GPClassifier(KERNEL, multi_class="joint", optimizer=None).fit(X, y)
    assert fitted.log_marginal_likelihood_value_ > start.log_marginal_likelihood_value_ + 1
    _, slope = fitted.log_marginal_likelihood(eval_gradient=True)
    assert np.abs(slope).max() < 1e-2
    assert fitted.score(X, y) > 0.9
    assert fitted.converged_
    assert list(fitted.classes_) == ["setosa", "versicolor", "virginica"]
    assert "all classes jointly" in fitted.summary()
    assert "virginica" in fitted._repr_html_()


def test_one_kernel_for_each_class(iris):
    X, y = iris
    model = GPClassifier(KERNEL, multi_class="joint", shared_kernel=False, optimizer=None).fit(X, y)
    same = GPClassifier(KERNEL, multi_class="joint", optimizer=None).fit(X, y)
    # with equal kernels the models are the same
    np.testing.assert_allclose(model.predict_proba(X), same.predict_proba(X), atol=1e-8)
    theta = model.base_estimator_.hyperparameters.theta + np.linspace(-0.3, 0.3, 6)
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    numeric = central_difference(model.log_marginal_likelihood, theta)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)
    value = model.log_marginal_likelihood(theta, clone_kernel=False)
    np.testing.assert_allclose(model.kernel_.theta, theta)
    assert model.log_marginal_likelihood(theta) == pytest.approx(value)


def test_latent_values_and_samples(fitted, iris):
    X, _ = iris
    mean, variance = fitted.latent_mean_and_variance(X[:4])
    assert mean.shape == variance.shape == (4, 3)
    np.testing.assert_allclose(mean.sum(axis=1), 0.0, atol=1e-9)
    draws = fitted.sample_latent(X[:4], 20_000, random_state=0)
    assert draws.shape == (4, 3, 20_000)
    np.testing.assert_allclose(draws.mean(axis=2), mean, atol=5 * np.sqrt(variance.max() / 20_000))
    np.testing.assert_allclose(draws.var(axis=2), variance, rtol=0.08)
    # probabilities are softmax averaged over these draws
    p = softmax(draws, axis=1).mean(axis=2)
    np.testing.assert_allclose(fitted.predict_proba(X[:4]), p, atol=0.01)


def test_leave_one_out_against_refitting(iris):
    X, y = iris
    kernel = ConstantKernel(100.0) * RBF(2.0) + WhiteKernel(0.1)
    options = {"kernel": kernel, "multi_class": "joint", "optimizer": None}
    found = GPClassifier(**options).fit(X, y).loo_predict_proba_
    for i in range(0, len(y), 3):
        keep = np.arange(len(y)) != i
        again = GPClassifier(**options).fit(X[keep], y[keep])
        np.testing.assert_allclose(found[i], again.predict_proba(X[i : i + 1])[0], atol=0.01)


def test_files_hold_it(fitted, iris, tmp_path):
    X, _ = iris
    postlin.save(fitted, tmp_path / "m")
    again = postlin.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_spectral_radius_predicts_what_plain_iteration_does(rows):
    X, y = rows
    problem = problem_of(0.5 * RBF(1.0)(X) + 0.1 * np.eye(len(y)), y, 3, JointPL())
    solution = solved(problem)
    assert JointMap(problem, solution).spectral_radius(len(solution.residual)) < 1
    plain, _ = solve(problem, Parallel(iterations=60), start=None, tol=1e-8, max_iter=100)
    np.testing.assert_allclose(plain.view.mean, solution.view.mean, atol=1e-6)


def test_classes_with_one_member_and_as_many_classes_as_rows():
    X = np.linspace(-2, 2, 6)[:, None]
    alone = GPClassifier(KERNEL, multi_class="joint", optimizer=None).fit(X, [0, 0, 0, 1, 1, 2])
    assert alone.predict_proba(X).shape == (6, 3)
    assert np.isfinite(alone.loo_predict_proba_).all()
    each = GPClassifier(KERNEL, multi_class="joint", optimizer=None).fit(X, np.arange(6))
    np.testing.assert_allclose(each.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)
    assert each.converged_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "ep"}, "knows inference='pl' and 'laplace'"),
        ({"inference": "cl"}, "knows inference='pl' and 'laplace', got 'cl': use 'one_vs_rest'"),
        ({"likelihood": "noisy_threshold"}, "has the softmax likelihood"),
        ({"schedule": "sequential"}, "parallel schedule only"),
        ({"inference": JointPL(nodes=512), "schedule": "hybrid"}, "parallel schedule only"),
        ({"fold_noise": True}, "is for binary problems"),
        ({"inference": JointPL(), "multi_class": "one_vs_rest"}, "inference must be one of"),
    ],
)
def test_what_does_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        GPClassifier(**{"multi_class": "joint", **options}).fit(np.eye(6)[:, :2], [0, 1, 2, 0, 1, 2])


def test_nodes_are_checked():
    with pytest.raises(ValueError, match="at least 64"):
        JointPL(nodes=10)


def test_two_classes_are_not_taken_for_many(iris):
    X, y = iris
    two = y != "setosa"
    joint = GPClassifier(multi_class="joint", optimizer=None).fit(X[two], y[two])
    plain = GPClassifier(optimizer=None).fit(X[two], y[two])
    np.testing.assert_array_equal(joint.predict_proba(X), plain.predict_proba(X))


def test_laplace_is_the_mode(rows):
    X, y = rows
    problem = problem_of(KERNEL(X), y, 3, JointLaplace())
    iterate = solved(problem)
    f = iterate.view.mean @ problem.H.T
    slope = np.eye(3)[y] - softmax(f, axis=1)
    np.testing.assert_allclose(np.linalg.solve(KERNEL(X), f), slope, atol=1e-8)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("rule", REGISTRY)
def test_integer_weights_are_repeated_rows_white_noise_each_ones_own(rows, rule, shared):
    X, y = rows
    w = np.random.default_rng(0).integers(0, 4, size=len(y))
    kernel = ConstantKernel(4.0) * RBF(1.0) + WhiteKernel(0.5)
    options = {"kernel": kernel, "multi_class": "joint", "optimizer": None, "tol": 1e-11}
    options |= {"inference": rule, "shared_kernel": shared}
    weighted = GPClassifier(**options).fit(X, y, sample_weight=w)
    repeated = GPClassifier(**options).fit(X.repeat(w, axis=0), y.repeat(w))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-8)
    for one, other in zip(*(m.latent_mean_and_variance(X) for m in (weighted, repeated)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
    theta = weighted.base_estimator_.hyperparameters.theta
    theta = theta + np.linspace(-0.2, 0.2, len(theta))
    (value, slope), (other, its) = (
        m.log_marginal_likelihood(theta, eval_gradient=True) for m in (weighted, repeated)
    )
    assert value == pytest.approx(other, abs=1e-8)
    np.testing.assert_allclose(slope, its, atol=1e-8)
    if shared and rule == "pl":  # each observation left out, not each row
        first = np.r_[0, np.cumsum(w[w > 0])[:-1]]
        np.testing.assert_allclose(
            weighted.loo_predict_proba_, repeated.loo_predict_proba_[first], atol=2e-3
        )


@pytest.mark.filterwarnings("ignore:Number of classes in training fold")
def test_a_class_that_a_fold_has_not_seen(iris):
    X, y = iris  # in order: three folds of one class each, roughly
    model = GPClassifier(KERNEL, multi_class="joint", optimizer=None)
    p = cross_val_predict(model, X, y, cv=KFold(3), method="predict_proba")
    assert p.shape == (len(y), 3)
    assert np.isfinite(p).all()


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="class"):
        GPClassifier(multi_class="joint").fit(np.eye(4), np.ones(4))


@pytest.mark.parametrize("strength", [1e-300, 1e-30, 1e-12, 1e-6, 1.0, 1e6])
def test_variances_keep_their_digits_however_weak_a_direction_of_a_site(rows, strength):
    """Against a posterior that is brought up to date site by site in extended precision."""
    X, _ = rows
    n, D = len(X), 2
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi, n)
    strong = np.array([np.cos(angle), np.sin(angle)]).T
    weak = np.array([-np.sin(angle), np.cos(angle)]).T
    K = KERNEL(X)
    tau = np.einsum("nd,ne->nde", strong, strong) + strength * np.einsum("nd,ne->nde", weak, weak)
    posterior = JointPosterior(JointPrior([K], [np.eye(D)]), Sites(tau, np.zeros((n, D))))
    prior = np.kron(K, np.eye(D)).astype(np.longdouble)
    for i in range(n):  # site by site, in extended precision
        for direction, level in ((strong, 1.0), (weak, strength)):
            at = np.zeros(n * D, dtype=np.longdouble)
            at[i * D : (i + 1) * D] = direction[i]
            column = prior @ at
            prior = prior - np.outer(column, column) * (level / (1 + level * (at @ column)))
    for i in range(n):
        block = prior[i * D : (i + 1) * D, i * D : (i + 1) * D].astype(float)
        np.testing.assert_allclose(posterior.variance[i], block, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(posterior.covariance, prior.astype(float), rtol=1e-8, atol=1e-10)


def test_results_do_not_depend_on_the_threads(rows, monkeypatch):
    X, y = rows
    options = {"kernel": KERNEL, "multi_class": "joint", "optimizer": None}
    found = []
    for count in (1, 3):
        monkeypatch.setattr(batches, "threads", lambda count=count: count)
        monkeypatch.setattr(batches, "_ENTRIES", 2**13)  # several batches
        model = GPClassifier(**options).fit(X, y)
        found.append(
            np.r_[model.log_marginal_likelihood(eval_gradient=True)[1], model.predict_proba(X)[0]]
        )
    np.testing.assert_array_equal(*found)


def test_what_is_raised_in_a_batch_is_raised():
    def fail(part):
        raise NotPositiveDefiniteError("here")

    for n in (1, 9):
        with pytest.raises(NotPositiveDefiniteError, match="here"):
            batches.in_batches(fail, n, 2**20)


def test_extrapolated_sites_are_exact_where_they_are_linear():
    """Sites of a prior that is only scaled: T by a factor, its square root before ν."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(5, 3, 3))
    tau, nu = root @ np.swapaxes(root, 1, 2), rng.normal(size=(5, 3))
    tau[4] = 0.0  # of a point without weight
    path = JointSitePath()
    for step in (0.0, 1.0):
        path.add(np.array([step]), Sites(np.exp(-step) * tau, np.exp(-0.5 * step) * nu))
    found = path.predict(np.array([2.5]))
    np.testing.assert_allclose(found.tau[:4], np.exp(-2.5) * tau[:4], rtol=1e-9)
    np.testing.assert_allclose(found.nu[:4], np.exp(-1.25) * nu[:4], rtol=1e-9)
    assert (found.tau[4] == 0.0).all()
    assert (np.linalg.eigvalsh(found.tau) >= 0).all()


def test_a_newton_step_looks_ahead(rows):
    """The mean after a step is predicted exactly, and the residual to a part of what it was."""
    X, y = rows
    problem = problem_of(KERNEL(X), y, 3, JointPL())
    iterate = problem.iterate(problem.cautious_sites(None))
    plain = JointMap(problem, iterate).solve(iterate.residual, time=np.inf, rtol=1e-8)
    b, variance = JointMap(problem, iterate).marginals_after(0.1 * plain)
    after = problem.iterate(iterate.moved(0.1 * plain))
    moved = np.einsum(
        "nde,ne->nd", np.linalg.inv(iterate.view.root), after.view.mean - iterate.view.mean
    )
    np.testing.assert_allclose(b, moved, atol=1e-4 * np.abs(moved).max())
    L = iterate.view.root
    np.testing.assert_allclose(L @ variance @ np.swapaxes(L, 1, 2), after.posterior.variance, atol=2e-3)
    ahead, time = problem.newton_step(iterate, time=np.inf)
    assert time == np.inf
    sizes = [problem.iterate(iterate.moved(step)).size for step in (plain, ahead)]
    assert sizes[1] < 0.5 * sizes[0]
