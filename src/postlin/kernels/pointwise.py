"""Kernels that know no distance: a constant, white noise, and the dot product."""

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, WhiteKernel

from postlin._typing import Array
from postlin.kernels.terms import Blocks, Gram, Term, no_parameters, term_for
from postlin.triangles import diagonal_of


@term_for(ConstantKernel)
class _Constant(Term):
    def blocks(self, kernel: ConstantKernel) -> Blocks:
        value = kernel.constant_value
        fixed = kernel.hyperparameter_constant_value.fixed
        pull_back = no_parameters if fixed else lambda K_bar: [value * float(K_bar.sum())]
        block = Gram(np.array(value), pull_back)
        return lambda rows, columns: block


@term_for(WhiteKernel)
class _White(Term):
    """σ² δ[i − j]: by index, never by distance."""

    def blocks(self, kernel: WhiteKernel) -> Blocks:
        value = kernel.noise_level
        fixed = kernel.hyperparameter_noise_level.fixed

        def block(rows: slice, columns: slice) -> Gram:
            width = columns.stop - columns.start
            K = np.zeros((rows.stop - rows.start, width), order="F")
            diagonal_of(K[:width])[:] = value

            def pull_back(K_bar: Array) -> list[float]:
                return [value * float(K_bar[:width].trace())]

            return Gram(K, no_parameters if fixed else pull_back)

        return block


@term_for(DotProduct)
class _DotProduct(Term):
    """σ₀² + x·x'."""

    def blocks(self, kernel: DotProduct) -> Blocks:
        X, offset = np.atleast_2d(np.asarray(self.points.X, float)), kernel.sigma_0**2
        fixed = kernel.hyperparameter_sigma_0.fixed
        pull_back = no_parameters if fixed else lambda K_bar: [2.0 * offset * float(K_bar.sum())]
        return lambda rows, columns: Gram(X[rows] @ X[columns].T + offset, pull_back)
