"""One fold of a cross-validation: the unit of work that is run, stored and resumed."""

import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from postlin._typing import Array
from postlin.datasets import whiten
from postlin.evaluation.methods import Protocol, make_classifier

Scaling = Literal["whiten", "standardise", "none"]


@dataclass(frozen=True)
class Data:
    """A data set with two classes: features, codes 0 and 1, and the classes' names."""

    name: str
    X: Array
    codes: np.ndarray
    classes: tuple[str, str]
    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """What one fold does. Tasks are equal exactly when their results must be."""

    data: str
    method: str
    likelihood: str
    protocol: Protocol
    seed: int
    fold: int
    n_folds: int
    small_variance: float
    scaling: Scaling
    paper_folds: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class FoldResult:
    """What came of it: predictions on the held-out rows, and how the fit went."""

    y: list[int]
    p: list[float]
    log_evidence: float
    seconds: float
    converged: bool
    theta: list[float]
    trace: list[float]


def paper_folds(n: int, k: int, seed: int) -> list[np.ndarray]:
    """Shuffled folds of ⌊n/k⌋ rows, the remainder in the last: held-out rows of each."""
    order = np.random.default_rng(seed).permutation(n)
    size = n // k
    return [order[i * size : (i + 1) * size if i < k - 1 else n] for i in range(k)]


def held_out(data: Data, task: Task) -> np.ndarray:
    """The rows that this fold predicts."""
    if task.paper_folds:
        return paper_folds(len(data.codes), task.n_folds, task.seed)[task.fold]
    splitter = StratifiedKFold(task.n_folds, shuffle=True, random_state=task.seed)
    rows: np.ndarray = list(splitter.split(data.X, data.codes))[task.fold][1]
    return rows


def run_fold(data: Data, task: Task) -> FoldResult:
    """Fit on the other folds, predict this one."""
    test = held_out(data, task)
    train = np.setdiff1d(np.arange(len(data.codes)), test)
    X = whiten(data.X) if task.scaling == "whiten" else data.X
    if task.scaling == "standardise":
        X = StandardScaler().fit(X[train]).transform(X)
    model = make_classifier(task.method, task.likelihood, task.protocol, task.small_variance)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they would say is in ``converged``
        model.fit(X[train], data.codes[train])
    seconds = time.perf_counter() - start
    return FoldResult(
        y=[int(c) for c in data.codes[test]],
        p=[float(p) for p in model.predict_proba(X[test])[:, 1]],
        log_evidence=float(model.log_marginal_likelihood_value_),
        seconds=seconds,
        converged=bool(model.converged_),
        theta=[float(t) for t in model.kernel_.theta],
        trace=[float(value) for _, value in model.evidence_path_],
    )
