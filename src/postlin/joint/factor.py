"""B = I + Sᵀ prior S of all contrasts of all points. Passes over the array go point by point."""

import numpy as np

from postlin._typing import Array
from postlin.factor import Cholesky
from postlin.joint.batches import in_batches
from postlin.triangles import clear_corners, diagonal_of, gains_before


class BlockFactor(Cholesky):
    """As for two classes, with blocks of D × D in place of numbers."""

    def __init__(self, B: Array, n: int) -> None:
        """Take over the array of B − I, of which the lower triangle is looked at."""
        self._n, self._D = n, len(B) // n
        clear_corners(B, self._D)
        diagonal = diagonal_of(B)
        self._added = diagonal.copy()
        diagonal += 1.0
        super().__init__(B)

    def gains(self) -> Array:
        """I − (B⁻¹)ᵢᵢ, (n, D, D), to full precision. To be asked for first: L becomes L⁻¹.

        As for two classes; squares and products below the diagonal of L⁻¹ are small where they are.
        """
        n, D = self._n, self._D
        before = self._squares_before()
        diagonal = diagonal_of(self._invert())
        ends = diagonal.copy()
        diagonal[:] = 0.0
        gains = np.empty((n, D, D))
        rows = self._array.T

        def work(part: slice) -> None:
            for i in range(part.start, part.stop):
                here = slice(i * D, (i + 1) * D)
                below = rows[here, i * D :]
                mixed = ends[here] * rows[here, here]
                gains[i] = -(below @ below.T) - mixed - mixed.T

        in_batches(work, n, n * D * D)
        diagonal[:] = ends
        np.einsum("naa->na", gains)[:] += gains_before(self._added, before, ends).reshape(n, D)
        return gains

    def _squares_before(self) -> Array:
        """Sums of squares of the rows of L, without its diagonal."""
        n, D = self._n, self._D
        diagonal = diagonal_of(self._array)
        ends = diagonal.copy()
        diagonal[:] = 0.0
        total = np.zeros(n * D)
        for i in range(n):
            part = self._array.T[i * D : (i + 1) * D, i * D :]
            total[i * D :] += np.einsum("ak,ak->k", part, part)
        diagonal[:] = ends
        return total
