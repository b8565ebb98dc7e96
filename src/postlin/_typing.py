"""The array types that signatures speak of, and the pair that every marginal is."""

from typing import NamedTuple

from numpy import float64
from numpy.typing import NDArray

#: What postlin computes with and returns: double precision, always.
Array = NDArray[float64]


class Marginals(NamedTuple):
    """Means and variances of latent values, point by point."""

    mean: Array
    variance: Array
