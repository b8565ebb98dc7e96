"""Sparse inference against dense algebra, finite differences and repeated rows."""

import logging
import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

import postlin
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.sparse.passes import RowMarginals, Sweep
from postlin.inference.sparse.posterior import Basis, SparsePosterior, State
from postlin.inference.sparse.row_sites import Method, RowMoments
from postlin.kernels import bind, cross, diagonal, full_cross, moves_points
from postlin.learning.hyperparameters import Hyperparameters, WithPoints
from postlin.learning.sampled import train_sparse
from postlin.learning.sparse_model import SparseModel
from postlin.learning.training import train
from postlin.likelihoods import Logit, NoisyThreshold, Probit
from postlin.linalg.triangles import Triangle
from postlin.rules.binary import CL, EP, PL, Laplace
from postlin.streaming.chunks import Chunk
from postlin.streaming.views import ArrayRows

KERNEL = ConstantKernel(9.0) * RBF(2.0) + WhiteKernel(0.1)
METHODS = {
    "probit pl": (Probit(), PL()),
    "logit pl": (Logit(), PL()),
    "threshold pl": (NoisyThreshold(0.05, (0.001, 0.4)), PL()),
    "probit cl": (Probit(), CL()),
    "threshold cl": (NoisyThreshold(0.05, (0.001, 0.4)), CL()),
    "probit ep": (Probit(), EP()),
    "threshold ep": (NoisyThreshold(0.05, (0.001, 0.4)), EP()),
    "probit laplace": (Probit(), Laplace()),
    "paper's evidence": (Probit(), PL(evidence_order=10)),
}
SMALL = ["probit pl", "threshold pl", "threshold cl", "probit ep", "probit laplace"]


def whole(data):
    return Chunk(data.X, data.y, np.ones(len(data.y)), 0)


def fitc(kernel, X, Z, jitter, new=None):
    """The covariance that inducing points leave, and with new rows."""
    basis = Basis.of(kernel, Z, jitter)
    R = np.linalg.solve(basis.factor.L, kernel(Z, X)).T
    K = R @ R.T
    K[np.diag_indices_from(K)] = kernel.diag(X)
    return K if new is None else (K, R @ np.linalg.solve(basis.factor.L, kernel(Z, new)))


@pytest.mark.parametrize("name", ["crab", "glass", "thyroid"])
def test_all_rows_as_inducing_points_give_the_dense_posterior(data, name):
    here = data(name)
    model = SparseModel(ArrayRows(here.X, here.y, chunk=64), here.X, PL(), tol=1e-9, jitter=1e-12)
    fitted = model.infer(Hyperparameters(KERNEL, Probit()))
    dense = postlin.infer(KERNEL(here.X), here.y, tol=1e-10)
    _, _, found, _ = RowMarginals(fitted.posterior, fitted.method)(whole(here))
    assert fitted.converged
    np.testing.assert_allclose(found.mean, dense.mean, atol=1e-7)
    np.testing.assert_allclose(found.variance, dense.variance, atol=1e-7)
    assert fitted.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)
    gram = bind(KERNEL, here.X).gram(KERNEL)
    np.testing.assert_allclose(
        fitted.value_and_gradient()[1], gram.pull_back(dense.evidence_gradient()), rtol=1e-5
    )


@pytest.mark.parametrize("method", METHODS)
def test_fewer_points_give_the_posterior_of_their_covariance(data, method):
    here, (likelihood, rule) = data("crab", 80), METHODS[method]
    Z, new = here.X[:12] + 0.05, here.X[60:] + 0.3
    model = SparseModel(ArrayRows(here.X, here.y, chunk=33), Z, rule, tol=1e-9)
    found = model.infer(Hyperparameters(KERNEL, likelihood))
    K, crossed = fitc(KERNEL, here.X, Z, 1e-6, new)
    dense = postlin.infer(K, here.y, likelihood=likelihood, inference=rule, tol=1e-10)
    _, _, marginals, cavities = RowMarginals(found.posterior, found.method)(whole(here))
    np.testing.assert_allclose(marginals.mean, dense.mean, atol=1e-6)
    np.testing.assert_allclose(marginals.variance, dense.variance, atol=1e-6)
    assert found.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)
    predicted = found.posterior.predict(new)
    for a, b in zip(predicted, dense.predict_latent(crossed, KERNEL.diag(new)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    mean, covariance = found.posterior.predict_jointly(new)
    np.testing.assert_allclose(mean, predicted.mean)
    np.testing.assert_allclose(covariance.diagonal(), predicted.variance)
    assert np.linalg.eigvalsh(covariance)[0] > 0
    np.testing.assert_allclose(
        1 / marginals.variance - dense.sites.tau, 1 / cavities.variance, atol=1e-5
    )


@pytest.mark.parametrize("rule", [CL(), EP()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("likelihood", [Probit(), Logit()])
@pytest.mark.parametrize("variance", [1e9, 1e12])
def test_cavities_are_proper_where_few_points_explain_all_rows(likelihood, variance, rule):
    """Few points and a large variance: on the way the own site of a row outweighs all others."""
    rng = np.random.default_rng(147)
    X = rng.normal(size=(30, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=30) > 0, 1.0, -1.0)
    kernel, Z = ConstantKernel(variance) * RBF(10.0) + WhiteKernel(1e-6), X[:4]
    found = SparseModel(ArrayRows(X, y), Z, rule, tol=1e-9).infer(Hyperparameters(kernel, likelihood))
    dense = postlin.infer(fitc(kernel, X, Z, 1e-6), y, likelihood=likelihood, inference=rule)
    assert found.converged
    assert not found.improper
    assert found.log_evidence == pytest.approx(dense.log_evidence, abs=1e-5)


@pytest.mark.parametrize("ups", [3, 4])
def test_labels_that_contradict_each_other_at_one_place_do_not_stop_ep(ups):
    """Ten rows share one latent value; without a long warm-up this takes all passes and fails."""
    likelihood, y = NoisyThreshold(1e-3), np.where(np.arange(10) < ups, 1.0, -1.0)
    rows = ArrayRows(np.zeros((10, 1)), y)
    model = SparseModel(rows, np.zeros((1, 1)), EP(), tol=1e-8)
    found = model.infer(Hyperparameters(ConstantKernel(900.0) * RBF(1.0), likelihood))
    assert found.converged
    here = Chunk(np.zeros((10, 1)), y, np.ones(10), 0)
    _, _, marginals, cavities = RowMarginals(found.posterior, found.method)(here)
    x = np.linspace(-12.0, 12.0, 400_001)
    for row in (0, 9):  # at EP's solution cavity times likelihood has the moments of the marginal
        f = cavities.mean[row] + np.sqrt(cavities.variance[row]) * x
        p = np.where(y[row] * f > 0, 0.999, 0.001) * np.exp(-0.5 * x**2)
        mean = p @ f / p.sum()
        assert marginals.mean[row] == pytest.approx(mean, rel=1e-3)
        assert marginals.variance[row] == pytest.approx(p @ (f - mean) ** 2 / p.sum(), rel=1e-3)


@pytest.mark.parametrize("rule", [CL(), EP()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("likelihood", [Probit(), Logit(), NoisyThreshold()])
def test_every_cavity_is_proper_whatever_the_moments(likelihood, rule):
    rng, n = np.random.default_rng(0), 800
    s, lam = 10.0 ** rng.uniform(-14, 14, size=(2, n))
    mu = rng.normal(size=n) * np.sqrt(s + lam) * 10.0 ** rng.uniform(-2, 2, n)
    moments = RowMoments(mu, s, lam, np.where(rng.random(n) < 0.5, 1.0, rng.random(n)))
    sites, _ = Method(likelihood, rule).solve(np.sign(rng.normal(size=n)), moments)
    view = moments.view(sites)
    assert (view.gap > 0).all()
    assert (view.variance > 0).all()


@pytest.mark.parametrize(
    ("method", "fold_noise"),
    [*((m, False) for m in METHODS if m != "logit pl"), ("threshold pl", True)],
)
def test_gradient_is_that_of_differences(data, method, fold_noise):
    here, (likelihood, rule) = data("crab", 40), METHODS[method]
    kernel = ConstantKernel(9.0) * RBF(2.0) + DotProduct(0.5) + WhiteKernel(0.1)
    Z = here.X[:8] + 0.05
    weight = np.random.default_rng(0).uniform(0.3, 3.0, 40)
    model = SparseModel(
        ArrayRows(here.X, here.y, weight, chunk=25), Z, rule, tol=1e-10, fold_noise=fold_noise
    )
    plain = Hyperparameters(kernel, likelihood)
    at = WithPoints.of(plain, Z, np.stack([here.X.min(0), here.X.max(0)], axis=1))
    fitted = model.infer(at)
    gradient, n = fitted.value_and_gradient()[1], len(plain.theta)
    assert len(gradient) == len(at.theta) == len(at.bounds) == len(at.names) == n + Z.size
    chosen = [*range(n), n + 3, n + 20]
    for k in chosen:
        step = np.zeros_like(at.theta)
        step[k] = 1e-4
        up, down = (model.infer(at.at(at.theta + sign * step), fitted.state) for sign in (1, -1))
        slope = (up.log_evidence - down.log_evidence) / 2e-4
        assert gradient[k] == pytest.approx(slope, rel=1e-5, abs=2e-5), at.names[k]
    np.testing.assert_allclose(model.infer(plain).value_and_gradient()[1], gradient[:n], atol=1e-7)


@pytest.mark.parametrize("method", SMALL)
def test_integer_weights_are_repeated_rows(data, method):
    here, (likelihood, rule) = data("crab", 60), METHODS[method]
    w = np.random.default_rng(0).integers(1, 4, 60)
    weighted = ArrayRows(here.X, here.y, w.astype(float), chunk=25)
    repeated = ArrayRows(here.X.repeat(w, axis=0), here.y.repeat(w), chunk=25)
    one, other = (
        SparseModel(rows, here.X[:10], rule, tol=1e-10).infer(Hyperparameters(KERNEL, likelihood))
        for rows in (weighted, repeated)
    )
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-8)
    np.testing.assert_allclose(one.state.B, other.state.B, rtol=1e-8)
    np.testing.assert_allclose(one.value_and_gradient()[1], other.value_and_gradient()[1], atol=1e-7)


def test_fractions_are_as_in_dense_inference(data):
    here, w = data("crab", 60), np.random.default_rng(0).uniform(0.2, 1.0, 60)
    model = SparseModel(ArrayRows(here.X, here.y, w), here.X, PL(), tol=1e-9, jitter=1e-12)
    found = model.infer(Hyperparameters(KERNEL, Probit()))
    dense = postlin.infer(KERNEL(here.X), here.y, weights=w, tol=1e-10)
    assert found.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)


def test_a_loose_value_is_exact_to_second_order(data):
    here = data("thyroid")
    model = SparseModel(ArrayRows(here.X, here.y), here.X[::10], PL(), tol=1e-9)
    at = Hyperparameters(KERNEL, Probit())
    exact = model.infer(at).log_evidence
    loose = model.infer(at, tol=1e-2)
    value, _ = loose.value_and_gradient(1e-6)
    assert 1e-6 < loose.residual < 1e-2
    assert abs(value - exact) < loose.residual**2
    assert loose.n_iter < model.infer(at).n_iter


def test_chunks_do_not_matter_and_shares_travel(data):
    here = data("crab", 60)
    basis = Basis.of(KERNEL, here.X[:10])
    share = Sweep(SparsePosterior.of(basis, State.prior(basis)), Method(Probit(), PL()))
    one = ArrayRows(here.X, here.y).total(share)
    other = ArrayRows(here.X, here.y, chunk=7).total(pickle.loads(pickle.dumps(share)))
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-12)
    np.testing.assert_allclose(one.pull, other.pull, atol=1e-12)


def test_an_approximation_is_small_and_travels(data):
    here = data("thyroid")
    model = SparseModel(ArrayRows(here.X, here.y), here.X[:10], PL())
    found = model.infer(Hyperparameters(KERNEL, Probit()))
    stored = pickle.dumps(found)
    assert len(stored) < 20_000
    here_and_there = [each.posterior.predict(here.X).mean for each in (found, pickle.loads(stored))]
    np.testing.assert_array_equal(*here_and_there)


def test_warm_starts_lead_to_the_same_place_sooner(data):
    here = data("glass")
    model = SparseModel(ArrayRows(here.X, here.y), here.X[::8], PL(), tol=1e-8)
    at = Hyperparameters(KERNEL, Probit())
    before = model.infer(at)
    moved = at.at(at.theta + 0.1)
    cold, warm = (model.infer(moved, start) for start in (None, before.start))
    assert warm.n_iter < cold.n_iter
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-6)
    assert "passes" in warm.effort


def test_what_has_not_converged_says_so_and_is_finite(data):
    here, numbers = data("ionosphere"), []
    model = SparseModel(
        ArrayRows(here.X, here.y),
        here.X[::10],
        PL(),
        max_iter=5,
        after_pass=lambda number, residual, state: numbers.append(number),
    )
    kernel = ConstantKernel(1e4) * RBF(2.0) + WhiteKernel(0.1)
    fitted = model.infer(Hyperparameters(kernel, NoisyThreshold()))
    found = fitted
    assert not found.converged
    assert found.is_unusable
    assert np.isfinite(found.log_evidence)
    assert np.isfinite(fitted.value_and_gradient()[1]).all()
    assert np.isfinite(found.posterior.predict(here.X)).all()
    assert numbers == [1, 2, 3, 4, 5]
    (warning,) = model.warnings(found.record)
    assert isinstance(warning, postlin.ConvergenceWarning)
    assert "raise max_iter_predict, the most passes" in str(warning)


def test_what_cannot_be_used_together_is_refused(data):
    here = data("crab", 60)
    rows, Z = ArrayRows(here.X, here.y), np.vstack([here.X[:20], here.X[:20]])
    with pytest.raises(ValueError, match="points 0 and 20 nearly coincide"):
        SparseModel(rows, Z, PL(), jitter=0.0).check(RBF(1.0))
    SparseModel(rows, Z, PL()).check(RBF(1.0))  # the jitter is for this
    with pytest.raises(ValueError, match="negative_sites='keep'"):
        SparseModel(rows, Z, EP("clamp")).check(RBF(1.0))
    with pytest.raises(ValueError, match="cannot be learned with the kernel"):
        SparseModel(rows, Z, PL()).check(Matern(nu=0.7) + WhiteKernel(), learn_points=True)
    with pytest.raises(NotPositiveDefiniteError, match="not finite"):
        Basis.of(ConstantKernel(1e308) * ConstantKernel(1e308) * RBF(1.0), Z)
    model = SparseModel(rows, here.X[:5], PL(), fold_noise=True)
    assert model.latent_kernel(KERNEL) == KERNEL.k1


def _few_steps(objective, theta, bounds):
    found = minimize(objective, theta, jac=True, bounds=bounds, options={"maxfun": 12})
    return found.x, found.fun


class TestLearning:
    def test_search_finds_what_the_dense_search_finds(self, data):
        here = data("crab", 80)
        model = SparseModel(ArrayRows(here.X, here.y), here.X, PL(), tol=1e-8, jitter=1e-12)
        at = Hyperparameters(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1), Probit())
        found = train([model], at, "bfgs", rng=np.random.RandomState(0), starts=[None])
        dense = postlin.GPClassifier(kernel=at.kernel).fit(here.X, here.y)
        value = found.best[0].log_evidence
        assert value == pytest.approx(dense.log_marginal_likelihood_value_, abs=1e-2)

    def test_learned_points_explain_more(self, data):
        here = data("thyroid")
        model = SparseModel(ArrayRows(here.X, here.y), here.X[:6], PL())
        at = Hyperparameters(KERNEL, Probit())
        box = np.stack([here.X.min(0), here.X.max(0)], axis=1)
        options = {"rng": np.random.RandomState(0), "starts": [None]}
        fixed = train([model], at, _few_steps, **options)
        learned = train([model], WithPoints.of(at, model.Z, box), _few_steps, **options)
        one, other = (t.best[0].log_evidence for t in (fixed, learned))
        assert other > one + 1
        points = learned.at.points
        assert not np.allclose(points, model.Z)
        assert ((points >= box[:, 0]) & (points <= box[:, 1])).all()

    def test_points_stay_through_restarts(self, data):
        at = WithPoints.of(
            Hyperparameters(KERNEL, Probit()), np.arange(6.0).reshape(3, 2), np.ones((2, 2))
        )
        np.testing.assert_array_equal(at.drawn(np.random.RandomState(0))[3:], np.arange(6.0))
        np.testing.assert_array_equal(at.starts[0], at.theta)
        assert at.names[-1] == "inducing[2, 1]"
        assert at.at_bounds() == []
        at.check_bounds(finite=True)

    def test_a_sample_of_the_rows_comes_first(self, data, caplog):
        here = data("breast_cancer")
        model = SparseModel(ArrayRows(here.X, here.y), here.X[::30], PL())
        at = Hyperparameters(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1), Probit())
        options = {"rng": np.random.RandomState(0), "starts": [None]}
        plain = train_sparse([model], at, "bfgs", **options)
        with caplog.at_level(logging.INFO, logger="postlin"):
            found = train_sparse([model], at, "bfgs", coarse_rows=300, **options)
        assert "searching on 300 of 699 rows first" in caplog.text
        assert "continuing on all rows" in caplog.text
        assert len(found.path) < len(plain.path)
        one, other = (t.best[0].log_evidence for t in (plain, found))
        assert other == pytest.approx(one, abs=0.05)

    @pytest.mark.parametrize("when", ["coarse", "fine"])
    def test_an_interrupt_keeps_the_best(self, data, when):
        here = data("breast_cancer")
        calls = []

        class Interrupted(ArrayRows):
            def total(self, share):
                calls.append(self.n)
                if len([n for n in calls if (n == 699) == (when == "fine")]) == 45:
                    raise KeyboardInterrupt
                return super().total(share)

            def sample(self, n, seed):
                few = super().sample(n, seed)
                return Interrupted(few.X, few.y)

        model = SparseModel(Interrupted(here.X, here.y), here.X[::30], PL())
        at = Hyperparameters(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1), Probit())
        found = train_sparse(
            [model],
            at,
            "bfgs",
            coarse_rows=300,
            rng=np.random.RandomState(0),
            starts=[None],
            keep_on_interrupt=True,
        )
        assert found.interrupted
        assert found.best[0].converged


KERNELS = {
    "rbf": RBF(1.3),
    "rbf ard": RBF([0.5, 1.0, 2.0]),
    "rbf fixed": RBF(1.3, "fixed"),
    **{f"matern {nu}": Matern([0.5, 1.0, 2.0], nu=nu) for nu in (0.5, 1.5, 2.5)},
    "rational quadratic": RationalQuadratic(0.8, 1.7),
    "rational quadratic, alpha fixed": RationalQuadratic(0.8, 1.7, alpha_bounds="fixed"),
    "periodic": ExpSineSquared(0.8, 2.5),
    "dot product": DotProduct(0.7),
    "dot product fixed": DotProduct(0.7, "fixed"),
    "constant": ConstantKernel(2.0) + WhiteKernel(0.3) * ConstantKernel(2.0, "fixed"),
    "power": Exponentiation(DotProduct(0.7) + 2.0 * Matern(1.1, nu=1.5), 2),
    "all": WhiteKernel(0.1) + ConstantKernel(2.0) * RBF(1.0) * RationalQuadratic() + DotProduct(),
    "bessel": ConstantKernel(2.0) * Matern(1.3, nu=0.8),
    "pairwise": PairwiseKernel(0.5, metric="laplacian"),
}


@pytest.fixture(scope="module")
def rectangle():
    rng = np.random.default_rng(0)
    return rng.standard_normal((9, 3)), rng.standard_normal((5, 3)), rng.standard_normal((9, 5))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
class TestRectangles:
    def test_values_are_the_kernels(self, kernel, rectangle):
        X, Z, _ = rectangle
        np.testing.assert_allclose(full_cross(kernel, X, Z).K, kernel(X, Z), atol=1e-14)
        np.testing.assert_allclose(diagonal(kernel, X).k, kernel.diag(X), rtol=1e-14)

    def test_slopes_by_parameters(self, kernel, rectangle):
        X, Z, bar = rectangle

        def values(theta):
            other = kernel.clone_with_theta(theta)
            return np.array([np.sum(bar * other(X, Z)), bar[:, 0] @ other.diag(X)])

        found = [cross(kernel, X, Z).by_theta(bar), diagonal(kernel, X).by_theta(bar[:, 0])]
        for k in range(kernel.n_dims):
            step = np.eye(kernel.n_dims)[k] * 1e-5
            slope = (values(kernel.theta + step) - values(kernel.theta - step)) / 2e-5
            np.testing.assert_allclose([f[k] for f in found], slope, atol=1e-8)
        assert len(found[0]) == len(found[1]) == kernel.n_dims

    def test_slopes_by_points(self, kernel, rectangle):
        X, Z, bar = rectangle
        if not moves_points(kernel):
            with pytest.raises(ValueError, match="by points are not known"):
                cross(kernel, X, Z).by_right(bar)
            return
        found = np.zeros_like(Z) + cross(kernel, X, Z).by_right(bar)
        for index in np.ndindex(Z.shape):
            step = np.zeros_like(Z)
            step[index] = 1e-6
            slope = np.sum(bar * (kernel(X, Z + step) - kernel(X, Z - step))) / 2e-6
            assert found[index] == pytest.approx(slope, abs=1e-7)

    def test_a_point_may_be_a_row(self, kernel, rectangle):
        X, _, bar = rectangle
        found = cross(kernel, X, X[:5])
        assert np.isfinite(found.by_theta(bar)).all()
        if moves_points(kernel):
            assert np.isfinite(found.by_right(bar)).all()


@given(
    mu=st.floats(-100, 100),
    s=st.floats(1e-6, 1e3),
    lam=st.floats(0, 1e3),
    q=st.floats(0.01, 1.0),
    y=st.sampled_from([-1.0, 1.0]),
    method=st.sampled_from(["probit pl", "threshold pl", "threshold cl", "logit pl", "probit laplace"]),
)
@example(mu=-59.0, s=1.0, lam=720.0, q=0.703125, y=1.0, method="threshold pl")
@settings(max_examples=200, deadline=None)
def test_every_row_is_solved(mu, s, lam, q, y, method):
    likelihood, rule = METHODS[method]
    labels, moments = np.array([y]), RowMoments(*(np.array([value]) for value in (mu, s, lam, q)))
    sites, unsolved = Method(likelihood, rule).solve(labels, moments)
    assert unsolved == 0
    view = moments.view(sites)
    wanted = rule.propose(likelihood, labels, view).sites
    moved = wanted.tau - view.tau
    size = max(
        abs(moved[0]) * view.variance[0],
        abs(wanted.nu - view.nu - view.mean * moved)[0] * np.sqrt(view.variance[0]),
    )
    assert size < 1e-6


def test_rows_that_ep_cannot_solve_are_counted_and_finite():
    """A marginal that no cavity with this label leads to: not yet a fixed point."""
    moments = RowMoments(np.array([0.0, 1.0]), np.array([3.0, 0.3]), np.array([0.0, 0.2]), np.ones(2))
    sites, unsolved = Method(Probit(), EP()).solve(np.array([-1.0, 1.0]), moments)
    assert unsolved == 1
    assert np.isfinite(sites).all()
    assert np.isfinite(moments.view(sites).cavity).all()


@given(st.integers(1, 150), st.integers(1, 40), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_triangles_are_solved_for_many_rows(m, n, seed):
    rng = np.random.default_rng(seed)
    L = np.tril(rng.standard_normal((m, m)), -1) / m + np.diag(rng.uniform(1, 2, m))  # as of Cholesky
    rows = rng.standard_normal((n, m))
    np.testing.assert_allclose(Triangle(L).solve(rows.copy()) @ L.T, rows, atol=1e-10)
    np.testing.assert_allclose(Triangle(L).solve_transposed(rows.copy()) @ L, rows, atol=1e-10)
    assert Triangle(L).log_determinant == pytest.approx(np.linalg.slogdet(L)[1])


def test_a_kernel_that_is_no_covariance_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 6))
    kernel = 2.0 * ExpSineSquared(1.0, 1.5)
    values = np.linalg.eigvalsh(kernel(X))
    assert values[0] < -0.01 * values[-1]
    with pytest.raises(
        postlin.exceptions.NotPositiveDefiniteError,
        match="is no covariance: its inducing points explain more",
    ):
        postlin.GPClassifier(kernel, inducing=5, optimizer=None, random_state=0).fit(X, X[:, 0] > 0)
    postlin.GPClassifier(kernel, inducing=5, optimizer=None, random_state=0).fit(X[:, :1], X[:, 0] > 0)
