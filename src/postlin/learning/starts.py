"""Starts that the data suggest, for searches that would end where nothing is learned.

Where a kernel's length scale is far too short, its matrix is diagonal; where it is far too long, the
matrix is constant. The evidence is flat there, and a search would end at once.
"""

import logging
from collections.abc import Iterable
from copy import copy

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from postlin._typing import Array
from postlin.kernels import kernels_of
from postlin.learning.hyperparameters import Hyperparameters
from postlin.linalg.arrays import squared_distances

logger = logging.getLogger("postlin")

#: The number of rows at which a kernel is looked at, and of others with which they are compared.
_ROWS, _OTHERS = 50, 5000
#: Rows whose covariance differs from the variance by less than this part are the same.
_SAME = 1e-9
#: Covariances, and variances of differences, that are less than this part of the largest variance make
#: no start.
FAINT = 1e-3
#: Covariances, and variances of differences, that change no probability by more than a few thousandths.
NOTHING = 1e-4
#: The factors by which single parameters are moved where the kernel informs nowhere else.
_FACTORS = (10.0, 0.1, 100.0, 0.01, 1e3, 1e-3, 1e4, 1e-4)
#: A log evidence that exceeds that of constant probabilities by less than this has learned nothing.
_LEARNED = 1.0
#: Length scales at which a better optimum was found, in natural units: those at which another value is
#: computed, and the one at which another search begins if nothing was learned. On 30 fresh data sets,
#: 249 fits of 40 to 160 rows began at the natural length scale: 14 ended more than 0.1 nat below the
#: best of some twenty starts, and with the other search 5, by 0.3 at most.
_LOOKS, _SHORT = (1.0, 4.0), 0.35
#: Where half of some rows are nearer to another than this part of the natural length scale, rows that
#: are far away determine it: of 50 normal numbers half are nearer than a thirtieth. Then another search
#: begins at so many times that distance.
_CROWDED, _TIMES = 0.002, 4.0


def spread(rows: np.ndarray, weight: Array | None = None) -> Array:
    """The standard deviation of every feature; an empty array if rows are no vectors of numbers."""
    if np.ndim(rows) != 2 or rows.dtype.kind not in "fiu":
        return np.zeros(0)
    largest = np.maximum(np.abs(rows).max(axis=0), np.finfo(float).tiny)
    unit = rows / largest  # squares of large features would overflow
    mean = np.average(unit, axis=0, weights=weight)
    return np.asarray(np.sqrt(np.average((unit - mean) ** 2, axis=0, weights=weight)) * largest)


def natural_length(deviations: Array) -> float:
    """The length scale that suits features of these standard deviations: √d if all are one."""
    largest = deviations.max(initial=0.0)
    if largest == 0.0:
        return float(np.sqrt(max(1, len(deviations))))
    return float(largest * np.linalg.norm(deviations / largest))


def constant_evidence(labels: np.ndarray, weight: Array | None) -> float:
    """The log evidence of the best model that gives every row the same probabilities."""
    _, codes = np.unique(labels, return_inverse=True)
    counts = np.bincount(codes, weights=weight)
    return float(counts @ np.log(counts / counts.sum()))


class Guide:
    """What the data say about the starts of a search."""

    def __init__(
        self,
        at: Hyperparameters,
        sample: np.ndarray,
        deviations: Array,
        baselines: Iterable[float],
        *,
        has_mean: bool = False,
    ) -> None:
        """``baselines`` are the constant evidences of the models, ``deviations`` those of features.

        With ``has_mean`` a prior mean tells rows apart, whatever the kernel does.
        """
        self.has_mean = has_mean
        self.at = at
        self.others = sample[spaced(len(sample), _OTHERS)]
        self.rows = self.others[spaced(len(self.others), _ROWS)]
        self.deviations = deviations
        self.baseline = sum(baselines)

    def scaled(self, times: float) -> "Guide":
        """The guide for rows that stand for so many times fewer."""
        smaller = copy(self)
        smaller.baseline = self.baseline / times
        return smaller

    def informs(self, theta: Array) -> bool:
        """Whether the kernel at theta is far from both a diagonal and a constant matrix."""
        return any(self._contrast(part, relative=True) > FAINT for part in self._parts(theta))

    def sees(self, theta: Array) -> bool:
        """Whether the kernel at theta can give rows different probabilities."""
        return any(self._contrast(part) > NOTHING for part in self._parts(theta))

    def _parts(self, theta: Array) -> list[Kernel]:
        return kernels_of(self.at.at(theta).kernel)

    def verdict(self, first: Array, end: Array) -> tuple[bool, bool]:
        """Whether all new rows get the same probability, and whether the kernel is to blame.

        It is if it did not inform at the first start either, which is the best that was found.
        """
        constant = not (self.has_mean or self.sees(end))
        if constant:
            logger.info("all new rows have nearly the same probability")
        return constant, constant and not self.informs(first)

    def has_learned(self, log_evidence: float) -> bool:
        """Whether this evidence is clearly above that of constant probabilities."""
        return log_evidence > self.baseline + _LEARNED

    @property
    def looks(self) -> list[Array]:
        """Points at which the evidence may be larger than where a search has ended; natural first."""
        return [theta for length in _LOOKS for theta in self._scaled(length)]

    @property
    def short(self) -> list[Array]:
        """The start of another search if nothing was learned, if the kernel has length scales."""
        return self._scaled(_SHORT)

    @property
    def near(self) -> list[Array]:
        """The start of another search if rows are in clusters far apart, or among outliers."""
        near = self._nearest() if self.short else 0.0
        return self._scaled(_TIMES * near) if 0.0 < near < _CROWDED else []

    def _nearest(self) -> float:
        """The median distance of a row to the nearest other one among some, in natural units."""
        scale = np.exp(self._natural(max(len(where) for where in self.at.where("length_scale"))))
        rows = np.asarray(self.rows, float) / scale
        squares = squared_distances(rows, rows)
        squares[squares == 0.0] = np.inf
        return float(np.sqrt(np.median(squares.min(axis=1))))

    def _scaled(self, length: float) -> list[Array]:
        """The start with length scales of this natural size, if the kernel has any.

        Length scales of several parts of a kernel keep their ratios; other parameters stay.
        """
        groups = self.at.where("length_scale") if len(self.deviations) else []
        theta = self.at.theta.copy()
        means = [theta[where].mean() for where in groups]
        for where, mean in zip(groups, means, strict=True):
            theta[where] = np.log(length) + mean - np.mean(means) + self._natural(len(where))
        return [np.clip(theta, *self.at.bounds.T)] if groups else []

    def _natural(self, size: int) -> Array:
        """The logarithms of natural length scales: one for all features, or one for each."""
        each, d = self.deviations, len(self.deviations)
        if size == d > 1:
            return np.asarray(np.log(np.sqrt(d) * np.where(each > 0, each, 1.0)))
        return np.asarray(np.log(natural_length(each)))

    def informing(self, theta: Array) -> Array:
        """A start at which the kernel informs: theta, or another if it does not inform there.

        Length scales are moved first, and then each parameter alone. If the kernel informs nowhere,
        theta is returned.
        """
        if self.informs(theta):
            return theta
        low, high = self.at.bounds.T
        axes = np.eye(len(low))[: self.at.n_logarithms]
        moved = (np.clip(theta + np.log(by) * axis, low, high) for by in _FACTORS for axis in axes)
        found = next((t for t in (*self.looks, *moved) if self.informs(t)), theta)
        logger.info(
            "the matrix of the kernel is nearly diagonal or constant at its start; %s",
            "so it is elsewhere" if found is theta else f"the search begins at {np.exp(found)}",
        )
        return found

    def _contrast(self, kernel: Kernel, *, relative: bool = False) -> float:
        """The largest covariance of two rows or variance of their difference, whichever is less.

        Rows are compared with all others, since only the nearest may have a covariance with them; equal
        rows do not count. Covariances are taken with copies, which leaves white noise out.
        """
        with np.errstate(all="ignore"):  # what overflows is large
            C = np.asarray(kernel(self.rows, self.rows.copy()), float)
            D = np.asarray(kernel(self.rows, self.others.copy()), float)
            variances = C.diagonal()
            largest = float(np.abs(variances).max())
            same = np.abs(D - variances[:, None]) <= _SAME * np.abs(variances[:, None])
            shared = np.abs(D[~same]).max(initial=0.0)
            difference = (variances[:, None] + variances - C - C.T).max(initial=0.0)
        contrast = float(min(shared, difference))
        if not np.isfinite(contrast):
            return np.inf
        return contrast / largest if relative and largest > 0 else contrast


def spaced(n: int, count: int) -> np.ndarray:
    """At most ``count`` indices below n, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, count).astype(int))
