"""How far a run is and how long it will take: told by those who work, asked from other threads.

A run solves one problem or several, each by one search or several, and each search evaluates the
evidence some dozen times. ``watching`` makes a ``Progress`` known to all who work inside of it, and
``Heartbeat`` shows it in good time, however long a single evaluation may take.

How long a fit will take follows from a small factorisation that is measured here and now. Measured with
1,000 and 2,000 rows of five features, on one thread, in units of a factorisation with all variances:
the first evaluation of the evidence with its gradient takes 6 to 9 (Laplace 5), later ones 4.2 to 5.6
(Laplace 2.8), and a search with one length scale 10 to 12 evaluations, with all rules, likelihoods and
schedules.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Self

import numpy as np

from postlin.inference.exact.posterior import GaussianPosterior
from postlin.linalg.arrays import HOST, Place
from postlin.linalg.functions import functions
from postlin.rules.sites import Sites

logger = logging.getLogger("postlin")

#: Seconds between two lines about a run, at most.
EVERY = 9.0
#: The evaluations that a search still takes, at least, if it has taken as many as were expected.
_MORE = 2
#: The part of the time spent that is left, at least, where nothing else is known.
_AT_LEAST = 0.2
#: A search that takes this part of the time that is left is the main one.
_MOST = 0.5
#: The latest evaluations, whose mean duration is that of the next ones.
_LATEST = 4


class Costs(NamedTuple):
    """What a search is expected to take: a number of evaluations, and the seconds of each."""

    evaluations: int
    first: float  # from the prior
    later: float  # from the results of earlier ones

    @property
    def seconds(self) -> float:
        """The seconds of the whole search."""
        return self.first + (self.evaluations - 1) * self.later


class Status(NamedTuple):
    """What a run is doing, the seconds since it began, and those that it will still take, if known."""

    text: str
    elapsed: float
    left: float | None

    def __str__(self) -> str:
        parts = [self.text] if self.text else []
        parts.append(f"{in_words(self.elapsed)} so far")
        if self.left is not None:
            parts.append(f"about {in_words(self.left)} left")
        return ", ".join(parts)


def in_words(seconds: float) -> str:
    """A duration in two units at most: 40 s, 3 min, 1 h 20 min, 4 days 3 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return _two(minutes, 60, "h", "min")
    return _two(round(minutes / 60), 24, "days", "h")


def _two(number: int, base: int, unit: str, smaller: str) -> str:
    """A number of the smaller unit in both; in the larger alone from ten of it on."""
    if number >= 10 * base:
        return f"{number / base:.0f} {unit}"
    whole, rest = divmod(number, base)
    return f"{whole} {unit}" + (f" {rest} {smaller}" if rest else "")


class Sought:
    """One search: its evaluations, and how many are still to come."""

    def __init__(self, costs: Costs, clock: Callable[[], float]) -> None:
        self.costs, self._clock = costs, clock
        self.ends = [clock()]  # with the beginning
        self.latest = ""

    def evaluated(self, log_evidence: float) -> None:
        """The search has evaluated the evidence once more."""
        self.latest = f"log evidence {log_evidence:.2f}"
        self.ends.append(self._clock())

    @property
    def done(self) -> int:
        """The number of evaluations."""
        return len(self.ends) - 1

    def left(self, now: float) -> float:
        """The seconds that this search will still take."""
        since = now - self.ends[-1]
        expected, first, later = self.costs
        if not self.done:
            if since > first:  # everything takes longer than was expected
                first, later = since, later * since / max(first, 1e-9)
            return first - since + (expected - 1) * later
        if self.done == 1:
            later *= (self.ends[1] - self.ends[0]) / max(first, 1e-9)
        else:
            some = self.ends[1:][-1 - _LATEST :]
            later = (some[-1] - some[0]) / (len(some) - 1)
        more = max(expected - self.done, _MORE if expected > 1 else 0)
        return max(later - since, 0.0) + (more - 1) * later if more else 0.0


class Progress:
    """How far a run is. Other threads may ask for its ``status`` at any time."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_shown: bool = True,
        expected: float | None = None,
    ) -> None:
        """``expected`` are the seconds of the whole run, if these are known before it begins."""
        #: Whether anybody looks, so that an estimate is worth a measurement.
        self.is_shown = is_shown
        self._clock, self._expected = clock, expected
        self._began = self._problems_began = self._problem_began = clock()
        self._problems, self._finished, self._name = 1, 0, ""
        self._at_once = 1
        self._each: float | None = None  # the seconds that each problem was expected to take
        self._search: Sought | None = None
        self._words = self._after = ""
        self._ends: float | None = None  # when the present problem was expected to end

    def problems(self, number: int, at_once: int = 1, each: float | None = None) -> None:
        """The run consists of so many problems, of which some are solved side by side."""
        self._problems, self._finished, self._at_once, self._each = number, 0, at_once, each
        self._problems_began = self._problem_began = self._clock()

    def problem(self, name: str) -> None:
        """The next problem begins."""
        self._name, self._search, self._ends = name, None, None
        self._words = self._after = ""

    def finished(self) -> None:
        """A problem has ended."""
        self._finished += 1
        self._problem_began = self._clock()
        self._search, self._ends = None, None
        self._words = self._after = ""

    def search(self, costs: Costs) -> Sought:
        """A search begins; the result is told of its evaluations.

        If it takes most of the time that was expected for the problem, its own estimate is better.
        """
        if self._ends is not None and costs.seconds >= _MOST * (self._ends - self._clock()):
            self._ends = None
        self._search, self._after = Sought(costs, self._clock), ""
        return self._search

    def searched(self, words: str) -> None:
        """No search goes on, and this comes next, which takes an evaluation at most."""
        search, now = self._search, self._clock()
        if search is not None and search.done and self._ends is None:
            self._ends = now + search.ends[-1] - search.ends[-2]
        self._search, self._after = None, words

    def say(self, words: str, left: float | None = None) -> None:
        """What is being done, and how many seconds the present problem will take."""
        self._words, self._after = words, ""
        if left is not None:
            self._ends = self._clock() + left

    def status(self) -> Status:
        """What is being done now."""
        now = self._clock()
        elapsed, left = now - self._began, self._left(now)
        if left is None and self._expected is not None:
            left = max(self._expected - elapsed, _AT_LEAST * elapsed)
        return Status(self._text(), elapsed, left)

    def _text(self) -> str:
        parts = []
        if self._problems > 1:
            number = min(self._finished + 1, self._problems)
            name = f" ({self._name})" if self._name else ""
            if self._at_once > 1:
                parts.append(f"{self._finished} of {self._problems} problems solved")
            else:
                parts.append(f"problem {number} of {self._problems}{name}")
        parts += [words for words in (self._words, self._after) if words]
        search = self._search
        if search is not None:
            number, expected = search.done + 1, search.costs.evaluations
            about = f" of about {expected}" if number <= expected else ""
            parts.append(f"evaluation {number}{about}")
            if search.latest:
                parts.append(search.latest)
        return ", ".join(parts)

    def _left(self, now: float) -> float | None:
        search, ends = self._search, self._ends
        present = None if search is None else search.left(now)
        since = now - self._problem_began
        if ends is not None:
            rest = ends - now if ends > now else _AT_LEAST * since
            present = max(rest, present or 0.0)
        if self._problems == 1:
            return present
        if self._finished == self._problems:
            return 0.0
        if self._finished:
            each = (self._problem_began - self._problems_began) / self._finished
        elif self._each is not None:
            each = self._each / self._at_once
        elif present is not None:
            each = since + present
        else:
            return None
        if present is None:
            present = max(each - since, _AT_LEAST * since)
        return present + max(self._problems - self._finished - 1, 0) * each


_CURRENT: ContextVar[Progress | None] = ContextVar("postlin_progress", default=None)


def watched() -> Progress:
    """The progress of the run that this belongs to; one that nobody looks at if it has none."""
    return _CURRENT.get() or Progress(is_shown=False)


@contextmanager
def watching(progress: Progress) -> Iterator[None]:
    """What is computed within tells this progress."""
    token = _CURRENT.set(progress)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class Heartbeat:
    """While it is entered, a thread of its own calls a function every so many seconds."""

    def __init__(self, beat: Callable[[], object], every: float = EVERY) -> None:
        self._beat, self._every, self._over = beat, every, threading.Event()
        self._thread = threading.Thread(target=self._run, name="postlin-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self._beat()


#: The rows of the factorisation that is measured, on the CPU and on a device.
_ROWS, _ON_DEVICE = 1200, 8000
#: Seconds of an evaluation that do not depend on the number of rows.
_LEAST = 0.02
#: Factorisations of the first evaluation of the evidence with its gradient, and of each later one.
OF_EXACT, OF_JOINT = (8.0, 4.8), (150.0, 100.0)
#: The same with inducing points, for n rows and m points, in factorisations of (n m²)^⅓ rows.
OF_SPARSE = 250.0, 170.0
#: Factorisations of 1,000 rows in a search with neighbours, for each kernel and problem: 800 among
#: 3,000 rows, and half as many more for a global part. Below so many rows it takes in proportion less:
#: 35 among 60 rows, 186 among 300.
_LOCAL, _LOCAL_ROWS = 1200.0, 2000
#: Evaluations of a search, and those that each length scale adds where features have their own.
_EVALUATIONS, _EACH = 12, 2.5
#: Evaluations of a search that another on fewer rows has led to its start.
LED = 6


def factorisation_seconds(n: float, place: Place = HOST) -> float:
    """The seconds of a posterior with its variances for n rows, from one of fewer, measured now."""
    m = int(min(n, _ROWS if place.is_host else _ON_DEVICE))
    x = place.put(np.linspace(0.0, 0.02 * m, m))
    f = functions(x)
    K = f.exp(-f.abs(x[:, None] - x[None, :]))
    sites = Sites(np.full(m, 0.5), np.zeros(m))
    taken = []
    for _ in range(2):  # the first time memory is new
        began = time.perf_counter()
        GaussianPosterior(K, np.zeros(m), sites).variance.sum()
        taken.append(time.perf_counter() - began)
    return float(min(taken) * (n / m) ** 3)


def evaluations(n_parameters: int, *, is_led: bool = False) -> int:
    """About how many evaluations of the evidence a search takes; with ``is_led`` in its last part."""
    if n_parameters == 0:
        return 1
    if is_led:
        return LED
    return round(_EVALUATIONS + _EACH * max(n_parameters - 3, 0))


def costs(size: float, units: tuple[float, float], n_parameters: int, place: Place = HOST) -> Costs:
    """What a search takes whose evaluations take so many factorisations of matrices of this size."""
    return priced(factorisation_seconds(size, place), units, n_parameters)


def priced(one: float, units: tuple[float, float], n_parameters: int, *, is_led: bool = False) -> Costs:
    """``costs``, if a factorisation takes so many seconds."""
    n = evaluations(n_parameters, is_led=is_led)
    return Costs(n, *(_LEAST + unit * one for unit in units))


def local_units(searches: float, rows: float) -> float:
    """A fit with neighbours in factorisations of 1,000 rows; it hardly grows beyond thousands of rows.

    A search is that of one kernel for one problem.
    """
    return searches * _LOCAL * min(rows / _LOCAL_ROWS, 1.0)


@contextmanager
def shown_log(verbose: int) -> Iterator[None]:
    """Show the log on standard error, unless the application has handlers of its own."""
    if not verbose or logger.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def reported(verbose: int) -> Iterator[None]:
    """Log every few seconds how far the fits within are, unless somebody else watches them."""
    if not verbose or watched().is_shown:
        yield
        return
    progress = Progress()

    def tell() -> None:
        logger.info("%s", progress.status())

    with shown_log(verbose), watching(progress), Heartbeat(tell):
        yield
