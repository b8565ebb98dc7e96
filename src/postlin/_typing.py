"""The types that signatures use everywhere, and decorators that Python 3.11 lacks."""

import functools
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
    from functools import cached_property as cached_property

    from typing_extensions import override as override
else:  # Python 3.12 has them in functools and typing

    class cached_property(functools.cached_property):  # noqa: N801
        """A property that is computed once for each object, without a lock for all objects.

        With that of Python 3.11 only one thread at a time could compute it, and the child of a process
        that forked meanwhile would wait for it forever.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value

    Function = TypeVar("Function")

    def override(method: Function) -> Function:
        """Mark a method that replaces one of a base class, whose docstring describes it."""
        return method
