"""How long folds will take, before any has begun."""

from dataclasses import replace
from typing import Any

from threadpoolctl import threadpool_limits

from postlin.learning import progress
from postlin.learning.models import LARGE
from postlin.workbench.evaluation.folds import Data, Task
from postlin.workbench.evaluation.methods import BASELINES

#: The free parameters of the default kernel, and of those that neighbours compare beside length scales.
_FREE = 2
#: The kernels that neighbours compare.
_KERNELS = 3
#: Seconds of a baseline for each row.
_BASELINE = 2e-4
#: Seconds of a prediction from neighbours, in factorisations of 1,000 rows.
_NEAR = 0.05


def seconds_of_folds(data: dict[str, Data], *, whole: bool = False) -> "Forecast":
    """A forecast for folds of these data on one thread, or for fits on the whole data on all."""
    with threadpool_limits(None if whole else 1, user_api="blas"):
        return Forecast(data, progress.factorisation_seconds(1000), whole)


class Forecast:
    """Seconds that folds will take, from those that a factorisation of 1,000 rows takes."""

    def __init__(self, data: dict[str, Data], thousand: float, whole: bool = False) -> None:
        self._data, self._thousand, self._whole = data, thousand, whole

    def rows(self, task: Task) -> float:
        """The number of rows that a fold learns from."""
        n = len(self._data[task.data].codes)
        return n if self._whole else n * (task.n_folds - 1) / task.n_folds

    def by(self, task: Task, **how: Any) -> float:
        """The seconds of the same fold with other options for large tables."""
        way = "one_vs_rest" if task.multi_class == "joint" else task.multi_class
        return self(replace(task, multi_class=way, **how))

    def size(self, task: Task) -> float:
        """The number of rows of the largest matrix, which is 0 where inference is not exact."""
        n_classes, train = len(self._data[task.data].classes), self.rows(task)
        if task.method in BASELINES or task.n_neighbors is not None or task.inducing is not None:
            return 0.0
        if task.multi_class == "joint":
            return train * (n_classes - 1)
        return self._binary(task)[1]

    def _binary(self, task: Task) -> tuple[float, float]:
        """The number of binary problems, and of the rows of each."""
        n_classes, train = len(self._data[task.data].classes), self.rows(task)
        if n_classes == 2:
            return 1.0, train
        if task.multi_class == "one_vs_one":
            return n_classes * (n_classes - 1) / 2, 2 * train / n_classes
        return float(n_classes), train

    def __call__(self, task: Task) -> float:
        """The seconds that a fold will take."""
        if task.method in BASELINES:
            return _BASELINE * self.rows(task)
        if task.multi_class == "joint":
            return self._search(self.size(task), progress.OF_JOINT)
        problems, rows = self._binary(task)
        if task.n_neighbors is not None:
            held = len(self._data[task.data].codes) - self.rows(task)
            predicted = held * problems * _NEAR * self._thousand
            return predicted + progress.local_units(_KERNELS * problems, rows) * self._thousand
        if task.inducing is not None:
            size = (rows * float(task.inducing) ** 2) ** (1 / 3)
            return problems * self._search(size, progress.OF_SPARSE)
        return problems * self._search(rows, progress.OF_EXACT, is_led=rows >= LARGE)

    def _search(self, size: float, units: tuple[float, float], *, is_led: bool = False) -> float:
        one = self._thousand * (size / 1000) ** 3
        return progress.priced(one, units, _FREE, is_led=is_led).seconds
