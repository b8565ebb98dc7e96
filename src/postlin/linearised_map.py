"""The Jacobian J of the undamped parallel map at a point, and what can be done with it.

In the residual's own units a change of the sites is (p, q) = (v dτ, √v (dν − m dτ)), and the
posterior answers with dm/√v = C q and dv/v = −(C∘C) p, C the posterior correlation: so J costs
O(n²) per product. It may have spectral radius above one; solves are by GMRES, never by iterating.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs, gmres

from postlin._typing import Array
from postlin.problem import Iterate

#: Up to this many points, eigenvalues are taken from J written out.
_DENSE = 150
_KRYLOV = 60


class LinearisedMap:
    """Products and solves with J and Jᵀ at an iterate."""

    def __init__(self, iterate: Iterate) -> None:
        posterior = iterate.posterior
        sigma = np.sqrt(posterior.variance)
        self.sigma = sigma
        self._correlation: Array = posterior.covariance / sigma[:, None] / sigma
        self._squared: Array = self._correlation**2
        v = posterior.variance
        rows = np.array([v, sigma])[:, None]
        columns = np.array([sigma, v, 1.0 / v, 1.0 / sigma])
        self._local: Array = rows * columns * iterate.proposal.jacobian()

    @property
    def _size(self) -> int:
        return 2 * len(self.sigma)

    def apply(self, step: Array) -> Array:
        """J (p, q), arrays of shape (2, n)."""
        answer = np.stack([self._correlation @ step[1], -(self._squared @ step[0]), step[0], step[1]])
        moved: Array = np.einsum("rcn,cn->rn", self._local, answer)
        return moved

    def apply_transposed(self, adjoint: Array) -> Array:
        """Jᵀ applied to an array of shape (2, n)."""
        by_mean, by_variance, by_tau, by_shift = np.einsum("rcn,rn->cn", self._local, adjoint)
        return np.stack([by_tau - self._squared @ by_variance, by_shift + self._correlation @ by_mean])

    def posterior_adjoint(self, by_mean: Array, by_variance: Array) -> Array:
        """(p̄, q̄) from adjoints on the marginals in their units, dm/√v and dv/v."""
        return np.stack([-(self._squared @ by_variance), self._correlation @ by_mean])

    def local_adjoint(self, adjoint: Array) -> tuple[Array, Array]:
        """Adjoints on dm/√v and dv/v from those on the proposed sites."""
        by = np.einsum("rcn,rn->cn", self._local, adjoint)
        return by[0], by[1]

    def solve(self, right: Array, *, time: float = np.inf, rtol: float) -> Array:
        """((1 + 1/time) I − J)⁻¹ right: a Newton step, or an implicit step of pseudo-time."""
        diagonal = 1.0 + 1.0 / time

        def product(flat: Array) -> Array:
            step = flat.reshape(2, -1)
            return (diagonal * step - self.apply(step)).ravel()

        solution, _ = gmres(
            self._operator(product), right.ravel(), rtol=rtol, restart=_KRYLOV, maxiter=2
        )
        step: Array = solution.reshape(2, -1)
        return step

    def solve_transposed(self, right: Array, *, rtol: float) -> Array:
        """(I − Jᵀ)⁻¹ right, to the tolerance: by a dense solve where GMRES does not get there."""

        def product(flat: Array) -> Array:
            step = flat.reshape(2, -1)
            return (step - self.apply_transposed(step)).ravel()

        solution, failed = gmres(
            self._operator(product), right.ravel(), rtol=rtol, restart=_KRYLOV, maxiter=5
        )
        if failed:
            solution = np.linalg.solve(np.eye(self._size) - self.dense().T, right.ravel())
        adjoint: Array = solution.reshape(2, -1)
        return adjoint

    def _operator(self, product: Callable[[Array], Array]) -> LinearOperator:
        return LinearOperator((self._size, self._size), matvec=product, dtype=float)

    def dense(self) -> Array:
        """J written out, (2n, 2n)."""
        local, n = self._local, len(self.sigma)
        blocks = np.empty((2, n, 2, n))
        for row in range(2):
            blocks[row, :, 0] = -local[row, 1][:, None] * self._squared
            blocks[row, :, 1] = local[row, 0][:, None] * self._correlation
            for column in range(2):
                block = blocks[row, :, column]
                block[np.arange(n), np.arange(n)] += local[row, 2 + column]
        return blocks.reshape(2 * n, 2 * n)

    def spectral_radius(self) -> float:
        """Max |eigenvalue of J|: below one, the plain iteration converges locally."""
        if len(self.sigma) <= _DENSE:
            return float(np.abs(np.linalg.eigvals(self.dense())).max())
        operator = self._operator(lambda flat: self.apply(flat.reshape(2, -1)).ravel())
        start = np.random.default_rng(0).standard_normal(self._size)
        try:
            values = eigs(operator, k=4, which="LM", v0=start, return_eigenvectors=False, ncv=60)
        except ArpackNoConvergence as error:
            values = error.eigenvalues
        return float(np.abs(values).max())
