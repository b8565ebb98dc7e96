"""What to use when: time and memory of a fit at fixed hyperparameters against the number of rows.

    python benchmarks/scale.py [--most 10000000]

Exact inference on the CPU, inducing points (m = 256) in threads, the same on two Dask workers of this
machine, and 64 neighbours, every fit in a process of its own, on the data of the other benchmarks
(d = 8). Neighbours do most of their work when they predict, so 10,000 predictions are part of their
time; figures of the GPU are read from benchmarks/gpu.md. Fits are kept in benchmarks/.store as they
end; the picture is docs/images/scale.svg, the table benchmarks/scale.md. Memory is what a fit adds to
its process, or to Dask's workers; a fit that needs no more than loading the labels has none.
"""

import argparse
import multiprocessing
import os
import platform
import re
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from problems import synthetic
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from store import Store

from postlin import GPClassifier

HERE = Path(__file__).parent
PAGE, PICTURE = HERE / "scale.md", HERE.parent / "docs" / "images" / "scale.svg"
M = 256
#: Rows of the fits.
EXACT = (500, 1000, 2000, 4000, 8000)
SPARSE = (4_000, 20_000, 100_000, 1_000_000, 10_000_000)
LOCAL = (10_000, 100_000, 1_000_000, 10_000_000)
ON_DASK = (20_000, 100_000, 1_000_000)
METHODS = ("exact, CPU", "exact, GPU", "inducing points", "inducing points on Dask", "64 neighbours")
K, PREDICTED = 64, 10_000
#: Memory in GiB below this is none.
LEAST = 0.005


def _model(**parameters: int) -> GPClassifier:
    kernel = 30.0 * RBF(3.7) + WhiteKernel(0.1)
    return GPClassifier(kernel, optimizer=None, random_state=0, **parameters)


def _resident() -> float:
    """The most memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _maps(n: int, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels as memory maps."""
    for name, values in zip("Xy", synthetic(n), strict=True):
        np.save(f"{folder}/{name}.npy", values)
    return np.load(f"{folder}/X.npy", mmap_mode="r"), np.load(f"{folder}/y.npy")


def alone(n: int, predicted: int = 0, **parameters: int) -> dict[str, float]:
    """A fit in this process, with predictions of so many new rows."""
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(_maps, n, folder).result()  # memory that making them takes is not the fit's
        X = np.load(f"{folder}/X.npy", mmap_mode="r")
        y = np.load(f"{folder}/y.npy")
        few = {name: min(value, 20) for name, value in parameters.items()}
        _model(**few).fit(X[:300], y[:300]).predict_proba(X[:9])  # what libraries take once
        new = synthetic(predicted, seed=1)[0]
        before, began, cpu = _resident(), time.perf_counter(), time.process_time()
        model = _model(**parameters).fit(X, y)
        assert model.converged_
        if len(new):
            model.predict_proba(new)
        seconds = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
        return seconds | {"gib": _resident() - before}


def on_dask(n: int, inducing: int) -> dict[str, float]:
    """A fit on two workers of this machine."""
    from distributed import Client, LocalCluster
    from joblib import parallel_config

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        X, y = _maps(n, folder)
        client.run(os.getpid)
        before, began = sum(client.run(_resident).values()), time.perf_counter()
        with parallel_config("dask"):
            assert _model(inducing=inducing).fit(X, y).converged_
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "gib": sum(client.run(_resident).values()) - before}


def on_gpu() -> list[tuple[int, dict[str, float]]]:
    """What benchmarks/gpu.md says of fits."""
    line = r"n = (\d+), `fit` without hyperparameters ([\d.]+) s;.* peak ([\d.]+) GB"
    found = re.findall(line, (HERE / "gpu.md").read_text(encoding="utf-8"))
    return [(int(n), {"seconds": float(s), "gib": float(gb) * 1e9 / 2**30}) for n, s, gb in found]


def measured(store: Store, method: str, n: int, measure: Callable[[], dict[str, float]]) -> Any:
    key = [method, n]
    if store.get(key) is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Dask's, about large graphs
            store.add({"key": key, "figures": measure()})
    found = store.get(key)
    assert found is not None
    print(f"{method}, n = {n}: {found['figures']}", flush=True)
    return n, found["figures"]


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def picture(lines: dict[str, list[tuple[int, dict[str, float]]]]) -> None:
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "postlin"
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, what, title in zip(axes, ("seconds", "gib"), ("seconds", "memory, GiB"), strict=True):
        for (method, points), marker in zip(lines.items(), "os^dv", strict=True):
            axis.loglog(
                [n for n, _ in points],
                [figures[what] if figures[what] > LEAST else np.nan for _, figures in points],
                marker=marker,
                label=method,
            )
        axis.set(xlabel="rows", title=title)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(PICTURE, metadata={"Date": None})


def page(lines: dict[str, list[tuple[int, dict[str, float]]]]) -> str:
    found = [
        "# A fit at fixed hyperparameters: time and memory against rows",
        "",
        "`benchmarks/scale.py` writes this page and describes the protocol. The machine has "
        f"{os.cpu_count()} cores, {platform.machine()}; the\nmeasurements on a GPU come from "
        "`benchmarks/gpu.md`.",
        "",
        "| method | rows | seconds | CPU seconds | memory, GiB |",
        "| --- | --- | --- | --- | --- |",
    ]
    for method, points in lines.items():
        for n, figures in points:
            cpu = f"{figures['cpu']:.2f}" if "cpu" in figures else "–"
            memory = f"{figures['gib']:.2f}" if figures["gib"] > LEAST else "–"
            found.append(f"| {method} | {n:,} | {figures['seconds']:.2f} | {cpu} | {memory} |")
    return "\n".join(found) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=10_000_000, help="rows of the largest fit")
    most = parser.parse_args().most
    (HERE / ".store").mkdir(exist_ok=True)
    store = Store(HERE / ".store" / "scale.jsonl")

    def line(method: str, sizes: tuple[int, ...], work: Callable[[int], Any]) -> list[Any]:
        return [measured(store, method, n, lambda n=n: in_process(work, n)) for n in sizes if n <= most]

    lines = {
        METHODS[0]: line(METHODS[0], EXACT, alone),
        METHODS[1]: on_gpu(),
        METHODS[2]: line(METHODS[2], SPARSE, partial(alone, inducing=M)),
        METHODS[3]: line(METHODS[3], ON_DASK, partial(on_dask, inducing=M)),
        METHODS[4]: line(METHODS[4], LOCAL, partial(alone, predicted=PREDICTED, n_neighbors=K)),
    }
    PAGE.write_text(page(lines), encoding="utf-8")
    picture(lines)


if __name__ == "__main__":
    main()
