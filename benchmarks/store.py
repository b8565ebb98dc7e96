"""Measurements as lines of JSON: appended one by one, so that a run that was stopped goes on."""

import json
from pathlib import Path
from statistics import median

#: A measurement is to be made again if others kept more than so many cores busy meanwhile.
DISTURBED = 0.2


class Store:
    """What was measured, the latest line of a key standing for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._records = {_key(record["key"]): record for record in map(json.loads, lines)}

    def add(self, record: dict) -> None:
        """Keep a record; on disk before anything else is measured."""
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self._records[_key(record["key"])] = record

    def get(self, key: list) -> dict | None:
        """The record of a key."""
        return self._records.get(_key(key))

    def all(self) -> list[dict]:
        """Every record."""
        return list(self._records.values())

    def repeats(self, contestant: str, kind: str, problem: str) -> list[dict]:
        """The records of a measurement, failed ones too, by repeat."""
        found = [r for r in self.all() if r["key"][:3] == [contestant, kind, problem]]
        return sorted(found, key=lambda r: r["key"][3])

    def figures(self, contestant: str, kind: str, problem: str) -> list[dict]:
        """What was measured in the repeats that succeeded, the undisturbed ones if there are any."""
        measured = [r for r in self.repeats(contestant, kind, problem) if r["outcome"] == "measured"]
        quiet = [r for r in measured if not disturbed(r)]
        return [r["figures"] for r in quiet or measured]

    def disturbed(self, contestant: str, kind: str, problem: str) -> bool:
        """Whether there are measurements, and all of them were made while others kept cores busy."""
        measured = [r for r in self.repeats(contestant, kind, problem) if r["outcome"] == "measured"]
        return bool(measured) and all(map(disturbed, measured))

    def outcome(self, contestant: str, kind: str, problem: str) -> str | None:
        """Why there is no figure: ``> 600 s``, or an error; None where nothing was tried."""
        failed = [r["outcome"] for r in self.repeats(contestant, kind, problem)]
        return next((o for o in failed if o != "measured"), None)


def disturbed(record: dict) -> bool:
    """Whether others kept cores busy meanwhile."""
    return record.get("others", 0.0) >= DISTURBED


def _key(key: list) -> tuple:
    return tuple(key)


def middle(values: list[float]) -> float | None:
    """The median; None of nothing."""
    return median(values) if values else None
