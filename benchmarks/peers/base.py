"""What a contestant must do. Needs NumPy alone, so that every peer can have its own environment.

Parameters are always given and reported as θ = (log σ², log ℓ) of the kernel of postlin's default,
σ² exp(−d²/2ℓ²) + 0.1 δ; a peer that has another parametrisation converts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

#: The kernel that everybody gets: its start, its bounds, and the white noise, which is fixed.
START = np.log([10.0, 1.0])
BOUNDS = np.array([(1e-5, 1e10), (1e-5, 1e5)])
NOISE = 0.1

#: Rows of the fit that warms a contestant up: libraries loaded, threads started, caches filled.
WARM_UP_ROWS = 60


class Fit(NamedTuple):
    """What a fit arrived at; ``predict`` gives probabilities of the label +1."""

    evidence: float
    theta: np.ndarray
    predict: Callable[[np.ndarray], np.ndarray]
    converged: bool | None = None  # None: it does not say
    evaluations: int | None = None


class Evaluator(ABC):
    """Evidence and gradient at fixed θ on some data.

    ``cold`` begins from nothing, the data not yet looked at. ``warm`` begins from where the last call
    ended; None where a contestant has no such notion.
    """

    warm: Callable[[np.ndarray], float] | None = None

    @abstractmethod
    def cold(self, theta: np.ndarray) -> float:
        """The log evidence, its gradient computed too."""


class Peer(ABC):
    """A contestant with its options."""

    #: distributions whose versions are reported
    packages: tuple[str, ...] = ()

    def __init__(self, **options: str) -> None:
        self.options = options

    @abstractmethod
    def fit(self, X: np.ndarray, y: np.ndarray) -> Fit:
        """Learn hyperparameters from the common start; labels are −1 and +1."""

    def evaluator(self, X: np.ndarray, y: np.ndarray) -> Evaluator | None:
        """For the evidence at fixed θ; None where there is no such thing."""
        return None

    def warm_up(self, X: np.ndarray, y: np.ndarray) -> None:
        """A fit of a few rows, not timed."""
        few = slice(None, None, max(1, len(y) // WARM_UP_ROWS))
        self.fit(X[few], y[few]).predict(X[:2])
