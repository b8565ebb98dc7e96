"""Kernels made of kernels: sums, products and powers."""

from abc import abstractmethod

from sklearn.gaussian_process.kernels import Exponentiation, Product, Sum

from postlin.kernels.terms import Blocks, Gram, Points, Term, bind, full_gram, is_covariance, term_for
from postlin.kernels.tree import can_split, free_numbers, split_known, split_white
from postlin.linalg.arrays import Matrix, add_to_diagonal, diagonal


class _Pair(Term):
    def __init__(self, kernel: Sum | Product, points: Points) -> None:
        super().__init__(kernel, points)
        self._left, self._right = bind(kernel.k1, points), bind(kernel.k2, points)

    @classmethod
    def is_covariance(cls, kernel: Sum | Product) -> bool:
        """If both are."""
        return is_covariance(kernel.k1) and is_covariance(kernel.k2)

    def blocks(self, kernel: Sum | Product) -> Blocks:
        left, right = self._left.blocks(kernel.k1), self._right.blocks(kernel.k2)
        return lambda rows, columns: self._join(left(rows, columns), right(rows, columns))

    @staticmethod
    @abstractmethod
    def _join(a: Gram, b: Gram) -> Gram:
        """What two blocks make."""


@term_for(Sum)
class _Sum(_Pair):
    def __init__(self, kernel: Sum, points: Points) -> None:
        super().__init__(kernel, points)
        self._numbers = free_numbers(kernel)
        self._smooth = bind(split_white(kernel).smooth, points) if can_split(kernel) else None

    def gram(self, kernel: Sum) -> Gram:
        """K, for which white noise is only added to the diagonal: no block of it is made."""
        if self._smooth is None:
            return super().gram(kernel)
        split = split_known(kernel, self._numbers)
        smooth = full_gram(self._smooth.gram(split.smooth), self.points.n, self.points.place)
        add_to_diagonal(smooth.K, split.noise)

        def pull_back(K_bar: Matrix) -> list[float]:
            return split.join(smooth.pull_back(K_bar), float(diagonal(K_bar).sum()))

        return Gram(smooth.K, pull_back)

    @staticmethod
    def _join(a: Gram, b: Gram) -> Gram:
        return Gram(a.K + b.K, lambda K_bar: a.pull_back(K_bar) + b.pull_back(K_bar))


@term_for(Product)
class _Product(_Pair):
    @staticmethod
    def _join(a: Gram, b: Gram) -> Gram:
        return Gram(a.K * b.K, lambda K_bar: a.pull_back(K_bar * b.K) + b.pull_back(K_bar * a.K))


@term_for(Exponentiation)
class _Power(Term):
    def __init__(self, kernel: Exponentiation, points: Points) -> None:
        super().__init__(kernel, points)
        self._base = bind(kernel.kernel, points)

    def blocks(self, kernel: Exponentiation) -> Blocks:
        base, power = self._base.blocks(kernel.kernel), float(kernel.exponent)

        def block(rows: slice, columns: slice) -> Gram:
            a = base(rows, columns)

            def pull_back(K_bar: Matrix) -> list[float]:
                return a.pull_back(K_bar * (power * a.K ** (power - 1)))

            return Gram(a.K**power, pull_back)

        return block
