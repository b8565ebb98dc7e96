"""Length scales for each feature (ARD), with and without the prior, beside one for all features.

    python benchmarks/ard.py
    python benchmarks/ard.py --only crab,thyroid --sizes 40,100

Log-loss and evaluations a fit on the paper's six data sets with standardised features, by PL and
probit: ten folds, and five random draws of 40 and of 100 training rows with at most 300 other rows to
test on. Columns: the default kernel; ARD by the evidence alone (``hyperprior=None``); ARD with the
prior (``hyperprior="auto"``), which is left out where the version has none.
"""

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
import real
from sklearn.gaussian_process.kernels import RBF, Kernel
from sklearn.model_selection import StratifiedKFold

from postlin import GPClassifier
from postlin.datasets import load
from postlin.estimator.parameters import default_kernel

#: The paper's data sets, of two classes each.
SIX = ("breast_cancer", "crab", "glass", "housing", "ionosphere", "thyroid")
FOLDS, DRAWS, TESTED = 10, 5, 300
ISOTROPIC, ALONE, PRIOR = "isotropic", "ARD", "ARD, prior"


def ard_kernel(d: int) -> Kernel:
    """The default kernel with a length scale for each feature, all of which start at one."""
    kernel = default_kernel()
    profile = kernel.k1.k2
    return kernel.k1.k1 * RBF(np.full(d, 1.0), profile.length_scale_bounds) + kernel.k2


def candidates(d: int) -> dict[str, GPClassifier]:
    """The classifiers to compare, by column."""
    if "hyperprior" not in GPClassifier().get_params():
        return {ISOTROPIC: GPClassifier(), ALONE: GPClassifier(ard_kernel(d))}
    return {
        ISOTROPIC: GPClassifier(),
        ALONE: GPClassifier(ard_kernel(d), hyperprior=None),
        PRIOR: GPClassifier(ard_kernel(d), hyperprior="auto"),
    }


def partitions(y: np.ndarray, size: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices to train and to test on: ten folds, or draws of ``size`` rows that hold both classes."""
    if size is None:
        yield from StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(y, y)
        return
    rng = np.random.default_rng(size)
    drawn = 0
    while drawn < DRAWS:
        rows = rng.permutation(len(y))
        if len(np.unique(y[rows[:size]])) == 2:
            drawn += 1
            yield rows[:size], rows[size : size + TESTED]


def measured(name: str, size: int | None) -> dict[str, np.ndarray]:
    """{column: log-loss and evaluations of a fit}, means over the folds or draws of a data set."""
    bunch = load(name)
    y = np.where(bunch.y == np.unique(bunch.y)[1], 1.0, -1.0)
    found: dict[str, list[tuple[float, int]]] = {}
    for train, test in partitions(y, size):
        rows, new = real.standardised(bunch.X[train], bunch.X[test])
        for column, model in candidates(rows.shape[1]).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(rows, y[train])
            p = model.predict_proba(new)[:, 1]
            loss = -float(np.mean(np.log(np.where(y[test] > 0, p, 1 - p))))
            found.setdefault(column, []).append((loss, len(model.evidence_path_)))
    return {column: np.mean(pairs, axis=0) for column, pairs in found.items()}


def table(names: list[str], size: int | None) -> None:
    """Print the lines of the data sets as they come, their means, and how the prior does."""
    what = "ten folds" if size is None else f"{size} rows"
    results, columns = [], list(candidates(1))
    head = [f"{c}: log-loss | evaluations" for c in columns]
    print(f"\n| {what} | " + " | ".join(head) + " |")
    print("| --- " * (2 * len(columns) + 1) + "|", flush=True)
    for name in names:
        results.append(measured(name, size))
        print(_line(name, results[-1]), flush=True)
    mean = {c: np.mean([r[c] for r in results], axis=0) for c in columns}
    print(_line("mean", mean))
    if PRIOR not in columns:
        print("\nThis version has no parameter hyperprior: no column for ARD with the prior.")
        return
    ratios = {n: r[PRIOR][0] / r[ISOTROPIC][0] for n, r in zip(names, results, strict=True)}
    worst = max(ratios, key=ratios.__getitem__)
    print(
        f"\nARD with the prior / isotropic, log-loss: at most {ratios[worst]:.3f} ({worst}), lower on "
        f"{sum(r < 1 for r in ratios.values())} of {len(ratios)}; means {mean[PRIOR][0]:.4f}, "
        f"isotropic {mean[ISOTROPIC][0]:.4f}, ARD alone {mean[ALONE][0]:.4f}; evaluations of ARD "
        f"alone: ×{mean[PRIOR][1] / mean[ALONE][1]:.2f}.",
        flush=True,
    )


def _line(name: str, found: dict[str, np.ndarray]) -> str:
    return f"| {name} | " + " | ".join(f"{loss:.4f} | {n:.1f}" for loss, n in found.values()) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(SIX), help="names of data sets, divided by commas")
    parser.add_argument("--sizes", default="folds,40,100", help="training rows, or folds")
    arguments = parser.parse_args()
    for size in arguments.sizes.split(","):
        table(arguments.only.split(","), None if size == "folds" else int(size))


if __name__ == "__main__":
    main()
