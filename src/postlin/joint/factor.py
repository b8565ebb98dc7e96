"""B = I + Sᵀ prior S and all that is asked of it, in one array of (n D)².

It holds the lower triangle in LAPACK's order: of B, then of its Cholesky factor R, then of R⁻¹, at last
of B⁻¹. Passes over the whole array go point by point.
"""

import numpy as np
from scipy.linalg import blas, lapack

from postlin._typing import Array
from postlin.exceptions import NotPositiveDefiniteError
from postlin.joint.batches import in_batches
from postlin.triangles import diagonal_of


class BlockFactor:
    """Eigenvalues of B are at least one: no jitter, ever."""

    def __init__(self, B: Array, n: int) -> None:
        """Take over the array of B − I, of which the lower triangle is looked at."""
        self._n, self._D = n, len(B) // n
        diagonal = diagonal_of(B)
        self._added = diagonal.copy()
        diagonal += 1.0
        self._array: Array
        self._array, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError(
                "the covariance matrix is not positive semi-definite, or holds NaN or infinity."
            )
        self._is_inverted = False
        self.half_log_det = float(np.log(self._array.diagonal()).sum())

    def solve(self, x: Array) -> Array:
        """B⁻¹ x."""
        result: Array = blas.dtrsv(self._array, blas.dtrsv(self._array, x, lower=1), lower=1, trans=1)
        return result

    def whiten(self, columns: Array) -> Array:
        """R⁻¹ times columns in Fortran's order, which are overwritten."""
        result: Array = blas.dtrmm(1.0, self._inverted(), columns, lower=1, overwrite_b=1)
        return result

    def _inverted(self) -> Array:
        """R⁻¹ in place of R."""
        if not self._is_inverted:
            self._array = lapack.dtrtri(self._array, lower=1, overwrite_c=1)[0]
            self._is_inverted = True
        return self._array

    def gains(self) -> Array:
        """I − (B⁻¹)ᵢᵢ, (n, D, D), to full precision. To be asked for first: R becomes R⁻¹.

        Where (B − I)ₐₐ is small, 1 − (B⁻¹)ₐₐ would have no digit left. But all else in row and column a
        is small then too, to full precision: it is t/(1 + t) less the squares below the diagonal
        of R⁻¹, with t = R²ₐₐ − 1 = (B − I)ₐₐ − Σ_{k<a} R²ₐₖ.
        """
        n, D = self._n, self._D
        t = self._added - self._squares_before()
        diagonal = diagonal_of(self._inverted())
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
        first = np.where(self._added < 1.0, t / (1.0 + t), 1.0 - ends**2).reshape(n, D)
        np.einsum("naa->na", gains)[:] += first
        return gains

    def _squares_before(self) -> Array:
        """Sums of squares of the rows of R, without its diagonal."""
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

    def into_inverse(self) -> Array:
        """The array, now with B⁻¹ in its lower triangle; the factor is gone."""
        inverse, _ = lapack.dlauum(self._inverted(), lower=1, overwrite_c=1)
        del self._array
        matrix: Array = inverse
        return matrix
