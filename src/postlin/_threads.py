"""BLAS threads: for small matrices they cost more than they give.

NumPy and SciPy each bring a BLAS with a pool of its own; on matrices of a few hundred rows the
two pools mostly wait for each other.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # a dependency of scikit-learn

#: Up to this many rows one thread is faster (measured on two cores).
_ONE_THREAD = 1400

# The limit is the process's, so of several threads the first sets it and the last lifts it.
_lock = threading.Lock()
_limited: list[Any] = []


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """A context in which BLAS uses the threads that suit matrices of n rows."""
    if n > _ONE_THREAD:
        yield
        return
    with _lock:
        limit = None if _limited else _controller().limit(limits=1, user_api="blas")
        _limited.append(limit)
    try:
        yield
    finally:
        with _lock:
            # keep the one that can restore until nobody needs it any more
            _limited.sort(key=lambda entry: entry is None)
            last = _limited.pop()
            if last is not None:
                last.restore_original_limits()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
