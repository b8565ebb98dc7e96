"""Files appear whole or not at all."""

import csv
import io
import json
import os
from pathlib import Path

from postlin.workbench.cli.errors import BadInputError
from postlin.workbench.evaluation.summary import COLUMNS, Cell, Summary


def write_text(path: Path, text: str) -> None:
    """Write a file by way of a temporary one beside it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise BadInputError(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def write_results(folder: Path, summaries: dict[Cell, Summary]) -> None:
    """``results.json`` and ``results.csv``: every score with its standard error."""
    records = []
    for cell, summary in summaries.items():
        record: dict[str, object] = {k: v for k, v in cell._asdict().items() if v is not None}
        for name in COLUMNS:
            score = getattr(summary, name)
            record |= {name: score.mean, f"{name}_se": score.error}
        records.append(record | {"converged": summary.converged, "folds": summary.folds})
    write_text(folder / "results.json", json.dumps(records, indent=1) + "\n")
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_text(folder / "results.csv", buffer.getvalue())
