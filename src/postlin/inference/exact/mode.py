"""Newton's method for the mode of prior × likelihood, with a search along each step: Laplace.

The search needs no factorisation: along a step both the mean and K⁻¹ times it change linearly.
"""

from collections.abc import Callable

import numpy as np

from postlin._typing import Array
from postlin.inference.contract import Iterate, Posterior
from postlin.rules.sites import Sites

#: The shortest part of a step that is tried, and the residual below which the whole step is taken.
_SHORTEST, _CLOSE = 1e-3, 0.3


class ModeClimb:
    """A point f = μ₀ + K a that moves towards the maximum of log p(y|f) + log prior(f)."""

    def __init__(
        self,
        prior_mean: Array,
        start: Posterior | None,
        sites_at: Callable[[Array], Sites],
        log_likelihood: Callable[[Array], float],
    ) -> None:
        self._prior_mean, self._sites_at, self._log_likelihood = prior_mean, sites_at, log_likelihood
        self._f = prior_mean if start is None else start.mean
        self._a = np.zeros_like(prior_mean) if start is None else start.weights
        self._height = self._log_posterior(self._f, self._a)

    def sites(self) -> Sites:
        """The sites at the present point. The mean of their posterior is where Newton's step leads."""
        return self._sites_at(self._f)

    def advance(self, iterate: Iterate) -> None:
        """Go from the present point towards the iterate's mean, as far as the density increases."""
        length = 1.0
        step, turn = iterate.posterior.mean - self._f, iterate.posterior.weights - self._a
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
