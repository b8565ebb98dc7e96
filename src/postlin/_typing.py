"""The types that signatures use everywhere."""

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from numpy import float64
from numpy.typing import NDArray

#: The arrays that postlin computes with and returns, always in double precision.
Array = NDArray[float64]


class Marginals(NamedTuple):
    """Means and variances of latent values, point by point."""

    mean: Array
    variance: Array


if TYPE_CHECKING:
    from typing_extensions import override as override
else:  # Python 3.12 has it in typing
    Function = TypeVar("Function")

    def override(method: Function) -> Function:
        """Mark a method that replaces one of a base class, whose docstring describes it."""
        return method
