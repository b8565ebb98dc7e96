"""Options for large tables, and how long methods will take on them."""

from typing import Annotated, NamedTuple

import typer

from postlin._validation import MATRICES, available_memory
from postlin.learning.progress import in_words
from postlin.linalg.arrays import place_named
from postlin.workbench.cli.inputs import BadInputError
from postlin.workbench.evaluation.folds import Data, Task
from postlin.workbench.evaluation.forecast import Forecast

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
