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
        return self._theta.copy()

    @cached_property
    def _theta(self) -> Array:  # the kernel takes as long for it as for a block of 100 rows
        free = [getattr(self.likelihood, name) for name in self.likelihood.free]
        with np.errstate(divide="ignore", invalid="ignore"):  # ``check`` refuses what has no logarithm
            return np.concatenate([self.kernel.theta, np.log(free)])

    @cached_property
    def n_logarithms(self) -> int:
        """The number of log-parameters with which ``theta`` begins; here it has no other entries."""
        return len(self._theta)

    @property
    def bounds(self) -> Array:
        """The bounds of ``theta``, an array (n, 2)."""
        return self._bounds.copy()

    @cached_property
    def _bounds(self) -> Array:  # the kernel takes as long for it as a factorisation of 200 rows
        free = np.log(list(self.likelihood.free.values())).reshape(-1, 2)
        with np.errstate(divide="ignore", invalid="ignore"):  # a lower bound of zero is none
            return np.concatenate([np.asarray(self.kernel.bounds, float).reshape(-1, 2), free])

    @property
    def names(self) -> list[str]:
        """The name of each free parameter."""
        of_kernel = [
            name if size == 1 else f"{name}[{k}]"
            for name, size in self.kernel_parameters
            for k in range(size)
        ]
        return [*of_kernel, *self.likelihood.free]

    @cached_property
    def kernel_parameters(self) -> list[tuple[str, int]]:
        """The name and the number of elements of each free parameter of the kernel, in order."""
        parts = [("", self.kernel)]
        if isinstance(self.kernel, CompoundKernel):
            parts = [(f"kernel {k}: ", part) for k, part in enumerate(self.kernel.kernels)]
        free = [(name, h) for name, part in parts for h in part.hyperparameters if not h.fixed]
        return [(f"{prefix}{h.name}", h.n_elements) for prefix, h in free]

    def where(self, name: str) -> list[np.ndarray]:
        """The indices in ``theta`` of each kernel parameter of this name, whatever its prefix."""
        parameters = self.kernel_parameters
        firsts = np.cumsum([0] + [size for _, size in parameters])
        return [
            np.arange(first, first + size)
            for (full, size), first in zip(parameters, firsts, strict=False)
            if full.split("__")[-1].split(": ")[-1] == name
        ]

    def __getstate__(self) -> dict[str, Any]:
        """A copy finds again what is cached."""
        cached = "_slots", "_theta", "_bounds", "n_logarithms", "kernel_parameters"
        return {name: value for name, value in vars(self).items() if name not in cached}

    @cached_property
    def _slots(self) -> list[Slot] | None:
        return slots(self.kernel)

    def at(self, theta: Array) -> "Hyperparameters":
        """The kernel and the likelihood with the free parameters at theta."""
        n = len(theta) - len(self.likelihood.free)
        values = map(float, np.exp(theta[n:]))
        there = Hyperparameters(
            moved(self.kernel, theta[:n], self._slots),
            self.likelihood.replaced(**dict(zip(self.likelihood.free, values, strict=True))),
        )
        # what does not move
        vars(there).update(_bounds=self._bounds, kernel_parameters=self.kernel_parameters)
        return there

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

    def check(self) -> None:
        """Raise ``ValueError`` if a free parameter has no logarithm."""
        for k in np.flatnonzero(~np.isfinite(self.theta)):
            raise ValueError(
                f"{self.names[k]} must be a positive number, since its logarithm is learned: change "
                "or fix it."
            )

    def check_bounds(self, *, finite: bool) -> None:
        """Raise ``ValueError`` if bounds hold no number, or must be finite and are not."""
        bounds = self.bounds
        for k in np.flatnonzero(~(bounds[:, 0] <= bounds[:, 1])):
            low, high = np.exp(bounds[k])
            raise ValueError(
                f"the bounds of {self.names[k]}, ({low:g}, {high:g}), have no number between them: "
                "give two positive numbers, the lower first."
            )
        if finite and not np.isfinite(bounds).all():
            raise ValueError("restarts need finite bounds on every parameter to draw starts from.")

    def outside(self) -> list[str]:
        """Every parameter that is outside its bounds, in words."""
        theta, bounds = self.theta, self.bounds
        return [
            f"{self.names[k]} = {np.exp(theta[k]):g} outside ({low:g}, {high:g})"
            for k, (low, high) in enumerate(np.exp(bounds))
            if not bounds[k, 0] <= theta[k] <= bounds[k, 1]
        ]

    def at_bounds(self) -> list[tuple[int, int]]:
        """The index of every parameter at a bound, and the side: 0 for the lower, 1 for the upper."""
        bounds = self.bounds[: self.n_logarithms]
        near = np.abs(bounds - self.theta[: len(bounds), None]) < _CLOSE
        return [(int(k), int(side)) for k, side in np.argwhere(near & (bounds[:, :1] < bounds[:, 1:]))]


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

    @cached_property
    @override
    def n_logarithms(self) -> int:
        return len(self._rest.theta)

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
