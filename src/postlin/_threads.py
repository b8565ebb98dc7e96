"""BLAS threads: where they help, and not where two pools would only wait for each other.

NumPy and SciPy each bring a BLAS with a pool of its own. All that costs n³ here goes through
SciPy's, so NumPy's is held to one thread while we work; small matrices need no threads at all.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from threadpoolctl import LibController, ThreadpoolController  # a dependency of scikit-learn

#: Up to this many rows one thread is faster (measured on two cores).
_ONE_THREAD = 500

# Limits are the process's: of several users the first sets them and the last lifts them.
_lock = threading.Lock()
_users = 0
_before: list[tuple[LibController, int]] = []


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """A context in which BLAS uses the threads that suit matrices of n rows."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            _before[:] = [(library, library.num_threads) for library in _libraries()]
            for library, _ in _before:
                if n <= _ONE_THREAD or (
                    len(_before) > 1 and Path(library.filepath).parent.name == "numpy.libs"
                ):
                    library.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for library, threads in _before:
                    library.set_num_threads(threads)


def threads() -> int:
    """How many threads the BLAS that does our work would use now."""
    return max((library.num_threads for library in _libraries()), default=1)


@cache
def _libraries() -> list[LibController]:
    return [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
