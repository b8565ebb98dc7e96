"""Kernels without a distance: the constant, white noise and the dot product."""

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Kernel, WhiteKernel

from postlin.kernels.terms import Block, Blocks, ByTheta, Term, no_move, term_for
from postlin.linalg.arrays import Matrix, diagonal, namespace
from postlin.linalg.triangles import diagonal_of


class _OneParameter(Term):
    def _by_theta(self, slope: float) -> ByTheta:
        """The contraction with ∂K/∂θ = slope in every entry."""
        return lambda K_bar: [slope * float(namespace(K_bar).sum(K_bar))] if any(self.free) else []


@term_for(ConstantKernel)
class _Constant(_OneParameter):
    @classmethod
    def is_covariance(cls, kernel: ConstantKernel) -> bool:
        return bool(kernel.constant_value > 0)

    def blocks(self, kernel: ConstantKernel) -> Blocks:
        block = self.diagonal(kernel)
        return lambda rows, columns: block

    def diagonal(self, kernel: Kernel) -> Block:
        value = float(kernel.constant_value)
        return Block(value, self._by_theta(value), no_move)


@term_for(WhiteKernel)
class _White(_OneParameter):
    """σ² δ[i − j]: by index, never by distance, so that it is zero in rectangles."""

    @classmethod
    def is_covariance(cls, kernel: WhiteKernel) -> bool:
        return bool(kernel.noise_level >= 0)

    def blocks(self, kernel: WhiteKernel) -> Blocks:
        if self.points.right is not None:
            zero = Block(0.0, self._by_theta(0.0), no_move)
            return lambda rows, columns: zero
        value = float(kernel.noise_level)

        def block(rows: slice, columns: slice) -> Block:
            height, width = rows.stop - rows.start, columns.stop - columns.start

            def by_theta(K_bar: Matrix) -> list[float]:
                return [value * float(diagonal(K_bar[:width, :]).sum())] if any(self.free) else []

            return Block(self._identity(height, width, value), by_theta, no_move)

        return block

    def _identity(self, height: int, width: int, value: float) -> Matrix:
        """A block of value · I whose first rows hold the diagonal, in LAPACK's order."""
        place = self.points.place
        if not place.is_host:
            return value * place.xp.eye(height, width, dtype=place.xp.float64, device=place.device)
        identity = np.zeros((height, width), order="F")
        diagonal_of(identity[:width])[:] = value
        return identity

    def diagonal(self, kernel: Kernel) -> Block:
        value = float(kernel.noise_level)
        return Block(value, self._by_theta(value), no_move)


@term_for(DotProduct)
class _DotProduct(_OneParameter):
    """σ₀² + x·x'."""

    @classmethod
    def is_covariance(cls, kernel: DotProduct) -> bool:
        return True

    def blocks(self, kernel: DotProduct) -> Blocks:
        (left, right), offset = self.points.raw, float(kernel.sigma_0**2)
        by_theta = self._by_theta(2.0 * offset)

        def block(rows: slice, columns: slice) -> Block:
            a, b = left[rows, :], right[columns, :]
            return Block(a @ b.T + offset, by_theta, lambda K_bar: K_bar.T @ a)

        return block

    def diagonal(self, kernel: Kernel) -> Block:
        (X, _), offset = self.points.raw, float(kernel.sigma_0**2)
        return Block(np.einsum("ij,ij->i", X, X) + offset, self._by_theta(2.0 * offset), no_move)
