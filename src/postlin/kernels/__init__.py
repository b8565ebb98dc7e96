"""scikit-learn kernels as blocks of covariances with pull-backs.

A gradient of the evidence arrives as K̄ = ∂ log Z/∂K; a pull-back contracts it to the kernel's
free log-parameters, in scikit-learn's order, without the (n, n, p) tensor of scikit-learn's own
gradients. Kernels without a formula here fall back to that tensor.
"""

from postlin.kernels import compound, pointwise, stationary  # noqa: F401  (they register their terms)
from postlin.kernels.terms import (
    Block,
    Diagonal,
    Gram,
    Points,
    Term,
    bind,
    bind_checked,
    check_kernel,
    cross,
    cross_covariance,
    diagonal,
    full_cross,
    full_gram,
    matrices_held,
    moves_points,
)
from postlin.kernels.tree import (
    Slot,
    WhiteSplit,
    alike,
    can_split,
    kernels_of,
    length_scales,
    moved,
    slots,
    split_white,
)

__all__ = [
    "Block",
    "Diagonal",
    "Gram",
    "Points",
    "Slot",
    "Term",
    "WhiteSplit",
    "alike",
    "bind",
    "bind_checked",
    "can_split",
    "check_kernel",
    "cross",
    "cross_covariance",
    "diagonal",
    "full_cross",
    "full_gram",
    "kernels_of",
    "length_scales",
    "matrices_held",
    "moved",
    "moves_points",
    "slots",
    "split_white",
]
