"""scikit-learn kernels as blocks of covariances with pull-backs.

A gradient of the evidence arrives as K̄ = ∂ log Z/∂K; a pull-back contracts it to the kernel's
free log-parameters, in scikit-learn's order, without the (n, n, p) tensor of scikit-learn's own
gradients. Kernels without a formula here fall back to that tensor.
"""

from postlin.kernels import formulas  # noqa: F401  (it registers their terms)
from postlin.kernels.terms import Cross as Cross
from postlin.kernels.terms import Diagonal as Diagonal
from postlin.kernels.terms import Gram as Gram
from postlin.kernels.terms import Points as Points
from postlin.kernels.terms import Term as Term
from postlin.kernels.terms import bind as bind
from postlin.kernels.terms import bind_checked as bind_checked
from postlin.kernels.terms import can_merge as can_merge
from postlin.kernels.terms import check_kernel as check_kernel
from postlin.kernels.terms import cross as cross
from postlin.kernels.terms import cross_covariance as cross_covariance
from postlin.kernels.terms import diagonal as diagonal
from postlin.kernels.terms import full_cross as full_cross
from postlin.kernels.terms import full_gram as full_gram
from postlin.kernels.terms import matrices_held as matrices_held
from postlin.kernels.terms import moves_points as moves_points
from postlin.kernels.terms import shown as shown
from postlin.kernels.tree import Slot as Slot
from postlin.kernels.tree import WhiteSplit as WhiteSplit
from postlin.kernels.tree import alike as alike
from postlin.kernels.tree import can_split as can_split
from postlin.kernels.tree import kernels_of as kernels_of
from postlin.kernels.tree import length_scales as length_scales
from postlin.kernels.tree import moved as moved
from postlin.kernels.tree import slots as slots
from postlin.kernels.tree import split_white as split_white
