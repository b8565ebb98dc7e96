"""How close predictions from neighbours are to exact inference with the same hyperparameters.

    python benchmarks/closeness.py [--data weather covertype ...]

Of 3,000 training rows and 1,000 new ones, the mean difference of probabilities from those of exact PL,
for some numbers of neighbours k and of inducing points m. The hyperparameters are learned in two ways:
from the evidence of 800 rows by exact inference, and from the leave-one-out score of 64 neighbours.
"""

import argparse
import warnings

import numpy as np
from largedata import split
from sklearn.gaussian_process.kernels import Kernel, Matern, WhiteKernel

from postlin import GPClassifier

ROWS, NEW, FEW = 3000, 1000, 800
#: Neighbours and inducing points of the columns.
COLUMNS = ((32, None), (64, None), (128, None), (64, 100), (64, 200), (64, 400))


def learned(X: np.ndarray, y: np.ndarray, nu: float) -> dict[str, Kernel]:
    """Kernels with hyperparameters learned in two ways."""
    d = X.shape[1]
    start = 10.0 * Matern(np.full(d, np.sqrt(d)), nu=nu) + WhiteKernel(0.1)
    exact = GPClassifier(start).fit(X[:FEW], y[:FEW])
    near = GPClassifier(start, n_neighbors=64, random_state=0).fit(X, y)
    return {"evidence": exact.kernel_, "leave-one-out score": near.kernel_}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["weather", "covertype"])
    warnings.simplefilter("ignore")  # of parameters at their bounds
    names = [f"k = {k}" + (f", m = {m}" if m else "") for k, m in COLUMNS]
    print("| data | Matérn ν | learned from | " + " | ".join(names) + " |")
    print("| --- " * (3 + len(names)) + "|")
    for name in parser.parse_args().data:
        data = split(name)
        X, y, new = data.X[:ROWS], data.y[:ROWS], data.X_test[:NEW]
        for nu in (0.5, 1.5):
            for way, kernel in learned(X, y, nu).items():
                exact = GPClassifier(kernel, optimizer=None).fit(X, y).predict_proba(new)
                differences = []
                for k, m in COLUMNS:
                    model = GPClassifier(
                        kernel, optimizer=None, n_neighbors=k, inducing=m, random_state=0
                    )
                    p = model.fit(X, y).predict_proba(new)
                    differences.append(f"{np.abs(p - exact).mean():.4f}")
                print(f"| {name} | {nu} | {way} | " + " | ".join(differences) + " |", flush=True)


if __name__ == "__main__":
    main()
