"""Large tables: error, NLPD, time and memory of postlin beside trees and other Gaussian processes.

    python benchmarks/large.py [--data weather electricity ...] [--methods ...] [--seeds 5]

``make .venv-bench/.installed`` makes an environment for it, to which requirements-large.txt adds what
postlin needs for neighbours. A tenth of the rows, drawn with the seed, is kept for testing; features
are standardised by the others. NLPD is the mean negative log probability of the test labels; forests
give some of them a probability of 0, which counts as 2e-16, so that it is given a second time with
every probability raised to 0.001. Times are of two threads; CPU seconds stand beside wall seconds,
because other jobs may use the same cores. Memory is the peak of the process, with the data.

Every measurement is made in a process of its own and stored as it ends, in benchmarks/.store: a run
that was stopped goes on from there. A method is stopped after its time, and that is stored too; an
error is printed and not stored. ``largedata.py`` has the sets, ``largepeers.py`` the methods. The
tables are benchmarks/large.md; ``--page`` only writes them.
"""

import argparse
import multiprocessing
import os
import resource
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from covertype import FOLDER, HERE, _machine
from largedata import SETS, split, table
from largepeers import METHODS, SMALL, THREADS
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from store import Store

PAGE = HERE / "large.md"
#: The least probability of the second NLPD.
FLOOR = 1e-3


class Settings(NamedTuple):
    """What is measured; the key of a measurement."""

    data: str
    method: str
    seed: int


def _timed(work: Callable[[], Any]) -> tuple[Any, list[float]]:
    """A result, with wall seconds and CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    return work(), [time.perf_counter() - wall, time.process_time() - cpu]


def measure(at: Settings) -> dict[str, Any]:
    """Fit and predict."""
    data = split(at.data, at.seed)
    with warnings.catch_warnings():  # of parameters at their bounds
        warnings.simplefilter("ignore", ConvergenceWarning)
        (model, about), fit = _timed(lambda: METHODS[at.method].fit(data, at.seed))
    p, predict = _timed(lambda: model.predict_proba(data.X_test))
    raised = np.maximum(p, FLOOR)
    return {
        "error": float(np.mean(p.argmax(axis=1) != data.y_test)),
        "nlpd": float(log_loss(data.y_test, p)),
        "raised": float(log_loss(data.y_test, raised / raised.sum(axis=1, keepdims=True))),
        "fit": fit,
        "predict": predict,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "about": about,
        "machine": _machine(),
    }


def _answer(at: Settings, pipe: Connection) -> None:
    try:
        pipe.send(measure(at))
    except Exception:
        pipe.send(traceback.format_exc())


def measured(at: Settings) -> dict[str, Any] | str:
    """The record of a measurement in a process of its own, or why there is none."""
    minutes = METHODS[at.method].minutes
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(at, its))
    process.start()
    its.close()
    try:
        if not mine.poll(60 * minutes):
            outcome = f"not within {minutes:.0f} minutes"
            return {"key": list(at), "outcome": outcome, "machine": _machine()}
        answer = mine.recv()
    except EOFError:
        return "the process was killed."
    finally:
        process.kill()
        process.join()
    return {"key": list(at), "figures": answer} if isinstance(answer, dict) else answer


def _mean(values: list[float], digits: int) -> str:
    """The mean, ± its standard error where there are several."""
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{error}"


def _seconds(figures: list[dict[str, Any]], name: str) -> str:
    """Wall and CPU seconds, the means."""
    wall, cpu = np.mean([found[name] for found in figures], axis=0)
    return f"{wall:.{0 if wall >= 100 else 1}f} | {cpu:.{0 if cpu >= 100 else 1}f}"


def line(method: str, records: list[dict[str, Any]]) -> str:
    """A row of a table: the means over the seeds, with the remark of the first."""
    figures = [record["figures"] for record in records if "figures" in record]
    if not figures:
        return f"| {method} | {len(records)} | | | | | | | | | {records[0]['outcome']} |"
    return (
        f"| {method} | {len(figures)} | {_mean([found['error'] for found in figures], 4)} "
        f"| {_mean([found['nlpd'] for found in figures], 4)} "
        f"| {np.mean([found['raised'] for found in figures]):.4f} "
        f"| {_seconds(figures, 'fit')} | {_seconds(figures, 'predict')} "
        f"| {max(found['peak_gib'] for found in figures):.1f} | {figures[0]['about']} |"
    )


def page(store: Store) -> str:
    """A table for every set, in Markdown."""
    records = sorted(store.all(), key=lambda record: record["key"][2])
    machines = {(record.get("figures") or record)["machine"] for record in records}
    lines = [
        "# Large tables",
        "",
        "`benchmarks/large.py` writes this page and describes the protocol. Means over the seeds ± "
        "standard error; the remark is about the first seed. Two threads on "
        f"{'; '.join(sorted(machines))}, shared with other jobs, so that CPU seconds tell more than "
        "wall seconds.",
    ]
    for name, data in SETS.items():
        (n, d), k = data.shape, len(data.counts)
        lines += [
            "",
            f"## {name}: {data.title}",
            "",
            f"{n:,} rows, {d} features, {k} classes; the most frequent has {max(data.counts) / n:.1%}.",
            "",
            f"| method | seeds | error | NLPD | NLPD, p ≥ {FLOOR} | fit, s | CPU s "
            "| predict, s | CPU s | peak GiB | |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for method in METHODS:
            found = [record for record in records if record["key"][:2] == [name, method]]
            lines += [line(method, found)] if found else []
    return "\n".join(lines) + "\n"


def _wanted(names: list[str], given: list[str], seeds: int | None) -> list[Settings]:
    """Set by set, seed by seed."""
    chosen = [
        name
        for name, method in METHODS.items()
        if any(part in name for part in given) and method.available
    ]
    wanted = []
    for data in names:
        for seed in range(seeds or (5 if data in SMALL else 1)):
            for name in chosen:
                if data in METHODS[name].sets and seed < METHODS[name].seeds:
                    wanted.append(Settings(data, name, seed))
    return wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--methods", nargs="+", default=[""], help="whose names contain one of these")
    parser.add_argument(
        "--seeds", type=int, help="5 for the smaller sets and 1 for others, or as given"
    )
    parser.add_argument("--page", action="store_true", help="write the page of what is stored")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(THREADS)
    for name in given.data:
        table(name)
    store = Store(FOLDER / "large.jsonl")
    for at in [] if given.page else _wanted(given.data, given.methods, given.seeds):
        record = store.get(list(at)) or measured(at)
        if isinstance(record, str):
            print(f"{at}: {record}", flush=True)
            continue
        if store.get(list(at)) is None:
            store.add(record)
        print(f"{at.data}, seed {at.seed}: {line(at.method, [record])}", flush=True)
    PAGE.write_text(page(store), encoding="utf-8")


if __name__ == "__main__":
    main()
