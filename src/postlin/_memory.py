"""Where memory may be spent; and freed memory, kept for the next matrix.

Matrices of some megabytes come and go many times in a fit. Linux's C library gives blocks of such a
size back to the system when they are freed, and fetches the next ones anew, page by page, which takes a
tenth of the time that a fit of some hundred rows does. But it keeps blocks as large as the largest that
it has ever seen freed, if that was below 32 MiB: it need only be shown one, and that one not even used.
"""

from functools import cache

import numpy as np

#: Up to so many rows memory is no matter: a matrix more is held where that saves time.
FEW_ROWS = 800

#: Bytes; a little less than the limit, for there is a header.
_LARGEST = 2**25 - 2**16


@cache
def keep_freed_memory() -> None:
    """Make the process keep blocks of up to 32 MiB, and twice as much of them, for later."""
    np.empty(_LARGEST, dtype=np.uint8)
