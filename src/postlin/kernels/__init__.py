"""scikit-learn kernels as gram matrices with a pull-back.

A gradient of the evidence arrives as K̄ = ∂ log Z/∂K; ``pull_back`` contracts it to the kernel's
free log-parameters, in scikit-learn's order, without the (n, n, p) tensor that scikit-learn's own
gradients are. Kernels with no term of their own here fall back to that tensor.
"""

from postlin.kernels import compound, pointwise, stationary  # noqa: F401  (they register their terms)
from postlin.kernels.terms import (
    Gram,
    Points,
    Term,
    bind,
    bind_checked,
    check_kernel,
    cross_covariance,
    full_gram,
    matrices_held,
)
from postlin.kernels.tree import Slot, WhiteSplit, can_split, moved, slots, split_white

__all__ = [
    "Gram",
    "Points",
    "Slot",
    "Term",
    "WhiteSplit",
    "bind",
    "bind_checked",
    "can_split",
    "check_kernel",
    "cross_covariance",
    "full_gram",
    "matrices_held",
    "moved",
    "slots",
    "split_white",
]
