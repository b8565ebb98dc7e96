"""Softmax averaged over Gaussians: label probabilities, their slopes, and the derivatives of both.

A point's contrasts are u = m + L z, where V = L Lᵀ and z is standard normal. In these units rules need

    p̄_c = E[p_c],   G_c = E[z | c],   A = Σ_c p̄_c G_c G_cᵀ,

where p_c is softmax's probability of class c and G_c = Lᵀ ∇ log p̄_c. A is the covariance of the
conditional means of z, so that I − A, the mean of its conditional covariances, is positive
semi-definite. For two classes G corresponds to g₊ and g₋, and A to −g₊g₋ v.

Expectations are sums over many nodes. They are computed for a few points at a time, and no array with
an axis of nodes is kept: on a device, where one is used, only the sums leave it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtri
from scipy.stats import qmc

from postlin._typing import Array, cached_property
from postlin.likelihoods.quadrature import trapezoid
from postlin.linalg.arrays import HOST, Matrix, Place, on_host
from postlin.linalg.threads import in_batches, slices

Result = TypeVar("Result")

#: The number of nodes in one dimension.
_LINE = 160
#: The mass of a normal density beyond this many standard deviations is below rounding.
_REACH = 8.5


class Softmax:
    """p(y = c|f) = exp(f_c)/Σ exp(f), the likelihood of all classes jointly; it has no parameters."""

    name: ClassVar[str] = "softmax"
    log_concave: ClassVar[bool] = True
    free: ClassVar[dict[str, tuple[float, float]]] = {}
    other_starts: ClassVar[list[dict[str, float]]] = []

    def replaced(self, **parameters: float) -> "Softmax":
        """Return this likelihood, which has no parameters to replace."""
        return self


class Nodes(NamedTuple):
    """The contrasts H (C, D), and nodes z (Q, D) with weights that stand for a standard normal.

    These are arrays of NumPy; softmax at the nodes is computed at ``place``.
    """

    H: Array
    z: Array
    weights: Array
    place: Place = HOST

    @classmethod
    def of(cls, n_classes: int, count: int, place: Place = HOST) -> "Nodes":
        """The nodes for D = C − 1 contrasts of C classes."""
        return cls(contrasts(n_classes), *normal_nodes(n_classes - 1, count), place)


@cache
def normal_nodes(dimension: int, count: int) -> tuple[Array, Array]:
    """Nodes (Q, dimension) and weights for a standard normal; Q = ``count`` from two dimensions on."""
    if dimension == 1:  # equal steps suit a Gaussian as well as any rule, and a steep softmax better
        x, weights = trapezoid(_LINE, _REACH)
        return x[:, None], weights
    # products of Gauss–Hermite rules are poor where softmax is a step, even in two dimensions
    z = ndtri(qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(0)).random(count // 2))
    z = np.concatenate([z, -z])
    # the root of their covariance scales them to unit covariance; their mean is zero by symmetry
    z = np.linalg.solve(np.linalg.cholesky(z.T @ z / len(z)), z.T).T
    return z, np.full(len(z), 1.0 / len(z))


@cache
def contrasts(n_classes: int) -> Array:
    """H, (C, C − 1): orthonormal columns that sum to zero; softmax depends on f by Hᵀf alone."""
    return np.array(helmert(n_classes).T, order="C")


class AtNodes:
    """Softmax at all nodes of a few points: b points, C classes, D contrasts, Q nodes.

    Its arrays are at the place of the nodes.
    """

    def __init__(self, mean: Array, root: Array, nodes: Nodes) -> None:
        put, xp = nodes.place.put, nodes.place.xp
        H, z, weights = map(put, nodes[:3])
        self._place, self.z = nodes.place, z
        self.scaled: Matrix = H @ put(root)  # (b, C, D)
        log_p = self.scaled @ z.T
        log_p += (put(mean) @ H.T)[:, :, None]
        log_p -= xp.max(log_p, axis=1, keepdims=True)
        log_p -= xp.log(xp.sum(xp.exp(log_p), axis=1, keepdims=True))
        self.log_p: Matrix = log_p  # (b, C, Q)
        top = xp.max(log_p, axis=2, keepdims=True)
        given = xp.exp(log_p - top)
        given *= weights
        total = xp.sum(given, axis=2, keepdims=True)
        given /= total
        self.given: Matrix = given  # weights of the nodes given class c, (b, C, Q)
        self.log_mean: Matrix = (top + xp.log(total))[:, :, 0]  # log p̄, (b, C)

    def _own(self, values: Matrix, y: np.ndarray) -> Matrix:
        """The values (b, C, ...) of the class of each point, (b, ...)."""
        b, C, *rest = values.shape
        chosen = self._place.give(np.arange(b) * C + y)
        return self._place.xp.take(self._place.xp.reshape(values, (b * C, *rest)), chosen, axis=0)

    def spread(self, y: np.ndarray) -> Matrix:
        """E[z zᵀ | y], (b, D, D)."""
        weighted = self._own(self.given, y)[:, None, :] * self.z.T
        return weighted @ self.z

    @cached_property
    def _middle(self) -> Matrix:
        """Σ_c p_c scaled_c, (b, D, Q); the slope of log p_c is scaled_c minus this."""
        xp = self._place.xp
        return xp.permute_dims(self.scaled, (0, 2, 1)) @ xp.exp(self.log_p)

    def log_slopes(self, y: np.ndarray) -> tuple[Matrix, Matrix, Matrix]:
        """log p̄_y and its derivatives by shift and stretch, where dm = L shift and dL = L stretch."""
        by_z = self._own(self.scaled, y)[:, :, None] - self._middle
        by_z *= self._own(self.given, y)[:, None, :]
        return self._own(self.log_mean, y), self._place.xp.sum(by_z, axis=2), by_z @ self.z

    def responses(self, products: Array) -> Matrix:
        """E[product · ∂ log p_c/∂z | c], (b, C, D, U), for U products of coordinates of z, (Q, U)."""
        by_z = self.scaled[:, :, :, None] - self._middle[:, None, :, :]
        by_z *= self.given[:, :, None, :]
        return by_z @ self._place.put(products)


#: The number of entries of the largest array of a few points on a device, 256 MiB.
_ENTRIES = 2**25


def at_points(
    mean: Array, root: Array, nodes: Nodes, of: Callable[[AtNodes, slice], Result], width: int = 1
) -> list[Result]:
    """What ``of`` makes from softmax at the nodes, a few points at a time.

    The points have means (n, D) and lower triangular roots L (n, D, D). ``of`` is given softmax and the
    slice of the points, and needs ``width`` numbers for each point, class and node.
    """

    def work(part: slice) -> Result:
        return of(AtNodes(mean[part], root[part], nodes), part)

    entries = width * len(nodes.H) * len(nodes.z)
    if nodes.place.is_host:
        return in_batches(work, len(mean), entries)
    return [work(part) for part in slices(len(mean), max(1, _ENTRIES // entries))]


def over_points(
    mean: Array,
    root: Array,
    nodes: Nodes,
    of: Callable[[AtNodes, slice], tuple[Matrix, ...]],
) -> list[Array]:
    """The arrays that ``of`` makes, as ``at_points`` has it, each joined in NumPy's memory."""
    parts = at_points(mean, root, nodes, of)
    return [
        np.concatenate([np.asarray(on_host(array)) for array in arrays])
        for arrays in zip(*parts, strict=True)
    ]


@dataclass(frozen=True)
class SoftmaxMoments:
    """Softmax averaged over a Gaussian N(m, L Lᵀ) for each point."""

    log_mean: Array  # log p̄, (n, C)
    slopes: Array  # G, (n, C, D)

    @classmethod
    def at(cls, mean: Array, root: Array, nodes: Nodes) -> "SoftmaxMoments":
        """The averages at means (n, D) and lower triangular roots L (n, D, D)."""
        return cls(*over_points(mean, root, nodes, lambda at, _: (at.log_mean, at.given @ at.z)))

    @cached_property
    def mean(self) -> Array:
        """p̄, (n, C)."""
        return np.exp(self.log_mean)

    @cached_property
    def explained(self) -> Array:
        """A, (n, D, D)."""
        G = self.slopes
        return np.asarray(np.swapaxes(self.mean[:, :, None] * G, 1, 2) @ G, float)


def label_slopes(y: np.ndarray, mean: Array, root: Array, nodes: Nodes) -> list[Array]:
    """log p̄_y, (n,), and its derivatives by shift, (n, D), and stretch, (n, D, D)."""
    return over_points(mean, root, nodes, lambda at, part: at.log_slopes(y[part]))


def label_spread(y: np.ndarray, mean: Array, root: Array, nodes: Nodes) -> Array:
    """E[z zᵀ | y] for each point, (n, D, D)."""
    return over_points(mean, root, nodes, lambda at, part: (at.spread(y[part]),))[0]
