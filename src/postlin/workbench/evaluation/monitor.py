"""How far an evaluation is: folds that ended, folds that run, and the time that remains.

Folds run in other processes. Each of them writes what it is doing into a small file of a folder, which
the process that waits for them reads. Workers on other machines cannot write there, and are known by
their results alone.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from postlin._files import write_atomically
from postlin.learning.progress import Heartbeat, Progress, Status, watching

if TYPE_CHECKING:
    from postlin.workbench.evaluation.folds import Task

#: Seconds between two reports of a fold.
_EVERY = 1.0
#: How the name of the folder begins.
_NAME = "postlin-running-"


@dataclass(frozen=True)
class Desk:
    """The file on which one fold reports."""

    path: Path

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Report what is computed within, about once a second."""
        progress = Progress()

        def write() -> None:
            text = json.dumps(progress.status()).encode()
            with suppress(OSError):  # as on a machine without the folder
                write_atomically(self.path, lambda file: file.write(text))

        with watching(progress), Heartbeat(write, _EVERY):
            yield
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def status(self) -> Status | None:
        """What was reported last, if anything."""
        try:
            return Status(*json.loads(self.path.read_bytes()))
        except (OSError, ValueError):
            return None


class Board:
    """All folds of an evaluation, and what is known of each."""

    def __init__(
        self,
        folds: "Sequence[Task]",
        forecast: "Callable[[Task], float]",
        describe: "Callable[[Task], str]",
        jobs: int = 1,
        clock: Callable[[], float] = time.monotonic,
        folder: Path | None = None,
    ) -> None:
        """``forecast`` says how many seconds a fold may take, ``describe`` what it is.

        Folds report in ``folder``, or where temporary files are. What a killed run has left in the
        folder is removed.
        """
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(f"{_NAME}*"):
                shutil.rmtree(left, ignore_errors=True)
        self._folder = TemporaryDirectory(prefix=_NAME, dir=folder, ignore_cleanup_errors=True)
        self.total, self._jobs, self._describe, self._clock = len(folds), jobs, describe, clock
        self._began = clock()
        self._expected = {fold: forecast(fold) for fold in folds}
        self._desks = {fold: Desk(Path(self._folder.name) / str(k)) for k, fold in enumerate(folds)}
        self._taken: dict[Task, float] = {}

    @property
    def forecast(self) -> float:
        """The seconds that all folds are expected to take."""
        return sum(self._expected.values()) / min(self._jobs, max(self.total, 1))

    def desk(self, fold: "Task") -> Desk:
        """Where a fold reports."""
        return self._desks[fold]

    def ended(self, fold: "Task", seconds: float) -> None:
        """A fold has ended after so many seconds."""
        self._taken[fold] = seconds

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    def status(self) -> Status:
        """What is being done now."""
        running = {
            fold: status
            for fold, desk in self._desks.items()
            if fold not in self._taken and (status := desk.status()) is not None
        }
        text = f"{len(self._taken)} of {self.total} folds"
        if running:
            fold, (doing, *_) = max(running.items(), key=lambda item: item[1].elapsed)
            text += f"; {self._describe(fold)}" + (f", {doing}" if doing else "")
            if len(running) > 1:
                text += f" (and {len(running) - 1} more at once)"
        return Status(text, self._clock() - self._began, self._left(running))

    def _left(self, running: "dict[Task, Status]") -> float:
        """The seconds that are left: forecasts, corrected by what folds have taken or will take.

        Folds of other methods correct a forecast as far as they are not much shorter.
        """
        known = dict(self._taken)
        for fold, status in running.items():
            if status.left is not None:
                known[fold] = status.elapsed + status.left
        forecast, taken = sum(self._expected[fold] for fold in known), sum(known.values())
        total = longest = 0.0
        for fold, expected in self._expected.items():
            if fold in self._taken:
                continue
            same = [seconds for other, seconds in known.items() if _kind(other) == _kind(fold)]
            if same:
                rest = sum(same) / len(same)
            else:
                rest = expected * (taken + expected) / max(forecast + expected, 1e-9)
            if fold in running:
                left = running[fold].left
                rest = max(rest - running[fold].elapsed, 0.0) if left is None else left
                longest = max(longest, rest)
            total += rest
        return max(total / self._jobs, longest)


def _kind(fold: "Task") -> "Task":
    """What is the same for all folds of a method on a data set."""
    return replace(fold, fold=0, seed=0)
