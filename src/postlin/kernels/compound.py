"""Kernels made of kernels: sums, products and powers.

They combine entries, so that one formula serves blocks and diagonals.
"""

from abc import abstractmethod
from functools import cached_property

import numpy as np
from sklearn.gaussian_process.kernels import Exponentiation, Kernel, Product, Sum

from postlin.kernels.terms import (
    Block,
    Blocks,
    Gram,
    Points,
    Term,
    bind,
    full_gram,
    is_covariance,
    term_for,
)
from postlin.kernels.tree import can_split, free_numbers, split_known, split_white
from postlin.linalg.arrays import Matrix, add_to_diagonal, diagonal


class _Pair(Term):
    def __init__(self, kernel: Sum | Product, points: Points) -> None:
        super().__init__(kernel, points)
        self._left, self._right = bind(kernel.k1, points), bind(kernel.k2, points)

    @classmethod
    def is_covariance(cls, kernel: Sum | Product) -> bool:
        return is_covariance(kernel.k1) and is_covariance(kernel.k2)

    def blocks(self, kernel: Sum | Product) -> Blocks:
        left, right = self._left.blocks(kernel.k1), self._right.blocks(kernel.k2)
        return lambda rows, columns: self._join(left(rows, columns), right(rows, columns))

    def diagonal(self, kernel: Kernel) -> Block:
        return self._join(self._left.diagonal(kernel.k1), self._right.diagonal(kernel.k2))

    @staticmethod
    @abstractmethod
    def _join(a: Block, b: Block) -> Block:
        """The block of this kernel from those of its two parts."""


@term_for(Sum)
class _Sum(_Pair):
    @cached_property
    def _numbers(self) -> list[int]:
        return free_numbers(self.kernel)

    @cached_property
    def _smooth(self) -> Term | None:
        """The sum without its white noise, None where there is none to be taken out."""
        return bind(split_white(self.kernel).smooth, self.points) if can_split(self.kernel) else None

    def gram(self, kernel: Sum) -> Gram:
        """K, with white noise added to the diagonal instead of as a matrix of its own."""
        if self._smooth is None:
            return super().gram(kernel)
        split = split_known(kernel, self._numbers)
        smooth = full_gram(self._smooth.gram(split.smooth), self.points.n, self.points.place)
        add_to_diagonal(smooth.K, split.noise)

        def pull_back(K_bar: Matrix) -> list[float]:
            return split.join(smooth.pull_back(K_bar), float(diagonal(K_bar).sum()))

        return Gram(smooth.K, pull_back)

    @staticmethod
    def _join(a: Block, b: Block) -> Block:
        return Block(
            _added(a.K, b.K),
            lambda K_bar: a.by_theta(K_bar) + b.by_theta(K_bar),
            lambda K_bar: a.by_right(K_bar) + b.by_right(K_bar),
        )


def _added(a: Matrix, b: Matrix) -> Matrix:
    """a + b, without a pass over a matrix where the other is the number zero."""
    if np.ndim(b) == 0 and b == 0.0:
        return a
    return b if np.ndim(a) == 0 and a == 0.0 else a + b


@term_for(Product)
class _Product(_Pair):
    @staticmethod
    def _join(a: Block, b: Block) -> Block:
        return Block(
            a.K * b.K,
            lambda K_bar: a.by_theta(K_bar * b.K) + b.by_theta(K_bar * a.K),
            lambda K_bar: a.by_right(K_bar * b.K) + b.by_right(K_bar * a.K),
        )


@term_for(Exponentiation)
class _Power(Term):
    def __init__(self, kernel: Exponentiation, points: Points) -> None:
        super().__init__(kernel, points)
        self._base = bind(kernel.kernel, points)

    def blocks(self, kernel: Exponentiation) -> Blocks:
        base, power = self._base.blocks(kernel.kernel), float(kernel.exponent)
        return lambda rows, columns: self._raised(base(rows, columns), power)

    def diagonal(self, kernel: Kernel) -> Block:
        return self._raised(self._base.diagonal(kernel.kernel), float(kernel.exponent))

    @staticmethod
    def _raised(base: Block, power: float) -> Block:
        def inner(K_bar: Matrix) -> Matrix:
            return K_bar * (power * base.K ** (power - 1))

        return Block(
            base.K**power,
            lambda K_bar: base.by_theta(inner(K_bar)),
            lambda K_bar: base.by_right(inner(K_bar)),
        )
