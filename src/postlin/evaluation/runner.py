"""Running many folds, in one process or several, with one BLAS thread in each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from postlin.evaluation.folds import Data, FoldResult, Task, run_fold
from postlin.evaluation.store import Store, fingerprint

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
    report: Callable[[Progress], None] = lambda progress: None,
) -> Results:
    """The results of all tasks, in their order; finished ones are taken from the store."""
    keys = {task: fingerprint(data[task.data], task) for task in tasks}
    results = {task: stored for task in tasks if (stored := store.get(keys[task])) is not None}
    waiting = [task for task in tasks if task not in results]
    report(Progress(len(results), len(tasks), None))
    for task, result in _execute(data, waiting, jobs):
        store.add(keys[task], task, result)
        results[task] = result
        report(Progress(len(results), len(tasks), task))
    return {task: results[task] for task in tasks}


def _execute(data: dict[str, Data], tasks: list[Task], jobs: int) -> Iterator[tuple[Task, FoldResult]]:
    """Pairs as they end, in no certain order when there are several processes."""
    if jobs == 1:
        with threadpool_limits(1, user_api="blas"):
            for task in tasks:
                yield task, run_fold(data[task.data], task)
        return
    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        yield from Parallel(return_as="generator_unordered")(
            delayed(_pair)(data[task.data], task) for task in tasks
        )


def _pair(data: Data, task: Task) -> tuple[Task, FoldResult]:
    return task, run_fold(data, task)
