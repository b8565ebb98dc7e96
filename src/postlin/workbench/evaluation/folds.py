"""Cross-validation by folds: each fold is run by itself, here or in other processes, and stored.

The store is a file with one line of JSON for every finished fold. A run that was interrupted or killed
goes on from there. Every line carries a fingerprint of all that its result depends on (version, data,
settings), so that outdated results are never used, and a checksum, so that damaged ones are not either.
A fold that fails does not stop the others, and is not stored: the next run tries it again.
"""

import hashlib
import importlib
import json
import os
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import sklearn
from joblib import Parallel, delayed, parallel_config
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

import postlin
from postlin._files import reason, sealed, unsealed
from postlin._typing import Array
from postlin.datasets import whiten
from postlin.estimator.classifier import GPClassifier
from postlin.estimator.verifying import check_verifiable
from postlin.tables.preparation import Preparation
from postlin.workbench.evaluation.methods import (
    BASELINES,
    SMALL_VARIANCE,
    MultiClass,
    Protocol,
    make_baseline,
    make_classifier,
)
from postlin.workbench.evaluation.monitor import Board, Desk

#: What a line of a store holds; raised when that changes, so that lines of earlier forms are not used.
_FORMAT = 2
#: The seconds in which a Dask scheduler must answer.
_PATIENCE = 10


@dataclass(frozen=True)
class Data:
    """A data set: features, the class index of every row, and the classes' names.

    Where there is a ``preparation``, it makes numbers of the features in each fold anew. Without one
    they are numbers, and whitened with the held-out rows among them, as the paper does.
    """

    name: str
    X: Array | pd.DataFrame
    codes: np.ndarray
    classes: tuple[str, ...]
    feature_names: tuple[str, ...]
    preparation: Preparation | None = None
    remarks: tuple[str, ...] = ()  # what is worth saying about the table

    @property
    def table(self) -> pd.DataFrame:
        """The features with their names."""
        if isinstance(self.X, pd.DataFrame):
            return self.X
        return pd.DataFrame(self.X, columns=list(self.feature_names))

    def digest(self) -> bytes:
        """A digest of the features, how they are prepared, and the classes of the rows."""
        found = hashlib.sha256(self.codes.tobytes())
        found.update(pd.util.hash_pandas_object(self.table, index=False).to_numpy().tobytes())
        found.update(repr(self.preparation).encode(errors="replace"))
        return found.digest()


@dataclass(frozen=True)
class Task:
    """What one fold computes; equal tasks on equal data have equal results."""

    data: str
    method: str
    likelihood: str = ""  # empty for baselines
    protocol: Protocol = "converged"
    seed: int = 0
    fold: int = 0
    n_folds: int = 10
    small_variance: float = SMALL_VARIANCE
    paper_folds: bool = False
    multi_class: MultiClass | None = None  # None for two classes
    n_neighbors: int | str | None = None  # None for exact inference
    inducing: int | None = None  # the number of inducing points; None for exact inference
    device: str | None = None  # where matrices are; None for the CPU
    verify: bool | None = None  # whether the fit is compared with the exact posterior; None for no

    def as_dict(self) -> dict[str, object]:
        """The fields that are not None, for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class FoldResult:
    """Predictions on the held-out rows, and how the fit went; baselines have no evidence.

    ``p`` holds the probabilities of all classes for every row, or with two classes only that of the
    second. Where many classes are split into binary problems, the evidence and its trace are means
    over these problems. The gaps are those to the exact posterior, where the fit was verified: log
    evidence minus the exact one, and the mean absolute difference of the held-out probabilities.
    """

    y: list[int]
    p: list[float] | list[list[float]]
    log_evidence: float | None
    seconds: float
    converged: bool | None
    theta: list[float]
    trace: list[float]
    evidence_gap: float | None = None
    probability_gap: float | None = None


Results = dict[Task, FoldResult]
#: What is called with the numbers of finished and of all tasks, and with the task that has just ended.
Report = Callable[[int, int, Task | None], object]


class EvaluationInterruptedError(KeyboardInterrupt):
    """Ctrl-C ended an evaluation; ``results`` are those of the folds that were finished."""

    def __init__(self, results: Results) -> None:
        super().__init__()
        self.results = results


def paper_folds(n: int, k: int, seed: int) -> list[np.ndarray]:
    """The held-out rows of k shuffled folds: ⌊n/k⌋ rows each, and the remainder in the last."""
    order = np.random.default_rng(seed).permutation(n)
    size = n // k
    return [order[i * size : (i + 1) * size if i < k - 1 else n] for i in range(k)]


def held_out(data: Data, task: Task) -> np.ndarray:
    """The rows that this fold predicts."""
    if task.paper_folds:
        return paper_folds(len(data.codes), task.n_folds, task.seed)[task.fold]
    splitter = StratifiedKFold(task.n_folds, shuffle=True, random_state=task.seed)
    with warnings.catch_warnings():
        # A class with fewer rows than there are folds is absent from some held-out parts.
        warnings.filterwarnings("ignore", message="The least populated class")
        return np.asarray(list(splitter.split(data.X, data.codes))[task.fold][1])


def prepared(data: Data, train: np.ndarray) -> Array:
    """All rows as a fit to the rows ``train`` sees them."""
    if data.preparation is None:
        return whiten(np.asarray(data.X))
    table = data.table
    return np.asarray(Pipeline(data.preparation.steps()).fit(table.iloc[train]).transform(table))


def run_fold(data: Data, task: Task) -> FoldResult:
    """Fit on the rows of the other folds and predict those of this one."""
    test = held_out(data, task)
    train = np.setdiff1d(np.arange(len(data.codes)), test)
    unseen = np.setdiff1d(np.arange(len(data.classes)), data.codes[train])
    if len(unseen):
        raise ValueError(
            f"fold {task.fold + 1} of {task.n_folds} leaves no row of class "
            f"{data.classes[unseen[0]]!r} to learn from: leave that class out, or merge it with "
            "another."
        )
    X = prepared(data, train)
    model = make_model(task)
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):  # ``converged`` tells what the warnings would
        model.fit(X[train], data.codes[train])
    seconds = time.perf_counter() - start
    p = model.predict_proba(X[test])
    return FoldResult(
        y=data.codes[test].tolist(),
        p=(p[:, 1] if p.shape[1] == 2 else p).tolist(),
        seconds=seconds,
        **(_learned(model, X[test], task) if isinstance(model, GPClassifier) else _NOTHING_LEARNED),
    )


def make_model(task: Task) -> Any:
    """The unfitted classifier of a task."""
    if task.method in BASELINES:
        return make_baseline(task.method)
    settings = task.protocol, task.small_variance, task.multi_class, task.n_neighbors
    return make_classifier(task.method, task.likelihood, *settings, task.inducing, task.device)


def _learned(model: GPClassifier, X: Array, task: Task) -> dict[str, Any]:
    """The evidence and how the search for it went, and the gaps of verified fits at the rows X."""
    return {
        "log_evidence": float(model.log_marginal_likelihood_value_),
        "converged": bool(model.converged_),
        "theta": model.kernel_.theta.tolist(),
        "trace": _mean_trace([[float(v) for _, v in f.evidence_path_] for f in model._estimators]),
    } | (_gaps(model, X, task) if task.verify else {})


#: What a fit of a baseline has in place of an evidence.
_NOTHING_LEARNED: dict[str, Any] = {"log_evidence": None, "converged": None, "theta": [], "trace": []}


def _gaps(model: GPClassifier, X: Array, task: Task) -> dict[str, float]:
    """The gaps to the exact posterior at held-out rows; none for methods that cannot be verified."""
    try:
        check_verifiable(model._decomposition)
    except ValueError:
        return {}
    found = model.verify(X, random_state=task.seed)
    return {
        "evidence_gap": found.log_evidence_difference,
        "probability_gap": found.mean_difference,
    }


def _mean_trace(traces: list[list[float]]) -> list[float]:
    """The mean log evidence by evaluation; a search that has ended counts with its best value."""
    longest = max(map(len, traces))
    padded = [t + [max(t)] * (longest - len(t)) for t in traces if t]
    return [float(v) for v in np.mean(padded, axis=0)] if padded else []


def fingerprint(data: Data, task: Task) -> str:
    """A digest of everything that the result of a task depends on."""
    versions = [_FORMAT, postlin.__version__]
    if task.method in BASELINES:
        versions.append(sklearn.__version__)
    about = json.dumps([*versions, task.as_dict()], sort_keys=True).encode()
    return hashlib.sha256(about + data.digest()).hexdigest()


def _result(record: dict[str, Any]) -> FoldResult:
    """The result in a line of a store; raise an error unless it is what ``run_fold`` returns."""
    result = FoldResult(**record["result"])
    p, y = np.array(result.p), np.array(result.y, int)
    numbers = [result.seconds, *result.theta, *result.trace]
    optional = result.log_evidence, result.evidence_gap, result.probability_gap
    numbers += [value for value in optional if value is not None]
    whole = p.shape[:1] == y.shape == (len(y),) and isinstance(result.converged, bool | None)
    known = p.dtype == float and ((p >= 0) & (p <= 1)).all()  # text that is a number is damaged, too
    if not (whole and known and all(isinstance(value, float) for value in numbers)):
        raise ValueError
    return result


class Store:
    """Results by fingerprint, kept in a file, or only in memory where there is no path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, FoldResult] = {}
        #: The stored result of a fingerprint, or None.
        self.get = self._known.get
        #: What went wrong with the file, each a sentence; the results are right all the same.
        self.problems: list[str] = []
        #: Why the folds failed that have no result.
        self.failures: dict[Task, str] = {}
        content = path.read_bytes() if path is not None and path.exists() else b""
        whole = content.rfind(b"\n") + 1
        #: Where a line begins that a kill has cut short, if the file ends in one.
        self._cut = whole if whole < len(content) else None
        damaged = []
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                record = unsealed(line)
                self._known[record["fingerprint"]] = _result(record)
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                damaged.append(number)
        if damaged:
            lines = ", ".join(map(str, damaged[:5])) + ", …" * (len(damaged) > 5)
            self.problems.append(
                f"{str(path)!r} is damaged in line {lines}, or of an earlier version: what it held "
                "there is computed again."
            )

    def add(self, key: str, task: Task, result: FoldResult) -> None:
        """Keep a result; it is on disk when this returns, unless it cannot be written."""
        self._known[key] = result
        if self._path is None:
            return
        record = {"fingerprint": key, "task": task.as_dict(), "result": asdict(result)}
        try:
            self._append(self._path, sealed(record))
        except OSError as error:
            problem = f"{str(self._path)!r} cannot be written: {reason(error)}."
            if problem not in self.problems:
                self.problems.append(problem)

    def _append(self, path: Path, line: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            if self._cut is not None:
                file.truncate(self._cut)
                self._cut = None
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def run(
    data: dict[str, Data],
    tasks: list[Task],
    store: Store,
    *,
    jobs: int = 1,
    dask: str | None = None,
    report: Report = lambda done, total, task: None,
    board: Callable[[list[Task]], Board] | None = None,
) -> Results:
    """The results of all tasks, in their order; those in the store are not computed again.

    ``dask`` is the address of a scheduler whose workers are used in place of local processes. On the
    ``board``, which is made for the tasks that are to be computed, all of them report. Failed tasks
    have no result, but a reason in ``store.failures``; if all fail, the first failure is raised.
    """
    keys = {task: fingerprint(data[task.data], task) for task in tasks}
    results = {task: stored for task in tasks if (stored := store.get(keys[task])) is not None}
    waiting = [task for task in tasks if task not in results]
    waiting.sort(key=lambda task: task.method not in BASELINES)  # soon there is something to keep
    report(len(results), len(tasks), None)
    shown = board(waiting) if board is not None and waiting else None
    with ExitStack() as stack:
        if shown is not None:
            stack.callback(shown.close)
        if dask is not None:
            stack.enter_context(_client(dask))
        backend = {"n_jobs": jobs, "inner_max_num_threads": 1} if dask is None else {}
        stack.enter_context(parallel_config("loky" if dask is None else "dask", **backend))
        finished = Parallel(return_as="generator_unordered")(
            delayed(_run_on_one_thread)(data[task.data], task, shown and shown.desk(task))
            for task in waiting
        )
        try:
            for task, result, seconds in finished:
                if shown is not None:
                    shown.ended(task, seconds)
                if isinstance(result, FoldResult):
                    store.add(keys[task], task, result)
                    results[task] = result
                else:
                    store.failures[task] = result
                report(len(results) + len(store.failures), len(tasks), task)
        except KeyboardInterrupt:
            known = {task: results[task] for task in tasks if task in results}
            raise EvaluationInterruptedError(known) from None
    if store.failures and not results:
        raise ValueError(next(iter(store.failures.values())))
    return {task: results[task] for task in tasks if task in results}


def _run_on_one_thread(
    data: Data, task: Task, desk: Desk | None
) -> tuple[Task, FoldResult | str, float]:
    """The result of a task, or why there is none: one method may fail where another does not."""
    began = time.perf_counter()
    with threadpool_limits(1, user_api="blas"), nullcontext() if desk is None else desk.reported():
        found: FoldResult | str
        try:
            found = run_fold(data, task)
        except (ValueError, ArithmeticError, MemoryError) as error:
            found = " ".join(str(error).split()) or type(error).__name__
    return task, found, time.perf_counter() - began


def _client(address: str) -> AbstractContextManager[object]:
    """A connection to a Dask scheduler, which joblib's backend "dask" uses while it is open."""
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise ImportError(
            "--dask needs Dask: pip install 'dask[array,dataframe]' distributed."
        ) from None
    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except Exception:  # whatever another server at this address may answer
        raise ValueError(
            f"there is no Dask scheduler at {address!r} that answers within {_PATIENCE} seconds: start "
            "one with 'dask scheduler', and pass the address that it prints."
        ) from None
    return cast(AbstractContextManager[object], client)
