"""Which features matter: length scales, one a feature, read as relevance."""

from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.joint.model import kernels_of


class Relevance(NamedTuple):
    """Features ordered by relevance, the most relevant first.

    Relevance is the feature's standard deviation in length scales: how far the data reach, as the
    kernel measures it. It does not depend on the feature's unit.
    """

    names: list[str]
    values: Array
    features: np.ndarray  # their indices


def relevance(kernels: list[Kernel], spread: Array, names: list[str] | None) -> Relevance:
    """Of features with these standard deviations, averaged over kernels.

    ``ValueError`` where a kernel has no such scales.
    """
    d = len(spread)
    parts = [part for kernel in kernels for part in kernels_of(kernel)]
    values = spread * np.mean([_inverse_scales(part, d) for part in parts], axis=0)
    order = np.argsort(-values, kind="stable")
    names = names or [f"x{k}" for k in range(d)]
    return Relevance([names[k] for k in order], values[order], order)


def _inverse_scales(kernel: Kernel, d: int) -> Array:
    """1/length scale by feature: the largest, where several parts of the kernel have one."""
    found = [1.0 / scale for scale in _length_scales(kernel) if np.shape(scale) == (d,) and d > 1]
    if not found:
        raise ValueError(
            f"the kernel {kernel} has no length scale of its own for every feature: use for example "
            f"RBF(np.ones({d}))."
        )
    largest: Array = np.max(found, axis=0)
    return largest


def _length_scales(kernel: Kernel) -> list[Array]:
    """All length scales in a kernel, those of its parts included."""
    return [
        np.asarray(value)
        for name, value in kernel.get_params().items()
        if name.split("__")[-1] == "length_scale"
    ]
