"""The prior of the contrasts of all points: kernels, each along directions of its own.

One kernel shared by all classes is the same along every contrast. With a kernel for each class the
latent function of class c moves the contrasts along row c of H. Either way the prior is a sum of terms
K ⊗ d dᵀ, and is never written out where a posterior will do.
"""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.joint.batches import in_batches
from postlin.triangles import diagonal_of


class Prior(NamedTuple):
    """Covariance matrices (n, n), or with other points (n, m), and directions (M, D) for each."""

    covariances: list[Array]
    directions: list[Array]

    @classmethod
    def of(cls, covariances: list[Array], H: Array) -> "Prior":
        """One covariance shared by all contrasts, or one for each class."""
        if len(covariances) == 1:
            return cls(covariances, [np.eye(H.shape[1])])
        return cls(covariances, [row[None] for row in H])

    def add_noise(self, levels: list[float], parts: Array) -> None:
        """Add to the covariances parts (n,) of white noise, in place."""
        for K, level in zip(self.covariances, levels, strict=True):
            diagonal_of(K)[:] += level * parts

    def noise(self, levels: list[float]) -> Array:
        """The covariance (D, D) that white noise of the kernels makes."""
        parts = zip(levels, self.directions, strict=True)
        total: Array = np.sum([level * d.T @ d for level, d in parts], axis=0)
        return total

    @property
    def dimension(self) -> int:
        """D, the number of contrasts."""
        return int(self.directions[0].shape[1])

    def times(self, x: Array) -> Array:
        """The prior covariance, transposed where it is with other points, times x, (n, D)."""
        parts = zip(self.covariances, self.directions, strict=True)
        product: Array = np.sum([(K.T @ (x @ d.T)) @ d for K, d in parts], axis=0)
        return product

    def between(self, S: Array) -> Array:
        """Sᵀ prior S, (n D, n D), for blocks S (n, D, D): the lower triangle, in Fortran's order."""
        n, D, _ = S.shape
        result = np.empty((n * D, n * D), order="F")
        turned = [np.einsum("mb,iba->iam", d, S).reshape(n * D, -1) for d in self.directions]

        def work(part: slice) -> None:
            columns = slice(part.start * D, part.stop * D)
            target = result.T[columns, columns.start :]
            target[:] = 0.0
            for K, t in zip(self.covariances, turned, strict=True):
                block = (t[columns] @ t[columns.start :].T).reshape(-1, D, n - part.start, D)
                block *= K[part, None, part.start :, None]
                target += block.reshape(target.shape)

        in_batches(work, n, n * D * D)
        return result

    def right_of(self, S: Array) -> Array:
        """Sᵀ prior, (n D, m D)."""
        n, D, _ = S.shape
        m = self.covariances[0].shape[1]
        total = np.zeros((n, D, m, D))
        for K, d in zip(self.covariances, self.directions, strict=True):
            turned = np.einsum("mb,iba,mc->iac", d, S, d, optimize=True)
            total += np.einsum("ij,iac->iajc", K, turned, optimize=True)
        return total.reshape(n * D, m * D)

    def add_to(self, sigma: Array) -> None:
        """Add the prior covariance to a matrix (n D, n D)."""
        n = len(self.covariances[0])
        view = sigma.reshape(n, self.dimension, n, self.dimension)
        for K, d in zip(self.covariances, self.directions, strict=True):
            gram = d.T @ d
            for a, b in zip(*np.nonzero(gram), strict=True):
                view[:, a, :, b] += gram[a, b] * K

    def blocks(self, variances: list[Array] | None = None) -> Array:
        """Prior covariances of each point's contrasts, (n, D, D), from the kernels' diagonals."""
        diagonals = variances or [K.diagonal() for K in self.covariances]
        parts = zip(diagonals, self.directions, strict=True)
        total: Array = np.sum([k[:, None, None] * (d.T @ d) for k, d in parts], axis=0)
        return total
