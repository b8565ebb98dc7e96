"""What a user must be told about an inference that did not go as it should."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from postlin._typing import Array
from postlin.exceptions import ConvergenceWarning, NegativeSiteWarning
from postlin.inference.solver import History, Record, Solution
from postlin.rules.binary import EP, Rule
from postlin.rules.sites import Sites
from postlin.schedules import Schedule


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


def complaints(
    record: Record,
    rule: Rule,
    schedule: Schedule,
    tol: float,
    max_iter: int,
    option: str = "max_iter",
    *,
    can_sweep: bool,
) -> list[ConvergenceWarning | NegativeSiteWarning]:
    """Warnings, each with what to do about it; sweeps, where they can be made."""
    found: list[ConvergenceWarning | NegativeSiteWarning] = []
    if schedule.iterations is not None and record.n_iter < schedule.iterations:
        found.append(
            ConvergenceWarning(
                f"plain iteration broke down after {record.n_iter} of {schedule.iterations} "
                "iterations; the result is where it stood. Use a schedule without iterations=."
            )
        )
    if not record.converged and schedule.iterations is None:
        found.append(
            ConvergenceWarning(
                f"inference stopped after {record.n_factorisations} factorisations with residual "
                f"{record.residual:.2g}, above tol={tol:g}; the result is approximate. To remedy it, "
                f"{_remedy(record, rule, max_iter, option, can_sweep)}. Extreme kernel parameters are "
                "the usual cause."
            )
        )
    if isinstance(rule, EP) and record.overruled.any():
        rows = ", ".join(map(str, np.flatnonzero(record.overruled)[:5]))
        count = int(record.overruled.sum())
        found.append(
            NegativeSiteWarning(
                f"EP asked for negative precision at {count} sites (rows {rows}"
                f"{', …' if count > 5 else ''}), which negative_sites={rule.negative_sites!r} "
                'changed; "keep" is more accurate.'
            )
        )
    return found


def _remedy(record: Record, rule: Rule, max_iter: int, option: str, can_sweep: bool) -> str:
    if record.n_factorisations >= max_iter:
        return f"raise {option} (now {max_iter})"
    cures = ["use schedule='sequential'"] if can_sweep else []
    if isinstance(rule, EP):
        cures.append("use inference='pl', which has no such trouble")
    else:
        cures.append("add white noise to the covariance")
    return ", or ".join(cures)


#: Relative tolerance of the adjoint solve, where nothing else is asked.
EXACT = 1e-11
