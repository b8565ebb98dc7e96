"""Options for large tables, and how long methods will take on them."""

from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import typer
from threadpoolctl import threadpool_limits

from postlin._validation import MATRICES, available_memory
from postlin.learning import progress
from postlin.learning.models import LARGE
from postlin.learning.progress import in_words
from postlin.linalg.arrays import place_named
from postlin.workbench.cli.inputs import BadInputError
from postlin.workbench.evaluation.folds import Data, Task
from postlin.workbench.evaluation.methods import BASELINES

#: Rows beyond which faster methods are suggested.
MANY_ROWS = 5000
#: Seconds from which on a forecast is worth a line.
_LONG = 10.0
#: The number of inducing points that is suggested.
_POINTS = 500

Neighbours = Annotated[
    str | None,
    typer.Option(
        "--n-neighbors",
        help="For large tables: predict every row from so many nearest rows, or 'auto' to choose.",
    ),
]
Inducing = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="For large tables: represent all rows by so many inducing points, for example 500.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Where to compute, for example 'cuda' for a GPU; by default on the CPU."),
]


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


class Large(NamedTuple):
    """How a large table is treated: neighbours, inducing points and a device, each None if not."""

    n_neighbors: int | str | None = None
    inducing: int | None = None
    device: str | None = None

    @property
    def option(self) -> str | None:
        """The option that only parallel methods for two classes have, if one is set."""
        if self.n_neighbors is not None:
            return "--n-neighbors"
        if self.inducing is not None:
            return "--inducing"
        return None if self.device in (None, "cpu") else "--device"

    @property
    def is_exact(self) -> bool:
        """Whether inference is exact, on all rows."""
        return self.n_neighbors is None and self.inducing is None


def large(n_neighbors: str | None, inducing: int | None, device: str | None, rows: int) -> Large:
    """What the options ask for, checked, if so many rows are learned from."""
    if inducing is not None and inducing > rows:
        raise BadInputError(
            f"--inducing must be from 1 to {rows:,}, the number of rows, got {inducing:,}."
        )
    if device is not None:
        place_named(device)
        if inducing is not None and n_neighbors is None and device != "cpu":
            raise BadInputError(
                "inference with inducing points runs on the CPU: leave --device out, or use it with "
                "--n-neighbors or with exact inference."
            )
    return Large(_neighbours(n_neighbors, rows), inducing, device)


def _neighbours(text: str | None, rows: int) -> int | str | None:
    """The number of neighbours that --n-neighbors asks for, "auto", or None for exact inference."""
    if text is None or text == "auto":
        return text
    try:
        k = int(text)
    except ValueError:
        k = 0
    if not 2 <= k <= rows:
        raise BadInputError(
            f"--n-neighbors must be 'auto' or from 2 to {rows:,}, the number of rows, got {text!r}."
        )
    return k


def check_room(data: Data, tasks: list[Task], jobs: int) -> None:
    """Raise ``BadInputError`` if exact inference in so many processes needs more than the memory."""
    forecast = Forecast({data.name: data}, 0.0, whole=len(tasks) == 1)
    sizes = sorted((forecast.size(task) for task in tasks if not task.device), reverse=True)
    needed = sum(MATRICES * 8.0 * size**2 for size in sizes[:jobs])
    available = available_memory()
    if needed > available:
        fewer = "--jobs 1, " if jobs > 1 and MATRICES * 8.0 * sizes[0] ** 2 <= available else ""
        raise BadInputError(
            f"exact inference on {sizes[0]:,.0f} points needs about {needed / 2**30:.1f} GiB"
            + (f" with {jobs} jobs" if jobs > 1 else "")
            + f", and {available / 2**30:.1f} GiB are available: use {fewer}--n-neighbors auto or "
            f"--inducing {_POINTS}."
        )


def prospect(data: Data, tasks: list[Task], how: Large, jobs: int, forecast: Forecast) -> str | None:
    """How long the tasks will take, and what would be faster; None if that is soon."""
    models = [task for task in tasks if task.likelihood]  # and no baselines
    if not models:
        return None
    jobs = min(jobs, len(tasks))
    seconds = sum(map(forecast, tasks)) / jobs
    many = len(data.codes) > MANY_ROWS and how.is_exact
    if seconds < _LONG and not many:
        return None
    what = f"{len(models)} fits" if len(models) > 1 else "a fit"
    rows = round(forecast.rows(models[0]))
    kind = "exact inference" if how.is_exact else f"{how.option} {how.n_neighbors or how.inducing}"
    text = f"{what} on {rows:,} rows by {kind} will take about {in_words(seconds)}"
    if jobs > 1:
        text += f" with {jobs} jobs"
    if how.device is not None:
        text += " without the device, which the progress takes into account"
    if not many:
        return text + "."
    folds = len({(task.seed, task.fold) for task in models})
    each = " a method" if len(models) > folds else ""
    near = forecast.by(models[0], n_neighbors="auto") * folds / jobs
    sparse = forecast.by(models[0], inducing=_POINTS) * folds / jobs
    return (
        f"{text}, which grows as the cube of the rows. Faster: --n-neighbors auto (about "
        f"{in_words(near)}{each}; seldom less accurate), --inducing {_POINTS} (about "
        f"{in_words(sparse)}{each}), or --device cuda on a GPU."
    )
