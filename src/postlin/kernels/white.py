"""White noise taken out of a kernel: to be folded into the likelihood, or for the diagonal alone."""

from typing import NamedTuple

from sklearn.gaussian_process.kernels import Kernel, Sum, WhiteKernel


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
