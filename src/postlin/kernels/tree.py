"""White noise taken out of a kernel: to be folded into the likelihood, or for the diagonal alone."""

import copy
from functools import reduce
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel, Sum, WhiteKernel

from postlin._typing import Array

_PARTS = ("k1", "k2", "kernel")


class Slot(NamedTuple):
    """Where a free parameter stands: the way to its part of the kernel, its name and its length."""

    path: tuple[str, ...]
    name: str
    size: int


def slots(kernel: Kernel) -> list[Slot] | None:
    """Those of a kernel made of scikit-learn's own; None for others, which may keep theirs anyhow."""
    if not _is_plain(kernel):
        return None
    free = [parameter for parameter in kernel.hyperparameters if not parameter.fixed]
    ways = [(parameter.name.split("__"), parameter.n_elements) for parameter in free]
    return [Slot(tuple(path), name, size) for (*path, name), size in ways]


def moved(kernel: Kernel, theta: Array, known: list[Slot] | None) -> Kernel:
    """The kernel with these free log-parameters, its slots being known or none."""
    if isinstance(kernel, CompoundKernel):  # scikit-learn's own way fails for it
        parts = np.split(theta, np.cumsum([part.n_dims for part in kernel.kernels])[:-1])
        return CompoundKernel(
            [part.clone_with_theta(t) for part, t in zip(kernel.kernels, parts, strict=True)]
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
    """A kernel of its own, down to the parameters, which are replaced and never changed."""
    other = copy.copy(kernel)
    for name in _PARTS:
        if name in vars(other):
            setattr(other, name, _copied(getattr(other, name)))
    return other


def _is_plain(kernel: Kernel) -> bool:
    """Whether all of it is scikit-learn's, with no state but what its constructor is given."""
    parts = [getattr(kernel, name) for name in _PARTS if name in vars(kernel)]
    ours = type(kernel).__module__ == Kernel.__module__ and not isinstance(kernel, CompoundKernel)
    return ours and all(map(_is_plain, parts))


class WhiteSplit(NamedTuple):
    """A kernel without its white-noise terms, and their summed level."""

    smooth: Kernel
    noise: float
    levels: tuple[float | None, ...]  # for each free log-parameter of the whole kernel: white or not

    def join(self, by_smooth: list[float], by_noise: float) -> list[float]:
        """Derivatives by the log-parameters of the whole kernel from those by its parts.

        ``by_noise`` is that by the summed level itself.
        """
        rest = iter(by_smooth)
        return [next(rest) if level is None else level * by_noise for level in self.levels]


def can_split(kernel: Kernel) -> bool:
    """Whether the kernel is a sum with white noise and something else."""
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
    """How many free parameters each term of a sum has, which takes scikit-learn a while to say."""
    return [int(term.n_dims) for term in _summands(kernel)]


def split_known(kernel: Kernel, numbers: list[int]) -> WhiteSplit:
    """``split_white`` of a sum that can be split and of which these numbers are known."""
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
