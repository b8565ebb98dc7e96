"""One triangle, one array, panel by panel: against plain dense algebra."""

import mpmath
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.kernels import bind, terms
from postlin.linalg import factor as correlation
from postlin.linalg import triangles
from postlin.linalg.factor import Correlation, Factor
from postlin.linalg.triangles import gains_before, lower_panels, mirror, panels
from postlin.rules.sites import Sites

N = 75


@pytest.fixture(params=["one panel", "many panels"], autouse=True)
def panel_size(request, monkeypatch):
    if request.param == "many panels":
        monkeypatch.setattr(triangles, "_PANEL", 1)  # sixteen columns each
        monkeypatch.setattr(correlation, "_WIDE", 20)
        monkeypatch.setattr(correlation, "FEW_ROWS", 0)
        monkeypatch.setattr(terms, "FEW_ROWS", 0)
        for name, rows in {"_WHOLE": 40, "_PART": 20, "_INVERTED": 10, "_SOLVED": 7}.items():
            monkeypatch.setattr(triangles, name, rows)


@pytest.fixture(name="K")
def covariance():
    X = np.random.default_rng(0).normal(size=(N, 2))
    return np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1)) + 0.1 * np.eye(N)


@pytest.fixture
def root():
    return np.sqrt(np.random.default_rng(1).uniform(0.1, 5.0, N))


def test_panels_cover_every_column_once():
    assert np.concatenate([np.arange(N)[p] for p in panels(N)]).tolist() == list(range(N))
    covered = np.zeros((N, N), int)
    for rows, columns in lower_panels(N):
        covered[rows, columns] += 1
    assert covered[np.tril_indices(N)].tolist() == [1] * (N * (N + 1) // 2)


def test_mirror_ignores_what_stands_above():
    A = np.asfortranarray(np.random.default_rng(2).normal(size=(N, N)))
    expected = np.tril(A) + np.tril(A, -1).T
    A[np.triu_indices(N, 1)] = np.nan
    np.testing.assert_array_equal(mirror(A), expected)


def test_factor_solves_before_and_after_its_inversion(K, root):
    B = np.eye(N) + root[:, None] * K * root
    x, columns = np.arange(N, dtype=float), np.random.default_rng(3).normal(size=(N, 3))
    factor = Factor(K, root)
    assert factor.half_log_det == pytest.approx(0.5 * np.linalg.slogdet(B)[1], rel=1e-12)

    def check_solves():
        np.testing.assert_allclose(factor.solve(x), np.linalg.solve(B, x), rtol=1e-10)
        np.testing.assert_allclose(factor.solve(columns), np.linalg.solve(B, columns), rtol=1e-10)
        white = factor.whiten(columns)
        np.testing.assert_allclose(white.T @ white, columns.T @ np.linalg.solve(B, columns), rtol=1e-10)

    check_solves()
    variance, gap = factor.marginals()
    gain = variance * root**2
    np.testing.assert_allclose(gap, np.linalg.inv(B).diagonal(), rtol=1e-10)
    np.testing.assert_allclose(gain, 1.0 - gap, rtol=1e-10)
    check_solves()
    np.testing.assert_allclose(np.tril(factor.into_inverse()), np.tril(np.linalg.inv(B)), atol=1e-12)


def test_diagonals_keep_their_digits(K, root):
    """From sites that decide everything to sites that say nothing, against 60 digits."""
    root = root * 10.0 ** np.random.default_rng(4).uniform(-20.0, 3.0, N)
    variance, gap = Factor(K, root).marginals()
    gain = variance * root**2
    with mpmath.workdps(60):
        B = mpmath.eye(N) + mpmath.matrix(root * np.eye(N)) * mpmath.matrix(K) * mpmath.matrix(
            root * np.eye(N)
        )
        inverse = B**-1
        exact = [inverse[i, i] for i in range(N)]
        np.testing.assert_allclose(gap, [float(e) for e in exact], rtol=1e-11)
        np.testing.assert_allclose(gain, [float(1 - e) for e in exact], rtol=1e-11)


def test_factor_of_what_is_no_covariance(root):
    with pytest.raises(NotPositiveDefiniteError):
        Factor(-100 * np.eye(N), root)


def test_correlation_products(K):
    C = K / K[0, 0]
    unit = np.geomspace(1e-3, 1e70, N)  # as of sites that are almost nothing
    correlation = Correlation(np.asfortranarray(-np.tril(C) / unit[:, None] / unit), unit)
    x = np.arange(N, dtype=float)
    np.testing.assert_allclose(correlation.times(x), C @ x, rtol=1e-12)
    np.testing.assert_allclose(correlation.squared_times(x), C**2 @ x, rtol=1e-12)
    off = C - np.eye(N)
    np.testing.assert_allclose(correlation.off_diagonal_times(x), off @ x, rtol=1e-12)
    np.testing.assert_allclose(correlation.dense(), C, rtol=1e-15)


@pytest.mark.parametrize("signs", ["mixed", "positive", "none"])
def test_weighted_square(K, signs):
    C = K / K[0, 0]
    rng = np.random.default_rng(4)
    outer, inner = rng.normal(size=N), rng.normal(size=N)
    inner = {"mixed": inner, "positive": np.abs(inner), "none": np.zeros(N)}[signs]
    off = C - np.eye(N)
    expected = outer[:, None] * (off @ np.diag(inner) @ off) * outer
    unit = np.geomspace(1e-3, 1e3, N)
    correlation = Correlation(np.asfortranarray(-np.tril(C) / unit[:, None] / unit), unit)
    found = correlation.weighted_square(outer, inner)
    np.testing.assert_allclose(np.tril(found), np.tril(expected), atol=1e-12)


@pytest.mark.parametrize("length_scale", [1.3, [0.7, 2.0]])
def test_kernels_by_panels(length_scale):
    X = np.random.default_rng(5).normal(size=(N, 2))
    kernel = ConstantKernel(3.0) * RBF(length_scale) + WhiteKernel(0.2)
    gram = bind(kernel, X).gram(kernel)
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(gram.K, K, rtol=1e-12)
    np.testing.assert_array_equal(gram.K, gram.K.T)
    K_bar = np.random.default_rng(6).normal(size=(N, N))
    K_bar += K_bar.T
    expected = np.einsum("ij,ijp->p", K_bar, gradient)
    np.testing.assert_allclose(gram.pull_back(K_bar), expected, rtol=1e-10)


@pytest.mark.parametrize("negative", [0, 3])
def test_a_released_posterior_still_knows_everything(K, negative):
    rng = np.random.default_rng(7)
    tau = rng.uniform(0.0, 2.0, N)
    tau[:negative] = -0.01
    sites = Sites(tau, rng.normal(size=N))
    kept, released = (GaussianPosterior(K, np.zeros(N), sites) for _ in range(2))
    cross, prior_variance = K[:, :5] * 0.9, K.diagonal()[:5]
    bars = rng.normal(size=(2, N))
    expected = [kept.variance, *kept.predict(cross, prior_variance)]
    expected += [kept.covariance, kept.pull_back(*bars), *kept.predict(cross, prior_variance)]
    found = []
    for what in range(4):
        released.release()
        found += [
            lambda: [released.variance, *released.predict(cross, prior_variance)],
            lambda: [released.covariance],
            lambda: [released.pull_back(*bars)],
            lambda: [*released.predict(cross, prior_variance)],
        ][what]()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_strong_sites_need_no_difference():
    """Of large numbers rounding can leave −1, and 1 + t = 0 would divide."""
    added, before = np.array([1e15, 0.5]), np.array([1e15 + 1.0, 0.125])
    found = gains_before(added, before, np.array([1e-3, 0.9]))
    np.testing.assert_allclose(found, [1.0 - 1e-6, 0.375 / 1.375], rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 10, 41, 127, 128, 700])
def test_halves_of_triangles_are_factorised_and_inverted_in_place(n):
    rng = np.random.default_rng(n)
    L = np.tril(rng.normal(size=(n, n))) / np.sqrt(n) + np.eye(n) * 2
    above = np.triu(rng.normal(size=(n, n)), 1)
    A = np.asfortranarray(np.tril(L @ L.T) + above)
    assert triangles.factorise(A) == 0
    np.testing.assert_allclose(np.tril(A), L * np.sign(np.diag(L)), rtol=0, atol=1e-12)
    triangles.invert(A)
    np.testing.assert_allclose(np.tril(A) @ L, np.eye(n) * np.sign(np.diag(L)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(np.triu(A, 1), above)


@pytest.mark.parametrize("first", [1, 30, 64, 75])
def test_the_first_minor_without_a_factor_is_named(K, first):
    A = np.asfortranarray(K)
    A[first - 1, first - 1] = -1e-3
    assert triangles.factorise(A) == first
