"""Newton's step, and a look at where it leads before anything is factorised.

The rule's answer at the marginals that are predicted for the end of a step shows what the linear step
has missed, and a second solve corrects it: together they leave about a tenth of the residual that the
first alone would.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from postlin._typing import Array

#: Relative accuracy of the solves, from afar and near the end.
_ROUGH, _FINE = 1e-2, 1e-6
#: A correction longer than this part of the step is not one.
_SMALL = 0.5
#: Relative accuracy of the mean that is predicted for a step.
MEAN_ACCURACY = 1e-4
#: Variances are not predicted to fall below this part of what they are.
LEAST = 0.1


class Solves(Protocol):
    """The Jacobian J of the undamped map at a point."""

    def solve(self, right: Array, *, time: float, rtol: float) -> Array:
        """((1 + 1/time) I − J)⁻¹ right."""


def corrected_step(
    linearised: Solves,
    residual: Array,
    size: float,
    time: float,
    residual_after: Callable[[Array], Array | None],
) -> Array:
    """A Newton step in the residual's units, corrected, or an implicit step of pseudo-time.

    ``size`` is how far from the end this is; ``residual_after`` tells the residual to expect after a
    step, or None where there is no telling.
    """
    # Newton's method squares the residual: near the end the solves must not stand in its way.
    rtol = min(_ROUGH, max(size, _FINE))
    step = linearised.solve(residual, time=time, rtol=rtol)
    if np.isfinite(time):
        return step
    missed = residual_after(step)
    if missed is None:
        return step
    correction = linearised.solve(missed, time=time, rtol=rtol)
    is_small = np.abs(correction).max() < _SMALL * np.abs(step).max()
    return step + correction if is_small else step
