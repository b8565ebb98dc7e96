"""Many classes beside scikit-learn: accuracy, log-loss and seconds in cross-validation.

Five folds, features standardised, the kernel 1.0 * RBF(1.0) for all, hyperparameters learned in every
fold. Prints a table in Markdown; ± is the standard error of the mean over the folds. scikit-learn's
one-against-one has no probabilities, hence no log-loss.

    python benchmarks/multiclass.py [iris] [wine] [digits] [--full]
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning as SklearnWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from postlin import ConvergenceWarning, GPClassifier

LOADERS = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
ESTIMATORS = {"scikit-learn": GaussianProcessClassifier, "postlin": GPClassifier}
STRATEGIES = ("one_vs_rest", "one_vs_one")
#: Rows of digits that are used without ``--full``.
FEW_DIGITS = 600


class Score(NamedTuple):
    """Of one fold; the log-loss is not a number where there are no probabilities."""

    accuracy: float
    log_loss: float
    seconds: float


def score(library: str, strategy: str, X: np.ndarray, y: np.ndarray, train: Any, test: Any) -> Score:
    """Fit on the rows of a fold and predict those left out."""
    estimator = ESTIMATORS[library](1.0 * RBF(1.0), multi_class=strategy, random_state=0)
    model = make_pipeline(StandardScaler(), estimator)
    began = time.perf_counter()
    with warnings.catch_warnings():  # of parameters at their bounds, in either library
        warnings.simplefilter("ignore", SklearnWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[train], y[train])
    accuracy = accuracy_score(y[test], model.predict(X[test]))
    loss = float("nan")
    if not (library == "scikit-learn" and strategy == "one_vs_one"):
        loss = log_loss(y[test], model.predict_proba(X[test]), labels=model.classes_)
    return Score(float(accuracy), float(loss), time.perf_counter() - began)


def rows(name: str, full: bool) -> Iterator[str]:
    """The lines of the table for one data set, as they are found."""
    X, y = LOADERS[name](return_X_y=True)
    if name == "digits" and not full:
        X, y = X[:FEW_DIGITS], y[:FEW_DIGITS]
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    for library in ESTIMATORS:
        for strategy in STRATEGIES:
            scores = np.array([score(library, strategy, X, y, *fold) for fold in folds])
            accuracy, loss, seconds = (column(values) for values in scores.T)
            kind = strategy.replace("_", " ")
            yield f"| {name} | {len(y)} | {library}, {kind} | {accuracy} | {loss} | {seconds} |"


def column(values: np.ndarray) -> str:
    """Mean ± standard error."""
    if np.isnan(values).any():
        return "none"
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(LOADERS))
    parser.add_argument("--full", action="store_true", help="all rows of digits")
    options = parser.parse_args()
    if strange := set(options.names) - set(LOADERS):
        parser.error(f"no data set {', '.join(sorted(strange))}; there are {', '.join(LOADERS)}")
    print("| data | rows | method | accuracy | log-loss | seconds a fold |")
    print("|---|---|---|---|---|---|")
    for name in options.names or LOADERS:
        for line in rows(name, options.full):
            print(line, flush=True)


if __name__ == "__main__":
    main()
