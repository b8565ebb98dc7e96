"""Inducing points, the basis that a kernel makes of them, and the posterior over its coefficients.

With inducing points Z, Kuu = L Lᵀ and R = L⁻¹k(Z, x) a latent value is f = Rᵀw + e, where w ~ N(0, I)
is shared and e ~ N(0, λ), λ = k(x, x) − |R|², is the row's own. The posterior over w is all that is
kept.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, Marginals
from postlin.exceptions import ConvergenceWarning, NotPositiveDefiniteError
from postlin.kernels import Cross, Diagonal, cross, diagonal, full_cross
from postlin.linalg.triangles import Triangle

#: Rows that k-means looks at, for every point that it is to find.
_ROWS_A_POINT = 40
#: Rounds of k-means; more do not move the evidence.
_ROUNDS = 20
#: What is added to the diagonal of Kuu, in units of its mean.
JITTER = 1e-6


def inducing_points(
    inducing: Any, sample: Array, n: int, seed: int, weight: Array | None = None
) -> Array:
    """The points that ``inducing`` asks for, (m, d), given a sample of the n rows of the data.

    A row of weight w counts as w rows.
    """
    if isinstance(inducing, Integral) and not isinstance(inducing, bool):
        weight = np.ones(len(sample)) if weight is None else weight
        return _k_means(int(inducing), sample, weight, n, seed)
    return _given(inducing, sample.shape[1], n)


def _k_means(m: int, sample: Array, weight: Array, n: int, seed: int) -> Array:
    """Centres of clusters: spread as the data are, and inside them."""
    if m > n:
        raise ValueError(
            f"inducing={m} asks for more points than there are rows, {n}: use fewer, or None for "
            "exact inference."
        )
    chosen = np.random.default_rng(seed).permutation(len(sample))[: _ROWS_A_POINT * m]
    rows, counts = _distinct(sample[chosen], weight[chosen])
    if m > len(rows):
        rows, counts = _distinct(sample, weight)
    if m > len(rows):
        raise ValueError(
            f"inducing={m} asks for more points than X has distinct rows, {len(rows)}"
            f"{'' if len(sample) == n else f' in {len(sample):,} drawn at random'}: use fewer."
        )
    if m == len(rows):
        return rows
    means = KMeans(m, n_init=1, max_iter=_ROUNDS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last rounds hardly move them
        centres: Array = means.fit(rows, sample_weight=counts).cluster_centers_
    return centres


def _distinct(rows: Array, weight: Array) -> tuple[Array, Array]:
    """Each row once, and its weight in sum."""
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    total: Array = np.bincount(place.ravel(), weight).astype(np.float64)
    return distinct, total


def _given(inducing: Any, d: int, n: int) -> Array:
    try:
        if np.iscomplexobj(inducing):
            raise TypeError
        Z = np.array(inducing, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("inducing must hold numbers: it is an array (points, features).") from None
    if Z.shape[1] != d:
        raise ValueError(f"inducing has {Z.shape[1]} features and X has {d}.")
    if not 0 < len(Z) <= n:
        raise ValueError(
            f"inducing holds {len(Z)} points and X {n} rows: at least one point is needed, and no more "
            "than there are rows."
        )
    bad = np.flatnonzero(~np.isfinite(Z).all(axis=1))
    if len(bad):
        raise ValueError(f"inducing must be finite, but its row {bad[0]} holds NaN or infinity.")
    _, first, inverse = np.unique(Z, axis=0, return_index=True, return_inverse=True)
    original = first[inverse.ravel()]
    for i in np.flatnonzero(original != np.arange(len(Z)))[:1]:
        raise ValueError(
            f"inducing must hold distinct points, but its row {i} repeats row {original[i]}."
        )
    return Z


class Coordinates(NamedTuple):
    """Rows in the basis of the inducing points: R, an array (rows, m), and λ = k(x, x) − |R|²."""

    R: Array
    lam: Array
    cross: Cross  # its K is good only where it was kept
    diagonal: Diagonal


@dataclass(frozen=True, eq=False)
class Basis:
    """A kernel, inducing points Z, and L with L Lᵀ = k(Z, Z) + jitter.

    This is the only jitter in the library. Exact inference factorises I + SKS, which is never worse
    than I; here k(Z, Z) itself must be factorised, and for smooth kernels it is singular to
    rounding as soon as there are more points than the kernel can tell apart. It changes the
    approximation, not its consistency: what the jittered basis does not explain is in λ.
    """

    kernel: Kernel
    Z: Array
    jitter: float
    factor: Triangle

    @classmethod
    def of(cls, kernel: Kernel, Z: Array, jitter: float = JITTER) -> "Basis":
        """The basis of inducing points under a kernel."""
        with np.errstate(over="ignore"):  # that is seen below
            Kuu = full_cross(kernel, Z, Z).K
        if not np.isfinite(Kuu).all():
            raise NotPositiveDefiniteError("the kernel's values at the inducing points are not finite.")
        Kuu[np.diag_indices_from(Kuu)] += jitter * Kuu.diagonal().mean()
        try:
            return cls(kernel, Z, jitter, Triangle(cholesky(Kuu, lower=True)))
        except LinAlgError:
            i, j = _closest(Kuu)
            raise NotPositiveDefiniteError(
                f"the covariance of the {len(Z)} inducing points is singular to rounding: points {i} "
                f"and {j} nearly coincide, or the kernel is too smooth to tell so many apart; drop "
                "one, use fewer, or raise the jitter."
            ) from None

    def coordinates(self, X: Array, *, keep: bool = False) -> Coordinates:
        """Of the rows of X; λ below zero is rounding. Derivatives need k(X, Z) kept."""
        rectangle, variances = full_cross(self.kernel, X, self.Z), diagonal(self.kernel, X)
        R = self.factor.solve(rectangle.K.copy() if keep else rectangle.K)
        lam = variances.k - np.einsum("ij,ij->i", R, R)
        return Coordinates(R, np.maximum(lam, 0.0), rectangle, variances)

    def pull_back(self, S: Array, *, points: bool) -> tuple[Array, Array]:
        """From S = Σ R̄Rᵀ to derivatives by the kernel's log-parameters and, where asked for, by Z.

        R = L⁻¹k, so dL changes R by −L⁻¹dL R, and the Cholesky factorisation is reversed.
        """
        inverse = self.factor.inverse
        lower = np.tril(S)
        lower[np.diag_indices_from(lower)] *= 0.5
        by_gram = -inverse.T @ lower @ inverse
        by_gram = 0.5 * (by_gram + by_gram.T)
        # the jitter is a part of the mean variance
        by_gram[np.diag_indices_from(by_gram)] += self.jitter * by_gram.trace() / len(by_gram)
        square = cross(self.kernel, self.Z, self.Z)
        by_points = np.zeros_like(self.Z)
        if points:
            by_points += 2.0 * square.by_right(by_gram)  # Z is on both sides
        return np.array(square.by_theta(by_gram), dtype=float), by_points


def _closest(K: Array) -> tuple[int, int]:
    """The two points whose values are most alike."""
    scale = np.sqrt(K.diagonal())
    with np.errstate(invalid="ignore"):  # variances of zero
        alike = np.tril(K / np.outer(scale, scale), -1)
    i, j = np.unravel_index(np.argmax(alike), alike.shape)
    return int(j), int(i)


@dataclass(frozen=True, eq=False)
class State:
    """B = I + Σ τ'RRᵀ and b = Σ ν'R in the basis whose factor is L: nothing of a row."""

    B: Array
    b: Array
    L: Array

    @classmethod
    def prior(cls, basis: Basis) -> "State":
        """Before any row is seen."""
        L = basis.factor.L
        return cls(np.eye(len(L)), np.zeros(len(L)), L)

    def repeated(self, times: float) -> "State":
        """As if every row had been there so many times."""
        eye = np.eye(len(self.b))
        return State(eye + times * (self.B - eye), times * self.b, self.L)

    def in_basis(self, basis: Basis) -> "State":
        """The same sites on the values at the inducing points, in another basis: a warm start.

        As functions of u = Lw the sites have the precision T = L⁻ᵀ(B − I)L⁻¹.
        """
        new = basis.factor.L
        if new is self.L or np.array_equal(new, self.L):
            return self
        ratio: Array = solve_triangular(self.L, new, lower=True)  # L⁻¹L_new
        return State(
            np.eye(len(new)) + ratio.T @ (self.B - np.eye(len(new))) @ ratio, ratio.T @ self.b, new
        )


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """N(w̄, B⁻¹) with B = L_B L_Bᵀ and w̄ = B⁻¹b, and the basis that w is in.

    Small (two matrices m × m and the inducing points), and all that predictions need.
    """

    basis: Basis
    factor: Triangle  # L_B
    h: Array  # L_B⁻¹b

    @classmethod
    def of(cls, basis: Basis, state: State) -> "SparsePosterior":
        """The posterior that a state stands for."""
        if not (np.isfinite(state.B).all() and np.isfinite(state.b).all()):
            raise NotPositiveDefiniteError("the state of the iteration is not finite.")
        try:
            L = cholesky(state.B, lower=True)
        except LinAlgError:
            raise NotPositiveDefiniteError(
                "negative sites outweigh the prior of the shared coefficients."
            ) from None
        return cls(basis, Triangle(L), solve_triangular(L, state.b, lower=True))

    @cached_property
    def coefficients(self) -> Array:
        """w̄."""
        mean: Array = solve_triangular(self.factor.L, self.h, lower=True, trans="T")
        return mean

    def whitened(self, coordinates: Coordinates) -> Array:
        """V = L_B⁻¹R, in which μ = Vᵀh and s = |V|²; written over R."""
        return self.factor.solve(coordinates.R)

    def predict(self, X: Array) -> Marginals:
        """Means and variances of the latent values of new rows, white noise included."""
        coordinates = self.basis.coordinates(X)
        V = self.whitened(coordinates)
        return Marginals(V @ self.h, coordinates.lam + np.einsum("ij,ij->i", V, V))

    def predict_jointly(self, X: Array) -> tuple[Array, Array]:
        """Mean and covariance at new rows: what Z does not explain is as in the prior."""
        R = self.basis.coordinates(X).R
        V = self.factor.solve(R.copy())
        prior = np.asarray(self.basis.kernel(X), dtype=np.float64)
        return V @ self.h, prior - R @ R.T + V @ V.T
