"""The paper's timings: a fit with hyperparameters on the crab data, probit."""

import time
import warnings
from typing import NamedTuple

import numpy as np

from postlin.datasets import load, whiten
from postlin.workbench.evaluation.methods import METHODS, Protocol, make_classifier

#: Seconds in Matlab, as the paper reports them.
PAPER = {"L": 0.4, "PEP": 0.7, "SEP": 6.1, "PPL": 0.8, "SPL": 5.5}


class Timing(NamedTuple):
    """Median seconds of ours, and the paper's."""

    method: str
    seconds: float
    paper: float


def timings(protocol: Protocol, repeats: int = 3) -> list[Timing]:
    """Time the five methods side by side, rounds interleaved."""
    crab = load("crab")
    X, y = whiten(crab.X), crab.y
    rounds: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(repeats):
        for method in METHODS:
            model = make_classifier(method, "probit", protocol)
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
            rounds[method].append(time.perf_counter() - start)
    return [Timing(m, float(np.median(rounds[m])), PAPER[m]) for m in METHODS]
