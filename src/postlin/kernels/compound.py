"""Kernels made of kernels: sums, products and powers.

They combine entries one by one, so that the same formula serves blocks and diagonals.
"""

from abc import abstractmethod

import numpy as np
from sklearn.gaussian_process.kernels import Exponentiation, Kernel, Product, Sum

from postlin._typing import cached_property
from postlin.kernels.terms import Blocks, Cross, Gram, Points, Term, bind, full_gram, term_for
from postlin.kernels.tree import can_split, free_numbers, parts, split_white
from postlin.linalg.arrays import Matrix, add_to_diagonal, diagonal, inner_product


class _Compound(Term):
    def __init__(self, kernel: Kernel, points: Points) -> None:
        super().__init__(kernel, points)
        self._terms = [bind(part, points) for part in parts(kernel)]

    def blocks(self, kernel: Kernel) -> Blocks:
        inner = [term.blocks(part) for term, part in zip(self._terms, parts(kernel), strict=True)]
        return lambda rows, columns: self._join(kernel, [blocks(rows, columns) for blocks in inner])

    def diagonal(self, kernel: Kernel) -> Cross:
        inner = zip(self._terms, parts(kernel), strict=True)
        return self._join(kernel, [term.diagonal(part) for term, part in inner])

    @abstractmethod
    def _join(self, kernel: Kernel, inner: list[Cross]) -> Cross:
        """The block of this kernel from those of its parts."""


@term_for(Sum)
class _Sum(_Compound):
    @cached_property
    def _smooth(self) -> tuple[Term, list[int]] | None:
        """The sum without its white noise, if it can be split, and its ``free_numbers``."""
        if not can_split(self.kernel):
            return None
        return bind(split_white(self.kernel).smooth, self.points), free_numbers(self.kernel)

    def gram(self, kernel: Sum) -> Gram:
        """K, with white noise added to the diagonal instead of as a matrix of its own."""
        if self._smooth is None:
            return super().gram(kernel)
        term, numbers = self._smooth
        split = split_white(kernel, numbers)
        smooth = full_gram(term.gram(split.smooth), self.points.n, self.points.place)
        add_to_diagonal(smooth.K, split.noise)

        def pull_back(K_bar: Matrix) -> list[float]:
            return split.join(smooth.pull_back(K_bar), float(diagonal(K_bar).sum()))

        return Gram(smooth.K, pull_back)

    def _join(self, kernel: Sum, inner: list[Cross]) -> Cross:
        a, b = inner
        return Cross(
            _added(a.K, b.K),
            lambda K_bar: a.by_theta(K_bar) + b.by_theta(K_bar),
            lambda K_bar: a.by_right(K_bar) + b.by_right(K_bar),
        )


def _added(a: Matrix, b: Matrix) -> Matrix:
    """The sum, without a pass over a matrix where the other one is the number zero."""
    if np.ndim(b) == 0 and b == 0.0:
        return a
    return b if np.ndim(a) == 0 and a == 0.0 else a + b


@term_for(Product)
class _Product(_Compound):
    def _join(self, kernel: Product, inner: list[Cross]) -> Cross:
        a, b = inner
        return Cross(
            a.K * b.K,
            lambda K_bar: _by_factor(a, b.K, K_bar) + _by_factor(b, a.K, K_bar),
            lambda K_bar: a.by_right(K_bar * b.K) + b.by_right(K_bar * a.K),
        )


def _by_factor(factor: Cross, other: Matrix, K_bar: Matrix) -> list[float]:
    """The derivatives by θ of one factor, with at most one pass over a matrix if one is a number."""
    if np.ndim(other) == 0:
        return [other * by for by in factor.by_theta(K_bar)]
    if np.ndim(factor.K) == 0 and np.ndim(other) == 2:  # of K̄ only the sum counts
        return factor.by_theta(np.array([[inner_product(K_bar, other)]]))
    return factor.by_theta(K_bar * other)


@term_for(Exponentiation)
class _Power(_Compound):
    def _join(self, kernel: Exponentiation, inner: list[Cross]) -> Cross:
        (base,), power = inner, float(kernel.exponent)

        def by_base(K_bar: Matrix) -> Matrix:
            return K_bar * (power * base.K ** (power - 1))

        return Cross(
            base.K**power,
            lambda K_bar: base.by_theta(by_base(K_bar)),
            lambda K_bar: base.by_right(by_base(K_bar)),
        )
