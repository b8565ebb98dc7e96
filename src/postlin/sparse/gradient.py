"""The exact gradient of the sparse evidence: one adjoint solve, each product of which is a pass.

At a fixed point x = F(x, θ) of the passes the evidence 𝓔(x, θ) has the total derivative 𝓔_θ +
x̄ᵀF_θ with (I − F_xᵀ) x̄ = 𝓔_x. Of x̄ the part (−½I + ½hhᵀ, h), which the Gaussian integral
contributes, is known; what is left is driven by the mismatch between sites and likelihood at the
cavity alone, and is nothing for EP.
"""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.krylov import gmres
from postlin.sparse.local import Method
from postlin.sparse.passes import AdjointPass, Evidence, GradientPass, Pulled, Slopes
from postlin.sparse.posterior import SparsePosterior
from postlin.sparse.residual import Residual
from postlin.sparse.rows import Rows

#: The most passes spent on an adjoint.
_KRYLOV = 60


class Gradient(NamedTuple):
    """Derivatives of the log evidence, and its gain, to first order, on the way to the fixed point."""

    by_theta: Array  # the kernel's free log-parameters
    by_points: Array
    by_parameters: Array  # the likelihood's
    correction: float
    n_passes: int


def gradient_at(
    rows: Rows,
    posterior: SparsePosterior,
    method: Method,
    evidence: Evidence,
    residual: Residual,
    *,
    accuracy: float,
    points: bool,
) -> Gradient:
    """The gradient at a state, from the evidence there.

    ``accuracy`` is that of the adjoint: absolute, or relative where it is larger than one.
    """
    m, passes = len(posterior.h), 0

    def product(flat: Array) -> Array:
        nonlocal passes
        passes += 1
        E_bar, e_bar = _unpacked(flat, m)
        pulled: Pulled = rows.total(AdjointPass(posterior, method, E_bar, e_bar))
        return flat - _packed(*pulled)

    seed = _packed(evidence.by_precision, evidence.by_pull)
    size = float(np.linalg.norm(seed))
    solution = np.zeros_like(seed)
    if size > accuracy:  # a change of the state by one is a large one
        rtol = accuracy * max(1.0, 1.0 / size)
        solution, _ = gmres(product, seed, rtol=rtol, dimension=_KRYLOV)
    E_bar, e_bar = _unpacked(solution, m)
    slopes: Slopes = rows.total(GradientPass(posterior, method, E_bar, e_bar, points))
    by_theta, by_points = posterior.basis.pull_back(slopes.by_basis, points=points)
    h, (E, e, *_) = posterior.h, residual
    correction = np.sum(E_bar * E) + e_bar @ e + h @ e + 0.5 * (h @ E @ h - E.trace())
    return Gradient(
        slopes.by_theta + by_theta,
        slopes.by_points + by_points,
        slopes.by_parameters,
        float(correction),
        passes + 1,
    )


def _packed(E: Array, e: Array) -> Array:
    """A symmetric matrix and a vector as one vector with the same inner product."""
    rows, columns = np.tril_indices(len(e), -1)
    return np.concatenate([E.diagonal(), np.sqrt(2.0) * E[rows, columns], e])


def _unpacked(flat: Array, m: int) -> tuple[Array, Array]:
    E = np.diag(flat[:m])
    rows, columns = np.tril_indices(m, -1)
    E[rows, columns] = E[columns, rows] = flat[m:-m] / np.sqrt(2.0)
    return E, flat[-m:]
