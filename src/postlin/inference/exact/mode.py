"""Newton's method for the mode of prior × likelihood, with a search along each step: Laplace.

The search needs no factorisation, since the mean moves along a line, and so does K⁻¹ times it.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from postlin._typing import Array
from postlin.rules.sites import Sites

#: The shortest part of a step that is tried, and the residual below which all of it is taken.
_SHORTEST, _CLOSE = 1e-3, 0.3


class Mean(Protocol):
    """A posterior mean μ₀ + K a, with its weights a."""

    mean: Array
    weights: Array


class Point(Protocol):
    """An iterate of the solver."""

    @property
    def posterior(self) -> Mean:
        """Its posterior."""

    @property
    def size(self) -> float:
        """The size of its residual."""


class ModeClimb:
    """A point f = μ₀ + K a on the way up log p(y|f) + log prior(f)."""

    def __init__(
        self,
        prior_mean: Array,
        start: Mean | None,
        sites_at: Callable[[Array], Sites],
        log_likelihood: Callable[[Array], float],
    ) -> None:
        self._prior_mean, self._sites_at, self._log_likelihood = prior_mean, sites_at, log_likelihood
        self._f = prior_mean if start is None else start.mean
        self._a = np.zeros_like(prior_mean) if start is None else start.weights
        self._height = self._log_posterior(self._f, self._a)

    def sites(self) -> Sites:
        """The sites at the present point. The mean of the posterior that they make is Newton's next."""
        return self._sites_at(self._f)

    def advance(self, iterate: Point) -> None:
        """Go towards the mean of the posterior that the sites made, as far as that leads up."""
        posterior, length = iterate.posterior, 1.0
        step, turn = posterior.mean - self._f, posterior.weights - self._a
        while True:
            f, a = self._f + length * step, self._a + length * turn
            height = self._log_posterior(f, a)
            if height > self._height or length * iterate.size < _CLOSE or length < _SHORTEST:
                break
            length *= 0.5
        self._f, self._a, self._height = f, a, height

    def _log_posterior(self, f: Array, a: Array) -> float:
        """The log density of the posterior at f, up to a constant."""
        return self._log_likelihood(f) - 0.5 * float(a @ (f - self._prior_mean))
