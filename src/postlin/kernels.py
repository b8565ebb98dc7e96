"""scikit-learn kernels as gram matrices with a pull-back.

A gradient of the evidence arrives as K̄ = ∂ log Z/∂K; ``pull_back`` contracts it to the kernel's
free log-parameters, in scikit-learn's order, without the (n, n, p) tensor that scikit-learn's own
gradients are. Kernels with no term of their own here fall back to that tensor.

A ``Term`` keeps what depends on the data alone, so that distances are computed once a fit. Matrices
are made and contracted block by block, the lower triangle only: beside K itself, and distances
where the kernel is isotropic, nothing of its size is held.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Product, Sum, WhiteKernel

from postlin._typing import Array
from postlin.triangles import diagonal_of, lower_panels, mirror_panels

#: Features that reach farther than this, in length scales, cancel in the product form.
_FAR = 1e3

#: Contracts a block of K̄ to the kernel's free log-parameters.
PullBack = Callable[[Array], list[float]]


class Block(NamedTuple):
    """Part of a covariance matrix (or a scalar that stands for a constant one) and its pull-back."""

    K: Array
    pull_back: PullBack


#: Rows and columns of a covariance matrix, which begin at the same index, to that block of it.
Blocks = Callable[[slice, slice], Block]


class Gram(NamedTuple):
    """A covariance matrix (or a scalar that stands for a constant one) and its pull-back."""

    K: Array
    pull_back: PullBack


class Term(ABC):
    """A kernel bound to training data."""

    def __init__(self, kernel: Kernel, X: Any) -> None:
        self.n = len(X)

    @abstractmethod
    def blocks(self, kernel: Kernel) -> Blocks:
        """Blocks of K at the parameters of ``kernel``, which has the structure of this term's."""

    def gram(self, kernel: Kernel) -> Gram:
        """K at the parameters of ``kernel``, symmetric and whole."""
        blocks = self.blocks(kernel)
        if len(list(lower_panels(self.n))) == 1:
            whole = blocks(slice(0, self.n), slice(0, self.n))
            return Gram(np.asarray(whole.K), whole.pull_back)
        return Gram(self._assemble(blocks), lambda K_bar: self._contract(blocks, K_bar))

    def _assemble(self, blocks: Blocks) -> Array:
        K = np.empty((self.n, self.n), order="F")
        for rows, columns in lower_panels(self.n):
            block = blocks(rows, columns).K
            if np.ndim(block) == 0:
                return np.array(block)
            K[rows, columns] = block
        return mirror_panels(K).T

    def _contract(self, blocks: Blocks, K_bar: Array) -> list[float]:
        """K̄ is symmetric: what stands below the diagonal counts twice."""
        total: Any = 0.0
        for rows, columns in lower_panels(self.n):
            part = 2.0 * K_bar[rows, columns]
            corner = part[: part.shape[1]]
            corner[:] = np.tril(corner)
            diagonal_of(corner)[:] *= 0.5
            total = total + np.array(blocks(rows, columns).pull_back(part))
        return [float(t) for t in total]


def bind(kernel: Kernel, X: Any) -> Term:
    """The term for a kernel on data."""
    kind = _TERMS.get(type(kernel), _Fallback)
    return kind(kernel, X)


def _nothing(K_bar: Array) -> list[float]:
    """The pull-back of a kernel without free parameters."""
    return []


class _Constant(Term):
    def blocks(self, kernel: ConstantKernel) -> Blocks:
        value = kernel.constant_value
        if kernel.hyperparameter_constant_value.fixed:
            return lambda rows, columns: Block(np.array(value), _nothing)
        block = Block(np.array(value), lambda K_bar: [value * float(K_bar.sum())])
        return lambda rows, columns: block


class _White(Term):
    """σ² δ[i − j]: by index, never by distance."""

    def blocks(self, kernel: WhiteKernel) -> Blocks:
        value = kernel.noise_level
        fixed = kernel.hyperparameter_noise_level.fixed

        def block(rows: slice, columns: slice) -> Block:
            width = columns.stop - columns.start
            K = np.zeros((rows.stop - rows.start, width), order="F")
            diagonal_of(K[:width])[:] = value
            if fixed:
                return Block(K, _nothing)
            return Block(K, lambda K_bar: [value * float(K_bar[:width].trace())])

        return block


class _RBF(Term):
    def __init__(self, kernel: RBF, X: Any) -> None:
        super().__init__(kernel, X)
        X = np.asarray(X, float)
        self._X = X - X.mean(axis=0)
        self._squared: Array | None = None
        if not kernel.anisotropic:
            self._squared = np.empty((self.n, self.n), order="F")
            for rows, columns in lower_panels(self.n):
                self._squared[rows, columns] = cdist(self._X[rows], self._X[columns], "sqeuclidean")

    def blocks(self, kernel: RBF) -> Blocks:
        if self._squared is None:
            return self._anisotropic(kernel)
        squared, scale = self._squared, float(np.squeeze(kernel.length_scale)) ** -2
        fixed = kernel.hyperparameter_length_scale.fixed

        def block(rows: slice, columns: slice) -> Block:
            scaled = scale * squared[rows, columns]
            K = np.exp(-0.5 * scaled)
            if fixed:
                return Block(K, _nothing)
            return Block(K, lambda K_bar: [float(np.einsum("ij,ij,ij->", K_bar, K, scaled))])

        return block

    def _anisotropic(self, kernel: RBF) -> Blocks:
        X = self._X / kernel.length_scale
        far = np.flatnonzero(np.abs(X).max(axis=0) > _FAR)
        fixed = kernel.hyperparameter_length_scale.fixed

        def block(rows: slice, columns: slice) -> Block:
            left, right = X[rows], X[columns]
            K = np.exp(-0.5 * cdist(left, right, "sqeuclidean"))

            def pull_back(K_bar: Array) -> list[float]:
                # Σᵢⱼ Wᵢⱼ (xᵢ − xⱼ)² for all features at once, W = K̄ ∘ K
                W = K_bar * K
                squares = W.sum(axis=1) @ left**2 + W.sum(axis=0) @ right**2
                squares -= 2.0 * np.einsum("ik,ik->k", left, W @ right)
                for k in far:
                    squares[k] = np.einsum("ij,ij->", W, (left[:, k, None] - right[:, k]) ** 2)
                return [float(s) for s in squares]

            return Block(K, _nothing if fixed else pull_back)

        return block


class _Sum(Term):
    def __init__(self, kernel: Sum, X: Any) -> None:
        super().__init__(kernel, X)
        self._left, self._right = bind(kernel.k1, X), bind(kernel.k2, X)

    def blocks(self, kernel: Sum) -> Blocks:
        left, right = self._left.blocks(kernel.k1), self._right.blocks(kernel.k2)

        def block(rows: slice, columns: slice) -> Block:
            a, b = left(rows, columns), right(rows, columns)
            return Block(a.K + b.K, lambda K_bar: a.pull_back(K_bar) + b.pull_back(K_bar))

        return block


class _Product(Term):
    def __init__(self, kernel: Product, X: Any) -> None:
        super().__init__(kernel, X)
        self._left, self._right = bind(kernel.k1, X), bind(kernel.k2, X)

    def blocks(self, kernel: Product) -> Blocks:
        left, right = self._left.blocks(kernel.k1), self._right.blocks(kernel.k2)

        def block(rows: slice, columns: slice) -> Block:
            a, b = left(rows, columns), right(rows, columns)
            return Block(a.K * b.K, lambda K_bar: a.pull_back(K_bar * b.K) + b.pull_back(K_bar * a.K))

        return block


class _Fallback(Term):
    """Any other kernel, whole, and by its own gradient."""

    def __init__(self, kernel: Kernel, X: Any) -> None:
        super().__init__(kernel, X)
        self._X = X

    def gram(self, kernel: Kernel) -> Gram:
        def pull_back(K_bar: Array) -> list[float]:
            return [float(g) for g in np.einsum("ij,ijp->p", K_bar, self._gradient(kernel))]

        return Gram(kernel(self._X), pull_back)

    def _gradient(self, kernel: Kernel) -> Array:
        gradient: Array = kernel(self._X, eval_gradient=True)[1]
        return gradient

    def blocks(self, kernel: Kernel) -> Blocks:
        K = kernel(self._X)
        gradient = cache(lambda: self._gradient(kernel))

        def block(rows: slice, columns: slice) -> Block:
            def pull_back(K_bar: Array) -> list[float]:
                part = gradient()[rows, columns]
                return [float(g) for g in np.einsum("ij,ijp->p", K_bar, part)]

            return Block(K[rows, columns], pull_back)

        return block


_TERMS: dict[type[Kernel], type[Term]] = {
    ConstantKernel: _Constant,
    WhiteKernel: _White,
    RBF: _RBF,
    Sum: _Sum,
    Product: _Product,
}


def matrices_held(kernel: Kernel) -> int:
    """How many matrices of n² a fit with this kernel holds beside K and what inference needs."""
    if type(kernel) in (Sum, Product):
        return matrices_held(kernel.k1) + matrices_held(kernel.k2)
    if type(kernel) is RBF:
        return 0 if kernel.anisotropic else 1
    # of other kernels the gradient tensor, and about as much again while it is made
    return 0 if type(kernel) in _TERMS else 1 + 2 * kernel.n_dims


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
