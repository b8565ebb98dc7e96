"""Kernels with a term of their own: scikit-learn's numbers without scikit-learn's tensor."""

import numpy as np
import pytest
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

from postlin.kernels import bind, matrices_held, terms
from postlin.linalg import triangles

ARD = [0.5, 1.0, 2.0]
OWN = {
    **{f"matern {nu}": Matern(1.3, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf)},
    **{f"matern ard {nu}": Matern(ARD, nu=nu) for nu in (0.5, 1.5, 2.5, np.inf)},
    "matern fixed": Matern(1.3, "fixed", nu=1.5),
    "matern ard fixed": Matern(ARD, "fixed", nu=2.5),
    "rational quadratic": RationalQuadratic(0.8, 1.7),
    "rational quadratic, alpha fixed": RationalQuadratic(0.8, 1.7, alpha_bounds="fixed"),
    "rational quadratic, length fixed": RationalQuadratic(0.8, 1.7, length_scale_bounds="fixed"),
    "periodic": ExpSineSquared(0.8, 2.5),
    "periodic, period fixed": ExpSineSquared(0.8, 2.5, periodicity_bounds="fixed"),
    "periodic, length fixed": ExpSineSquared(0.8, 2.5, length_scale_bounds="fixed"),
    "dot product": DotProduct(0.7),
    "dot product fixed": DotProduct(0.7, "fixed"),
    "power": Exponentiation(RBF(1.2), 3),
    "power of a sum": Exponentiation(DotProduct(0.7) + 2.0 * Matern(1.1, nu=1.5), 2),
    "power of a constant": Exponentiation(ConstantKernel(3.0), 2) * RBF(1.0),
    "all together": ConstantKernel(2.0) * Matern(ARD, nu=1.5) * RationalQuadratic(1.0, 2.0)
    + DotProduct(1.0)
    + WhiteKernel(0.1),
}


@pytest.fixture(params=["one panel", "many panels"], autouse=True)
def panel_size(request, monkeypatch):
    if request.param == "many panels":
        monkeypatch.setattr(triangles, "_PANEL", 1)
        monkeypatch.setattr(triangles, "_NARROW", 7)


@pytest.fixture(name="X")
def rows():
    X = np.random.default_rng(0).normal(size=(23, 3))
    X[5] = X[3]  # a distance of zero off the diagonal
    return X


@pytest.mark.parametrize("name", OWN)
def test_numbers_are_scikit_learns(name, X, monkeypatch):
    kernel = OWN[name]
    K, gradient = kernel(X, eval_gradient=True)
    term = bind(kernel, X)
    # from here on scikit-learn's own evaluation is not to be had
    monkeypatch.setattr(type(kernel), "__call__", None)
    gram = term.gram(kernel)
    np.testing.assert_allclose(gram.K, K, rtol=1e-12, atol=1e-14)
    K_bar = np.random.default_rng(1).normal(size=K.shape)
    K_bar += K_bar.T
    expected = np.einsum("ij,ijp->p", K_bar, gradient)
    np.testing.assert_allclose(gram.pull_back(K_bar), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kernel", [Matern(1.0, nu=0.7), PairwiseKernel(1.0, metric="laplacian")])
def test_others_fall_back(kernel, X):
    assert type(bind(kernel, X)) is terms._Fallback


def test_distances_are_shared(X):
    kernel = RBF(1.0) * Matern(2.0, nu=1.5) + RationalQuadratic()
    term = bind(kernel, X)
    K = term.gram(kernel).K
    np.testing.assert_allclose(K, kernel(X), rtol=1e-12)
    assert term.points is term._terms[0]._terms[0].points
    assert matrices_held(kernel) == 1


def test_memory_of_kernels_is_foreseen():
    assert matrices_held(ConstantKernel() * RBF([1.0, 2.0]) + WhiteKernel()) == 0
    assert matrices_held(ConstantKernel() * RBF(1.0) + WhiteKernel()) == 1
    assert matrices_held(Matern(1.0, nu=0.7) + RBF(1.0)) == 1 + 3
