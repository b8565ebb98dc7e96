"""Learning hyperparameters: maximise the evidence over the free log-parameters.

Several models may share their hyperparameters: then the sum of their log evidences is maximised.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.hyperparameters import Hyperparameters
from postlin.optimisers import Optimizer, optimise
from postlin.quasi_newton import Minimum
from postlin.search import Callback, Search, logger


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


class Training(NamedTuple):
    """The best fits found, what is to be said of the search, and where it looked.

    ``path`` holds the log-parameters and the log evidence of every evaluation, in order.
    """

    best: list[Any]
    message: str | None
    path: list[tuple[Array, float]]
    interrupted: bool = False


def train(
    models: Sequence[Any],
    at: Hyperparameters,
    optimizer: Optimizer | str | None,
    *,
    restarts: int = 0,
    rng: np.random.RandomState,
    starts: Sequence[Any],
    callback: Callback | None = None,
    keep_on_interrupt: bool = False,
    curvature: Array | None = None,
) -> Training:
    """Maximise the evidence from the hyperparameters given, and from random ones.

    ``curvature`` is what is known of that of minus the log evidence at the former.

    An interrupt from the keyboard ends the search at the best point so far where that is asked for.
    """
    search = Search(models, at, starts, optimizer == "bfgs", callback)
    if optimizer is None or len(at.theta) == 0:
        return Training(search.at(at.theta), None, [])
    try:
        found = _best_of_all(search, at, optimizer, restarts, rng, curvature)
        interrupted = False
    except KeyboardInterrupt:
        if not keep_on_interrupt or not search.path:
            raise
        found, interrupted = Minimum(search.best(), np.nan, None), True
    best = search.at(found.x)
    logger.info(
        "%s: log evidence %.6f after %d evaluations",
        best[0].at.kernel,
        sum(fitted.approximation.log_evidence for fitted in best),
        len(search.path),
    )
    return Training(best, found.message, search.path, interrupted)


def _best_of_all(
    search: Search,
    at: Hyperparameters,
    optimizer: Optimizer | str,
    restarts: int,
    rng: np.random.RandomState,
    curvature: Array | None,
) -> Minimum:
    """The best optimum over all starts."""
    starts = at.starts
    starts += [at.drawn(rng) for _ in range(restarts)]
    ends = []
    for k, theta in enumerate(starts):
        if k > 0:
            search.restart()
            curvature = None  # that is of the first start
        worth = search.models[0].worth
        end = optimise(search, theta, at.bounds, optimizer, worth, curvature, search.again)
        ends.append((end, search.sites))
    best, search.sites = min(ends, key=lambda end: end[0].value)
    return best
