"""What the correction is worth: divergence of predictions from the exact posterior, before and after.

    python benchmarks/corrected.py [--particles 2000] [--runs 3] [--likelihoods probit logit ...]

Eleven data sets, 40 and 80 rows of each, with the labels as they are and with 5 % of them flipped, make
44 problems for each likelihood. The kernel's variance and length scale are those that PL learned, and
other rows, up to 100, are predicted. The truth comes from ``GPClassifier.verify``. "Own series" is the
series about the Gaussian of the fit itself, without moment matching (``inference/exact/expansion.py``).
Truths are kept in benchmarks/.store: a run that was stopped goes on from there. The table is
benchmarks/corrected.md.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import rel_entr
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_circles,
    make_moons,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from store import Store

from postlin import GPClassifier, datasets
from postlin.inference.exact.expansion import Expansion

HERE = Path(__file__).parent
PAGE = HERE / "corrected.md"
LIKELIHOODS = ("probit", "logit", "noisy_threshold")
RULES = {"PL": "pl", "CL": "cl", "EP": "ep"}
ROWS = (40, 80)
#: The largest number of new rows, and the part of the labels that are flipped.
NEW, FLIPPED = 100, 0.05


#: Data sets of postlin, and pairs of classes of scikit-learn's.
OWN = ("crab", "ionosphere", "breast_cancer", "glass", "thyroid")
PAIRS = {"iris": (load_iris, 1, 2), "wine": (load_wine, 0, 1), "digits": (load_digits, 3, 8)}
SYNTHETIC = {
    "moons": lambda: make_moons(300, noise=0.3, random_state=0),
    "circles": lambda: make_circles(300, noise=0.2, factor=0.5, random_state=0),
}
DATA = (*OWN, "wdbc", *PAIRS, *SYNTHETIC)


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a data set, and their labels 0 and 1."""
    if name in OWN:
        loaded = datasets.load(name)
        return loaded.X, np.unique(loaded.y, return_inverse=True)[1]
    if name in PAIRS:
        load, one, other = PAIRS[name]
        X, y = load(return_X_y=True)
        kept = (y == one) | (y == other)
        return X[kept], (y[kept] == one).astype(int)
    return load_breast_cancer(return_X_y=True) if name == "wdbc" else SYNTHETIC[name]()


class Problem(NamedTuple):
    """The key of a problem."""

    likelihood: str
    data: str
    rows: int
    is_flipped: bool


class Truth(NamedTuple):
    """The exact log evidence and probabilities of the label 1, and the kernel's log-parameters."""

    log_evidence: float
    p: np.ndarray
    theta: np.ndarray


def problems(likelihood: str) -> Iterator[Problem]:
    """All problems of a likelihood."""
    for name in DATA:
        for rows in ROWS:
            for is_flipped in (False, True):
                yield Problem(likelihood, name, rows, is_flipped)


def table(at: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised rows, their labels 0 and 1, and new rows."""
    X, y = data(at.data)
    rng = np.random.default_rng(1)
    chosen = rng.permutation(len(y))[: at.rows + NEW]
    X, y = X[chosen], np.array(y)[chosen]
    spread = X.std(axis=0)
    X = ((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))[:, spread > 0]
    if at.is_flipped:
        wrong = rng.permutation(at.rows)[: round(at.rows * FLIPPED)]
        y[wrong] = 1 - y[wrong]
    return X[: at.rows], y[: at.rows], X[at.rows :]


def fitted(at: Problem, rule: str, theta: np.ndarray | None) -> GPClassifier:
    """A fit with these log-parameters, or with those that it learns."""
    X, y, _ = table(at)
    signal = ConstantKernel(10.0, (1e-3, 1e5)) * RBF(np.sqrt(X.shape[1]), (1e-2, 1e3))
    kernel = signal + WhiteKernel(0.1, "fixed")
    if theta is not None:
        kernel.theta = theta
    model = GPClassifier(
        kernel,
        likelihood=at.likelihood,
        inference=rule,
        corrected=True,
        optimizer="bfgs" if theta is None else None,
    )
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return model.fit(X, y)


def found(at: Problem, particles: int, runs: int) -> Truth:
    """The truth at the log-parameters that PL learns."""
    _, _, new = table(at)
    theta = fitted(at, "pl", None).kernel_.theta
    exact = fitted(at, "cl", theta).verify(new, n_particles=particles, n_runs=runs, random_state=0)
    return Truth(exact.log_evidence, exact.probabilities[:, 1], theta)


def truth(store: Store, at: Problem, particles: int, runs: int) -> Truth:
    """A truth that is kept, or found now."""
    key = [*at, particles, runs]
    if store.get(key) is None:
        log_z, p, theta = found(at, particles, runs)
        store.add({"key": key, "truth": [log_z, p.tolist(), theta.tolist()]})
    kept = store.get(key)
    assert kept is not None
    log_z, p, theta = kept["truth"]
    return Truth(log_z, np.array(p), np.array(theta))


class Distance(NamedTuple):
    """Of a fit from the truth: the mean divergence of its probabilities, and |Δ log Z|."""

    divergence: float
    evidence: float


def distances(at: Problem, rule: str, exact: Truth) -> list[Distance]:
    """How far a fit is from the truth: as it is, by its own series, and corrected."""
    _, _, new = table(at)
    model = fitted(at, rule, exact.theta)
    (fit,) = model._estimators
    approximation, kernel = fit.approximation_, fit.latent_kernel
    own = Expansion(approximation.problem, approximation.iterate, is_matched=False)
    log_p = own.log_probabilities(fit.model.cross(kernel, new), kernel.diag(new), 0.0)
    ways = [
        (approximation.log_evidence, np.exp(fit.plain(new)[:, 1])),
        (own.log_evidence, np.exp(log_p[1])),
        (approximation.corrected_log_evidence, model.predict_proba(new)[:, 1]),
    ]
    return [
        Distance(
            float(np.mean(rel_entr(exact.p, p) + rel_entr(1.0 - exact.p, 1.0 - p))),
            abs(log_z - exact.log_evidence),
        )
        for log_z, p in ways
    ]


def line(likelihood: str, rule: str, found: np.ndarray) -> str:
    """Means over the problems, (problem, way, part)."""
    means = found.mean(axis=0)
    smaller = int((found[:, 2, 0] < found[:, 0, 0]).sum())
    divergence = " | ".join(f"{value:.1e}" for value in means[:, 0])
    evidence = " | ".join(f"{value:.3f}" for value in means[:, 1])
    return f"| {likelihood} | {rule} | {divergence} | {smaller} of {len(found)} | {evidence} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--likelihoods", nargs="+", choices=LIKELIHOODS, default=list(LIKELIHOODS))
    given = parser.parse_args()
    (HERE / ".store").mkdir(exist_ok=True)
    store = Store(HERE / ".store" / "corrected.jsonl")
    lines = [
        "# What the correction is worth",
        "",
        "`benchmarks/corrected.py` writes this page and describes the protocol: the mean",
        "Kullback–Leibler divergence of the probabilities of new rows from sampled ones, the number of",
        "problems in which it falls, and the mean error of the log evidence.",
        "",
        "| likelihood | rule | divergence | own series | corrected | smaller in "
        "| \\|Δ log Z\\| | own series | corrected |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for likelihood in given.likelihoods:
        exact = {at: truth(store, at, given.particles, given.runs) for at in problems(likelihood)}
        for rule, name in RULES.items():
            found = np.array([distances(at, name, known) for at, known in exact.items()])
            lines.append(line(likelihood, rule, found))
            print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
