"""The clock of a verification: its time limit, and lines about its progress."""

import logging
from time import perf_counter

from postlin._typing import Array
from postlin.inference.exact.tempering import Run

logger = logging.getLogger("postlin")

#: Seconds between two lines of progress within a run.
_EVERY = 10.0


class Watch:
    """Tells when the time is up, and logs how far the runs of the problems are."""

    def __init__(self, time_limit: float | None, n_runs: int, names: list[str]) -> None:
        self._began = self._run_began = self._told = perf_counter()
        self._limit = float("inf") if time_limit is None else time_limit
        self._n_runs, self._names = n_runs, names
        self._done, self._title = 0, ""
        #: Why not all runs were made: "time_limit" or "interrupt"; "" if they were.
        self.stopped_by = ""

    @property
    def seconds(self) -> float:
        """The seconds since the beginning."""
        return perf_counter() - self._began

    def is_late(self) -> bool:
        """Whether the time is up."""
        return self.seconds > self._limit

    def begin(self, problem: int, run: int) -> None:
        """A run of a problem begins; the problems take their runs in turns."""
        self._run_began = perf_counter()
        self._title = f"run {run + 1} of {self._n_runs}"
        if len(self._names) > 1:
            self._title += f", {self._names[problem]}"

    def tell(self, exponents: Array) -> None:
        """Log that a level has ended, at debug level, and now and then for everyone."""
        now = perf_counter()
        level = logging.INFO if now - self._told > _EVERY else logging.DEBUG
        if not logger.isEnabledFor(level):
            return
        self._told = now if level == logging.INFO else self._told
        taken, n = now - self._run_began, len(exponents)
        rise = exponents[-1] - (exponents[-2] if n > 1 else 0.0)
        this = taken / n * (1.0 - exponents[-1]) / rise  # levels rise less at first than later
        left = self._left(taken + this, this)
        logger.log(level, "%s: exponent %.3g after %d levels%s", self._title, exponents[-1], n, left)

    def end(self, run: Run) -> None:
        """Log that a run has ended."""
        self._done += 1
        left = self._left(self.seconds / self._done, 0.0)
        logger.info(
            "%s: log evidence %.3f after %d levels%s", self._title, run.log_evidence, run.n_levels, left
        )

    def _left(self, each: float, this: float) -> str:
        """The time left in words, if a run takes the seconds ``each`` and the present one ``this``."""
        more = self._n_runs * len(self._names) - self._done - (this > 0)
        seconds = min(this + more * each, self._limit - self.seconds)
        return f", about {max(seconds, 0.0):.0f} s left" if this or more else ""
