"""The Gaussian posterior of all contrasts of all points, given sites in matrices.

One matrix of (n D)² numbers holds the Cholesky factor of B = I + Sᵀ prior S, where T = S Sᵀ block by
block; then its inverse, for the variances; then the posterior correlation, for derivatives. As for
two classes all follows from B⁻¹: Vᵢ = Sᵢ⁻ᵀ(I − (B⁻¹)ᵢᵢ)Sᵢ⁻¹ and Σᵢⱼ = −Sᵢ⁻ᵀ(B⁻¹)ᵢⱼSⱼ⁻¹.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from postlin._typing import Array, cached_property, override
from postlin.exceptions import NotPositiveDefiniteError
from postlin.inference.contract import Posterior
from postlin.linalg.arrays import Matrix, Place, add_to_diagonal, diagonal, on_host, place_of
from postlin.linalg.block_tiles import (
    add_to_own,
    block_correlation,
    block_factor,
    block_products,
    column_grams,
    gram_between,
)
from postlin.linalg.blocks import BlockCorrelation, BlockFactor, root_of, symmetric, times, transposed
from postlin.rules.sites import Sites


class JointPrior(NamedTuple):
    """Covariance matrices (n, n), or with other points (n, m), and the directions (M, D) of each.

    The matrices may be on a device; what has an entry for each point is an array of NumPy.
    """

    covariances: list[Matrix]
    directions: list[Array]

    @classmethod
    def of(cls, covariances: list[Matrix], H: Array) -> "JointPrior":
        """One covariance shared by all contrasts, or one for each class."""
        one = len(covariances) == 1
        return cls(covariances, [np.eye(H.shape[1])] if one else [row[None] for row in H])

    @property
    def place(self) -> Place:
        """Where the matrices are."""
        return place_of(self.covariances[0])

    @property
    def parts(self) -> Iterator[tuple[Matrix, Array]]:
        """Each covariance matrix with its directions."""
        return zip(self.covariances, self.directions, strict=True)

    def add_noise(self, levels: list[float], parts: Array) -> None:
        """Add to the covariances parts (n,) of white noise, in place."""
        for K, level in zip(self.covariances, levels, strict=True):
            add_to_diagonal(K, level * parts)

    def times(self, x: Array) -> Array:
        """The transpose of the prior covariance times x, (n, D)."""
        put = self.place.put
        return np.asarray(sum(on_host(K.T @ put(x @ d.T)) @ d for K, d in self.parts))

    def between(self, S: Array) -> Matrix:
        """Sᵀ prior S, (n D, n D), for blocks S (n, D, D): the lower triangle."""
        n, D, _ = S.shape
        turned = [np.einsum("mb,iba->iam", d, S).reshape(n * D, -1) for d in self.directions]
        return block_products(list(zip(self.covariances, turned, strict=True)), D)

    def right_of(self, S: Array) -> Matrix:
        """Sᵀ prior, (n D, m D)."""
        n, D, _ = S.shape
        place, total = self.place, 0.0
        for K, d in self.parts:
            turned = place.put(np.einsum("mb,iba,mc->iac", d, S, d, optimize=True))
            total = total + K[:, None, :, None] * turned[:, :, None, :]
        return place.xp.reshape(total, (n * D, -1))

    def add_to(self, sigma: Matrix) -> Matrix:
        """The sum of the prior covariance and a matrix (n D, n D)."""
        xp = self.place.xp
        for K, d in self.parts:
            gram = self.place.put(d.T @ d)
            sigma = sigma + xp.reshape(K[:, None, :, None] * gram[None, :, None, :], sigma.shape)
        return sigma

    def blocks(self, variances: Sequence[Array | float] | None = None) -> Array:
        """Covariances of each point's contrasts, (n, D, D), from variances (n,) of each kernel.

        Without variances they are those of this prior; from numbers follows one matrix (D, D).
        """
        variances = variances or [diagonal(K) for K in self.covariances]
        parts = zip(variances, self.directions, strict=True)
        return np.asarray(sum(np.multiply.outer(k, d.T @ d) for k, d in parts))


#: Square roots of eigenvalues of T are at least this: weaker sites change no bit of B, and it can be
#: divided by.
_WEAKEST = 1e-100


class JointPosterior(Posterior):
    """A prior times sites, normalised. The constructor makes one factorisation."""

    def __init__(self, prior: JointPrior, sites: Sites) -> None:
        self.prior, self.sites = prior, sites
        values, vectors = np.linalg.eigh(sites.tau)
        roots = np.sqrt(np.maximum(values, _WEAKEST**2))[:, None, :]
        self._S = vectors * roots  # T = S Sᵀ
        self._inverse_S = transposed(vectors / roots)
        self.half_log_det = self._factor.half_log_det
        # a = (I + T prior)⁻¹ ν and the mean is prior · a
        target = times(transposed(self._S), prior.times(sites.nu))
        inner = self._factor.solve(target.ravel()).reshape(sites.nu.shape)
        self.weights = sites.nu - times(self._S, inner)
        self.mean = prior.times(self.weights)

    @cached_property
    def _factor(self) -> BlockFactor:
        return block_factor(self.prior.between(self._S), len(self._S))

    @cached_property
    def variance(self) -> Array:
        """Posterior covariances of each point's contrasts, (n, D, D)."""
        return symmetric(transposed(self._inverse_S) @ self._factor.gains() @ self._inverse_S)

    @cached_property
    def root(self) -> Array:
        """Lower triangular roots of the variances."""
        try:
            return root_of(self.variance)
        except np.linalg.LinAlgError:
            raise NotPositiveDefiniteError("a posterior variance has no digit left.") from None

    @cached_property
    def correlation(self) -> BlockCorrelation:
        """L⁻¹ Σ L⁻ᵀ with the roots L. It takes over the array of the factor."""
        scale = self._inverse_S @ transposed(np.linalg.inv(self.root))
        array = self._factor.into_inverse()
        del self._factor
        return block_correlation(array, scale)

    @property
    @override
    def covariance(self) -> Matrix:
        return self.correlation.scaled(self.root)

    @property
    def log_normaliser(self) -> float:
        """log ∫ prior Πᵢ exp(νᵢᵀuᵢ − ½ uᵢᵀTᵢuᵢ) du."""
        return 0.5 * float(np.sum(self.sites.nu * self.mean)) - self.half_log_det

    def _whitened(self, prior: JointPrior) -> Matrix:
        """L⁻¹ Sᵀ prior, in columns, with B = L Lᵀ."""
        if "correlation" in self.__dict__ or self._factor.is_inverted:
            self.release()
        columns = prior.right_of(self._S)
        columns = np.asfortranarray(columns) if prior.place.is_host else columns
        return self._factor.whiten(columns, overwrite=True)

    def predict(self, cross: JointPrior, variances: list[Array]) -> tuple[Array, Array]:
        """Means (m, D) and covariances (m, D, D) at new points, from covariances with them."""
        mean, before = cross.times(self.weights), cross.blocks(variances)
        return mean, symmetric(before - column_grams(self._whitened(cross), mean.shape[1]))

    def predict_jointly(self, cross: JointPrior, new: JointPrior) -> tuple[Array, Array]:
        """Means (m, D) and the covariance (m D, m D) of new points, whose prior is in NumPy."""
        W = self._whitened(cross)
        return cross.times(self.weights), symmetric(new.add_to(-on_host(W.T @ W)))

    def pull_back(self, mean_bar: Array, variance_bar: Array) -> list[Matrix]:
        """∂/∂K, for every K, of log ∫ prior × sites + m̄·mean + V̄·variance at fixed sites.

        With R = I − ΣT and Q = T − TΣT the derivative by the whole prior is
        Rᵀ V̄ R + ½(Rᵀm̄ aᵀ + a m̄ᵀR + a aᵀ − Q); that by K is its projection on K's directions.
        """
        T, L, C, a = self.sites.tau, self.root, self.correlation, self.weights
        up, inverse = transposed(L), np.linalg.inv(L)
        Rm = mean_bar - times(T, times(L, C.times(times(up, mean_bar))))
        place, parts = self.prior.place, []
        scaled_bar = place.put(up @ variance_bar @ L)
        for directions in self.prior.directions:
            K_bar = place.zeros(len(a), len(a))
            for d in directions:
                u = (up @ T) @ d
                along = C.along(u)  # (n, D, n): L⁻¹ Σ T d
                K_bar += place.put(Rm @ d + 0.5 * (a @ d))[:, None] * place.put(a @ d)[None, :]
                K_bar += 0.5 * (place.put(u)[:, None, :] @ along)[:, 0, :]
                add_to_diagonal(K_bar, -0.5 * ((T @ d) @ d))
                along *= -1.0
                add_to_own(along, inverse @ d)  # L⁻¹ R d
                K_bar += gram_between(along, scaled_bar @ along)
            parts.append(0.5 * (K_bar + K_bar.T))
        return parts
