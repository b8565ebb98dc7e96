"""Results on disk: one line of JSON a finished fold, appended as it ends.

A run that was interrupted or killed goes on from there. Every line carries a fingerprint of all
that its result depends on (version, data, settings), so that nothing old is ever mixed in.
"""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

import postlin
from postlin.workbench.evaluation.folds import Data, FoldResult, Task


def fingerprint(data: Data, task: Task) -> str:
    """A digest of everything that the result of a task depends on."""
    digest = hashlib.sha256()
    digest.update(json.dumps([postlin.__version__, task.as_dict()], sort_keys=True).encode())
    digest.update(data.X.tobytes())
    digest.update(data.codes.tobytes())
    return digest.hexdigest()


class Store:
    """A file of results; with no path, only memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, FoldResult] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
                self._known[record["fingerprint"]] = FoldResult(**record["result"])
            except (ValueError, KeyError, TypeError):
                continue  # a line cut short when the process was killed

    def get(self, key: str) -> FoldResult | None:
        """The stored result, if there is one."""
        return self._known.get(key)

    def add(self, key: str, task: Task, result: FoldResult) -> None:
        """Keep a result; on disk before this returns."""
        self._known[key] = result
        if self._path is None:
            return
        record = {"fingerprint": key, "task": task.as_dict(), "result": asdict(result)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            if file.tell() and not self._ends_with_newline():
                file.write(b"\n")
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _ends_with_newline(self) -> bool:
        assert self._path is not None
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
