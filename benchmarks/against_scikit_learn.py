"""Time of a fit with hyperparameters, side by side with scikit-learn's classifier.

The same data, kernel, start and bounds; runs interleaved, medians taken, ratios printed. Also the
time that importing postlin adds to importing scikit-learn's ``gaussian_process``.
"""

import argparse
import subprocess
import sys
import time

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier

from postlin import GPClassifier
from postlin.classifier import default_kernel
from postlin.datasets import load, whiten


def synthetic(n, d=8, seed=0):
    """Two classes divided by a smooth random function, with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    latent = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.5 * X[:, 3] + 0.3 * rng.normal(size=n)
    return X, np.where(latent > 0, 1, -1)


def problems(sizes):
    for n in sizes:
        if n == 200:
            yield "crab", whiten(load("crab").X), load("crab").y
        elif n in (699, 700):
            yield "breast cancer", whiten(load("breast_cancer").X), load("breast_cancer").y
        else:
            yield "synthetic", *synthetic(n)


def seconds(model, X, y):
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start


def import_seconds(statement):
    """The median time that a fresh interpreter takes to run a statement."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(5)
    ]
    return float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 700, 2000])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    header = ("PPL probit", "L logit", "sklearn", "PPL/skl", "L/skl")
    print(f"{'data':15s}{'n':>6s}" + "".join(f"{h:>12s}" for h in header))
    for name, X, y in problems(arguments.sizes):
        models = {
            "pl": lambda: GPClassifier(default_kernel()),
            "laplace": lambda: GPClassifier(default_kernel(), likelihood="logit", inference="laplace"),
            "sklearn": lambda: GaussianProcessClassifier(default_kernel()),
        }
        repeats = arguments.repeats if len(y) < 1000 else 1
        times = {key: [] for key in models}
        for _ in range(repeats):
            for key, make in models.items():
                times[key].append(seconds(make(), X, y))
        pl, laplace, theirs = (float(np.median(t)) for t in times.values())
        figures = (
            f"{pl:11.2f}s{laplace:11.2f}s{theirs:11.2f}s{pl / theirs:12.2f}{laplace / theirs:12.2f}"
        )
        print(f"{name:15s}{len(y):6d}" + figures)
    base = import_seconds("import sklearn.gaussian_process")
    both = import_seconds("import sklearn.gaussian_process; import postlin")
    print(f"import: scikit-learn's gaussian_process {base:.2f} s, postlin adds {both - base:.3f} s")


if __name__ == "__main__":
    main()
