"""Kernels that know no distance: a constant, white noise, and the dot product."""

from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, WhiteKernel

from postlin.kernels.terms import Blocks, Gram, Term, no_parameters, term_for
from postlin.linalg.arrays import Matrix, diagonal, namespace


@term_for(ConstantKernel)
class _Constant(Term):
    @classmethod
    def is_covariance(cls, kernel: ConstantKernel) -> bool:
        """If it is positive."""
        return bool(kernel.constant_value > 0)

    def blocks(self, kernel: ConstantKernel) -> Blocks:
        value = float(kernel.constant_value)
        pull_back = (lambda K_bar: [value * _sum(K_bar)]) if any(self.free) else no_parameters
        block = Gram(value, pull_back)
        return lambda rows, columns: block


@term_for(WhiteKernel)
class _White(Term):
    """σ² δ[i − j]: by index, never by distance."""

    @classmethod
    def is_covariance(cls, kernel: WhiteKernel) -> bool:
        """If it is not negative."""
        return bool(kernel.noise_level >= 0)

    def blocks(self, kernel: WhiteKernel) -> Blocks:
        value = float(kernel.noise_level)

        def block(rows: slice, columns: slice) -> Gram:
            width = columns.stop - columns.start

            def pull_back(K_bar: Matrix) -> list[float]:
                return [value * float(diagonal(K_bar[:width, :]).sum())]

            K = self.points.identity(rows, columns)
            K *= value
            return Gram(K, pull_back if any(self.free) else no_parameters)

        return block


@term_for(DotProduct)
class _DotProduct(Term):
    """σ₀² + x·x'."""

    @classmethod
    def is_covariance(cls, kernel: DotProduct) -> bool:
        """Of a linear function."""
        return True

    def blocks(self, kernel: DotProduct) -> Blocks:
        (left, right), offset = self.points.raw, float(kernel.sigma_0**2)
        pull_back = (lambda K_bar: [2.0 * offset * _sum(K_bar)]) if any(self.free) else no_parameters
        return lambda rows, columns: Gram(left[rows, :] @ right[columns, :].T + offset, pull_back)


def _sum(K_bar: Matrix) -> float:
    return float(namespace(K_bar).sum(K_bar))
