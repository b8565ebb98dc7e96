"""The number of threads of BLAS, the memory that is kept, and work on batches of points in threads.

Batches are for elementwise work and small matrices in NumPy, which BLAS threads would not speed up.
"""

import collections
import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from threadpoolctl import LibController, ThreadpoolController  # a dependency of scikit-learn

from postlin.linalg.arrays import Place

Result = TypeVar("Result")

#: Threads that share a device. On an H200 58,101 predictions take 3.4 s with one, 2.7 with two and 3.6
#: with eight, which wait for each other's turn with Python.
_FEEDERS = 2
#: The largest number of rows for which one thread is faster (measured on two cores), and the rows that
#: each of several threads needs: on 16 cores an evaluation of 1,000 rows takes .33 s with 4 threads and
#: .45 with 16, of 2,000 rows .93 with 8 or 16.
_ONE_THREAD, _ROWS_A_THREAD = 500, 250

# The limits hold for the whole process: the first of several users sets them, the last one lifts them.
_lock = threading.Lock()
_users = 0
#: The libraries and their numbers of threads before they were limited; empty where they are not.
_before: list[tuple[LibController, int]] = []


class _Own(threading.local):
    """How many of the users are contexts of this thread."""

    users: int = 0


_own = _Own()


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """A context in which BLAS uses as many threads as suit matrices of n rows."""
    global _users
    with _lock:
        _users += 1
        _own.users += 1
        if _users == 1:
            _before[:] = _before or [(library, library.num_threads) for library in _libraries()]
            for library, _ in _before:
                other = len(_before) > 1 and Path(library.filepath).parent.name == "numpy.libs"
                most = 1 if n <= _ONE_THREAD or other else -(-n // _ROWS_A_THREAD)
                if most < library.num_threads:
                    library.set_num_threads(most)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            _own.users -= 1
            if _users == 0:
                for library, threads in _before:
                    library.set_num_threads(threads)
                _before.clear()


def _after_fork() -> None:
    """Only the thread that forked goes on in the child: another may have held the lock or be a user.

    Limits that others have set stay in ``_before``, and the next context lifts them at its end.
    """
    global _lock, _users
    _lock, _users = threading.Lock(), _own.users
    _crew.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def has_one_thread(n: int) -> bool:
    """Whether BLAS uses one thread for matrices of n rows."""
    return n <= _ONE_THREAD or threads() == 1


def threads() -> int:
    """How many threads BLAS would use now."""
    return max(map(attrgetter("num_threads"), _libraries()), default=1)


def workers(place: Place, n_jobs: int | None = None) -> int:
    """How many threads share work whose matrices are in a place: ``n_jobs``, or as many as BLAS uses.

    They also keep a device busy while NumPy computes for others. Arrays of another library on the CPU
    get one thread, since that library has its own.
    """
    n = n_jobs or threads()
    if place.is_host:
        return n
    return min(n, _FEEDERS) if place.has_memory else 1


@cache
def _libraries() -> list[LibController]:
    return [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]


#: Up to this many rows one more matrix is held in memory where that saves time.
FEW_ROWS = 800

#: Bytes of the block that is allocated; with its header it stays below the limit of 32 MiB.
_LARGEST = 2**25 - 2**16


@cache
def keep_freed_memory() -> None:
    """Make the allocator keep freed blocks of up to 32 MiB, and 64 MiB in all, for later use."""
    np.empty(_LARGEST, dtype=np.uint8)


def give_freed_memory_back() -> None:
    """Return the freed blocks that the allocator keeps to the operating system, if glibc is in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def together(work: Callable[[slice], Result], parts: Sequence[slice], n_jobs: int) -> list[Result]:
    """What ``work`` returns for each part, in their order; this and other threads take parts in turn.

    The other threads are kept for later calls. In a joint fit of 300 rows in ten classes 2,408 sums
    over blocks take 24 s; with new threads for each, and a task for each part, they took 36 s.
    """
    found: list[Result | None] = [None] * len(parts)
    numbers = iter(range(len(parts)))  # of which no two threads are given the same one

    def some() -> None:
        for i in numbers:
            found[i] = work(parts[i])

    others = [_crew().submit(some) for _ in range(min(n_jobs, len(parts)) - 1)]
    try:
        some()
    finally:
        collections.deque(numbers, maxlen=0)  # after an error nothing more is begun
        for other in others:
            if not other.cancel():
                other.result()  # which raises what a call has raised
    return cast(list[Result], found)


@cache
def _crew() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(32, os.cpu_count() or 1), "postlin")


#: The number of entries of the largest array of a batch, 1 MiB.
_ENTRIES = 2**17


def in_batches(work: Callable[[slice], Result], n: int, entries: int) -> list[Result]:
    """Call ``work`` on consecutive slices of n points, each of which needs ``entries`` array entries.

    A call that writes to shared arrays must keep to its own slice, so that the number of threads does
    not change the results.
    """
    return together(work, slices(n, max(1, _ENTRIES // entries)), threads())


def in_parts(work: Callable[[slice], object], n: int, most: int, *, parallel: bool = True) -> None:
    """Call ``work`` on consecutive slices of at most ``most`` of n points, which fill shared arrays.

    The calls share the threads that BLAS would use; inside them BLAS uses one for small matrices.
    """
    n_jobs = threads() if parallel else 1
    parts = slices(n, max(1, min(most, -(-n // n_jobs))))
    with blas_threads(1):
        together(work, parts, n_jobs)


def in_order(work: Callable[[slice], Result], n: int, width: int, n_jobs: int) -> list[Result]:
    """What ``work`` returns for consecutive slices of ``width`` of n points, in their order.

    The calls share ``n_jobs`` threads, and BLAS uses one in each.
    """
    with blas_threads(1):
        return together(work, slices(n, width), n_jobs)


@cache
def slices(n: int, width: int) -> list[slice]:
    """Consecutive slices of n indices, each of the given width except perhaps the last."""
    return [slice(first, min(first + width, n)) for first in range(0, n, width)]
