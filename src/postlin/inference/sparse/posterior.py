"""Inducing points, the basis that a kernel makes of them, and the posterior over its coefficients."""

import warnings
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array, Marginals, cached_property
from postlin._validation import HUGE
from postlin.exceptions import ConvergenceWarning, NotPositiveDefiniteError
from postlin.kernels import Cross, Diagonal, cross, diagonal, full_cross, shown
from postlin.linalg.arrays import (
    HOST,
    Matrix,
    Place,
    add_to_diagonal,
    all_finite,
    copied,
    namespace,
    on_host,
    row_products,
    set_diagonal,
)
from postlin.linalg.arrays import diagonal as diagonal_entries
from postlin.linalg.functions import functions
from postlin.linalg.triangles import Triangle

#: Rows that k-means reads for each point, and its iterations; more do not change the evidence.
_ROWS_A_POINT, _ITERATIONS = 40, 20
#: The default number that is added to the diagonal of k(Z, Z), in units of the mean of that diagonal.
JITTER = 1e-6
#: By which part inducing points may explain more than a row's variance: rounding explains far less.
_TOO_MUCH = 1e-4


def inducing_points(
    inducing: Any, sample: Array, n: int, seed: int, weight: Array | None = None
) -> Array:
    """The inducing points, an array (m, d): given as such, or m centres of a sample of the n rows.

    A row of weight ω counts as ω rows.
    """
    if isinstance(inducing, Integral) and not isinstance(inducing, bool):
        weight = np.ones(len(sample)) if weight is None else weight
        return _k_means(int(inducing), sample, weight, n, seed)
    return _given(inducing, sample.shape[1], n)


def _k_means(m: int, sample: Array, weight: Array, n: int, seed: int) -> Array:
    """The centres of m clusters of the sample, which lie as densely as the rows do."""
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
    means = KMeans(m, n_init=1, max_iter=_ITERATIONS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # later iterations hardly move the centres
        centres: Array = means.fit(rows, sample_weight=counts).cluster_centers_
    return centres


def _distinct(rows: Array, weight: Array) -> tuple[Array, Array]:
    """The distinct rows, and the total weight of each."""
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    return distinct, np.bincount(place.ravel(), weight).astype(np.float64)


def _given(inducing: Any, d: int, n: int) -> Array:
    """The points of a user, checked."""
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
    _, first, place = np.unique(Z, axis=0, return_index=True, return_inverse=True)
    original = first[place.ravel()]
    for i in np.flatnonzero(original != np.arange(len(Z)))[:1]:
        raise ValueError(f"inducing must hold distinct points; its row {i} repeats row {original[i]}.")
    return Z


class Coordinates(NamedTuple):
    """Rows in the basis of the inducing points: R, an array (rows, m), and λ = k(x, x) − |R|²."""

    R: Matrix
    lam: Matrix
    cross: Cross  # k(x, Z); its values are overwritten unless they were kept
    diagonal: Diagonal  # k(x, x)


@dataclass(frozen=True, eq=False)
class Basis:
    """A kernel, inducing points Z, and L with L Lᵀ = k(Z, Z) + jitter.

    This is the only jitter in the library. Exact inference factorises I + SKS, whose eigenvalues are
    at least one; here k(Z, Z) itself is factorised, which is singular to rounding as soon as there are
    more points than a smooth kernel can tell apart. The jitter changes the approximation and keeps it
    consistent: λ holds all that the jittered basis does not explain.
    """

    kernel: Kernel
    Z: Array
    jitter: float
    factor: Triangle
    place: Place = HOST

    @classmethod
    def of(cls, kernel: Kernel, Z: Array, jitter: float = JITTER, place: Place = HOST) -> "Basis":
        """The basis that a kernel makes of inducing points, with all matrices at a place."""
        with np.errstate(over="ignore"):  # the check below finds it
            there = full_cross(kernel, Z, Z, place).K
        Kuu = on_host(there)
        if not np.abs(Kuu).max() <= HUGE:  # NaN included
            raise NotPositiveDefiniteError(
                "the kernel's values at the inducing points are not finite, or beyond "
                f"{HUGE:g}: rescale the features or the kernel."
            )
        if Kuu.diagonal().min() < 0.0:
            raise NotPositiveDefiniteError(
                "the kernel's variances at the inducing points are negative."
            )
        add_to_diagonal(there, jitter * float(Kuu.diagonal().mean()))
        try:
            return cls(kernel, Z, jitter, Triangle.of(there), place)
        except NotPositiveDefiniteError:
            scale = np.sqrt(Kuu.diagonal())
            with np.errstate(invalid="ignore"):  # variances of zero
                correlation = np.tril(Kuu / np.outer(scale, scale), -1)
            j, i = np.unravel_index(np.argmax(correlation), Kuu.shape)
            raise NotPositiveDefiniteError(
                f"the covariance of the {len(Z)} inducing points is singular to rounding: points {i} "
                f"and {j} nearly coincide for this kernel, or it is no covariance; drop one, use "
                "fewer, or use a kernel that is positive definite, with a variance above zero."
            ) from None

    def coordinates(self, X: Matrix, *, keep: bool = False) -> Coordinates:
        """The coordinates of the rows of X; ``keep`` keeps k(X, Z) too, which derivatives need."""
        rectangle = full_cross(self.kernel, X, self.Z, self.place)
        variances = diagonal(self.kernel, X, self.place)
        R = self.factor.solve(copied(rectangle.K) if keep else rectangle.K)
        # less than 0 is rounding, or new rows on which the kernel is no covariance
        lam = functions(variances.k).maximum(variances.k - row_products(R, R), 0.0)
        return Coordinates(R, lam, rectangle, variances)

    def checked(self, found: Coordinates) -> Coordinates:
        """The coordinates of rows to learn from; an error where the kernel is no covariance of them."""
        k = found.diagonal.k
        if functions(found.R).any(row_products(found.R, found.R) > (1.0 + _TOO_MUCH) * k):
            raise NotPositiveDefiniteError(
                f"the kernel {shown(self.kernel)} is no covariance: its inducing points explain more "
                "than the variance of some rows; use one that is positive definite, as ExpSineSquared "
                "is for one feature alone."
            )
        return found

    def pull_back(self, S: Matrix, *, points: bool) -> tuple[Array, Array]:
        """Derivatives by the kernel's log-parameters and, with ``points``, by Z, from S = Σ R̄Rᵀ.

        R = L⁻¹k changes by −L⁻¹dL R with L. The rest is the derivative of the Cholesky factorisation.
        """
        inverse = self.factor.inverse
        lower = namespace(S).tril(S)
        set_diagonal(lower, 0.5 * diagonal_entries(lower))
        by_gram = -inverse.T @ lower @ inverse
        by_gram = 0.5 * (by_gram + by_gram.T)
        # the jitter is in proportion to the mean of the diagonal
        add_to_diagonal(by_gram, self.jitter * float(diagonal_entries(by_gram).mean()))
        square = cross(self.kernel, self.Z, self.Z, self.place)
        by_points = np.zeros_like(self.Z)
        if points:  # Z is on both sides
            by_points = by_points + 2.0 * on_host(square.by_right(by_gram))
        return np.array(square.by_theta(by_gram), dtype=float), by_points


@dataclass(frozen=True, eq=False)
class State:
    """B = I + Σ τ'RRᵀ and b = Σ ν'R, in the basis with the factor L."""

    B: Matrix
    b: Matrix
    L: Matrix

    @classmethod
    def prior(cls, basis: Basis) -> "State":
        """The state without any row, where the posterior is the prior."""
        m, place = len(basis.Z), basis.place
        return cls(place.eye(m), place.zeros(m), basis.factor.L)

    def repeated(self, times: float) -> "State":
        """The state if every row, with its site, were there so many times."""
        B = times * self.B
        add_to_diagonal(B, 1.0 - times)
        return State(B, times * self.b, self.L)

    def in_basis(self, basis: Basis) -> "State":
        """A warm start in another basis: there the sites say the same about the values u = Lw at Z.

        As functions of u the sites have the precision L⁻ᵀ(B − I)L⁻¹.
        """
        new = basis.factor.L
        if new is self.L or bool((new == self.L).all()):
            return self
        eye = basis.place.eye(len(self.b))
        ratio = Triangle(self.L).inverse @ new
        return State(eye + ratio.T @ (self.B - eye) @ ratio, ratio.T @ self.b, new)


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """The posterior N(w̄, B⁻¹) of the coefficients w, with B = L_B L_Bᵀ and w̄ = B⁻¹b, and their basis.

    It is all that predictions need, and small: two matrices m × m and the inducing points.
    """

    basis: Basis
    factor: Triangle  # L_B
    h: Matrix  # L_B⁻¹b

    @classmethod
    def of(cls, basis: Basis, state: State) -> "SparsePosterior":
        """The posterior in a state; raises ``NotPositiveDefiniteError`` where there is none."""
        if not all_finite(state.B, state.b):
            raise NotPositiveDefiniteError("the state of the iteration is not finite.")
        try:
            factor = Triangle.of(state.B)
        except NotPositiveDefiniteError:
            raise NotPositiveDefiniteError(
                "negative sites outweigh the prior of the shared coefficients."
            ) from None
        return cls(basis, factor, factor.solve_vector(state.b))

    @cached_property
    def coefficients(self) -> Matrix:
        """The posterior mean w̄."""
        return self.factor.solve_vector(self.h, transposed=True)

    def predict(self, X: Array) -> Marginals:
        """Means and variances of the latent values of new rows, white noise included, in NumPy."""
        R, lam, *_ = self.basis.coordinates(X)
        V = self.factor.solve(R)
        return Marginals(on_host(V @ self.h), on_host(lam + row_products(V, V)))

    def predict_jointly(self, X: Array) -> tuple[Array, Array]:
        """Mean and covariance of the latent values of new rows, in NumPy.

        The covariance that Z does not explain is that of the prior.
        """
        R = self.basis.coordinates(X).R
        V = self.factor.solve(1.0 * R)
        prior = np.asarray(self.basis.kernel(X), dtype=np.float64)
        return on_host(V @ self.h), prior + on_host(V @ V.T - R @ R.T)
