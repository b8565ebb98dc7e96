"""The array types that signatures speak of, and what counts as a number."""

from numbers import Real

from numpy import float64
from numpy.typing import NDArray

#: What postlin computes with and returns: double precision, always.
Array = NDArray[float64]


def is_real(value: object) -> bool:
    """Whether a value is a real number, which True and "1" are not."""
    return isinstance(value, Real) and not isinstance(value, bool)
