"""Fits with one BLAS thread beside scikit-learn, GPBoost and another version of postlin, in turns.

    make bench-one-thread                                # writes benchmarks/onethread.md
    .venv-bench/bin/python benchmarks/onethread.py --old ../old/src --sets electricity --sizes 2000

Every contestant lives in a process of its own with one thread, so that imports are not counted. In each
repeat every contestant makes one fit, and the order turns. All have the same kernel, 10 RBF(√d) with
white noise of 0.1 that is fixed, and the same bounds where they know bounds; what else differs between
the libraries is in benchmarks/results.md. Searches in groups of rows were made with electricity,
weather, protein and spam in sight; phoneme, magic, titanic (which repeats its rows) and segment had
no part in that. The first rows of electricity are a time series; of the sets
of KEEL random rows are taken. Constant features are left out, the others standardised. Seconds are
medians of CPU time; a fit of more than half a minute is made once.

postlin's evidence is also computed where the others end; what its own optimum misses there is in the
column "evidence missing".
"""

import argparse
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent
PAGE = HERE / "onethread.md"
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
VARIANCE, NOISE = 10.0, 0.1
#: A fit that takes longer than this is made once.
SLOW = 30.0
#: The largest share of a peer's time that is asked for, from this number of rows on.
SHARES = {
    "scikit-learn": {0: 0.6, 500: 0.4, 1000: 0.35},
    "GPBoost": {0: 1.2, 500: 0.8, 1000: 0.5},
    "old": {2000: 0.55},
}
#: Evidence that may be missing, and the growth exponent from 1,000 to 4,000 rows that is allowed.
MISSING, EXPONENT = 1e-3, 2.8


class Problem(NamedTuple):
    """So many rows of a set."""

    name: str
    n: int


PAPER = [Problem("crab", 200), Problem("ionosphere", 351), Problem("breast_cancer", 699)]
LARGE = ("electricity", "protein", "weather")
MANY = ("segment",)  # sets of many classes, on which GPBoost has no classifier
PROBLEMS = [
    *PAPER,
    *(Problem("electricity", n) for n in (250, 500, 1000, 2000, 4000)),
    *(Problem(name, n) for name in ("protein", "weather") for n in (1000, 2000, 4000)),
    *(Problem(name, n) for name in ("phoneme", "magic") for n in (1000, 2000)),
    Problem("spam", 1000),
    Problem("titanic", 2000),
    Problem("segment", 500),
]


def rows(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features and labels."""
    if problem in PAPER:
        from postlin.datasets import load, whiten

        bunch = load(problem.name)
        return whiten(bunch.X), np.unique(bunch.y, return_inverse=True)[1]
    X, y = _table(problem.name)
    X, y = X[: problem.n], y[: problem.n]
    X = X[:, np.ptp(X, axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def _table(name: str) -> tuple[np.ndarray, np.ndarray]:
    from largedata import KEEL, _member, table

    if name in LARGE:
        return table(name)
    member = {"spam": "spambase"}.get(name, name)
    file = io.BytesIO(_member(KEEL, f"/balanced/raw/{member}.dat"))
    values = np.loadtxt(file, delimiter=",", dtype=str)
    values = values[np.random.default_rng(0).permutation(len(values))]
    return values[:, :-1].astype(float), np.unique(values[:, -1], return_inverse=True)[1]


def write(problem: Problem) -> Path:
    """The file of a problem."""
    path = HERE / ".store" / f"onethread-{problem.name}-{problem.n}.npz"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        X, y = rows(problem)
        np.savez(path, X=X, y=y)
    return path


def _kernel(X: np.ndarray) -> Any:
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    length = np.sqrt(X.shape[1])
    rbf = RBF(length, (1e-5 * length, 1e5 * length))
    return ConstantKernel(VARIANCE, (1e-5, 1e10)) * rbf + WhiteKernel(NOISE, "fixed")


def _theta(kernel: Any) -> list[float]:
    """(log σ², log ℓ) of the kernel of two classes."""
    return [float(t) for t in kernel.theta[:2]]


def fit_postlin(X: np.ndarray, y: np.ndarray) -> dict:
    """PL, probit, parallel: the defaults."""
    from postlin import GPClassifier

    model = GPClassifier(_kernel(X)).fit(X, y)
    if len(model.classes_) > 2:
        return {"converged": bool(model.converged_)}
    return {
        "evidence": float(model.log_marginal_likelihood_value_),
        "theta": _theta(model.kernel_),
        "evaluations": len(model.evidence_path_),
        "converged": bool(model.converged_),
    }


def fit_sklearn(X: np.ndarray, y: np.ndarray) -> dict:
    """Laplace, logit."""
    from sklearn.gaussian_process import GaussianProcessClassifier

    model = GaussianProcessClassifier(_kernel(X)).fit(X, y)
    return {} if len(model.classes_) > 2 else {"theta": _theta(model.kernel_)}


def fit_gpboost(X: np.ndarray, y: np.ndarray) -> dict:
    """Laplace, probit; the white noise is folded into the likelihood (see benchmarks/results.md)."""
    import gpboost

    model = gpboost.GPModel(gp_coords=X, cov_function="gaussian", likelihood="bernoulli_probit")
    start = np.array([VARIANCE / (1.0 + NOISE), np.sqrt(2.0 * X.shape[1])])
    model.fit(y=y.astype(float), params={"init_cov_pars": start})
    variance, range_ = np.asarray(model.get_cov_pars(format_pandas=False), float).ravel()
    return {"theta": [float(np.log(variance * (1.0 + NOISE))), float(np.log(range_ / np.sqrt(2.0)))]}


def evidence(X: np.ndarray, y: np.ndarray, theta: list[float]) -> float:
    """postlin's log evidence at (log σ², log ℓ)."""
    from postlin import GPClassifier

    kernel = _kernel(X).clone_with_theta(theta)
    model = GPClassifier(kernel, optimizer=None).fit(X, y)
    return float(model.log_marginal_likelihood_value_)


FITS = {"postlin": fit_postlin, "old": fit_postlin, "scikit-learn": fit_sklearn, "GPBoost": fit_gpboost}


def _timed(fit: Callable[[np.ndarray, np.ndarray], dict], X: np.ndarray, y: np.ndarray) -> dict:
    """What a fit returns, with its seconds; watching the memory takes as long as a small fit."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = fit(X, y)
    return found | {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def serve(name: str) -> None:
    """Answer each job, a line of JSON, by a line of JSON."""
    from measures import _peak  # the high-water mark of resident memory above where it stood

    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints
    for line in sys.stdin:
        job = json.loads(line)
        data = np.load(job["data"])
        X, y = data["X"], data["y"]
        if "theta" in job:
            answer = {"evidence": evidence(X, y, job["theta"])}
        else:
            answer, peak = _peak(lambda X=X, y=y: _timed(FITS[name], X, y))
            answer["peak"] = peak
        print(json.dumps(answer), file=answers, flush=True)


class Contestant:
    """A process that fits."""

    def __init__(self, name: str, source: str | None = None) -> None:
        self.name = name
        path = {"PYTHONPATH": str(Path(source).resolve())} if source else {}
        self._child = subprocess.Popen(
            [sys.executable, __file__, "--child", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | ONE_THREAD | path,
        )

    def ask(self, **job: object) -> dict:
        """The answer to a job."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(job) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended on {job}.")
        return dict(json.loads(line))

    def end(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.wait()


Figures = dict[tuple[Problem, str], dict]


def measure(
    problems: list[Problem], contestants: list[Contestant], repeats: int, peers_to: int
) -> Iterator[tuple[Problem, dict[str, dict]]]:
    """Each problem with the figures of all contestants that fit it."""
    judge = contestants[0]
    for problem in problems:
        data = str(write(problem))
        here = [c for c in contestants if _fits(c.name, problem, peers_to)]
        figures = {name: _middle(answers) for name, answers in _in_turns(here, data, repeats).items()}
        for figure in figures.values():
            if "theta" in figure:
                figure["judged"] = judge.ask(data=data, theta=figure["theta"])["evidence"]
        yield problem, figures


def _fits(name: str, problem: Problem, peers_to: int) -> bool:
    ours = name in ("postlin", "old")
    return ours or (problem.n <= peers_to and not (name == "GPBoost" and problem.name in MANY))


def _in_turns(contestants: list[Contestant], data: str, repeats: int) -> dict[str, list[dict]]:
    """The answers of each contestant, the first of which warms caches up where a fit is short."""
    found: dict[str, list[dict]] = {c.name: [] for c in contestants}
    for k in range(repeats + 1):
        turn = k % len(contestants)
        for c in contestants[turn:] + contestants[:turn]:
            answers = found[c.name]
            if not answers or answers[0]["cpu"] < SLOW:
                answers.append(c.ask(data=data))
    return found


def _middle(answers: list[dict]) -> dict:
    """Medians of the seconds without the first, and the highest peak."""
    later = answers[1:] or answers
    seconds = {key: float(np.median([a[key] for a in later])) for key in ("cpu", "wall")}
    return answers[0] | seconds | {"peak": max(a["peak"] for a in answers)}


def target(name: str, n: int) -> float | None:
    """The share of a contestant's time that is asked for at n rows."""
    limits = [share for least, share in SHARES[name].items() if n >= least]
    return limits[-1] if limits else None


def row(problem: Problem, figures: dict[str, dict], names: list[str], *, judged: bool) -> list[str]:
    """The line of a problem in the table, ``judged`` by what is asked for or without that."""
    ours = figures["postlin"]
    cells = [f"{problem.name} {problem.n}", f"{ours['cpu']:.3g} ({ours['wall']:.3g})"]
    for name in names[1:]:
        if name not in figures:
            cells.append("–")
            continue
        theirs = figures[name]
        ratio, limit = ours["cpu"] / theirs["cpu"], target(name, problem.n) if judged else None
        verdict = "" if limit is None else f" ≤ {limit:g} " + ("pass" if ratio <= limit else "FAIL")
        cells.append(f"{theirs['cpu']:.3g} ({theirs['wall']:.3g}): {ratio:.2f}{verdict}")
    reached = [f["judged"] for f in figures.values() if "judged" in f]
    if not reached:
        return [*cells, "–", f"{ours['peak'] / 2**20:.0f}"]
    missing = max(reached) - ours["judged"]
    cells.append(f"{missing:.1e}" + " FAIL" * (judged and missing > MISSING))
    peaks = [f"{figures[name]['peak'] / 2**20:.0f}" for name in ("postlin", "old") if name in figures]
    return [*cells, " / ".join(peaks)]


def exponents(figures: Figures, names: list[str], *, judged: bool) -> list[str]:
    """How CPU seconds grow from the first to the last number of rows of a set, as powers of n."""
    lines = []
    for name in names:
        for data in LARGE:
            sizes = sorted(p.n for p, who in figures if who == name and p.name == data and p.n >= 1000)
            if len(sizes) < 2:
                continue
            low, high = sizes[0], sizes[-1]
            times = [figures[Problem(data, n), name]["cpu"] for n in (low, high)]
            power = np.log(times[1] / times[0]) / np.log(high / low)
            verdict = ""
            if judged and name == "postlin" and (low, high) == (1000, 4000):
                verdict = f" ≤ {EXPONENT} " + ("pass" if power <= EXPONENT else "FAIL")
            lines.append(f"- {name}, {data}, {low} to {high} rows: n^{power:.2f}{verdict}")
    return lines


def _line(cells: list[str]) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", help="the contestant that this process is")
    parser.add_argument("--new", help="the folder src of postlin; the one installed if not given")
    parser.add_argument("--old", help="the folder src of another version of postlin")
    parser.add_argument("--sets", nargs="+", help="names of data sets; all if not given")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of rows; all if not given")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers-to", type=int, default=2000, help="the most rows of other libraries")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--page", action="store_true", help="write benchmarks/onethread.md")
    given = parser.parse_args()
    if given.child:
        serve(given.child)
        return
    problems = [
        p
        for p in PROBLEMS
        if (given.sets is None or p.name in given.sets) and (given.sizes is None or p.n in given.sizes)
    ]
    names = ["postlin"] + ["old"] * bool(given.old)
    if not given.without_peers:
        names += ["scikit-learn"] + ["GPBoost"] * bool(importlib.util.find_spec("gpboost"))
    sources = {"postlin": given.new, "old": given.old}
    contestants = [Contestant(name, sources.get(name)) for name in names]
    header = ["", "postlin: CPU s (wall)", *(f"{n}: CPU s (wall): ratio" for n in names[1:])]
    header += ["evidence missing", "peak MiB" + " / old" * bool(given.old)]
    lines = [_line(header), _line(["---"] * len(header))]
    print("\n".join(lines), flush=True)
    figures: Figures = {}
    try:
        for problem, found in measure(problems, contestants, given.repeats, given.peers_to):
            figures |= {(problem, name): figure for name, figure in found.items()}
            lines.append(_line(row(problem, found, names, judged=False)))
            print(_line(row(problem, found, names, judged=True)), flush=True)
    finally:
        for contestant in contestants:
            contestant.end()
    print("\n".join(exponents(figures, names, judged=True)))
    if given.page:
        growth = exponents(figures, names, judged=False)
        said = "\n\n".join(part.strip() for part in (__doc__ or "").split("\n\n")[2:])
        PAGE.write_text("\n".join(["# One thread", "", said, "", *lines, "", *growth, ""]))


if __name__ == "__main__":
    main()
