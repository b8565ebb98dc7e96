"""Newton's method for the mode of prior × likelihood, with a search along each step: Laplace.

What is searched needs no factorisation: the mean moves along a line, and K⁻¹ times it does too.
"""

import numpy as np

from postlin._typing import Array
from postlin.inference.exact.posterior import GaussianPosterior
from postlin.inference.exact.problem import Problem
from postlin.likelihoods import BinaryLikelihood
from postlin.rules.sites import Sites

#: The shortest part of a step that is tried, and the residual below which all of it is taken.
_SHORTEST, _NEAR = 1e-3, 0.3


class Climb:
    """A point f = μ₀ + K a on the way up log p(y|f) + log prior(f)."""

    def __init__(self, problem: Problem, start: GaussianPosterior | None) -> None:
        self._problem = problem
        self._f = problem.prior_mean if start is None else start.mean
        self._a = np.zeros_like(problem.prior_mean) if start is None else start.weights
        self._height = self._log_posterior(self._f, self._a)

    def sites(self) -> Sites:
        """Those at the present point; the posterior mean that they make is Newton's next."""
        problem = self._problem
        view = problem.prior_view._replace(mean=self._f)
        return problem.propose(view).sites

    def advance(self, posterior: GaussianPosterior, residual: float) -> None:
        """Go towards the mean of the posterior that the sites made, as far as it leads up."""
        step, turn = posterior.mean - self._f, posterior.weights - self._a
        length = 1.0
        while True:
            f, a = self._f + length * step, self._a + length * turn
            height = self._log_posterior(f, a)
            if height > self._height or length * residual < _NEAR or length < _SHORTEST:
                break
            length *= 0.5
        self._f, self._a, self._height = f, a, height

    def _log_posterior(self, f: Array, a: Array) -> float:
        """Up to a constant."""
        problem = self._problem
        assert isinstance(problem.likelihood, BinaryLikelihood)
        fits = problem.likelihood.jet(problem.y, f, np.zeros_like(f)).log_z
        fit = fits.sum() if problem.observations is None else problem.observations.weight @ fits
        return float(fit - 0.5 * a @ (f - problem.prior_mean))
