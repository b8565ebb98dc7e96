"""Covertype: 581,012 rows, class 2 against the rest; error, NLPD and time beside other libraries.

    python benchmarks/covertype.py [--methods ...] [--m 128 256 512] [--rows N] [--ard]

A tenth of the rows, drawn with a fixed seed, is kept for testing; features are standardised by the
others. NLPD is the mean negative log probability of the test labels. Every measurement is made in a
process of its own and stored as it ends, in benchmarks/.store: a run that was stopped goes on from
there, and a fit of postlin that was killed goes on from its checkpoint. The table of all rows is
benchmarks/covertype.md.

GPyTorch is left out where it is not installed: ``make bench`` makes an environment that has it. Its
SVGP starts from the same kernel and from inducing points found in the same way, and takes a stated
number of epochs of Adam, or what it gets done in the seconds given.
"""

import argparse
import hashlib
import io
import multiprocessing
import os
import platform
import re
import resource
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, Kernel, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from store import Store

from postlin import GPClassifier

HERE = Path(__file__).parent
FOLDER = HERE / ".store"
PAGE = HERE / "covertype.md"

#: A source distribution on the package registry that holds the data, and its checksum.
PROJECT, ARCHIVE = "scikit-multiflow", "scikit-multiflow-0.4.1.tar.gz"
SHA256 = "ed4f791107cb7f789f0bb0620c50e743a4d397905146a4d06c62eb98607aa101"
MEMBER = "scikit-multiflow-0.4.1/src/skmultiflow/data/datasets/covtype.csv"
#: Rows of the classes 1 to 7.
COUNTS = [211840, 283301, 35754, 2747, 9493, 17367, 20510]
#: Rows of the coarse search for hyperparameters.
COARSE = 20_000
#: Evaluations of the evidence with which inducing points are learned.
EVALUATIONS = 60
#: Of Adam: rows a step, and rate.
BATCH, RATE = 1024, 0.01


class Split(NamedTuple):
    """Standardised rows, and labels 0 and 1."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Settings(NamedTuple):
    """What is measured; the key of a measurement."""

    method: str
    m: int  # 0 where there are no inducing points
    rows: int
    ard: bool
    epochs: int
    seconds: float


def _fetched(address: str) -> bytes:
    with urllib.request.urlopen(address) as answer:
        content: bytes = answer.read()
    return content


def _address() -> str:
    """Of the archive, on the registry that pip asks; ``pip download`` would build it, and cannot."""
    from pip._internal.models.index import PyPI

    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or configured or PyPI.simple_url
    listing = f"{index.rstrip('/')}/{PROJECT}/"
    found = re.search(rf'href="([^"]*/{re.escape(ARCHIVE)})[#"]', _fetched(listing).decode())
    if found is None:
        raise SystemExit(f"the package registry has no {ARCHIVE}.")
    return urllib.parse.urljoin(listing, found[1])


def table() -> tuple[np.ndarray, np.ndarray]:
    """All rows and their classes, 1 to 7; fetched once."""
    path = FOLDER / "covertype.npz"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        archive = _fetched(_address())
        if hashlib.sha256(archive).hexdigest() != SHA256:
            raise SystemExit(f"{ARCHIVE} is not what it was: its checksum differs.")
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            member = files.extractfile(MEMBER)
            assert member is not None
            values = np.loadtxt(member, delimiter=",", skiprows=1, dtype=np.float32)
        np.savez_compressed(path, X=values[:, :-1], y=values[:, -1].astype(np.int8))
    stored = np.load(path)
    X, y = stored["X"], stored["y"]
    if X.shape != (581_012, 54) or np.bincount(y)[1:].tolist() != COUNTS:
        raise SystemExit(f"{path} does not hold Covertype: remove it, and it is fetched again.")
    return X, y


def split(rows: int) -> Split:
    """A tenth for testing, the rest for training; of so many rows at random."""
    X, y = table()
    order = np.random.default_rng(0).permutation(len(y))[:rows]
    X, y = X[order].astype(np.float64), (y[order] == 2).astype(int)
    n = len(y) // 10
    mean, scale = X[n:].mean(axis=0), X[n:].std(axis=0)
    X = (X - mean) / np.where(scale > 0, scale, 1.0)
    return Split(X[n:], y[n:], X[:n], y[:n])


def _scales(d: int, ard: bool) -> Any:
    """Where length scales start: at the size of standardised data."""
    return np.full(d, np.sqrt(d)) if ard else np.sqrt(d)


def _kernel(data: Split, at: Settings) -> Kernel:
    return 10.0 * RBF(_scales(data.X.shape[1], at.ard)) + WhiteKernel(0.1, "fixed")


def _postlin(data: Split, at: Settings) -> Any:
    model = GPClassifier(
        _kernel(data, at),
        inducing=at.m,
        coarse_rows=COARSE if len(data.y) > 2 * COARSE else None,
        checkpoint=FOLDER / f"covertype-{at.m}-{at.rows}-{at.ard}.npz",
        random_state=0,
        verbose=1,
    )
    return model.fit(data.X, data.y)


def limited(objective: Any, theta: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
    """L-BFGS-B, which for thousands of parameters would go on for long."""
    found = minimize(
        objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": EVALUATIONS}
    )
    return found.x, found.fun


def _postlin_of_few(data: Split, at: Settings, **options: Any) -> Any:
    """Learn from the first rows, which are a sample, and keep that for inference from all."""
    few = slice(0, COARSE)
    first = GPClassifier(_kernel(data, at), inducing=at.m, random_state=0, verbose=1, **options)
    first.fit(data.X[few], data.y[few])
    model = GPClassifier(
        first.kernel_, inducing=first.inducing_points_, optimizer=None, random_state=0, verbose=2
    )
    return model.fit(data.X, data.y)


def _postlin_moved(data: Split, at: Settings) -> Any:
    return _postlin_of_few(data, at, learn_inducing=True, optimizer=limited)


def _logistic(data: Split, at: Settings) -> Any:
    return LogisticRegression(max_iter=1000).fit(data.X, data.y)


def _boosting(data: Split, at: Settings) -> Any:
    return HistGradientBoostingClassifier(random_state=0, max_iter=500).fit(data.X, data.y)


def _svgp(data: Split, at: Settings) -> Any:
    from peers.binary_svgp import BinarySVGP

    scales = _scales(data.X.shape[1], at.ard)
    return BinarySVGP(at.m, scales, at.epochs, at.seconds, BATCH, RATE).fit(data.X, data.y)


METHODS: dict[str, Callable[[Split, Settings], Any]] = {
    "LogisticRegression": _logistic,
    "HistGradientBoostingClassifier": _boosting,
    "postlin": _postlin,
    f"postlin, hyperparameters of {COARSE:,} rows": _postlin_of_few,
    f"postlin, points learned from {COARSE:,} rows": _postlin_moved,
}
if find_spec("gpytorch"):
    METHODS["GPyTorch, SVGP"] = _svgp
#: Those that have inducing points.
SPARSE = tuple(name for name in METHODS if name.startswith(("postlin", "GPyTorch")))


def measure(at: Settings) -> dict[str, Any]:
    """Fit and predict, in a process of its own."""
    data = split(at.rows)
    began = time.perf_counter()
    with warnings.catch_warnings():  # of parameters at their bounds, in either library
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = METHODS[at.method](data, at)
    fitted = time.perf_counter()
    p = model.predict_proba(data.X_test)
    return {
        "error": float(np.mean(p.argmax(axis=1) != data.y_test)),
        "nlpd": float(log_loss(data.y_test, p)),
        "fit_seconds": fitted - began,
        "predict_seconds": time.perf_counter() - fitted,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "about": _about(model),
        "machine": _machine(),
    }


def _machine() -> str:
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{len(os.sched_getaffinity(0))} cores of {models[0] if models else platform.machine()}"


def _about(model: Any) -> str:
    if isinstance(model, GPClassifier):
        state = "converged" if model.converged_ else "not converged"
        searched = len(model.evidence_path_)  # on all rows
        return f"{searched} evaluations, {state}" if searched else state
    return getattr(model, "about", "")


def page(records: list[dict[str, Any]]) -> str:
    """The table, in Markdown."""
    machines = sorted({record["figures"]["machine"] for record in records})
    letters = dict(zip(machines, "abcdefgh", strict=False))
    lines = [
        "# Covertype, class 2 against the rest",
        "",
        "`benchmarks/covertype.py` writes this page and describes the protocol. The column *on* names "
        "the machine: "
        + "; ".join(f"{letter}, {machine}" for machine, letter in letters.items())
        + ".",
        "",
        "| method | m | error | NLPD | fit, s | predict, s | peak GiB | on | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for record in sorted(records, key=lambda r: (r["key"][1] > 0, r["key"][0], r["key"][1])):
        at, found = Settings(*record["key"]), record["figures"]
        name = f"{at.method}{', a scale for every feature' if at.ard else ''}"
        lines.append(
            f"| {name} | {at.m or ''} | {found['error']:.4f} | {found['nlpd']:.4f} "
            f"| {found['fit_seconds']:.0f} | {found['predict_seconds']:.1f} | {found['peak_gib']:.1f} "
            f"| {letters[found['machine']]} | {found['about']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=[""], help="whose names contain one of these")
    parser.add_argument("--m", nargs="+", type=int, default=[128, 256, 512], help="inducing points")
    parser.add_argument("--rows", type=int, default=581_012, help="so many, drawn at random")
    parser.add_argument("--ard", action="store_true", help="a length scale for every feature")
    parser.add_argument("--epochs", type=int, default=20, help="of SVGP")
    parser.add_argument("--seconds", type=float, default=3600.0, help="the most that SVGP may take")
    given = parser.parse_args()
    table()
    store = Store(FOLDER / "covertype.jsonl")
    for method in [name for name in METHODS if any(part in name for part in given.methods)]:
        for m in given.m if method in SPARSE else [0]:
            ard = given.ard and method in SPARSE
            limits = (given.epochs, given.seconds) if "SVGP" in method else (0, 0.0)
            at = Settings(method, m, given.rows, ard, *limits)
            if store.get(list(at)) is None:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                    figures = pool.submit(measure, at).result()
                store.add({"key": list(at), "figures": figures})
            print(page([store.get(list(at))]).splitlines()[-1], flush=True)  # type: ignore[list-item]
    full = [r for r in store.all() if Settings(*r["key"]).rows == 581_012]
    if full:
        PAGE.write_text(page(full), encoding="utf-8")


if __name__ == "__main__":
    main()
