"""A million rows on disk: sparse inference at fixed hyperparameters, then learning them.

    python benchmarks/million.py [--rows 1000000] [--m 256] [--threads 2] [--folder /tmp] [--coarse
    20000]

Makes memory-mapped files of n rows with 8 features, labels of a smooth function with noise, and
prints seconds, passes and the largest resident memory. With --coarse 0 only the inference is run.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin.learning.coarse import train_sparse
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.sparse_model import SparseModel
from postlin.likelihoods import Probit
from postlin.rules.binary import PL
from postlin.streaming.engines import Threads
from postlin.streaming.views import ArrayRows

FEATURES = 8


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
            f = 2.0 * np.sin(2.0 * X[rows] @ direction) + X[rows, 0] * X[rows, 1]
            y[rows] = np.where(f + 0.5 * rng.standard_normal(len(f)) > 0, 1.0, -1.0)
        X.flush()
        y.flush()
    return np.load(paths[0], mmap_mode="r"), np.load(paths[1], mmap_mode="r")


def report(what: str, began: float) -> None:
    """Seconds and memory; the maximum of the process, mapped pages of the files among it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what}: {time.perf_counter() - began:.1f} s, {peak:.0f} MiB resident at most", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--m", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--coarse", type=int, default=20_000)
    options = parser.parse_args()
    X, y = files(options.folder, options.rows)
    began = time.perf_counter()
    rows = ArrayRows(X, y, engine=Threads(options.threads))
    sample = rows.sample(20_000, 0).X
    Z = MiniBatchKMeans(options.m, random_state=0, n_init=1).fit(sample).cluster_centers_
    report(f"{options.m} inducing points", began)

    def told(number: int, residual: float, state: object) -> None:
        report(f"  pass {number}, residual {residual:.2g}", began)

    began = time.perf_counter()
    model = SparseModel(rows, Z, PL(), after_pass=told)
    fixed = ConstantKernel(9.0) * RBF([2.0] * FEATURES) + WhiteKernel(0.1)
    found = model.infer(Hyperparameters(fixed, Probit())).approximation
    report(
        f"inference on {options.rows} rows: {found.n_iter} passes, converged {found.converged}, "
        f"log evidence {found.log_evidence:.2f}",
        began,
    )
    if not options.coarse:
        return
    began = time.perf_counter()
    start = ConstantKernel(1.0) * RBF([1.0] * FEATURES) + WhiteKernel(0.1)
    training = train_sparse(
        [SparseModel(rows, Z, PL())],
        Hyperparameters(start, Probit()),
        "bfgs",
        coarse_rows=options.coarse,
        rng=np.random.RandomState(0),
        starts=[None],
        callback=lambda e: report(f"  evaluation {e.number}: {e.log_evidence:.3f}", began),
    )
    best = training.best[0]
    report(f"learned: {best.at.kernel}, log evidence {best.approximation.log_evidence:.2f}", began)


if __name__ == "__main__":
    main()
