"""Many classes: log-loss, accuracy and seconds in cross-validation, beside scikit-learn and GPyTorch.

Five folds, features standardised, the kernel 1.0 * RBF(1.0) for all, hyperparameters learned in every
fold. Prints every fold as it is done, and at the end a table in Markdown; ± is the standard error of
the mean over the folds. scikit-learn's one-against-one has no probabilities, hence no log-loss.

    python benchmarks/multiclass.py [--sets iris wine glass digits] [--rows N] [--methods joint ...]
    [--folds 0 1 2 3 4]

Folds are kept in ``--store`` as they are done: a run that was stopped goes on where it was, one with
the same arguments prints its table again, and processes may share the folds out among them.

GPyTorch is left out where it is not installed: ``make bench`` makes an environment that has it.
"""

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from store import Store

import postlin
from postlin import GPClassifier

#: Rows of digits that are used unless told otherwise.
FEW_DIGITS = 600


#: Where folds are kept unless told otherwise.
STORE = Path(__file__).parent / ".store" / "multiclass.jsonl"


def _estimator(kind: type, strategy: str) -> Callable[..., Any]:
    def fit(X: np.ndarray, y: np.ndarray) -> Any:
        return kind(1.0 * RBF(1.0), multi_class=strategy, random_state=0).fit(X, y)

    return fit


def _svgp(X: np.ndarray, y: np.ndarray) -> Any:
    from peers.softmax_svgp import SoftmaxSVGP

    return SoftmaxSVGP().fit(X, y)


METHODS: dict[str, Callable[..., Any]] = {
    "scikit-learn, one vs rest": _estimator(GaussianProcessClassifier, "one_vs_rest"),
    "scikit-learn, one vs one": _estimator(GaussianProcessClassifier, "one_vs_one"),
    "postlin, one vs rest": _estimator(GPClassifier, "one_vs_rest"),
    "postlin, one vs one": _estimator(GPClassifier, "one_vs_one"),
    "postlin, joint": _estimator(GPClassifier, "joint"),
}
if find_spec("gpytorch"):
    METHODS["GPyTorch, softmax SVGP"] = _svgp


def load_glass(return_X_y: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """All six types of glass."""
    path = Path(postlin.__file__).parent / "datasets" / "data" / "glass.csv.bz2"
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(int)


LOADERS = {"iris": load_iris, "wine": load_wine, "glass": load_glass, "digits": load_digits}


def score(method: str, X: np.ndarray, y: np.ndarray, train: Any, test: Any) -> dict[str, Any]:
    """Fit on the rows of a fold and predict those left out."""
    scaler = StandardScaler().fit(X[train])
    X = scaler.transform(X)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:  # of parameters at their bounds, for one
        warnings.simplefilter("always", ConvergenceWarning)
        model = METHODS[method](X[train], y[train])
    accuracy = accuracy_score(y[test], model.predict(X[test]))
    loss = None
    if method != "scikit-learn, one vs one":
        loss = float(log_loss(y[test], model.predict_proba(X[test]), labels=model.classes_))
    found = {
        "accuracy": float(accuracy),
        "log_loss": loss,
        "seconds": time.perf_counter() - began,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "kernel": str(getattr(model, "kernel_", "")),
        "warnings": sorted({str(warning.message) for warning in said}),
    }
    if method == "postlin, joint":
        fit = model.base_estimator_
        found |= {
            "evaluations": len(fit.evidence_path_),
            "log_evidence": model.log_marginal_likelihood_value_,
        }
    return found


def run(name: str, rows: int | None, methods: list[str], numbers: list[int], store: Store) -> list[str]:
    """Every fold that is not kept yet; the lines of the table."""
    X, y = LOADERS[name](return_X_y=True)
    rows = rows or (FEW_DIGITS if name == "digits" else None)
    X, y = X[:rows], y[:rows]
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    lines = []
    for method in methods:
        records = []
        for k in numbers:
            key = [name, len(y), method, k]
            if store.get(key) is None:
                store.add({"key": key, **score(method, X, y, *folds[k])})
                print(f"<!-- {store.get(key)} -->", flush=True)
            records.append(store.get(key))
        accuracy, loss, seconds = (
            column([record[what] for record in records]) for what in ("accuracy", "log_loss", "seconds")
        )
        lines.append(f"| {name} | {len(y)} | {method} | {accuracy} | {loss} | {seconds} |")
    return lines


def column(values: list[float | None]) -> str:
    """Mean ± standard error."""
    if None in values:
        return "none"
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=LOADERS, default=list(LOADERS))
    parser.add_argument("--rows", type=int, help="the first so many of each data set")
    parser.add_argument("--methods", nargs="+", default=[""], help="whose names contain one of these")
    parser.add_argument("--folds", nargs="+", type=int, choices=range(5), default=list(range(5)))
    parser.add_argument("--store", type=Path, default=STORE, help="where folds are kept")
    given = parser.parse_args()
    given.store.parent.mkdir(parents=True, exist_ok=True)
    store = Store(given.store)
    methods = [name for name in METHODS if any(part in name for part in given.methods)]
    if not methods:
        parser.error(
            f"no method has any of {given.methods} in its name: there are {', '.join(METHODS)}."
        )
    lines = [line for name in given.sets for line in run(name, given.rows, methods, given.folds, store)]
    print("| data | rows | method | accuracy | log-loss | seconds a fold |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
