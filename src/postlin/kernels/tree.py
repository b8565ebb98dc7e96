"""Walks over the tree of a kernel: its parts, its free parameters, and the white noise in its sums."""

import copy
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    Kernel,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
    WhiteKernel,
)

from postlin._typing import Array

_PARTS = ("k1", "k2", "kernel")


def parts(kernel: Kernel) -> list[Kernel]:
    """The kernels that a sum, product or power is made of; none for other kernels."""
    return [getattr(kernel, name) for name in _PARTS if hasattr(kernel, name)]


def kernels_of(kernel: Kernel) -> list[Kernel]:
    """The kernels of all classes, or the one kernel that they share."""
    return list(kernel.kernels) if isinstance(kernel, CompoundKernel) else [kernel]


def alike(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels have the same structure, so that the parameters of one suit the other."""
    if type(one) is not type(other) or one.n_dims != other.n_dims:
        return False
    return all(map(alike, parts(one), parts(other)))


def length_scales(kernel: Kernel) -> list[Array]:
    """All length scales in a kernel and its parts."""
    parameters = kernel.get_params().items()
    return [np.asarray(value) for name, value in parameters if name.split("__")[-1] == "length_scale"]


#: The ν of Matérn kernels without a Bessel function; ∞ makes the squared exponential.
SMOOTHNESS = (0.5, 1.5, 2.5, np.inf)

#: Whether a kernel of each type is positive semi-definite on all data; others must be looked at.
_COVARIANCES: dict[type[Kernel], Callable[[Kernel], bool]] = {
    ConstantKernel: lambda kernel: bool(kernel.constant_value > 0),
    WhiteKernel: lambda kernel: bool(kernel.noise_level >= 0),
    DotProduct: lambda kernel: True,
    RBF: lambda kernel: True,
    Matern: lambda kernel: kernel.nu in SMOOTHNESS,
    RationalQuadratic: lambda kernel: bool(kernel.alpha > 0),
    Sum: lambda kernel: all(map(is_covariance, parts(kernel))),
    Product: lambda kernel: all(map(is_covariance, parts(kernel))),
}


def is_covariance(kernel: Kernel) -> bool:
    """Whether the kernel is known to be positive semi-definite on all data."""
    return type(kernel) in _COVARIANCES and _COVARIANCES[type(kernel)](kernel)


class Slot(NamedTuple):
    """The position of a free parameter: the path to its part of the kernel, its name and its length."""

    path: tuple[str, ...]
    name: str
    size: int


def slots(kernel: Kernel) -> list[Slot] | None:
    """The slots of a kernel made of scikit-learn's own; None for others, whose storage is unknown."""
    if not _is_plain(kernel):
        return None
    free = [parameter for parameter in kernel.hyperparameters if not parameter.fixed]
    ways = [(parameter.name.split("__"), parameter.n_elements) for parameter in free]
    return [Slot(tuple(path), name, size) for (*path, name), size in ways]


def _is_plain(kernel: Kernel) -> bool:
    """Whether all of it is scikit-learn's, with no state but the arguments of the constructor."""
    ours = type(kernel).__module__ == Kernel.__module__ and not isinstance(kernel, CompoundKernel)
    return ours and all(map(_is_plain, parts(kernel)))


def moved(kernel: Kernel, theta: Array, known: list[Slot] | None) -> Kernel:
    """A copy of the kernel with these free log-parameters; ``known`` are its slots."""
    if isinstance(kernel, CompoundKernel):  # scikit-learn's own way fails for it
        thetas = np.split(theta, np.cumsum([part.n_dims for part in kernel.kernels])[:-1])
        return CompoundKernel(
            [part.clone_with_theta(t) for part, t in zip(kernel.kernels, thetas, strict=True)]
        )
    if known is None:
        return kernel.clone_with_theta(theta)
    other, values = _copied(kernel), np.exp(theta)
    first = 0
    for path, name, size in known:
        value = values[first] if size == 1 else values[first : first + size]
        setattr(reduce(getattr, path, other), name, value)
        first += size
    return other


def _copied(kernel: Kernel) -> Kernel:
    """A copy down to the parameter values, which are shared: they are replaced and never changed."""
    other = copy.copy(kernel)
    for name in _PARTS:
        if hasattr(other, name):
            setattr(other, name, _copied(getattr(other, name)))
    return other


class WhiteSplit(NamedTuple):
    """A kernel without its white-noise terms, and their summed level."""

    smooth: Kernel
    noise: float
    levels: tuple[
        float | None, ...
    ]  # the level of each free log-parameter, None if it is not white noise

    def join(self, by_smooth: list[float], by_noise: float) -> list[float]:
        """The derivatives by the log-parameters of the whole kernel from those by its two parts.

        ``by_noise`` is the derivative by the summed level itself, not by its logarithm.
        """
        rest = iter(by_smooth)
        return [next(rest) if level is None else level * by_noise for level in self.levels]


def can_split(kernel: Kernel) -> bool:
    """Whether the kernel is a sum of white noise and something else."""
    whites = [type(term) is WhiteKernel for term in _summands(kernel)]
    return any(whites) and not all(whites)


def split_white(kernel: Kernel, numbers: list[int] | None = None) -> WhiteSplit:
    """Take the white-noise terms out of a sum of kernels, whose ``free_numbers`` may be known."""
    if numbers is None and not can_split(kernel):
        raise ValueError(
            f"fold_noise=True needs a kernel that is a sum with a WhiteKernel and something else, got "
            f"{kernel}: add + WhiteKernel(...) or set fold_noise=False."
        )
    smooth, noise, levels = [], 0.0, list[float | None]()
    for term, number in zip(_summands(kernel), numbers or free_numbers(kernel), strict=True):
        white = type(term) is WhiteKernel
        levels += [float(term.noise_level) if white else None] * number
        if white:
            noise += float(term.noise_level)
        else:
            smooth.append(term)
    return WhiteSplit(reduce(Sum, smooth), noise, tuple(levels))


def free_numbers(kernel: Kernel) -> list[int]:
    """The number of free parameters of each term of a sum, which scikit-learn computes slowly."""
    return [int(term.n_dims) for term in _summands(kernel)]


def _summands(kernel: Kernel) -> list[Kernel]:
    if type(kernel) is Sum:
        return _summands(kernel.k1) + _summands(kernel.k2)
    return [kernel]
