"""The hyperparameters of a kernel and a likelihood as one vector, with inducing points if learned."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import CompoundKernel, Kernel

from postlin._typing import Array, cached_property, override
from postlin.kernels import Slot, moved, slots

#: A log-parameter that is closer to a bound than this is at the bound: a thousandth of a per cent.
_CLOSE = 1e-5


@dataclass(frozen=True)
class Hyperparameters:
    """A kernel and a likelihood with their parameters."""

    kernel: Kernel
    likelihood: Any  # binary or softmax; its ``free`` names the parameters that are learned

    @property
    def theta(self) -> Array:
        """The logarithms of the free parameters: the kernel's in its order, then the likelihood's."""
        free = [getattr(self.likelihood, name) for name in self.likelihood.free]
        return np.concatenate([self.kernel.theta, np.log(free)])

    @property
    def bounds(self) -> Array:
        """The bounds of ``theta``, an array (n, 2)."""
        free = np.log(list(self.likelihood.free.values())).reshape(-1, 2)
        return np.concatenate([np.asarray(self.kernel.bounds, float).reshape(-1, 2), free])

    @property
    def names(self) -> list[str]:
        """The name of each free parameter."""
        parts = [("", self.kernel)]
        if isinstance(self.kernel, CompoundKernel):
            parts = [(f"kernel {k}: ", part) for k, part in enumerate(self.kernel.kernels)]
        of_kernel = [
            f"{prefix}{h.name}" if h.n_elements == 1 else f"{prefix}{h.name}[{k}]"
            for prefix, part in parts
            for h in part.hyperparameters
            if not h.fixed
            for k in range(h.n_elements)
        ]
        return [*of_kernel, *self.likelihood.free]

    def __getstate__(self) -> dict[str, Any]:
        """A copy finds the slots again."""
        return {name: value for name, value in vars(self).items() if name != "_slots"}

    @cached_property
    def _slots(self) -> list[Slot] | None:
        return slots(self.kernel)

    def at(self, theta: Array) -> "Hyperparameters":
        """The kernel and the likelihood with the free parameters at theta."""
        n = len(theta) - len(self.likelihood.free)
        values = map(float, np.exp(theta[n:]))
        return Hyperparameters(
            moved(self.kernel, theta[:n], self._slots),
            self.likelihood.replaced(**dict(zip(self.likelihood.free, values, strict=True))),
        )

    def by_likelihood(self, by_parameters: Mapping[str, float]) -> list[float]:
        """The derivatives by the likelihood's free log-parameters, from those by all its parameters."""
        return [by_parameters[name] * getattr(self.likelihood, name) for name in self.likelihood.free]

    @property
    def starts(self) -> list[Array]:
        """The points at which searches begin: the present one and others that the likelihood names."""
        others = (self.likelihood.replaced(**values) for values in self.likelihood.other_starts)
        return [self.theta, *(replace(self, likelihood=other).theta for other in others)]

    def drawn(self, rng: np.random.RandomState) -> Array:
        """A random point within the bounds, at which a restart begins."""
        low, high = self.bounds.T
        return np.asarray(rng.uniform(low, high))

    def inside(self, theta: Array) -> "Hyperparameters":
        """The hyperparameters at the point within the bounds that is nearest to theta."""
        return self.at(np.clip(theta, *self.bounds.T))

    def check_bounds(self, *, finite: bool) -> None:
        """Raise ``ValueError`` if the start is out of bounds, or bounds must be finite and are not."""
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
        """A sentence about every parameter that is at one of its bounds."""
        bounds = self.bounds
        close = (np.abs(bounds - self.theta[:, None]) < _CLOSE) & (bounds[:, :1] < bounds[:, 1:])
        return [
            f"the optimal value found for {self.names[k]} is at its {('lower', 'upper')[side]} bound, "
            f"{np.exp(bounds[k, side]):g}: {('lower', 'raise')[side]} the bound and fit again, or fix "
            "the parameter."
            for k, side in np.argwhere(close)
        ]


@dataclass(frozen=True, eq=False)
class WithPoints(Hyperparameters):
    """Hyperparameters together with inducing points, which are learned within a box.

    ``theta`` ends with the coordinates of the points, row by row and without logarithms. A restart
    draws the other parameters only. Neither is a point checked against the box, which is made around
    the data, nor is one at the edge reported.
    """

    points: Array
    box: Array  # (features, 2)

    @classmethod
    def of(cls, at: Hyperparameters, points: Array, box: Array) -> "WithPoints":
        """The hyperparameters ``at`` together with these points."""
        return cls(at.kernel, at.likelihood, points, box)

    @property
    def _rest(self) -> Hyperparameters:
        return Hyperparameters(self.kernel, self.likelihood)

    def _with_points(self, rest: Array) -> Array:
        return np.concatenate([rest, self.points.ravel()])

    @property
    @override
    def theta(self) -> Array:
        return self._with_points(self._rest.theta)

    @property
    @override
    def bounds(self) -> Array:
        return np.concatenate([self._rest.bounds, np.tile(self.box, (len(self.points), 1))])

    @property
    @override
    def names(self) -> list[str]:
        return self._rest.names + [f"inducing[{i}, {k}]" for i, k in np.ndindex(self.points.shape)]

    @override
    def at(self, theta: Array) -> "WithPoints":
        n = len(theta) - self.points.size
        points = np.array(theta[n:]).reshape(self.points.shape)
        return self.of(self._rest.at(theta[:n]), points, self.box)

    @property
    @override
    def starts(self) -> list[Array]:
        return [self._with_points(start) for start in self._rest.starts]

    @override
    def drawn(self, rng: np.random.RandomState) -> Array:
        return self._with_points(self._rest.drawn(rng))

    @override
    def check_bounds(self, *, finite: bool) -> None:
        self._rest.check_bounds(finite=finite)

    @override
    def at_bounds(self) -> list[str]:
        return self._rest.at_bounds()
