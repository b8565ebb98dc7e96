"""Walks over the tree of a kernel: its parts, its free parameters, and the white noise in its sums."""

import copy
from functools import reduce
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel, Sum, WhiteKernel

from postlin._typing import Array


def parts(kernel: Kernel) -> dict[str, Kernel]:
    """The kernels that a sum, product or power is made of, by the name of the attribute."""
    return {name: getattr(kernel, name) for name in ("k1", "k2", "kernel") if hasattr(kernel, name)}


def kernels_of(kernel: Kernel) -> list[Kernel]:
    """The kernel of every class, or the one kernel that all classes share."""
    return list(kernel.kernels) if isinstance(kernel, CompoundKernel) else [kernel]


def alike(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels have the same structure, so that the parameters of one suit the other."""
    if type(one) is not type(other) or one.n_dims != other.n_dims:
        return False
    return all(map(alike, parts(one).values(), parts(other).values()))


def length_scales(kernel: Kernel) -> list[Array]:
    """All length scales in a kernel and its parts."""
    parameters = kernel.get_params().items()
    return [np.asarray(value) for name, value in parameters if name.split("__")[-1] == "length_scale"]


class Slot(NamedTuple):
    """The position of a free parameter: the path to its part of the kernel, its name and its length."""

    path: tuple[str, ...]
    name: str
    size: int


def slots(kernel: Kernel) -> list[Slot] | None:
    """The slots of a kernel made only of scikit-learn's; None for others, which may store theirs anyhow."""
    if not _is_plain(kernel):
        return None
    free = [parameter for parameter in kernel.hyperparameters if not parameter.fixed]
    ways = [(parameter.name.split("__"), parameter.n_elements) for parameter in free]
    return [Slot(tuple(path), name, size) for (*path, name), size in ways]


def _is_plain(kernel: Kernel) -> bool:
    """Whether all of it is scikit-learn's, with no state but the arguments of the constructor."""
    ours = type(kernel).__module__ == Kernel.__module__ and not isinstance(kernel, CompoundKernel)
    return ours and all(map(_is_plain, parts(kernel).values()))


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
    for name, part in parts(kernel).items():
        setattr(other, name, _copied(part))
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


def split_white(kernel: Kernel) -> WhiteSplit:
    """Take the white-noise terms out of a sum of kernels."""
    if not can_split(kernel):
        raise ValueError(
            f"fold_noise=True needs a kernel that is a sum with a WhiteKernel and something else, got "
            f"{kernel}: add + WhiteKernel(...) or set fold_noise=False."
        )
    return split_known(kernel, free_numbers(kernel))


def free_numbers(kernel: Kernel) -> list[int]:
    """The number of free parameters of each term of a sum, which scikit-learn computes slowly."""
    return [int(term.n_dims) for term in _summands(kernel)]


def split_known(kernel: Kernel, numbers: list[int]) -> WhiteSplit:
    """``split_white`` of a sum that can be split and whose ``free_numbers`` are known."""
    smooth: Kernel | None = None
    noise = 0.0
    levels: list[float | None] = []
    for term, number in zip(_summands(kernel), numbers, strict=True):
        if type(term) is WhiteKernel:
            noise += float(term.noise_level)
            levels += [float(term.noise_level)] * number
        else:
            smooth = term if smooth is None else Sum(smooth, term)
            levels += [None] * number
    assert smooth is not None
    return WhiteSplit(smooth, noise, tuple(levels))


def _summands(kernel: Kernel) -> list[Kernel]:
    if type(kernel) is Sum:
        return _summands(kernel.k1) + _summands(kernel.k2)
    return [kernel]
