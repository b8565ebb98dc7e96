"""Progress on standard error: a live line on a terminal, and elsewhere a line every few seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import progress as bars
from rich.markup import escape
from rich.table import Column

from postlin.learning.progress import EVERY, Heartbeat, Progress, Status, watching
from postlin.workbench.cli import outputs
from postlin.workbench.cli.large import seconds_of_folds
from postlin.workbench.evaluation.folds import Data, Report, Task
from postlin.workbench.evaluation.monitor import Board
from postlin.workbench.report.words import spoken

#: Seconds between two looks for a line on a terminal.
_LIVE = 0.5


@contextmanager
def shown(what: str, status: Callable[[], Status]) -> Iterator[Callable[[int, int], object]]:
    """Show a status for as long as this is entered; call the result with counts to move a bar."""
    if outputs.notes.is_terminal:
        # Lines that are too long are wrapped, for the time that is left stands at their ends.
        text = bars.TextColumn("{task.description}", table_column=Column())
        columns = text, bars.BarColumn(24)
        with bars.Progress(*columns, console=outputs.notes) as bar:
            handle = bar.add_task(escape(what), total=None)

            def move(done: int, total: int) -> None:
                bar.update(handle, completed=done, total=total)

            def refresh() -> None:
                bar.update(handle, description=escape(f"{what}: {status()}"))

            with Heartbeat(refresh, _LIVE):
                yield move
    else:
        with Heartbeat(lambda: outputs.note(f"{what}: {status()}"), EVERY):
            yield lambda done, total: None


@contextmanager
def fitting(what: str, expected: float | None = None) -> Iterator[Progress]:
    """Show how far the fits within are, which are ``expected`` to take so many seconds."""
    progress = Progress(expected=expected)
    with watching(progress), shown(what, progress.status):
        yield progress


class Folds:
    """The progress of an evaluation, whose board is made once it is known which folds are left."""

    def __init__(self, data: dict[str, Data], jobs: int, out: Path | None) -> None:
        self._data, self._jobs, self._out = data, jobs, out
        self.board: Board | None = None
        self.done = self.total = 0

    def make(self, waiting: list[Task]) -> Board:
        """The board of folds that are to be computed."""
        expected = seconds_of_folds(self._data)
        self.board = Board(waiting, expected, described, self._jobs, folder=self._out)
        return self.board

    def status(self) -> Status:
        """What is being done now."""
        return Status("", 0.0, None) if self.board is None else self.board.status()

    @contextmanager
    def shown(self, what: str) -> Iterator[Report]:
        """Show the progress; the result is told of every fold that ends."""
        with shown(what, self.status) as move:

            def report(done: int, total: int, task: Task | None) -> None:
                self.done, self.total = done, total
                move(done, total)

            yield report


def described(task: Task) -> str:
    """A fold in words."""
    return f"{spoken(task)}, fold {task.fold + 1} of {task.n_folds}"
