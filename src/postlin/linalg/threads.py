"""Points a few at a time: what is computed of them stays in the cache, and threads share the work.

All that is done here is elementwise or in small matrices, in NumPy, whose own threads would not help.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
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


#: Up to so many rows memory is no matter: a matrix more is held where that saves time.
FEW_ROWS = 800

#: Bytes; a little less than the limit, for there is a header.
_LARGEST = 2**25 - 2**16


@cache
def keep_freed_memory() -> None:
    """Make the process keep blocks of up to 32 MiB, and twice as much of them, for later."""
    np.empty(_LARGEST, dtype=np.uint8)


#: Entries of the largest array of a batch: one megabyte.
_ENTRIES = 2**17


def in_batches(work: Callable[[slice], None], n: int, entries: int) -> None:
    """Call ``work`` on consecutive slices of n points with so many ``entries`` each.

    It must write what it finds to where the others do not. Results do not depend on the threads.
    """
    width = max(1, _ENTRIES // entries)
    parts = [slice(first, min(first + width, n)) for first in range(0, n, width)]
    workers = min(threads(), len(parts))
    if workers == 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(work, parts):
            pass  # raises what was raised there
