"""Inducing points among what is learned: their coordinates after the logarithms of the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel

from postlin._typing import Array
from postlin.kernels import Slot, moved, slots

#: How close to a bound, in logs, counts as at it: a thousandth of a per cent.
_CLOSE = 1e-5


@dataclass(frozen=True)
class Hyperparameters:
    """A kernel and a likelihood with their parameters."""

    kernel: Kernel
    likelihood: Any  # of two classes or of many: it says what of it is free

    @property
    def theta(self) -> Array:
        """Logarithms of the free parameters: the kernel's in its order, then the likelihood's."""
        free = [getattr(self.likelihood, name) for name in self.likelihood.free]
        return np.concatenate([self.kernel.theta, np.log(free)])

    @property
    def bounds(self) -> Array:
        """Their bounds, logarithms too, an array (n, 2)."""
        free = np.log(list(self.likelihood.free.values())).reshape(-1, 2)
        return np.concatenate([np.asarray(self.kernel.bounds, float).reshape(-1, 2), free])

    @property
    def names(self) -> list[str]:
        """What each of them is called."""
        if isinstance(self.kernel, CompoundKernel):
            parts = [
                f"kernel {k}: {name}"
                for k, part in enumerate(self.kernel.kernels)
                for name in _names(part)
            ]
        else:
            parts = _names(self.kernel)
        return [*parts, *self.likelihood.free]

    def __getstate__(self) -> dict[str, Any]:
        """Slots are found again."""
        return {name: value for name, value in vars(self).items() if name != "_slots"}

    @cached_property
    def _slots(self) -> list[Slot] | None:
        return slots(self.kernel)

    def at(self, theta: Array) -> "Hyperparameters":
        """The same with other parameters."""
        n = len(theta) - len(self.likelihood.free)
        values = map(float, np.exp(theta[n:]))
        return Hyperparameters(
            moved(self.kernel, theta[:n], self._slots),
            self.likelihood.replaced(**dict(zip(self.likelihood.free, values, strict=True))),
        )

    def by_likelihood(self, by_parameters: Mapping[str, float]) -> list[float]:
        """Derivatives by the logarithms of the likelihood's free parameters, from those by all."""
        return [by_parameters[name] * getattr(self.likelihood, name) for name in self.likelihood.free]

    @property
    def starts(self) -> list[Array]:
        """Where a search should begin: here, and where the likelihood says."""
        others = (self.likelihood.replaced(**values) for values in self.likelihood.other_starts)
        return [self.theta, *(replace(self, likelihood=other).theta for other in others)]

    def drawn(self, rng: np.random.RandomState) -> Array:
        """A random point within the bounds, from where a search may begin too."""
        low, high = self.bounds.T
        return np.asarray(rng.uniform(low, high))

    def inside(self, theta: Array) -> "Hyperparameters":
        """At the point within the bounds that is next to ``theta``."""
        return self.at(np.clip(theta, *self.bounds.T))

    def check_bounds(self, *, finite: bool) -> None:
        """The start must lie within the bounds, and restarts need bounds to draw from."""
        theta, bounds = self.theta, self.bounds
        for k in np.flatnonzero((theta < bounds[:, 0]) | (theta > bounds[:, 1])):
            low, high = np.exp(bounds[k])
            raise ValueError(
                f"the bounds of {self.names[k]}, ({low:g}, {high:g}), exclude its start "
                f"{np.exp(theta[k]):g}: widen them or change the start."
            )
        if finite and not np.isfinite(bounds).all():
            raise ValueError("restarts need finite bounds on every parameter to draw starts from.")

    def at_bounds(self) -> list[str]:
        """A sentence for every parameter that has come to rest at one of its bounds."""
        theta, bounds = self.theta, self.bounds
        sentences = []
        for k, side in zip(*np.nonzero(np.abs(bounds - theta[:, None]) < _CLOSE), strict=True):
            if bounds[k, 0] < bounds[k, 1]:
                sentences.append(
                    f"the optimal value found for {self.names[k]} is at its {('lower', 'upper')[side]} "
                    f"bound, {np.exp(bounds[k, side]):g}: {('lower', 'raise')[side]} the bound and fit "
                    "again, or fix the parameter."
                )
        return sentences


def _names(kernel: Kernel) -> list[str]:
    """Names of a kernel's free parameters, one by one."""
    return [
        h.name if h.n_elements == 1 else f"{h.name}[{k}]"
        for h in kernel.hyperparameters
        if not h.fixed
        for k in range(h.n_elements)
    ]


@dataclass(frozen=True, eq=False)
class WithPoints(Hyperparameters):
    """Hyperparameters with the inducing points, which are searched for within a box.

    In the vector of parameters the coordinates are as they are, row by row, and no logarithms. A
    random start draws the others alone.
    """

    points: Array
    box: Array  # (features, 2)

    @classmethod
    def of(cls, at: Hyperparameters, points: Array, box: Array) -> "WithPoints":
        """Learn the points too."""
        return cls(at.kernel, at.likelihood, points, box)

    @property
    def _rest(self) -> Hyperparameters:
        return Hyperparameters(self.kernel, self.likelihood)

    @property
    def theta(self) -> Array:
        """Logarithms of the parameters, then the coordinates."""
        return np.concatenate([self._rest.theta, self.points.ravel()])

    @property
    def bounds(self) -> Array:
        """Of all of these."""
        return np.concatenate([self._rest.bounds, np.tile(self.box, (len(self.points), 1))])

    @property
    def names(self) -> list[str]:
        """What each is called."""
        rows, columns = self.points.shape
        return self._rest.names + [f"inducing[{i}, {k}]" for i in range(rows) for k in range(columns)]

    def at(self, theta: Array) -> "WithPoints":
        """The same with other parameters and points."""
        n = len(self._rest.theta)
        return self.of(
            self._rest.at(theta[:n]), np.array(theta[n:]).reshape(self.points.shape), self.box
        )

    @property
    def starts(self) -> list[Array]:
        """Where a search should begin."""
        return [np.concatenate([start, self.points.ravel()]) for start in self._rest.starts]

    def drawn(self, rng: np.random.RandomState) -> Array:
        """Random parameters, and the points as they are."""
        return np.concatenate([self._rest.drawn(rng), self.points.ravel()])

    def check_bounds(self, *, finite: bool) -> None:
        """Of the others; the box is made about the points."""
        self._rest.check_bounds(finite=finite)

    def at_bounds(self) -> list[str]:
        """Of the others: a point at the edge of the data is nothing to be told of."""
        return self._rest.at_bounds()
