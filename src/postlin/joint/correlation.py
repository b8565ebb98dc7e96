"""The posterior correlation of all contrasts of all points, in the one array there is."""

import numpy as np
from scipy.linalg import blas

from postlin._typing import Array
from postlin.joint.batches import in_batches
from postlin.triangles import mirror


class BlockCorrelation:
    """C, (n D)²: every point's own block is the identity."""

    def __init__(self, inverse: Array, scale: Array) -> None:
        """Take over B⁻¹, in the lower triangle: off those blocks Cᵢⱼ = −Uᵢᵀ(B⁻¹)ᵢⱼUⱼ."""
        self._n, self._D, _ = scale.shape
        n, D = self._n, self._D
        up = -np.swapaxes(scale, 1, 2)

        def work(part: slice) -> None:
            for j in range(part.start, part.stop):
                columns = inverse.T[j * D : (j + 1) * D, j * D :]
                turned = (up[j] @ columns).reshape(D, n - j, D)
                blocks = columns.reshape(D, n - j, D)  # a view, to be written to
                np.matmul(turned.transpose(1, 0, 2), scale[j:], out=blocks.transpose(1, 0, 2))
                blocks[:, 0] = np.eye(D)

        in_batches(work, n, n * D * D)
        self._array = mirror(inverse)

    def times(self, x: Array) -> Array:
        """C x, for x (n, D)."""
        product: Array = blas.dsymv(1.0, self._array, x.ravel(), lower=1)
        return product.reshape(x.shape)

    def sandwich(self, P: Array) -> Array:
        """Σⱼ Cᵢⱼ Pⱼ Cⱼᵢ, (n, D, D), for symmetric P."""
        n, D = self._n, self._D
        found = np.empty((n, D, D))

        def work(part: slice) -> None:
            right = np.empty((D, n, D))
            for i in range(part.start, part.stop):
                rows = self._array.T[i * D : (i + 1) * D]
                blocks = rows.reshape(D, n, D).transpose(1, 0, 2)
                np.matmul(blocks, P, out=right.transpose(1, 0, 2))
                np.matmul(right.reshape(D, n * D), rows.T, out=found[i])

        in_batches(work, n, n * D * D)
        return found

    def columns(self, i: int) -> Array:
        """Cⱼᵢ for all j, (n, D, D), as an array of its own."""
        n, D = self._n, self._D
        return self._array.T[i * D : (i + 1) * D].reshape(D, n, D).transpose(1, 2, 0).copy()

    def along(self, u: Array) -> Array:
        """Cᵢⱼ uⱼ, (n, D, n), for u (n, D)."""
        n, D = self._n, self._D
        found = np.empty((n, D, n))

        def work(part: slice) -> None:
            rows = self._array.T[part.start * D : part.stop * D].reshape(-1, D, n, D)
            np.einsum("iajb,jb->iaj", rows, u, out=found[part])

        in_batches(work, n, n * D * D)
        return found

    def scaled(self, root: Array) -> Array:
        """L C Lᵀ for blocks L on the diagonal, as a matrix of its own."""
        n, D = self._n, self._D
        left = (root @ self._array.T.reshape(n, D, n * D)).reshape(n * D, n, D)
        result: Array = np.matmul(left.transpose(1, 0, 2), np.swapaxes(root, 1, 2))
        return result.transpose(1, 0, 2).reshape(n * D, n * D)
