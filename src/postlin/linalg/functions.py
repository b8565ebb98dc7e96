"""Functions of numbers, special ones among them, in the library of their arguments.

A formula that takes its functions from ``functions(x)`` in place of NumPy works wherever x is stored:
on numbers, on NumPy arrays, and on arrays of PyTorch, CuPy or array-api-strict. The names are those of
the array API standard, and SciPy's for special functions. Plain numbers may stand beside arrays.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from math import inf, pi, sqrt
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from scipy import special

from postlin.linalg.arrays import Place, library, on_host, place_of

_SPECIAL = ("erf", "erfcx", "expit", "log_expit", "log_ndtr", "ndtr")
#: Beyond this erfcx is a series; before, no factor of it overflows or underflows.
_FAR = 20.0
#: The coefficients of x √π erfcx(x) beside powers of 1/x²: (−1)ᵏ (2k − 1)!!/2ᵏ.
_FAR_COEFFICIENTS = (1.0, -0.5, 0.75, -1.875, 6.5625, -29.53125, 162.421875, -1055.7421875)


def functions(x: Any) -> Any:
    """The functions for numbers like x, an array of any library or a number."""
    if isinstance(x, np.ndarray | float):
        return _NUMPY
    name = library(x)
    return _NUMPY if name is None else _elsewhere(name)


def has_special_functions(place: Place) -> bool:
    """Whether the library of a place computes special functions itself."""
    return bool(place.xp.__name__ != "array_api_strict")


def _numpy() -> SimpleNamespace:
    names = (
        "abs all diff einsum exp isfinite log log1p max maximum minimum ones_like sort sqrt stack sum"
    )
    return SimpleNamespace(
        **{name: getattr(np, name) for name in f"{names} where zeros_like".split()},
        **{name: getattr(special, name) for name in _SPECIAL},
        any=lambda x: x.any(),
        arange=lambda n, like: np.arange(n),
        asarray=np.asarray,
        broadcast_arrays=np.broadcast_arrays,
        # ``np.clip`` takes twice the time for few numbers
        clip=lambda x, low, high: np.minimum(np.maximum(x, low), high),
        concat=np.concatenate,
        flatnonzero=np.flatnonzero,
        give=lambda values, like: values,
        permute_dims=np.transpose,
        rows=np.array,
        scaled_erfc=special.erfcx,
        where_each=np.where,  # in one call, since it makes an array of the sequences
        zeros=lambda shape, like: np.zeros(shape),
    )


_NUMPY = _numpy()


class _Elsewhere:
    """The functions of a library that has those of the standard, and the others by these names."""

    def __init__(self, xp: ModuleType, **others: Callable[..., Any]) -> None:
        self._xp = xp
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._xp, name)
        setattr(self, name, found)  # the next time it is found at once
        return found

    @staticmethod
    def asarray(x: Any, _: type = float) -> Any:
        """The array itself, which has numbers of double precision."""
        return x

    @staticmethod
    def any(x: Any) -> bool:
        """Whether any entry is true, which waits for the device."""
        return bool(place_of(x).xp.any(x))

    @staticmethod
    def arange(n: int, like: Any) -> Any:
        """The numbers from 0 to n − 1, where others are."""
        return place_of(like).give(np.arange(n))

    @staticmethod
    def give(values: np.ndarray, like: Any) -> Any:
        """Move NumPy's numbers to where others are."""
        return place_of(like).give(values)

    @staticmethod
    def zeros(shape: tuple[int, ...], like: Any) -> Any:
        """Zeros where other numbers are."""
        return place_of(like).zeros(*shape)

    def scaled_erfc(self, x: Any) -> Any:
        """erfcx of numbers that are at most 20."""
        return self.erfcx(x)

    def rows(self, parts: Any) -> Any:
        """The array of nested lists of arrays of one shape."""
        return self.stack([self.rows(p) for p in parts]) if isinstance(parts, list) else parts

    def flatnonzero(self, x: Any) -> Any:
        """The indices of the true entries of a vector, which waits for the device."""
        return self.nonzero(x)[0]

    def where_each(self, choose: Any, if_true: Sequence[Any], if_false: Sequence[Any]) -> list[Any]:
        """``where`` of each pair of arrays."""
        return [self.where(choose, a, b) for a, b in zip(if_true, if_false, strict=True)]


@cache
def _elsewhere(name: str) -> _Elsewhere:
    xp = import_module(name)
    if name == "torch":
        return _torch(xp)
    if name == "cupy":
        known = import_module("cupyx.scipy.special")
        return _Elsewhere(
            xp,
            concat=xp.concatenate,
            permute_dims=xp.transpose,
            **{key: getattr(known, key) for key in _SPECIAL},
        )

    def einsum(form: str, *arrays: Any) -> Any:  # the standard has none, and this library is for tests
        return place_of(arrays[0]).give(np.einsum(form, *map(on_host, arrays)))

    return _Elsewhere(xp, einsum=einsum)


def _torch(torch: Any) -> _Elsewhere:
    """PyTorch's own functions, which take fewer microseconds than their wrappers for the standard."""
    is_array = torch.is_tensor

    def erfcx(x: Any) -> Any:
        return torch.where(
            x > _FAR, far_erfcx(x.clamp(min=_FAR)), scaled_erfc(x.clamp(-2.0 * _FAR, _FAR))
        )

    def scaled_erfc(x: Any) -> Any:
        # x² = h² + (x − h)(x + h), where h² has no rounding error that exp would enlarge
        h = torch.round(16.0 * x) / 16.0
        return torch.exp(h * h) * (torch.exp((x - h) * (x + h)) * torch.erfc(x))

    def far_erfcx(x: Any) -> Any:
        square, value = 1.0 / (x * x), torch.zeros_like(x)
        for c in reversed(_FAR_COEFFICIENTS):
            value = c + value * square
        return value / (sqrt(pi) * x)

    def log_ndtr(x: Any) -> Any:
        low = sqrt(0.5) * x.clamp(max=0.0)
        below = torch.log(0.5 * erfcx(-low)) - low * low
        return torch.where(x > 0.0, torch.log1p(-0.5 * torch.erfc(sqrt(0.5) * x)), below)

    return _Elsewhere(
        torch,
        erf=torch.special.erf,
        expit=torch.special.expit,
        # a device compiles PyTorch's own erfcx and log_ndtr for 8 seconds when they are called first
        erfcx=erfcx,
        scaled_erfc=scaled_erfc,
        log_ndtr=log_ndtr,
        log_expit=torch.nn.functional.logsigmoid,
        # ``torch.special.ndtr`` is 1 + erf, which has no digits in the lower tail
        ndtr=lambda x: 0.5 * torch.special.erfc(-sqrt(0.5) * x),
        any=lambda x: bool(x.any()),
        broadcast_arrays=torch.broadcast_tensors,
        clip=torch.clamp,
        isfinite=lambda x: torch.abs(x) < inf,  # two calls of the device where PyTorch's takes five
        max=lambda x, axis: torch.amax(x, dim=axis),
        maximum=lambda a, b: torch.maximum(a, b) if is_array(b) else torch.clamp(a, min=b),
        minimum=lambda a, b: torch.minimum(a, b) if is_array(b) else torch.clamp(a, max=b),
        nonzero=lambda x: torch.nonzero(x, as_tuple=True),
        permute_dims=torch.permute,
        sort=lambda x: torch.sort(x).values,
        zeros=lambda shape, like: like.new_zeros(shape),
    )
