"""The two array types that signatures speak of."""

from numpy import float64, floating
from numpy.typing import NDArray

#: What postlin computes with and returns: double precision, always.
Array = NDArray[float64]

#: What postlin accepts where the precision of the caller does not matter.
RealArray = NDArray[floating]
