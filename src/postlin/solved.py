"""What every solved problem can tell, whatever its sites look like."""

import warnings
from dataclasses import dataclass
from typing import Any

from postlin._typing import Array
from postlin.complaints import complaints
from postlin.fixed_point import History, Solution
from postlin.schedules import Schedule
from postlin.sites import Sites


@dataclass(frozen=True, eq=False, repr=False)
class Solved:
    """A problem and where its iteration ended."""

    problem: Any
    solution: Solution

    @property
    def mean(self) -> Array:
        """Posterior means of the latent values."""
        mean: Array = self.solution.iterate.posterior.mean
        return mean

    @property
    def variance(self) -> Array:
        """Posterior variances of the latent values."""
        variance: Array = self.solution.iterate.posterior.variance
        return variance

    @property
    def covariance(self) -> Any:
        """Posterior covariance of the latent values, where the prior's is."""
        covariance: Any = self.solution.iterate.posterior.covariance
        return covariance

    @property
    def sites(self) -> Sites:
        """The Gaussian factors, ``sites.tau`` and ``sites.nu``; pass them on as ``start``."""
        sites: Sites = self.solution.iterate.posterior.sites
        return sites

    @property
    def start(self) -> Sites:
        """From where a similar problem may start."""
        return self.sites

    @property
    def effort(self) -> str:
        """What it took, in words."""
        return f"{self.n_factorisations} factorisations"

    @property
    def converged(self) -> bool:
        """Whether the residual is below the tolerance.

        Where the covariance is so ill-conditioned that rounding alone moves the residual by more,
        up to 1e-6, that counts instead: compare ``residual``.
        """
        return self.solution.record.converged

    @property
    def residual(self) -> float:
        """The largest move that the rule still asks for, in units of the marginal."""
        return self.solution.record.residual

    @property
    def is_clean(self) -> bool:
        """Whether it converged, and no policy has overruled a site on the way."""
        return self.converged and not self.solution.record.overruled.any()

    @property
    def n_iter(self) -> int:
        """Iterations made."""
        return self.solution.record.n_iter

    @property
    def n_factorisations(self) -> int:
        """Cholesky factorisations made, those of rejected steps included."""
        return self.solution.record.n_factorisations

    @property
    def history(self) -> History:
        """``history.residuals`` and ``history.means``, iteration by iteration."""
        return self.solution.record.history

    @property
    def can_sweep(self) -> bool:
        """Whether the sequential schedule can solve such problems."""
        return False

    def warn(self, schedule: Schedule, tol: float, max_iter: int, stacklevel: int) -> None:
        """Say what must be known: not converged, or sites that a policy has overruled."""
        record, rule = self.solution.record, self.problem.rule
        for message in complaints(record, rule, schedule, tol, max_iter, can_sweep=self.can_sweep):
            warnings.warn(message, stacklevel=stacklevel)
