"""Points a few at a time: what is computed of them stays in the cache, and threads share the work.

All that is done here is elementwise or in small matrices, in NumPy, whose own threads would not help.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from postlin._threads import threads

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
