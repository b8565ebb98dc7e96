"""Ten million rows on disk: learning with neighbours, and predictions of 100,000 rows.

    python benchmarks/tenmillion.py [--rows 10000000] [--new 100000] [--folder /tmp]

Makes memory-mapped files of n rows with 10 features, labels of a rough function of four of them with
noise. It prints seconds, error and NLPD beside those of the true function, and the peak memory of the
process without the pages of the files that are mapped.
"""

import argparse
import logging
import threading
import time
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.metrics import log_loss

from postlin import GPClassifier

FEATURES, NOISE, PART = 10, 0.3, 100_000


def truth(X: np.ndarray) -> np.ndarray:
    """The latent function."""
    return np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + np.sign(X[:, 2]) * X[:, 3]


def files(folder: Path, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels as memory maps, made once."""
    paths = [folder / f"tenmillion-{n}-{part}.npy" for part in ("X", "y")]
    if not all(path.exists() for path in paths):
        rng = np.random.default_rng(0)
        X = np.lib.format.open_memmap(paths[0], "w+", np.float64, (n, FEATURES))
        y = np.lib.format.open_memmap(paths[1], "w+", np.int8, (n,))
        for first in range(0, n, PART):
            rows = slice(first, min(first + PART, n))
            X[rows] = rng.standard_normal((rows.stop - first, FEATURES))
            f = truth(X[rows]) + NOISE * rng.standard_normal(rows.stop - first)
            y[rows] = f > 0
        X.flush()
        y.flush()
    return np.load(paths[0], mmap_mode="r"), np.load(paths[1], mmap_mode="r")


class Memory(threading.Thread):
    """Watches the memory of this process that no file backs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self.start()

    def run(self) -> None:
        """Look four times a second."""
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            kib = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, kib / 2**20)
            time.sleep(0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--new", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message).110s")
    given.folder.mkdir(parents=True, exist_ok=True)
    X, y = files(given.folder, given.rows)
    memory = Memory()

    def report(what: str, wall: float, cpu: float) -> None:
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{what}: {wall:.0f} s, CPU {cpu:.0f} s, at most {memory.peak:.1f} GiB", flush=True)

    kernel = ConstantKernel(10.0, (1e-3, 1e4)) * Matern(np.full(FEATURES, np.sqrt(FEATURES)), nu=1.5)
    model = GPClassifier(
        kernel + WhiteKernel(0.1, (1e-4, 10.0)), n_neighbors=64, inducing="auto", random_state=0
    )
    clocks = time.perf_counter(), time.process_time()
    model.fit(X, y)
    report("learned", *clocks)
    print(model.summary())
    rng = np.random.default_rng(1)
    new = rng.standard_normal((given.new, FEATURES))
    p_true = ndtr(truth(new) / NOISE)
    labels = rng.random(given.new) < p_true
    clocks = time.perf_counter(), time.process_time()
    p = model.predict_proba(new)[:, 1]
    report(f"predicted {given.new:,} rows", *clocks)
    best = np.clip(p_true, 1e-15, 1 - 1e-15)
    for name, found in (("postlin", p), ("the true function", best)):
        error = np.mean((found > 0.5) != labels)
        print(f"{name}: error {error:.4f}, NLPD {log_loss(labels, found):.4f}")


if __name__ == "__main__":
    main()
