"""The Jacobian of the undamped map, in matrices: products and solves."""

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from postlin._typing import Array
from postlin.joint.problem import JointIterate, JointProblem
from postlin.krylov import gmres

#: Dimensions of the Krylov spaces, for steps and for the adjoint.
_KRYLOV, _LONG_KRYLOV = 40, 150
#: Relative accuracy of a Newton step's solve, from afar and near the end.
_ROUGH, _FINE = 1e-2, 1e-6


class JointLinearised:
    """In units of the marginals: b = C q and E_i = −Σ_j C_ij P_j C_ji, C the posterior correlation."""

    def __init__(self, iterate: JointIterate) -> None:
        self.iterate = iterate
        n, D = iterate.view.nu.shape
        inverse = np.linalg.inv(iterate.view.root)
        left = inverse @ iterate.posterior.covariance.reshape(n, D, n * D)
        C = np.ascontiguousarray(left.reshape(n * D, n * D).T).reshape(n, D, n * D)
        self._C = inverse @ C  # symmetric: rows (i, a), columns (j, b)

    def times(self, q: Array) -> Array:
        """C q."""
        n, D = q.shape
        product: Array = (self._C.reshape(n * D, n * D) @ q.ravel()).reshape(n, D)
        return product

    def sandwich(self, P: Array) -> Array:
        """Σ_j C_ij P_j C_ji."""
        n, D, _ = P.shape
        right = (P @ self._C).reshape(n * D, n, D).transpose(1, 0, 2)
        product: Array = self._C @ right
        return product

    def apply(self, flat: Array) -> Array:
        """J (P, q)."""
        P, q = self.iterate.split(flat)
        return _flat(*self.iterate.proposal.change(self.times(q), -self.sandwich(P)))

    def apply_transposed(self, flat: Array) -> Array:
        """Jᵀ (P, q)."""
        return self.posterior_adjoint(*self.iterate.proposal.pull_back(*self.iterate.split(flat)))

    def posterior_adjoint(self, b: Array, E: Array) -> Array:
        """Adjoints on the sites from those on the marginals."""
        return _flat(-self.sandwich(E), self.times(b))

    def solve(self, right: Array, *, time: float, rtol: float) -> Array:
        """((1 + 1/time) I − J)⁻¹ right."""
        diagonal = 1.0 + 1.0 / time
        solution, _ = gmres(lambda x: diagonal * x - self.apply(x), right, rtol=rtol, dimension=_KRYLOV)
        return solution

    def solve_transposed(self, right: Array, *, rtol: float) -> tuple[Array, bool]:
        """(I − Jᵀ)⁻¹ right, and whether the tolerance was reached."""
        return gmres(lambda x: x - self.apply_transposed(x), right, rtol=rtol, dimension=_LONG_KRYLOV)

    def spectral_radius(self) -> float:
        """Max |eigenvalue of J|."""
        size = len(self.iterate.residual)
        operator = LinearOperator((size, size), matvec=self.apply, dtype=float)
        start = self.iterate.residual + np.random.default_rng(0).standard_normal(size)
        try:
            values = eigs(operator, k=4, which="LM", v0=start, return_eigenvectors=False, ncv=60)
        except ArpackNoConvergence as error:
            values = error.eigenvalues
        return float(np.abs(values).max())


def joint_newton_step(problem: JointProblem, iterate: JointIterate, *, time: float) -> Array:
    """A Newton step in the residual's units, or an implicit step of pseudo-time."""
    rtol = min(_ROUGH, max(iterate.size, _FINE))
    return JointLinearised(iterate).solve(iterate.residual, time=time, rtol=rtol)


def _flat(P: Array, q: Array) -> Array:
    return np.concatenate([P.ravel(), q.ravel()])
