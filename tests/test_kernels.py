"""Gram matrices and pull-backs against scikit-learn's own, and against differences."""

import numpy as np
import pytest
from reference import central_difference
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Kernel,
    Matern,
    RationalQuadratic,
    StationaryKernelMixin,
    WhiteKernel,
)

from postlin.kernels import (
    alike,
    bind,
    cross,
    full_gram,
    kernels_of,
    length_scales,
    moved,
    slots,
    split_white,
)
from postlin.kernels.tree import is_covariance

ARD = [0.5, 1.0, 2.0]
KERNELS = {
    "constant": ConstantKernel(2.0),
    "white": WhiteKernel(0.3),
    "rbf": RBF(1.5),
    "rbf ard": RBF(ARD),
    "paper": 10.0 * RBF(1.0) + WhiteKernel(0.1, "fixed"),
    "paper ard": 10.0 * RBF(ARD) + WhiteKernel(0.1),
    "all fixed": ConstantKernel(2.0, "fixed") * RBF(1.0, "fixed") + WhiteKernel(0.1, "fixed"),
    "fixed ard": ConstantKernel(2.0) * RBF(ARD, "fixed"),
    "nested": (2.0 * RBF(1.0) + 3.0) * (RBF(2.0) + WhiteKernel(0.2)),
    "constant and white": ConstantKernel(2.0) + WhiteKernel(0.1),
    "two whites apart": WhiteKernel(0.2) + RBF(ARD) + WhiteKernel(0.3) + DotProduct(1.0),
    "sum of constants": ConstantKernel(2.0) + ConstantKernel(1.0),
    "matern": 2.0 * Matern(1.5, nu=1.5) + WhiteKernel(0.1),
    "rational quadratic": RationalQuadratic(1.0, 2.0) * RBF(3.0),
    "dot product": DotProduct(1.0) + 0.5 * RBF(1.0),
    "power": Exponentiation(RBF(1.2), 2),
    "periodic": ExpSineSquared(1.0, 3.0) * RBF(2.0),
}


X = np.random.default_rng(0).normal(size=(17, 3))


class SubclassOfRBF(RBF):
    """Which may be anything."""


@pytest.mark.parametrize("name", KERNELS)
def test_gram_and_pull_back_are_scikit_learns(name):
    kernel = KERNELS[name]
    gram = full_gram(bind(kernel, X).gram(kernel), len(X))
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(gram.K, K, rtol=1e-12, atol=1e-14)
    K_bar = np.random.default_rng(1).normal(size=(17, 17))
    K_bar = K_bar + K_bar.T
    expected = np.einsum("ij,ijp->p", K_bar, gradient)
    np.testing.assert_allclose(gram.pull_back(K_bar), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", [n for n, k in KERNELS.items() if k.n_dims])
def test_pull_back_matches_differences(name):
    kernel = KERNELS[name]
    term = bind(kernel, X)
    K_bar = np.random.default_rng(2).normal(size=(17, 17))
    K_bar = K_bar + K_bar.T
    numeric = central_difference(
        lambda t: np.sum(K_bar * full_gram(term.gram(kernel.clone_with_theta(t)), 17).K),
        kernel.theta,
        1e-6,
    )
    gram = term.gram(kernel)
    np.testing.assert_allclose(gram.pull_back(K_bar), numeric, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_a_moved_kernel_is_scikit_learns(name):
    kernel = KERNELS[name]
    before, theta = repr(kernel), kernel.theta + np.linspace(-0.5, 1.0, kernel.n_dims)
    found = moved(kernel, theta, slots(kernel))
    expected = kernel.clone_with_theta(theta)
    assert found == expected
    np.testing.assert_array_equal(found.theta, expected.theta)
    assert repr(found.get_params()) == repr(expected.get_params())
    assert repr(kernel) == before


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_known_to_be_a_covariance_is_one(name):
    """In many dimensions, where not every function of the distance is."""
    X = np.random.default_rng(3).uniform(-2, 2, size=(120, 3))
    lowest = np.linalg.eigvalsh(KERNELS[name](X))[0]
    assert lowest > -1e-9 * KERNELS[name](X).max() or not is_covariance(KERNELS[name])


@pytest.mark.parametrize(
    "kernel",
    [
        ConstantKernel(-1.0) * RBF(1.0),
        RBF(1.0) + WhiteKernel(-0.1),
        ExpSineSquared(1.0, 3.0),
        Exponentiation(RBF(1.0), 0.5),
        SubclassOfRBF(1.0) + WhiteKernel(0.1),
    ],
)
def test_what_may_be_none_is_looked_at(kernel):
    assert not is_covariance(kernel)
    assert is_covariance(KERNELS["paper ard"])


def test_a_kernel_of_ones_own_is_moved_its_own_way():
    class Doubled(RBF):
        def clone_with_theta(self, theta):
            return super().clone_with_theta(theta + np.log(2.0))

    kernel = 2.0 * Doubled(1.0)
    assert slots(kernel) is None
    alone = Doubled(1.0)
    assert moved(alone, np.log([3.0]), slots(alone)).length_scale == pytest.approx(6.0)


def test_pull_back_survives_a_cluster_far_away():
    far = X.copy()
    far[8:, 1] += 1e6
    kernel = 4.0 * RBF([1.0, 2.0, 0.7])
    _, gradient = kernel(far, eval_gradient=True)
    K_bar = np.random.default_rng(1).normal(size=(17, 17))
    K_bar = K_bar + K_bar.T
    pulled = bind(kernel, far).gram(kernel).pull_back(K_bar)
    np.testing.assert_allclose(pulled, np.einsum("ij,ijp->p", K_bar, gradient), rtol=1e-8)


def test_rectangles_survive_a_cluster_far_away():
    far = X.copy()
    far[8:, 1] += 1e6
    kernel = 4.0 * RBF([1.0, 2.0, 0.7])
    _, gradient = kernel(far, eval_gradient=True)
    K_bar = np.random.default_rng(1).normal(size=(17, 17))
    found = cross(kernel, far, far).by_theta(K_bar)
    np.testing.assert_allclose(found, np.einsum("ij,ijp->p", K_bar, gradient), rtol=1e-8)


def test_kernels_with_the_same_structure_are_alike():
    kernel = 2.0 * RBF(ARD) + WhiteKernel(0.1)
    assert alike(kernel, 3.0 * RBF([1.0, 1.0, 1.0]) + WhiteKernel(0.2))
    assert not alike(kernel, 2.0 * Matern(ARD) + WhiteKernel(0.1))
    assert not alike(kernel, 2.0 * RBF(1.0) + WhiteKernel(0.1))
    np.testing.assert_array_equal(length_scales(kernel), [ARD])
    assert kernels_of(kernel) == [kernel]
    assert kernels_of(CompoundKernel([kernel, RBF(1.0)])) == [kernel, RBF(1.0)]


def test_white_noise_is_by_index_and_not_by_distance():
    X = np.zeros((4, 2))
    kernel = 1.0 * RBF(1.0) + WhiteKernel(0.1)
    np.testing.assert_allclose(bind(kernel, X).gram(kernel).K, np.ones((4, 4)) + 0.1 * np.eye(4))


def test_a_matrix_that_belongs_to_the_kernel_is_left_alone():
    kernel = Given(RBF(1.0)(X)) + WhiteKernel(0.1)
    np.testing.assert_allclose(bind(kernel, X).gram(kernel).K, kernel(X), rtol=1e-14)
    np.testing.assert_array_equal(kernel.k1.matrix, RBF(1.0)(X))


class Given(StationaryKernelMixin, Kernel):
    """A covariance matrix that is known beforehand, given away as it is."""

    def __init__(self, matrix):
        self.matrix = matrix

    def __call__(self, X, Y=None, eval_gradient=False):
        return (self.matrix, np.empty((*self.matrix.shape, 0))) if eval_gradient else self.matrix

    def diag(self, X):
        return self.matrix.diagonal()


def test_compound_kernels_are_not_covariances():
    kernel = CompoundKernel([RBF(1.0), RBF(2.0)])
    assert bind(kernel, np.zeros((3, 1))).gram(kernel).K.ndim == 3  # refused further up


def test_split_of_white_noise():
    split = split_white(2.0 * RBF(1.0) + WhiteKernel(0.2) + WhiteKernel(0.3, "fixed"))
    assert split.noise == pytest.approx(0.5)
    assert split.smooth == 2.0 * RBF(1.0)
    assert split.levels == (None, None, 0.2)
    assert split.join([1.0, 2.0], 10.0) == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("kernel", [RBF(1.0), WhiteKernel(1.0), RBF(1.0) * WhiteKernel(1.0)])
def test_split_needs_a_sum_with_white_noise(kernel):
    with pytest.raises(ValueError, match="fold_noise=True needs a kernel that is a sum"):
        split_white(kernel)
