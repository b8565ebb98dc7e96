"""Newton's step for the fixed point, and a look at where it leads before anything is factorised.

The rule's answer at the marginals that are predicted for the end of a step shows what the linear step
has missed, and a second solve corrects it: together they leave about a tenth of the residual that the
first alone would. Where the prediction shows that Newton's step would lead farther away, the solver
takes a shorter one, an implicit step of pseudo-time, without spending a factorisation to find that out.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from postlin._typing import Array
from postlin.inference.contract import Jacobian, Step
from postlin.linalg.krylov import gmres, spectral_radius

#: Relative accuracy of the solves, from afar and near the end.
_ROUGH, _FINE = 1e-2, 1e-6
#: Pseudo-times where Newton's step would make it worse: the first tried, how many times shorter each
#: further one is, and the one at which this ends.
_LONG, _SHORTER, _SHORT = 8.0, 2.0, 1.0
#: A correction longer than this part of the step is not believed.
_SMALL = 0.5
#: Relative accuracy of the mean that is predicted for a step.
MEAN_ACCURACY = 1e-4
#: Variances are not predicted to fall below this part of what they are.
LEAST = 0.1


class LinearisedMap(ABC):
    """The Jacobian J of the undamped parallel map at an iterate: products, solves, predictions.

    Vectors are in the residual's units, flat. J may have a spectral radius above one: it is solved with
    by GMRES, never by iterating.
    """

    #: Dimensions of the Krylov spaces, for steps and for the adjoint.
    krylov: ClassVar[int]
    long_krylov: ClassVar[int]

    @abstractmethod
    def apply(self, step: Array) -> Array:
        """J times a step."""

    @abstractmethod
    def apply_transposed(self, adjoint: Array) -> Array:
        """Jᵀ times a vector."""

    @abstractmethod
    def residual_after(self, step: Array) -> Array | None:
        """The residual to expect after a step; None where the rule has no answer there."""

    def solve(self, right: Array, *, time: float, rtol: float) -> Array:
        """((1 + 1/time) I − J)⁻¹ right: a Newton step, or an implicit step of pseudo-time."""
        diagonal = 1.0 + 1.0 / time
        solution, _ = gmres(
            lambda x: diagonal * x - self.apply(x), right, rtol=rtol, dimension=self.krylov
        )
        return solution

    def solve_transposed(self, right: Array, *, rtol: float) -> tuple[Array, bool]:
        """(I − Jᵀ)⁻¹ right, and whether the tolerance was reached."""
        return gmres(
            lambda x: x - self.apply_transposed(x), right, rtol=rtol, dimension=self.long_krylov
        )

    def spectral_radius(self, size: int) -> float:
        """max |eigenvalue of J|: below one, the plain iteration converges locally."""
        return spectral_radius(self.apply, np.random.default_rng(0).standard_normal(size))


def newton_step(linearised: Jacobian, residual: Array, size: float, time: float) -> Step:
    """A corrected Newton step, or an implicit step of this pseudo-time, or of less if need be.

    ``size`` is the largest entry of the residual.
    """
    # Newton's method squares the residual: near the end the solves must not stand in its way.
    rtol = min(_ROUGH, max(size, _FINE))
    step = linearised.solve(residual, time=time, rtol=rtol)
    missed = linearised.residual_after(step)
    while missed is not None and np.abs(missed).max() > size and time > _SHORT:
        time = min(_LONG, time / _SHORTER)
        step = linearised.solve(residual, time=time, rtol=rtol)
        missed = linearised.residual_after(step)
    if missed is None or np.isfinite(time):
        return Step(step, time)
    correction = linearised.solve(missed, time=time, rtol=rtol)
    is_small = np.abs(correction).max() < _SMALL * np.abs(step).max()
    return Step(step + correction if is_small else step, time)
