"""The Jacobian J of the undamped map from sites to proposed sites, for many small problems at once.

In the residual's units a change of the sites is (p, q) = (v dτ, √v (dν − m dτ)). It changes the
marginals by dm/√v = C q and dv/v = −(C∘C) p, where C is the posterior correlation. The problems are so
small that I − J is stored as a dense matrix.
"""

import numpy as np

from postlin._typing import Array
from postlin.inference.local.problems import Iterates
from postlin.linalg.arrays import Matrix, on_host, solve_each
from postlin.linalg.stacks import entries, part_of, spread, transposed, zeros


class LinearMaps:
    """I − J at some of the iterates."""

    def __init__(self, iterates: Iterates, chosen: np.ndarray) -> None:
        self.sigma = sigma = np.sqrt(iterates.variance[chosen, :-1])
        rows = np.array([sigma**2, sigma])[:, None]
        columns = np.array([sigma, sigma**2, sigma**-2, 1.0 / sigma])
        #: [row, column, problem, point]: v dτ̂ and √v (dν̂ − m dτ̂) by the changes of ``Proposal``
        self.local: Array = rows * columns * iterates.jacobian()[:, :, chosen]
        G = iterates.G if chosen.all() else part_of(iterates.G, np.flatnonzero(chosen))
        scaled = G[:, :-1, :] / spread(G, sigma)
        self.correlation: Matrix = scaled @ transposed(scaled)  # of the labelled rows

    def solve(self, right: Array, time: Array) -> tuple[Array, np.ndarray]:
        """Steps ((1 + 1/t) I − J)⁻¹ right, (n, 2, k), and which of them exist."""
        return self._solved(self._matrices(1.0 + 1.0 / time), right)

    def solve_transposed(self, right: Array) -> tuple[Array, np.ndarray]:
        """Adjoints (I − Jᵀ)⁻¹ right, (n, 2, k), and which of them exist."""
        return self._solved(transposed(self._matrices(np.ones(len(right)))), right)

    def _solved(self, M: Matrix, right: Array) -> tuple[Array, np.ndarray]:
        n, _, k = right.shape
        solution, found = solve_each(M, spread(M, right.reshape(n, 2 * k)))
        return np.asarray(on_host(solution), float).reshape(n, 2, k), found

    def _matrices(self, diagonal: Array) -> Matrix:
        """d I − J, (n, 2k, 2k), for one number d a problem."""
        local, C = self.local, self.correlation
        n, k, _ = C.shape
        M, squares = zeros(n, 2 * k, C), C * C
        for i, rows in enumerate((slice(0, k), slice(k, 2 * k))):
            M[:, rows, :k] = spread(C, local[i, 1]) * squares
            M[:, rows, k:] = spread(C, -local[i, 0]) * C
            for j in (0, 1):
                own = entries(M, i * k, j * k, k)
                own += spread(C, (i == j) * diagonal[:, None] - local[i, 2 + j])[:, :, 0]
        return M
