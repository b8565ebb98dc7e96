"""The data: three of the paper's sets, whitened, and a synthetic one of any size.

Written to files once, so that contestants in other environments need no postlin to read them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from postlin.datasets import load, whiten

#: Points to predict.
NEW = 10_000
#: Every third row is held out for the error.
HELD_OUT = 3

#: σ² and ℓ near PPL's optimum, for evaluations at fixed θ away from the start.
NEAR_OPTIMUM = {
    "crab": (3500.0, 11.5),
    "ionosphere": (140.0, 9.3),
    "breast_cancer": (200.0, 14.0),
    "synthetic": (30.0, 3.7),
}
REAL = {"crab": 200, "ionosphere": 351, "breast_cancer": 699}
SYNTHETIC = (200, 500, 1000, 2000, 4000, 8000)


@dataclass(frozen=True)
class Problem:
    """A data set at a size; ``split`` means without the rows that are held out."""

    name: str
    n: int
    split: bool = False

    @property
    def key(self) -> str:
        """How it is called in the store."""
        return f"{self.name}-{self.n}" + ("-split" if self.split else "")

    @property
    def near_optimum(self) -> list[float]:
        """θ to evaluate at."""
        return [float(t) for t in np.log(NEAR_OPTIMUM[self.name])]

    def write(self, folder: Path) -> Path:
        """The arrays X, y, X_test, y_test and X_new in a file."""
        path = folder / f"{self.key}.npz"
        if not path.exists():
            np.savez(path, **_arrays(self))
        return path


def synthetic(n, d=8, seed=0):
    """Two classes divided by a smooth random function, with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    latent = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.5 * X[:, 3] + 0.3 * rng.normal(size=n)
    return X, np.where(latent > 0, 1.0, -1.0)


def _arrays(problem):
    if problem.name == "synthetic":
        X, y = synthetic(problem.n)
        X_test, y_test = synthetic(1000, seed=1)
        return {"X": X, "y": y, "X_test": X_test, "y_test": y_test, "X_new": synthetic(NEW, seed=2)[0]}
    bunch = load(problem.name)
    X, y = whiten(bunch.X), np.where(bunch.y == np.unique(bunch.y)[1], 1.0, -1.0)
    rng = np.random.default_rng(0)
    X_new = X[rng.integers(len(X), size=NEW)] + 0.1 * rng.normal(size=(NEW, X.shape[1]))
    held_out = rng.permutation(len(y)) % HELD_OUT == 0 if problem.split else np.zeros(len(y), bool)
    return {
        "X": X[~held_out],
        "y": y[~held_out],
        "X_test": X[held_out],
        "y_test": y[held_out],
        "X_new": X_new,
    }
