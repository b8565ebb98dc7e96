"""Newton's step, and a look at where it leads before anything is factorised.

The rule's answer at the marginals that are predicted for the end of a step shows what the linear step
has missed, and a second solve corrects it: together they leave about a tenth of the residual that the
first alone would. Where it shows that Newton's step would lead farther away, a shorter one is taken, an
implicit step of pseudo-time, without a factorisation spent on finding that out.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from postlin._typing import Array

#: Relative accuracy of the solves, from afar and near the end.
_ROUGH, _FINE = 1e-2, 1e-6
#: Pseudo-times where Newton's step would make it worse: the first tried, how many times shorter each
#: further one is, and the one at which this ends.
_LONG, _SHORTER, _SHORT = 8.0, 2.0, 1.0
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


class Step(NamedTuple):
    """A step in the residual's units, and its pseudo-time: infinite for Newton's."""

    step: Array
    time: float


def corrected_step(
    linearised: Solves,
    residual: Array,
    size: float,
    time: float,
    residual_after: Callable[[Array], Array | None],
) -> Step:
    """A Newton step, corrected, or an implicit step of so much pseudo-time, or less if need be.

    ``size`` is how far from the end this is; ``residual_after`` tells the residual to expect after a
    step, or None where there is no telling.
    """
    # Newton's method squares the residual: near the end the solves must not stand in its way.
    rtol = min(_ROUGH, max(size, _FINE))
    step = linearised.solve(residual, time=time, rtol=rtol)
    missed = residual_after(step)
    while missed is not None and np.abs(missed).max() > size and time > _SHORT:
        time = min(_LONG, time / _SHORTER)
        step = linearised.solve(residual, time=time, rtol=rtol)
        missed = residual_after(step)
    if missed is None or np.isfinite(time):
        return Step(step, time)
    correction = linearised.solve(missed, time=time, rtol=rtol)
    is_small = np.abs(correction).max() < _SMALL * np.abs(step).max()
    return Step(step + correction if is_small else step, time)
