"""The exact posterior of a fit, expanded about a Gaussian whose moments match.

The series of ``correction`` is in what the sites miss of the likelihood: h₁ in the mean, h₂ in the
variance, then skewness and kurtosis. It is of use where these are small. CL leaves h₂ of order one
where labels contradict each other, and PL leaves both with the noisy threshold. So moment matching,
which is EP's rule, goes on from the sites of the fit to the fixed point where h₁ = h₂ = 0, and the
series begins there. An EP fit is there already. For PL and CL the correction of log Z is the step from
their evidence to EP's, plus the series.

A likelihood that is not log-concave can keep moment matching from converging. Then the series begins
where the means match, which is CL's fixed point; and where that fails too, at the fit itself.
"""

from dataclasses import dataclass, replace

import numpy as np

from postlin._typing import Array, cached_property
from postlin.exceptions import ImproperCavityError, NotPositiveDefiniteError
from postlin.inference.exact.correction import Correction, corrected_log_probabilities, correction_at
from postlin.inference.exact.problem import ExactIterate, ExactProblem
from postlin.inference.solver import solve, solve_from
from postlin.likelihoods.base import BinaryLikelihood
from postlin.linalg.arrays import Matrix
from postlin.rules.binary import CL, EP
from postlin.schedules import Parallel

#: Moments match where the residual is below this. What is corrected depends on it to second order.
_TOL = 1e-6
#: The most factorisations towards a centre. From PL and CL the 24 settings of `make truth` take 3 to 9,
#: but for two with the noisy threshold: one takes 12, and in the other EP's fixed point is not reached.
#: Ten steps from CL's sites to EP's lead there, but a series about such a point is no better: the log
#: evidence was off by 1.5 to 3 nats in six other problems of this kind, and by .01 to .5 about CL's.
_MOST = 15
#: The same for CL from the prior; 22 are enough in all 360 settings of `make convergence`.
_MOST_COLD = 30
#: Where pairs of rows change the log evidence by more than this, the Gaussian is far from the
#: posterior: the mean divergence of its probabilities was 1.3e-2 in 25 such problems, and 9e-4 in 151
#: others.
TRUSTED = 1.0
#: The largest sum of −τv over the sites of negative precision, per row. Where it is larger the exact
#: posterior has several modes, of which EP sees one. With the noisy threshold it was at most .034 in 52
#: problems, whose probabilities are wrong by .011 at most in the mean, and .038 to .065 at ten fixed
#: points with σ² ≥ 1000 and 5 or 15 % wrong labels, where they are wrong by .012 to .054.
_NEGATIVE = 0.036


@dataclass(frozen=True)
class Expansion:
    """The series about the iterate of a problem."""

    problem: ExactProblem
    iterate: ExactIterate
    is_matched: bool  # whether the first two moments match there

    @cached_property
    def series(self) -> Correction:
        """The terms of the series."""
        posterior, problem = self.iterate.posterior, self.problem
        one = problem.weights.one(posterior.view)
        cavity = one._replace(gap=np.where(one.gap > 0, one.gap, 1.0)).cavity
        return correction_at(posterior, problem.weights, one, self._likelihood.jet(problem.y, *cavity))

    @property
    def _likelihood(self) -> BinaryLikelihood:
        assert isinstance(self.problem.likelihood, BinaryLikelihood)
        return self.problem.likelihood

    @cached_property
    def log_evidence(self) -> float:
        """The log evidence to second order."""
        own = self.problem.log_evidence(self.iterate, self.problem.scales(self.iterate))
        return own + self.series.log_evidence

    @property
    def is_trustworthy(self) -> bool:
        """Whether moments match, the series is small, and few sites have negative precision."""
        posterior = self.iterate.posterior
        negative = np.maximum(-posterior.sites.tau * posterior.variance, 0.0)
        small = abs(self.series.pairs) <= TRUSTED and negative.mean() <= _NEGATIVE
        return self.is_matched and bool(small)

    def log_probabilities(
        self, cross: Matrix, prior_variance: Array, prior_mean: Array | float
    ) -> Array:
        """Log probabilities of −1 and +1 at new points to second order, (2, new)."""
        latent, sums = self.iterate.posterior.predict_with_powers(
            cross, prior_variance, self.series.vectors, prior_mean
        )
        return corrected_log_probabilities(self._likelihood.jets(*latent), latent.variance, sums)


def expanded(problem: ExactProblem, iterate: ExactIterate) -> Expansion:
    """The expansion for the fit that ended at this iterate."""
    moments, mean = replace(problem, rule=EP()), replace(problem, rule=CL())
    found = _matched(moments, iterate)
    if found is not None:
        return Expansion(moments, found, is_matched=True)
    found = _mean_matched(mean, iterate)
    if found is not None:
        return Expansion(mean, found, is_matched=False)
    return Expansion(problem, iterate, is_matched=False)


def _matched(problem: ExactProblem, iterate: ExactIterate) -> ExactIterate | None:
    """EP's fixed point near an iterate of another rule, if it is reached."""
    try:
        return solve_from(problem, problem.at(iterate.posterior), tol=_TOL, max_iter=_MOST)
    except ImproperCavityError:  # the cavities of a rule of the user's own can be anything
        return None


def _mean_matched(problem: ExactProblem, iterate: ExactIterate) -> ExactIterate | None:
    """CL's fixed point: the iterate, or what is reached from the prior."""
    try:
        here = problem.at(iterate.posterior)
        if here.size <= _TOL:
            return here
    except ImproperCavityError:
        pass
    try:
        found, record = solve(problem, Parallel(), start=None, tol=_TOL, max_iter=_MOST_COLD)
    except NotPositiveDefiniteError:
        return None
    return found if record.converged else None
