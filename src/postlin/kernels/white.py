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
    smooth: Kernel | None = None
    noise = 0.0
    levels: list[float | None] = []
    for term in _summands(kernel):
        if type(term) is WhiteKernel:
            noise += float(term.noise_level)
            levels += [float(term.noise_level)] * term.n_dims
        else:
            smooth = term if smooth is None else smooth + term
            levels += [None] * term.n_dims
    if not can_split(kernel):
        raise ValueError(
            f"fold_noise=True needs a kernel that is a sum with a WhiteKernel and something else, got "
            f"{kernel}: add + WhiteKernel(...) or set fold_noise=False."
        )
    assert smooth is not None
    return WhiteSplit(smooth, noise, tuple(levels))


def _summands(kernel: Kernel) -> list[Kernel]:
    if type(kernel) is Sum:
        return _summands(kernel.k1) + _summands(kernel.k2)
    return [kernel]
