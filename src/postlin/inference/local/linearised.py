"""The Jacobian J of the undamped map from sites to proposed sites, for many small problems at once.

In the residual's units a change of the sites is (p, q) = (v dτ, √v (dν − m dτ)). It changes the
marginals by dm/√v = C q and dv/v = −(C∘C) p, where C is the posterior correlation. The problems are so
small that I − J is stored as a dense matrix.
"""

from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.inference.local.problems import Iterates
from postlin.linalg.arrays import Matrix
from postlin.linalg.functions import functions
from postlin.linalg.stacks import chosen_of, entries, shaped, solve_each, transposed, zeros


class LinearMaps:
    """I − J at some of the iterates."""

    def __init__(self, iterates: Iterates, chosen: np.ndarray) -> None:
        variance = chosen_of(iterates.variance, chosen)[:, :-1]
        f = functions(variance)
        self.sigma = sigma = f.sqrt(variance)
        rows = f.rows([variance, sigma])[:, None, :, :]
        columns = f.rows([sigma, variance, 1.0 / variance, 1.0 / sigma])
        #: [row, column, problem, point]: v dτ̂ and √v (dν̂ − m dτ̂) by the changes of ``Proposal``
        self.local: Array = rows * columns * chosen_of(iterates.jacobian(), chosen, axis=2)
        scaled = chosen_of(iterates.G, chosen)[:, :-1, :] / sigma[:, :, None]
        self.correlation: Matrix = scaled @ transposed(scaled)  # of the labelled rows

    def solve(self, right: Array, time: Array | float) -> tuple[Array, Any]:
        """Steps ((1 + 1/t) I − J)⁻¹ right, (n, 2, k), and which of them exist."""
        return self._solved(self._matrices(1.0 + 1.0 / time), right)

    def solve_transposed(self, right: Array) -> tuple[Array, Any]:
        """Adjoints (I − Jᵀ)⁻¹ right, (n, 2, k), and which of them exist."""
        return self._solved(transposed(self._matrices(1.0)), right)

    def _solved(self, M: Matrix, right: Array) -> tuple[Array, Any]:
        n, _, k = right.shape
        solution, found = solve_each(M, shaped(right, n, 2 * k, 1))
        return shaped(solution, n, 2, k), found

    def _matrices(self, diagonal: Array | float) -> Matrix:
        """d I − J, (n, 2k, 2k), for a number d, or for one of each problem, (n, 1)."""
        local, C = self.local, self.correlation
        n, k, _ = C.shape
        M, squares = zeros(n, 2 * k, C), C * C
        for i, rows in enumerate((slice(0, k), slice(k, 2 * k))):
            M[:, rows, :k] = local[i, 1, :, :, None] * squares
            M[:, rows, k:] = -local[i, 0, :, :, None] * C
            for j in (0, 1):
                own = entries(M, i * k, j * k, k)
                own += (diagonal if i == j else 0.0) - local[i, 2 + j, :, :]
        return M
