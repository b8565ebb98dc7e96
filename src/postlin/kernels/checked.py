"""A kernel tried on data before anything is built on it."""

from typing import Any

from sklearn.gaussian_process.kernels import Kernel

from postlin._validation import check_covariance
from postlin.arrays import Place
from postlin.kernels.terms import Term, bind, full_gram, is_covariance


def bind_checked(kernel: Kernel, X: Any, n: int, place: Place | None = None) -> Term:
    """The term for a kernel on data; ``ValueError`` where it makes no covariance of them."""
    try:
        term = bind(kernel, X, place)
        K = full_gram(term.gram(kernel), n, place).K
    except (TypeError, ValueError) as error:
        raise ValueError(f"the kernel {kernel} cannot be evaluated on X: {error}") from error
    try:
        check_covariance(K, known=is_covariance(kernel))
    except ValueError as error:
        raise ValueError(f"the kernel {kernel} makes no covariance of X: {error}") from None
    return term
