"""Many classes: log-loss, accuracy and seconds in cross-validation, beside scikit-learn and GPyTorch.

Five folds, features standardised, the kernel 1.0 * RBF(1.0) for all, hyperparameters learned in every
fold. Prints a table in Markdown; ± is the standard error of the mean over the folds. scikit-learn's
one-against-one has no probabilities, hence no log-loss.

    python benchmarks/multiclass.py [iris] [wine] [glass] [digits] [--rows N] [--methods ...]

GPyTorch is left out where it is not installed: ``make bench`` makes an environment that has it.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

import postlin
from postlin import GPClassifier

#: Rows of digits that are used unless told otherwise.
FEW_DIGITS = 600


class Score(NamedTuple):
    """Of one fold; the log-loss is not a number where there are no probabilities."""

    accuracy: float
    log_loss: float
    seconds: float


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
    path = Path(postlin.__file__).parent / "datasets" / "data" / "glass.csv"
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(int)


LOADERS = {"iris": load_iris, "wine": load_wine, "glass": load_glass, "digits": load_digits}


def score(method: str, X: np.ndarray, y: np.ndarray, train: Any, test: Any) -> Score:
    """Fit on the rows of a fold and predict those left out."""
    scaler = StandardScaler().fit(X[train])
    X = scaler.transform(X)
    began = time.perf_counter()
    with warnings.catch_warnings():  # of parameters at their bounds, in either library
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = METHODS[method](X[train], y[train])
    accuracy = accuracy_score(y[test], model.predict(X[test]))
    loss = float("nan")
    if method != "scikit-learn, one vs one":
        loss = log_loss(y[test], model.predict_proba(X[test]), labels=model.classes_)
    return Score(float(accuracy), float(loss), time.perf_counter() - began)


def lines(name: str, rows: int | None, methods: list[str]) -> Iterator[str]:
    """The lines of the table for one data set, as they are found."""
    X, y = LOADERS[name](return_X_y=True)
    rows = rows or (FEW_DIGITS if name == "digits" else None)
    X, y = X[:rows], y[:rows]
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    for method in methods:
        scores = np.array([score(method, X, y, *fold) for fold in folds])
        accuracy, loss, seconds = (column(values) for values in scores.T)
        yield f"| {name} | {len(y)} | {method} | {accuracy} | {loss} | {seconds} |"


def column(values: np.ndarray) -> str:
    """Mean ± standard error."""
    if np.isnan(values).any():
        return "none"
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", choices=[[], *LOADERS], help="all if not given")
    parser.add_argument("--rows", type=int, help="the first so many of each data set")
    parser.add_argument("--methods", nargs="+", default=[""], help="whose names contain one of these")
    given = parser.parse_args()
    methods = [name for name in METHODS if any(part in name for part in given.methods)]
    print("| data | rows | method | accuracy | log-loss | seconds a fold |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in given.data or LOADERS:
        for line in lines(name, given.rows, methods):
            print(line, flush=True)


if __name__ == "__main__":
    main()
