"""scikit-learn kernels as gram matrices with a pull-back.

A gradient of the evidence arrives as K̄ = ∂ log Z/∂K; ``pull_back`` contracts it to the kernel's
free log-parameters, in scikit-learn's order, without the (n, n, p) tensor that scikit-learn's own
gradients are. Kernels with no term of their own here fall back to that tensor.

A ``Term`` keeps what depends on the data alone, so that distances are computed once a fit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Product, Sum, WhiteKernel

from postlin._typing import Array

#: Features that reach farther than this, in length scales, cancel in the product form.
_FAR = 1e3


class Gram(NamedTuple):
    """A covariance matrix (or a scalar that stands for a constant one) and its pull-back."""

    K: Array
    pull_back: Callable[[Array], list[float]]


class Term(ABC):
    """A kernel bound to training data."""

    @abstractmethod
    def __init__(self, kernel: Kernel, X: Any) -> None: ...

    @abstractmethod
    def gram(self, kernel: Kernel) -> Gram:
        """K at the parameters of ``kernel``, which has the structure this term was made for."""


def bind(kernel: Kernel, X: Any) -> Term:
    """The term for a kernel on data."""
    kind = _TERMS.get(type(kernel), _Fallback)
    return kind(kernel, X)


class _Constant(Term):
    def __init__(self, kernel: ConstantKernel, X: Array) -> None:
        pass

    def gram(self, kernel: ConstantKernel) -> Gram:
        value = kernel.constant_value
        fixed = kernel.hyperparameter_constant_value.fixed
        return Gram(np.array(value), lambda K_bar: [] if fixed else [value * float(K_bar.sum())])


class _White(Term):
    """σ² δ[i − j]: by index, never by distance."""

    def __init__(self, kernel: WhiteKernel, X: Array) -> None:
        self._n = len(X)

    def gram(self, kernel: WhiteKernel) -> Gram:
        value = kernel.noise_level
        fixed = kernel.hyperparameter_noise_level.fixed
        return Gram(
            value * np.eye(self._n), lambda K_bar: [] if fixed else [value * float(K_bar.trace())]
        )


class _RBF(Term):
    def __init__(self, kernel: RBF, X: Array) -> None:
        self._X = np.asarray(X, float)
        self._squared = None if kernel.anisotropic else squareform(pdist(self._X, "sqeuclidean"))

    def gram(self, kernel: RBF) -> Gram:
        if self._squared is None:
            return self._anisotropic(kernel)
        scaled = self._squared / float(np.squeeze(kernel.length_scale)) ** 2
        K = np.exp(-0.5 * scaled)
        if kernel.hyperparameter_length_scale.fixed:
            return Gram(K, lambda K_bar: [])
        return Gram(K, lambda K_bar: [float(np.einsum("ij,ij,ij->", K_bar, K, scaled))])

    def _anisotropic(self, kernel: RBF) -> Gram:
        X = (self._X - self._X.mean(axis=0)) / kernel.length_scale
        K = np.exp(-0.5 * squareform(pdist(X, "sqeuclidean")))

        def pull_back(K_bar: Array) -> list[float]:
            # Σᵢⱼ Wᵢⱼ (xᵢ − xⱼ)² for all features at once: one product with W = K̄ ∘ K
            W = K_bar * K
            squares = 2.0 * (W.sum(axis=1) @ X**2 - np.einsum("ik,ik->k", X, W @ X))
            for k in np.flatnonzero(np.abs(X).max(axis=0) > _FAR):
                x = X[:, k]
                squares[k] = np.einsum("ij,ij->", W, (x[:, None] - x) ** 2)
            return [float(s) for s in squares]

        return Gram(K, (lambda K_bar: []) if kernel.hyperparameter_length_scale.fixed else pull_back)


class _Sum(Term):
    def __init__(self, kernel: Sum, X: Any) -> None:
        self._left, self._right = bind(kernel.k1, X), bind(kernel.k2, X)

    def gram(self, kernel: Sum) -> Gram:
        left, right = self._left.gram(kernel.k1), self._right.gram(kernel.k2)
        return Gram(left.K + right.K, lambda K_bar: left.pull_back(K_bar) + right.pull_back(K_bar))


class _Product(Term):
    def __init__(self, kernel: Product, X: Any) -> None:
        self._left, self._right = bind(kernel.k1, X), bind(kernel.k2, X)

    def gram(self, kernel: Product) -> Gram:
        left, right = self._left.gram(kernel.k1), self._right.gram(kernel.k2)
        return Gram(
            left.K * right.K,
            lambda K_bar: left.pull_back(K_bar * right.K) + right.pull_back(K_bar * left.K),
        )


class _Fallback(Term):
    """Any other kernel, by its own gradient."""

    def __init__(self, kernel: Kernel, X: Any) -> None:
        self._X = X

    def gram(self, kernel: Kernel) -> Gram:
        def pull_back(K_bar: Array) -> list[float]:
            _, gradient = kernel(self._X, eval_gradient=True)
            return [float(g) for g in np.einsum("ij,ijp->p", K_bar, gradient)]

        return Gram(kernel(self._X), pull_back)


_TERMS: dict[type[Kernel], type[Term]] = {
    ConstantKernel: _Constant,
    WhiteKernel: _White,
    RBF: _RBF,
    Sum: _Sum,
    Product: _Product,
}


def full_gram(gram: Gram, n: int) -> Gram:
    """``gram`` with its covariance as a full matrix, stored row by row."""
    K = np.full((n, n), float(gram.K)) if np.ndim(gram.K) == 0 else np.ascontiguousarray(gram.K)
    return gram._replace(K=K)


class WhiteSplit(NamedTuple):
    """A kernel without its white-noise terms, and their summed level."""

    smooth: Kernel
    noise: float
    is_white: tuple[bool, ...]  # for each free log-parameter of the whole kernel


def split_white(kernel: Kernel) -> WhiteSplit:
    """Take the white-noise terms out of a sum of kernels."""
    smooth: Kernel | None = None
    noise = 0.0
    is_white: list[bool] = []
    for term in _summands(kernel):
        white = type(term) is WhiteKernel
        is_white += [white] * term.n_dims
        if white:
            noise += term.noise_level
        else:
            smooth = term if smooth is None else smooth + term
    if smooth is None or noise == 0.0:
        raise ValueError(
            f"fold_noise=True needs a kernel that is a sum with a WhiteKernel and something else, got "
            f"{kernel}: add + WhiteKernel(...) or set fold_noise=False."
        )
    return WhiteSplit(smooth, noise, tuple(is_white))


def _summands(kernel: Kernel) -> list[Kernel]:
    if type(kernel) is Sum:
        return _summands(kernel.k1) + _summands(kernel.k2)
    return [kernel]
