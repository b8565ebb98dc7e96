"""The Jacobian of the undamped map, in matrices: products and solves."""

from functools import partial

import numpy as np

from postlin._typing import Array
from postlin.inference.joint.problem import JointIterate, JointProblem, JointView
from postlin.inference.newton import LEAST, MEAN_ACCURACY, Step, corrected_step
from postlin.linalg.blocks import inverted, root_of, symmetric, times
from postlin.linalg.krylov import gmres, spectral_radius

#: Dimensions of the Krylov spaces, for steps and for the adjoint.
_KRYLOV, _LONG_KRYLOV = 40, 150


class JointLinearised:
    """In units of the marginals: b = C q and E_i = −Σ_j C_ij P_j C_ji, C the posterior correlation.

    Where points stand for several observations, C is about the mean of them, in units of one; the site
    then also moves what they vary by among themselves, M: by −(1 − 1/w)/w M dT M.
    """

    def __init__(self, iterate: JointIterate) -> None:
        self.iterate = iterate
        self._correlation = iterate.posterior.correlation
        self._units: Array | None = None
        observations = iterate.observations
        if observations is not None:
            inverse = inverted(iterate.view.root)
            self._units = inverse @ iterate.posterior.root
            self._own = inverse @ observations.own(iterate.view.tau) @ _up(inverse)
            self._share = observations.apart / observations.copies[:, None, None]

    def times(self, q: Array) -> Array:
        """C q."""
        if self._units is None:
            return self._correlation.times(q)
        return times(self._units, self._correlation.times(times(_up(self._units), q)))

    def sandwich(self, P: Array) -> Array:
        """Σ_j C_ij P_j C_ji, and what the observations vary by among themselves."""
        if self._units is None:
            return self._correlation.sandwich(P)
        through = self._units @ self._correlation.sandwich(_up(self._units) @ P @ self._units)
        return through @ _up(self._units) + self._share * (self._own @ P @ self._own)

    def columns(self, i: int, repeated: bool) -> Array:
        """C_ji for all j, (n, D, D), of one observation of i and others; its own row's if repeated."""
        blocks = self._correlation.columns(i)
        if self._units is not None:
            blocks = self._units @ blocks @ self._units[i].T
            blocks[i] = np.eye(blocks.shape[1]) - self._own[i]
        if not repeated:
            blocks[i] = 0.0
        return blocks

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

    def marginals_after(self, step: Array) -> tuple[Array, Array]:
        """L⁻¹(m' − m), exactly, and L⁻¹ V' L⁻ᵀ, roughly, after a step (P, q).

        The mean follows from (I + P C) x = q; the precision of a marginal grows by what the others
        would add to it alone, which is exact for a single site.
        """
        P, q = self.iterate.split(step)
        D = q.shape[1]

        def product(flat: Array) -> Array:
            x = flat.reshape(q.shape)
            return (x + times(P, self.times(x))).ravel()

        pull, _ = gmres(product, q.ravel(), rtol=MEAN_ACCURACY, dimension=_KRYLOV)
        growth, vectors = np.linalg.eigh(np.eye(D) + self.sandwich(P))
        shrunk = 1.0 / np.clip(growth, LEAST, 1.0 / LEAST)[:, None, :]
        variance = (vectors * shrunk) @ np.swapaxes(vectors, 1, 2)
        return self.times(pull.reshape(q.shape)), symmetric(variance)

    def spectral_radius(self) -> float:
        """Max |eigenvalue of J|."""
        residual = self.iterate.residual
        return spectral_radius(
            self.apply, residual + np.random.default_rng(0).standard_normal(len(residual))
        )


def joint_newton_step(problem: JointProblem, iterate: JointIterate, *, time: float) -> Step:
    """A Newton step in the residual's units, or an implicit step of pseudo-time."""
    linearised = JointLinearised(iterate)
    residual_after = partial(_residual_after, problem, iterate, linearised)
    return corrected_step(linearised, iterate.residual, iterate.size, time, residual_after)


def _residual_after(
    problem: JointProblem, iterate: JointIterate, linearised: JointLinearised, step: Array
) -> Array | None:
    """The residual to expect after a step; None where there is no telling."""
    m, L, _, _ = iterate.view
    b, variance = linearised.marginals_after(step)
    sites = iterate.moved(step)
    try:
        root = L @ root_of(variance)
    except np.linalg.LinAlgError:
        return None
    wanted = problem.propose(JointView(m + times(L, b), root, *sites)).sites
    up = np.swapaxes(L, 1, 2)
    missing = wanted.tau - sites.tau
    return _flat(symmetric(up @ missing @ L), times(up, wanted.nu - sites.nu - times(missing, m)))


def _flat(P: Array, q: Array) -> Array:
    return np.concatenate([P.ravel(), q.ravel()])


def _up(matrices: Array) -> Array:
    return np.swapaxes(matrices, 1, 2)
