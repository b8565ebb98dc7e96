"""The checkpoint of learning with neighbours: its results by name, so that none is computed twice.

The parameters of the evidence and the state of every climb are kept after each round. A fit that runs
again draws the same rows with the same seed, and continues from there.
"""

import os
import warnings
from pathlib import Path
from typing import Any

from postlin._files import reason, sealed, unsealed, write_atomically
from postlin._typing import override
from postlin.exceptions import FileWarning
from postlin.learning.journal_file import FORMAT, belonging, restored, stored, version
from postlin.learning.local_task import Memo


class MemoFile(Memo):
    """Results that a file keeps, which belongs to the data and parameters of a fingerprint."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        super().__init__()
        self.path = Path(path)
        self._about = {"format": FORMAT, "postlin": version(), "fingerprint": fingerprint}
        self._has_warned = False
        damaged = []
        if self.path.exists():
            for number, line in enumerate(belonging(self.path, fingerprint)[1:], 2):
                try:
                    entry = unsealed(line, restored)
                    self.values[entry["name"]] = entry["value"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    damaged.append(number)
        if damaged:
            self._warn(
                f"is damaged in line {', '.join(map(str, damaged[:5]))}: what it held there is "
                "computed again."
            )

    @override
    def put(self, name: str, value: Any) -> None:
        super().put(name, value)
        self.write()

    def write(self) -> None:
        """Write the file; if that fails, a warning says so once, and the fit goes on without."""
        lines = [sealed(self._about)]
        lines += [sealed({"name": name, "value": value}, stored) for name, value in self.values.items()]
        try:
            write_atomically(self.path, lambda file: file.writelines(lines))
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(
                    f"cannot be written: {reason(error)}. The fit goes on, and if it is killed, "
                    "what it has computed since is lost."
                )

    def _warn(self, text: str) -> None:
        warnings.warn(FileWarning(f"the checkpoint {str(self.path)!r} {text}"), stacklevel=4)
