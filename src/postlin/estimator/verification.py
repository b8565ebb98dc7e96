"""What a verification has found: a fit against the exact posterior of its own model, and a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, stdtrit

from postlin._typing import Array
from postlin.inference.exact.tempering import Run

#: The verdict warns where a standard deviation of the log evidence is above the first, or the mean one
#: of the probabilities above the second.
_WIDE, _WIDE_P = 0.5, 0.01
#: It also warns where a level accepted less than this part of its moves, or less than this part of the
#: particles have descendants. On crab, thyroid and ionosphere with σ² learned, 100 and 10⁴, no level
#: accepted less than .6, and a tenth had descendants but for the hardest problem, where .034 had.
_RARE, _FEW = 0.3, 0.05


def spread(values: Sequence[float] | Array) -> Array | None:
    """Half of the half-width of the 95 % interval of the mean of runs (first axis); None for one run.

    The interval is Student's, so that the mean ± twice this holds the truth 19 times in 20, however few
    the runs are: with three runs this is 1.24 times the standard deviation of a single run.
    """
    values = np.asarray(values, float)
    n = len(values)
    if n < 2:
        return None
    half_width = stdtrit(n - 1, 0.975) / np.sqrt(n) * np.std(values, axis=0, ddof=1)
    return np.asarray(0.5 * half_width)


@dataclass(frozen=True, eq=False)
class VerifiedProblem:
    """The runs of one binary problem, and the evidence of its fit."""

    name: str
    fit_log_evidence: float
    runs: tuple[Run, ...]

    @property
    def log_evidence(self) -> float:
        """The estimate of the exact log evidence; that of the evidence itself is unbiased."""
        values = [run.log_evidence for run in self.runs]
        return float(logsumexp(values) - np.log(len(values)))

    @property
    def log_evidence_sd(self) -> float | None:
        """The standard deviation of ``log_evidence``; None for a single run."""
        found = spread([run.log_evidence for run in self.runs])
        return None if found is None else float(found)

    def __repr__(self) -> str:
        return (
            f"<VerifiedProblem {self.name}: log evidence {self.fit_log_evidence:.6g}, exact "
            f"{with_sd(self.log_evidence, self.log_evidence_sd)}>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Verification:
    """How far a fit is from the exact posterior at the same hyperparameters, by Monte Carlo.

    ``print`` shows a verdict. Standard deviations are those of the estimates, from the spread between
    runs; twice one of them is the half-width of a 95 % interval by Student's t, which allows for the
    small number of runs. They are None where a single run has been finished.

    Attributes
    ----------
    classes : the labels, in the order of the columns
    fit_probabilities : array (rows, classes), the probabilities of the fit without the correction
    probabilities, probabilities_sd : the exact ones, estimated, and their standard deviations
    problems : for each binary problem its name, the fit's log evidence and the runs
    n_particles : the particles of each run
    n_runs_planned : the runs that were asked for
    stopped_by : "", "time_limit" or "interrupt", where not all runs were made
    seconds : the time that all runs took
    corrected_log_evidence, corrected_probabilities : those of the fit with the correction, or None

    """

    classes: np.ndarray
    fit_probabilities: Array
    probabilities: Array
    probabilities_sd: Array | None
    problems: tuple[VerifiedProblem, ...]
    n_particles: int
    n_runs_planned: int
    stopped_by: str
    seconds: float
    corrected_log_evidence: float | None = None
    corrected_probabilities: Array | None = None

    @property
    def runs(self) -> list[Run]:
        """All runs of all problems."""
        return [run for problem in self.problems for run in problem.runs]

    @property
    def n_runs(self) -> int:
        """The number of runs of each problem."""
        return len(self.problems[0].runs)

    @property
    def fit_log_evidence(self) -> float:
        """The log evidence of the fit; the mean, if there are several binary problems."""
        return float(np.mean([problem.fit_log_evidence for problem in self.problems]))

    @property
    def log_evidence(self) -> float:
        """The exact log evidence, estimated; the mean, if there are several binary problems."""
        return float(np.mean([problem.log_evidence for problem in self.problems]))

    @property
    def log_evidence_sd(self) -> float | None:
        """The standard deviation of ``log_evidence``."""
        each = [sd for problem in self.problems if (sd := problem.log_evidence_sd) is not None]
        return float(np.linalg.norm(each)) / len(self.problems) if each else None

    @property
    def log_evidence_difference(self) -> float:
        """The log evidence of the fit minus the exact one."""
        return self.fit_log_evidence - self.log_evidence

    @property
    def probability_differences(self) -> Array:
        """The probabilities of the fit minus the exact ones, (rows, classes)."""
        return self.fit_probabilities - self.probabilities

    @property
    def corrected_log_evidence_difference(self) -> float | None:
        """The log evidence of the fit with the correction minus the exact one."""
        if self.corrected_log_evidence is None:
            return None
        return self.corrected_log_evidence - self.log_evidence

    @property
    def corrected_probability_differences(self) -> Array | None:
        """The probabilities of the fit with the correction minus the exact ones, (rows, classes)."""
        if self.corrected_probabilities is None:
            return None
        return self.corrected_probabilities - self.probabilities

    @property
    def mean_difference(self) -> float:
        """The mean absolute difference of the probabilities; it includes the noise of the runs."""
        return float(np.abs(self.probability_differences).mean())

    @property
    def largest_difference(self) -> float:
        """The largest absolute difference of the probabilities; it includes the noise of the runs."""
        return float(np.abs(self.probability_differences).max())

    @property
    def effective_sample_sizes(self) -> list[Array]:
        """The effective sample size of the weights at each level, for every run."""
        return [run.effective_sample_sizes for run in self.runs]

    @property
    def acceptance_rates(self) -> list[Array]:
        """The part of the moves that was accepted at each level, for every run."""
        return [run.acceptance_rates for run in self.runs]

    @property
    def n_levels(self) -> list[int]:
        """The number of levels of every run."""
        return [run.n_levels for run in self.runs]

    @property
    def doubts(self) -> list[str]:
        """What speaks against the verification itself; empty if it can be trusted."""
        runs, found = self.runs, []
        if not all(run.is_complete for run in runs):
            size = min(run.effective_sample_sizes[-1] for run in runs)
            found.append(
                "the time was up before a run had reached the exact posterior, and its weights are "
                f"worth {size:,.0f} of {self.n_particles:,} particles (raise time_limit)"
            )
        elif self.n_runs == 1:
            more = "raise time_limit" if self.stopped_by == "time_limit" else "use n_runs=3"
            found.append(f"a single run does not tell how far it is off ({more})")
        sd = self.log_evidence_sd
        if sd is not None and sd > _WIDE:
            found.append(
                f"the runs disagree about the log evidence by {sd:.1f} nat (raise n_particles)"
            )
        if self.probabilities_sd is not None and (mean := self.probabilities_sd.mean()) > _WIDE_P:
            found.append(f"the runs disagree about probabilities by {mean:.2g} (raise n_particles)")
        least = min((rate for rates in self.acceptance_rates for rate in rates), default=1.0)
        if least < _RARE:
            found.append(f"at one level only {least:.0%} of the moves were accepted")
        few = min(run.n_ancestors for run in runs)
        if few < _FEW * self.n_particles:
            found.append(f"only {few:,} of {self.n_particles:,} particles have descendants")
        return found

    @property
    def is_trusted(self) -> bool:
        """Whether nothing speaks against the verification itself."""
        return not self.doubts

    def __repr__(self) -> str:
        doubt = "" if self.is_trusted else "not to be trusted, "
        return (
            f"<Verification: {doubt}log evidence {self.fit_log_evidence:.6g}, exact "
            f"{with_sd(self.log_evidence, self.log_evidence_sd)}; probabilities within "
            f"{self.largest_difference:.2g}, {self.mean_difference:.2g} on average>"
        )

    def __str__(self) -> str:
        parts = [self._about_evidence(), self._about_probabilities(), self._about_correction()]
        return "\n".join([part for part in parts if part] + [self._about_runs()])

    def _about_evidence(self) -> str:
        gap, sd = self.log_evidence_difference, self.log_evidence_sd
        several = len(self.problems) > 1
        what = f"mean log evidence of the {len(self.problems)} problems" if several else "log evidence"
        by = f"{with_sd(abs(gap), sd)} nat {'below' if gap < 0 else 'above'}"
        text = f"The {what}, {self.fit_log_evidence:.2f}, is {by} the exact one"
        unclear = sd is not None and abs(gap) < 2.0 * sd
        return f"{text}: no difference that the runs can tell." if unclear else f"{text}."

    def _about_probabilities(self) -> str:
        n = len(self.probabilities)
        text = (
            f"The probabilities at {n:,} row{'s' * (n > 1)} are within {self.largest_difference:.2g} "
            f"of the exact ones, {self.mean_difference:.2g} on average"
        )
        if self.probabilities_sd is None:
            return f"{text}."
        return f"{text}; the runs know them to ±{self.probabilities_sd.mean():.2g}."

    def _about_correction(self) -> str:
        gap, differences = (
            self.corrected_log_evidence_difference,
            self.corrected_probability_differences,
        )
        if gap is None or differences is None:
            return ""
        sizes, sd = np.abs(differences), self.log_evidence_sd
        by = f"is {abs(gap):.2f} nat {'below' if gap < 0 else 'above'}"
        if sd is not None and abs(gap) < 2.0 * sd:
            by = "cannot be told from"
        return (
            f"With corrected=True the log evidence {by} the exact one, and the probabilities are "
            f"within {sizes.max():.2g}, {sizes.mean():.2g} on average."
        )

    def _about_runs(self) -> str:
        low, high = min(self.n_levels), max(self.n_levels)
        levels = f"{low}" if low == high else f"{low} to {high}"
        reason = {"time_limit": "the time was up", "interrupt": "they were interrupted", "": ""}
        early = f" of {self.n_runs_planned}, then {reason[self.stopped_by]}" if self.stopped_by else ""
        text = (
            f"{self.n_runs} run{'s' * (self.n_runs > 1)}{early}: {self.n_particles:,} particles, "
            f"{levels} level{'s' * (high > 1)}, {self.seconds:.1f} s."
        )
        if self.is_trusted:
            return f"{text} They agree, and nothing speaks against them."
        return f"{text} DO NOT TRUST THIS: {'; '.join(self.doubts)}."


def with_sd(value: float, sd: float | None) -> str:
    """A value with its standard deviation, such as '0.21 ± 0.04', or without one."""
    return f"{value:.2f}" if sd is None else f"{value:.2f} ± {sd:.2f}"
