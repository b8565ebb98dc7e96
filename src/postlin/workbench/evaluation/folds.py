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
from postlin.workbench.evaluation.methods import MultiClass, Protocol, make_classifier

Scaling = Literal["whiten", "standardise", "none"]


@dataclass(frozen=True)
class Data:
    """A data set: features, labels as indices of classes, and the classes' names."""

    name: str
    X: Array
    codes: np.ndarray
    classes: tuple[str, ...]
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
    multi_class: MultiClass | None = None  # of two classes None: there is one way to treat them

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without what does not apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FoldResult:
    """What came of it: predictions on the held-out rows, and how the fit went.

    ``p`` holds for every row the probabilities of all classes, or of two classes the second's alone.
    Where many classes are taken apart, the evidence and its trace are means over the problems.
    """

    y: list[int]
    p: list[float] | list[list[float]]
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
    with warnings.catch_warnings():
        # a class with fewer rows than there are folds is held out by some of them only
        warnings.filterwarnings("ignore", message="The least populated class")
        rows: np.ndarray = list(splitter.split(data.X, data.codes))[task.fold][1]
    return rows


def run_fold(data: Data, task: Task) -> FoldResult:
    """Fit on the other folds, predict this one."""
    test = held_out(data, task)
    train = np.setdiff1d(np.arange(len(data.codes)), test)
    _check_classes(data, train, task)
    X = whiten(data.X) if task.scaling == "whiten" else data.X
    if task.scaling == "standardise":
        X = StandardScaler().fit(X[train]).transform(X)
    model = make_classifier(
        task.method, task.likelihood, task.protocol, task.small_variance, task.multi_class
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they would say is in ``converged``
        model.fit(X[train], data.codes[train])
    seconds = time.perf_counter() - start
    p = model.predict_proba(X[test])
    return FoldResult(
        y=[int(c) for c in data.codes[test]],
        p=(p[:, 1] if p.shape[1] == 2 else p).tolist(),
        log_evidence=float(model.log_marginal_likelihood_value_),
        seconds=seconds,
        converged=bool(model.converged_),
        theta=[float(t) for t in model.kernel_.theta],
        trace=_mean_trace([[float(v) for _, v in f.evidence_path_] for f in model._estimators]),
    )


def _check_classes(data: Data, train: np.ndarray, task: Task) -> None:
    """Raise ``ValueError`` where a class would have to be predicted that was never seen."""
    unseen = np.setdiff1d(np.arange(len(data.classes)), data.codes[train])
    if len(unseen):
        raise ValueError(
            f"fold {task.fold + 1} of {task.n_folds} leaves no row of class "
            f"{data.classes[unseen[0]]!r} to learn from: leave that class out, or put it together with "
            "another."
        )


def _mean_trace(traces: list[list[float]]) -> list[float]:
    """The log evidence by evaluation; of several problems the mean, each at its best once it ends."""
    longest = max(map(len, traces))
    padded = [t + [max(t)] * (longest - len(t)) for t in traces if t]
    return [float(v) for v in np.mean(padded, axis=0)] if padded else []
