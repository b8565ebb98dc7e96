"""postlin beside other libraries: runs what is not yet measured, then writes the report.

Each measurement is a process of its own, in the contestant's own environment, and is stored as it
ends. See ``plan.py`` for who runs on what, ``results.md`` for the outcome.
"""

import argparse
import datetime
import json
import os
import resource
import signal
import subprocess
import sys
import time

import report
from plan import HERE, ROOT, Contestant, Job, cross_jobs, jobs
from store import Store, disturbed

FOLDER = HERE / ".store"
#: Seconds after which a measurement is ended.
LIMIT = 600
#: Fits that take longer than this are made once.
_SLOW = 30.0


def interpreter(contestant: Contestant) -> str | None:
    """The Python that has the contestant's library, if it was installed."""
    environment = ROOT / contestant.environment
    return str(environment / "bin" / "python") if (environment / ".installed").exists() else None


def measure(job: Job, limit: float) -> dict:
    """Run one job and give its record."""
    python = interpreter(job.contestant)
    record = {
        "key": job.key,
        "fingerprint": job.contestant.fingerprint(),
        "date": datetime.date.today().isoformat(),
    }
    if python is None:
        return record | {"outcome": "not installed"}
    data = job.problem.write(FOLDER)
    busy, start = _busy_elsewhere(), time.perf_counter()
    process = subprocess.Popen(
        [python, str(HERE / "child.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | job.variables,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(json.dumps(job.message(data)), timeout=limit)
    except subprocess.TimeoutExpired:
        out = None
    finally:
        _end(process)
    record["others"] = (_busy_elsewhere() - busy) / (time.perf_counter() - start)
    if out is None:
        return record | {"outcome": f"> {limit:g} s"}
    if process.returncode != 0:
        last = (err.strip().splitlines() or ["no message"])[-1]
        return record | {"outcome": f"failed: {last[:200]}"}
    return record | {"outcome": "measured", "figures": json.loads(out)}


def _busy_elsewhere() -> float:
    """Seconds of all cores spent so far on anything but this program and what it has started."""
    with open("/proc/stat") as lines:
        user, nice, system, _idle, _wait, *rest = map(int, next(lines).split()[1:])
    ours = sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return (user + nice + system + sum(rest[:2])) / os.sysconf("SC_CLK_TCK") - ours


def _end(process: subprocess.Popen) -> None:
    """Leave nothing running, however we came here."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run(job: Job, store: Store, limit: float) -> None:
    """Measure unless it is in the store, by the same code, or took too long in an earlier repeat."""
    known = store.get(job.key)
    fingerprint = job.contestant.fingerprint()
    if known and known["fingerprint"] == fingerprint and _settled(known, job):
        return
    earlier = store.repeats(job.contestant.name, job.kind, job.problem.key)
    others = [r for r in earlier if r["key"] != job.key and r["fingerprint"] == fingerprint]
    if any(_too_long(record, limit) for record in others):
        return
    start = time.perf_counter()
    record = measure(job, limit)
    store.add(record | {"thetas": job.extra.get("thetas")})
    seconds = time.perf_counter() - start
    print(f"{' · '.join(map(str, job.key)):70s}{seconds:8.1f} s  {_summary(record)}", flush=True)


def _too_long(record: dict, limit: float) -> bool:
    """Over the limit, or so slow that once is enough: noise is no longer what matters."""
    seconds = record.get("figures", {}).get("seconds", 0.0)
    fastest = min(seconds) if isinstance(seconds, list) else seconds
    over = record["outcome"] == f"> {limit:g} s" or fastest > _SLOW
    return over and not disturbed(record)


def _settled(known: dict, job: Job) -> bool:
    """Not so for a library that may have been installed since, optima that moved, a busy machine."""
    return (
        known["outcome"] != "not installed"
        and known.get("thetas") == job.extra.get("thetas")
        and not disturbed(known)
    )


def _summary(record: dict) -> str:
    figures = record.get("figures", {})
    busy = ", the machine was busy with other things" if disturbed(record) else ""
    if "evidence" in figures:
        return f"fit {min(figures['seconds']):.3f} s, log evidence {figures['evidence']:.6f}{busy}"
    return record["outcome"] + busy


def optima(store: Store) -> dict[str, dict[str, list[float]]]:
    """{problem: {contestant: θ}} of the fits that are in the store."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in store.all():
        name, kind, problem, repeat = record["key"]
        if kind == "fit" and repeat == 0 and record["outcome"] == "measured" and "split" not in problem:
            found.setdefault(problem, {})[name] = record["figures"]["theta"]
    return found


def import_times(store: Store) -> None:
    """The time that importing postlin adds to importing scikit-learn's ``gaussian_process``."""
    statements = {
        "sklearn": "import sklearn.gaussian_process",
        "both": "import sklearn.gaussian_process; import postlin",
    }
    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(5):
        for name, statement in statements.items():
            code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            times[name].append(float(done.stdout))
    date = datetime.date.today().isoformat()
    record = {"key": ["postlin", "import", "", 0], "fingerprint": "", "date": date}
    store.add(record | {"outcome": "measured", "figures": times})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of rows; all if not given")
    parser.add_argument(
        "--repeats", type=int, help="of every measurement; fewer for large n if not given"
    )
    parser.add_argument("--only", nargs="+", help="contestants whose name contains one of these")
    parser.add_argument(
        "--kinds",
        nargs="+",
        help="beginnings of fit, fit-one-thread, evaluate, limit, memory, evidence_at",
    )
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for a measurement")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    return parser.parse_args()


def wanted(job: Job, given: argparse.Namespace) -> bool:
    """Whether the arguments ask for this job."""
    by_kind = given.kinds is None or any(job.kind.startswith(kind) for kind in given.kinds)
    return by_kind and (given.only is None or any(part in job.contestant.name for part in given.only))


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # which ends the child too
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "measurements.jsonl"
    if given.fresh:
        path.unlink(missing_ok=True)
    store = Store(path)
    if not given.report_only:
        for job in jobs(given.sizes, given.repeats):
            if wanted(job, given):
                run(job, store, given.limit)
        for job in cross_jobs(optima(store)):
            if wanted(job, given):
                run(job, store, given.limit)
        import_times(store)
    report.write(store)


if __name__ == "__main__":
    main()
