"""BLAS threads: for small matrices they cost more than they give.

NumPy and SciPy each bring a BLAS with a pool of its own; on matrices of a few hundred rows the
two pools mostly wait for each other.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController  # a dependency of scikit-learn

#: Up to this many rows one thread is faster (measured on two cores).
_ONE_THREAD = 1400


def blas_threads(n: int) -> AbstractContextManager[object]:
    """A context in which BLAS uses the threads that suit matrices of n rows."""
    if n > _ONE_THREAD:
        return nullcontext()
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
