"""White noise taken out of a kernel, so that it can be folded into the likelihood."""

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel, Sum, WhiteKernel

from postlin._typing import Array


class WhiteSplit(NamedTuple):
    """A kernel without its white-noise terms, and their summed level."""

    smooth: Kernel
    noise: float
    is_white: tuple[bool, ...]  # for each free log-parameter of the whole kernel

    def join(self, theta: Array, by_smooth: list[float], by_noise: float) -> list[float]:
        """Derivatives by the log-parameters ``theta`` of the whole kernel from those by its parts.

        ``by_noise`` is that by the summed level itself.
        """
        levels = iter(np.exp(theta[list(self.is_white)]))
        rest = iter(by_smooth)
        return [by_noise * float(next(levels)) if white else next(rest) for white in self.is_white]


def can_split(kernel: Kernel) -> bool:
    """Whether the kernel is a sum with white noise and something else."""
    whites = [type(term) is WhiteKernel for term in _summands(kernel)]
    return any(whites) and not all(whites)


def split_white(kernel: Kernel) -> WhiteSplit:
    """Take the white-noise terms out of a sum of kernels."""
    smooth: Kernel | None = None
    noise = 0.0
    is_white: list[bool] = []
    for term in _summands(kernel):
        white = type(term) is WhiteKernel
        is_white += [white] * term.n_dims
        if white:
            noise += term.noise_level
        else:
            smooth = term if smooth is None else smooth + term
    if not can_split(kernel):
        raise ValueError(
            f"fold_noise=True needs a kernel that is a sum with a WhiteKernel and something else, got "
            f"{kernel}: add + WhiteKernel(...) or set fold_noise=False."
        )
    assert smooth is not None
    return WhiteSplit(smooth, noise, tuple(is_white))


def _summands(kernel: Kernel) -> list[Kernel]:
    if type(kernel) is Sum:
        return _summands(kernel.k1) + _summands(kernel.k2)
    return [kernel]
