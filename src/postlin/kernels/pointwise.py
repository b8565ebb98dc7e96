"""Kernels without a distance: the constant, white noise and the dot product."""

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, WhiteKernel

from postlin.kernels.terms import Blocks, ByTheta, Cross, Term, no_move, term_for
from postlin.linalg.arrays import Matrix, diagonal, namespace, row_products


class _OneParameter(Term):
    def _by_theta(self, slope: float) -> ByTheta:
        """The contraction with ∂K/∂θ = slope in every entry."""
        return lambda K_bar: [slope * float(namespace(K_bar).sum(K_bar))] if any(self.free) else []


@term_for(ConstantKernel)
class _Constant(_OneParameter):
    def blocks(self, kernel: ConstantKernel) -> Blocks:
        block = self.diagonal(kernel)
        return lambda rows, columns: block

    def diagonal(self, kernel: ConstantKernel) -> Cross:
        value = float(kernel.constant_value)
        return Cross(value, self._by_theta(value), no_move)


@term_for(WhiteKernel)
class _White(_OneParameter):
    """σ² δ[i − j]: by index, never by distance, so that it is zero in rectangles."""

    def blocks(self, kernel: WhiteKernel) -> Blocks:
        if self.points.right is not None:
            zero = Cross(0.0, self._by_theta(0.0), no_move)
            return lambda rows, columns: zero
        value = float(kernel.noise_level)

        def block(rows: slice, columns: slice) -> Cross:
            height, width = rows.stop - rows.start, columns.stop - columns.start

            def by_theta(K_bar: Matrix) -> list[float]:
                return [value * float(diagonal(K_bar[:width, :]).sum())] if any(self.free) else []

            K = self.points.place.give(value * np.eye(height, width))
            return Cross(K, by_theta, no_move)

        return block

    def diagonal(self, kernel: WhiteKernel) -> Cross:
        value = float(kernel.noise_level)
        return Cross(value, self._by_theta(value), no_move)


@term_for(DotProduct)
class _DotProduct(_OneParameter):
    """σ₀² + x·x'."""

    def blocks(self, kernel: DotProduct) -> Blocks:
        (left, right), offset = self.points.raw, float(kernel.sigma_0**2)
        by_theta = self._by_theta(2.0 * offset)

        def block(rows: slice, columns: slice) -> Cross:
            a, b = left[rows, :], right[columns, :]
            return Cross(a @ b.T + offset, by_theta, lambda K_bar: K_bar.T @ a)

        return block

    def diagonal(self, kernel: DotProduct) -> Cross:
        (X, _), offset = self.points.raw, float(kernel.sigma_0**2)
        return Cross(row_products(X, X) + offset, self._by_theta(2.0 * offset), no_move)
