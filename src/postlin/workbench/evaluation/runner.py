"""Running many folds, in one process or several, with one BLAS thread in each."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from postlin.workbench.evaluation.folds import Data, FoldResult, Task, run_fold
from postlin.workbench.evaluation.store import Store, fingerprint

Results = dict[Task, FoldResult]


@dataclass(frozen=True)
class Progress:
    """How far a run is: for a progress bar."""

    done: int
    total: int
    task: Task | None


def run(
    data: dict[str, Data],
    tasks: list[Task],
    store: Store,
    *,
    jobs: int = 1,
    dask: str | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Results:
    """The results of all tasks, in their order; finished ones are taken from the store.

    ``dask`` is the address of a scheduler whose workers are to be used in place of processes here.
    """
    keys = {task: fingerprint(data[task.data], task) for task in tasks}
    results = {task: stored for task in tasks if (stored := store.get(keys[task])) is not None}
    waiting = [task for task in tasks if task not in results]
    report(Progress(len(results), len(tasks), None))
    for task, result in _execute(data, waiting, jobs, dask):
        store.add(keys[task], task, result)
        results[task] = result
        report(Progress(len(results), len(tasks), task))
    return {task: results[task] for task in tasks}


def _execute(
    data: dict[str, Data], tasks: list[Task], jobs: int, dask: str | None
) -> Iterator[tuple[Task, FoldResult]]:
    """Pairs as they end, in no certain order when there are several processes."""
    if jobs == 1 and dask is None:
        with threadpool_limits(1, user_api="blas"):
            for task in tasks:
                yield task, run_fold(data[task.data], task)
        return
    with _workers(jobs, dask):
        yield from Parallel(return_as="generator_unordered")(
            delayed(_pair)(data[task.data], task) for task in tasks
        )


@contextmanager
def _workers(jobs: int, dask: str | None) -> Iterator[None]:
    """Processes here, or those of a Dask cluster."""
    if dask is None:
        with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
            yield
        return
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise ImportError("--dask needs Dask: pip install 'postlin[dask]'.") from None
    with distributed.Client(dask), parallel_config("dask"):
        yield


def _pair(data: Data, task: Task) -> tuple[Task, FoldResult]:
    with threadpool_limits(1, user_api="blas"):
        return task, run_fold(data, task)
