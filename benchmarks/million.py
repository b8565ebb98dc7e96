"""A million rows on disk: inference with inducing points at fixed hyperparameters, then learning them.

    python benchmarks/million.py [--rows 1000000] [--m 256] [--threads 2] [--folder /tmp]
                                 [--searches fixed auto 20000 none]

Makes memory-mapped files of n rows with 8 features, labels of a smooth function with noise, and prints
wall and CPU seconds, the largest resident memory, and the log-loss of 100,000 further rows. A search is
"fixed" (inference alone) or a value of ``coarse_rows``: "auto", a number, or "none" for all rows.
"""

import argparse
import logging
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import GPClassifier

FEATURES = 8
NEW = 100_000


def labels(X: np.ndarray, direction: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels of a smooth function with noise."""
    f = 2.0 * np.sin(2.0 * X @ direction) + X[:, 0] * X[:, 1]
    return np.where(f + 0.5 * rng.standard_normal(len(f)) > 0, 1.0, -1.0)


def files(folder: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels as memory maps, made once."""
    paths = [folder / f"million-{n}-{part}.npy" for part in ("X", "y")]
    if not all(path.exists() for path in paths):
        rng = np.random.default_rng(0)
        X = np.lib.format.open_memmap(paths[0], "w+", np.float64, (n, FEATURES))
        y = np.lib.format.open_memmap(paths[1], "w+", np.float64, (n,))
        direction = rng.standard_normal(FEATURES) / np.sqrt(FEATURES)
        for first in range(0, n, 100_000):
            rows = slice(first, min(first + 100_000, n))
            X[rows] = rng.standard_normal((rows.stop - first, FEATURES))
            y[rows] = labels(X[rows], direction, rng)
        X.flush()
        y.flush()
    return np.load(paths[0], mmap_mode="r"), np.load(paths[1], mmap_mode="r")


def further() -> tuple[np.ndarray, np.ndarray]:
    """Rows of the same function that are in no file."""
    direction = np.random.default_rng(0).standard_normal(FEATURES) / np.sqrt(FEATURES)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((NEW, FEATURES))
    return X, labels(X, direction, rng)


class Clock:
    """Wall and CPU seconds since it was made, and memory."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def report(self, what: str) -> None:
        """Seconds and the maximum of the process, mapped pages of the files among it."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        print(f"{what}: {wall:.1f} s, CPU {cpu:.1f} s, {peak:.0f} MiB resident at most", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--m", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--searches", nargs="+", default=["fixed", "auto"])
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="  %(asctime)s %(message)s")
    X, y = files(options.folder, options.rows)
    new, truth = further()
    fixed = ConstantKernel(9.0) * RBF([2.0] * FEATURES) + WhiteKernel(0.1)
    start = ConstantKernel(1.0) * RBF([1.0] * FEATURES) + WhiteKernel(0.1)
    for search in options.searches:
        clock = Clock()
        coarse = {"fixed": None, "none": None}.get(search, search)
        model = GPClassifier(
            fixed if search == "fixed" else start,
            inducing=options.m,
            optimizer=None if search == "fixed" else "bfgs",
            coarse_rows=int(coarse) if str(coarse).isdigit() else coarse,
            random_state=0,
            n_jobs=options.threads,
        ).fit(X, y)
        clock.report(f"{options.rows} rows, {options.m} points, {search}")
        p = model.predict_proba(new)[np.arange(NEW), (truth > 0).astype(int)]
        print(
            f"  {model.kernel_}, log evidence {model.log_marginal_likelihood_value_:.2f}, "
            f"{len(model.evidence_path_)} evaluations, {model.n_iter_} passes, log-loss "
            f"{-np.log(p).mean():.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
