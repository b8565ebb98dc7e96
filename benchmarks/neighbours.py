"""Search for neighbours on Covertype: time, recall and memory of libraries for approximate search.

    python benchmarks/neighbours.py [--methods ...] [--rows 100000] [--queries 5000] [--metrics ...]
    python benchmarks/neighbours.py --methods IVF usearch --rows 581012 --queries 58101

It runs in an environment that has postlin and requirements-neighbours.txt; a library that is not
installed is left out. A tenth of the rows, drawn with a fixed seed, are the queries, of which the first
``--queries`` are searched for; features are standardised by the others. In the metric "learned" a third
of the length scales is 0.2, another third 5, as learning makes them. Recall is measured on 1,000
queries against exact search in double precision: the share of the k rows found that are no farther
than the true k-th. CPU seconds stand beside wall seconds, because other jobs may use the same cores.
Every measurement is made in a process of its own and stored as it ends, in benchmarks/.store. Memory
is what the process gains from the arrays of rows and queries to its peak.

``--same`` asks instead whether two builds with one seed, on one thread and on two, find the same rows.
The tables are benchmarks/neighbours.md.
"""

import argparse
import ctypes
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from covertype import FOLDER, HERE, _machine, table
from measures import _peak
from store import Store

PAGE = HERE / "neighbours.md"
#: Neighbours of a query, and queries whose recall is measured.
K, SAMPLE = 64, 1000
#: All queries: a tenth of Covertype.
QUERIES = 58_101
SEED = 0


class Settings(NamedTuple):
    """What is measured; the key of a measurement."""

    method: str
    metric: str
    rows: int
    queries: int
    threads: int


class Index(NamedTuple):
    """A method: how it builds an index, and how it finds k neighbours."""

    build: Callable[[np.ndarray, int], Any]  # of rows and threads
    query: Callable[[Any, np.ndarray, int], np.ndarray]  # of the index, queries and k


def data(at: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Rows and queries in float32, divided by the length scales."""
    X = table()[0]
    order = np.random.default_rng(SEED).permutation(len(X))[: at.rows]
    X = X[order].astype(np.float64)
    n = len(X) // 10
    mean, scale = X[n:].mean(axis=0), X[n:].std(axis=0)
    X = (X - mean) / np.where(scale > 0, scale, 1.0)
    if at.metric == "learned":
        X /= np.random.default_rng(1).permutation(np.resize([0.2, 1.0, 5.0], X.shape[1]))
    X = X.astype(np.float32)
    return X[n:].copy(), X[: min(n, at.queries)].copy()


def _scikit(algorithm: str) -> Index:
    def build(X: np.ndarray, threads: int) -> Any:
        from sklearn.neighbors import NearestNeighbors

        return NearestNeighbors(n_neighbors=K, algorithm=algorithm, n_jobs=threads).fit(X)

    return Index(build, lambda index, Q, k: index.kneighbors(Q, k, return_distance=False))


def _lists(n: int) -> int:
    """Of an inverted file: a few hundred rows each."""
    return int(2 ** np.round(np.log2(2 * np.sqrt(n))))


def _ivf(probes: int) -> Index:
    def build(X: np.ndarray, threads: int) -> Any:
        import faiss

        faiss.omp_set_num_threads(threads)
        lists = _lists(len(X))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(X.shape[1]), X.shape[1], lists)
        index.cp.seed, index.cp.niter, index.cp.max_points_per_centroid = SEED + 1, 10, 64
        index.train(X[np.random.default_rng(SEED).permutation(len(X))[: 64 * lists]])
        index.add(X)
        index.nprobe = probes
        return index

    return Index(build, lambda index, Q, k: index.search(Q, k)[1])


def _faiss_flat() -> Index:
    def build(X: np.ndarray, threads: int) -> Any:
        import faiss

        faiss.omp_set_num_threads(threads)
        index = faiss.IndexFlatL2(X.shape[1])
        index.add(X)
        return index

    return Index(build, lambda index, Q, k: index.search(Q, k)[1])


def _faiss_graph(links: int, width: int) -> Index:
    def build(X: np.ndarray, threads: int) -> Any:
        import faiss

        faiss.omp_set_num_threads(threads)
        index = faiss.IndexHNSWFlat(X.shape[1], links)
        index.hnsw.efConstruction, index.hnsw.efSearch = 64, width
        index.add(X)
        return index

    return Index(build, lambda index, Q, k: index.search(Q, k)[1])


def _hnswlib(links: int, width: int) -> Index:
    def build(X: np.ndarray, threads: int) -> Any:
        import hnswlib

        index = hnswlib.Index(space="l2", dim=X.shape[1])
        index.init_index(len(X), ef_construction=64, M=links, random_seed=SEED + 1)
        index.set_num_threads(threads)
        index.add_items(X)
        index.set_ef(width)
        return index

    return Index(build, lambda index, Q, k: index.knn_query(Q, k)[0])


def _usearch(links: int, width: int) -> Index:
    def build(X: np.ndarray, threads: int) -> Any:
        from usearch.index import Index as Graph

        index = Graph(
            ndim=X.shape[1],
            metric="l2sq",
            dtype="f32",
            connectivity=links,
            expansion_add=64,
            expansion_search=width,
        )
        index.add(np.arange(len(X)), X, threads=threads)
        return index, threads

    def query(index: Any, Q: np.ndarray, k: int) -> np.ndarray:
        graph, threads = index
        return np.asarray(graph.search(Q, k, threads=threads).keys).astype(np.int64)

    return Index(build, query)


def _descent(epsilon: float) -> Index:
    def build(X: np.ndarray, threads: int) -> Any:
        from pynndescent import NNDescent

        index = NNDescent(X, n_neighbors=30, random_state=SEED, n_jobs=threads)
        index.prepare()
        return index

    return Index(build, lambda index, Q, k: index.query(Q, k, epsilon=epsilon)[0])


def _postlin() -> Index:
    """The lists of faiss with as many probes as a recall of 0.99 needs, and distances in doubles."""

    def build(X: np.ndarray, threads: int) -> Any:
        from postlin.streaming.neighbours import Neighbours

        return Neighbours.of(X, np.ones(X.shape[1]), exact=False, k=K, n_jobs=threads)

    return Index(build, lambda index, Q, k: index.query(Q, k).indices)


#: By the name of the table; the module that each needs comes first.
METHODS: dict[str, tuple[str, Index]] = {
    "scikit-learn, brute force": ("sklearn", _scikit("brute")),
    "scikit-learn, KD-tree": ("sklearn", _scikit("kd_tree")),
    "scikit-learn, ball tree": ("sklearn", _scikit("ball_tree")),
    "faiss, flat": ("faiss", _faiss_flat()),
    "faiss, IVF, 8 probes": ("faiss", _ivf(8)),
    "faiss, IVF, 16 probes": ("faiss", _ivf(16)),
    "faiss, IVF, 32 probes": ("faiss", _ivf(32)),
    "faiss, HNSW 16, 128": ("faiss", _faiss_graph(16, 128)),
    "hnswlib 16, 128": ("hnswlib", _hnswlib(16, 128)),
    "usearch 16, 128": ("usearch", _usearch(16, 128)),
    "usearch 16, 256": ("usearch", _usearch(16, 256)),
    "pynndescent, ε = 0.1": ("pynndescent", _descent(0.1)),
    "postlin, by faiss": ("faiss", _postlin()),
}


def _timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """A result, wall seconds and CPU seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    return work(), time.perf_counter() - wall, time.process_time() - cpu


def recall(X: np.ndarray, Q: np.ndarray, found: np.ndarray) -> float:
    """The share of found rows that are no farther than the true k-th, in double precision."""
    from scipy.spatial.distance import cdist

    hits, rows = 0, X.astype(np.float64)
    for q, row in zip(Q.astype(np.float64), found, strict=True):
        far = cdist(q[None], rows, "sqeuclidean")[0]
        row = np.unique(row[(row >= 0) & (row < len(X))])
        hits += int(np.sum(far[row] <= np.partition(far, K - 1)[K - 1] * (1 + 1e-5) + 1e-9))
    return hits / (K * len(Q))


def measure(at: Settings) -> dict[str, Any]:
    """Build and search, in a process of its own."""
    X, Q = data(at)
    module, method = METHODS[at.method]
    __import__(module)
    if module == "pynndescent":  # its code is compiled at first use
        method.query(method.build(X[:2000], at.threads), Q[:10], K)

    def work() -> tuple[Any, Any]:
        built = _timed(lambda: method.build(X, at.threads))
        return built, _timed(lambda: method.query(built[0], Q, K))

    if sys.platform == "linux":  # or else memory that was used before would not count
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    (built, searched), peak = _peak(work)
    return {
        "build": built[1:],
        "query": [seconds * QUERIES / len(Q) for seconds in searched[1:]],
        "recall": recall(X, Q[:SAMPLE], searched[0][:SAMPLE]),
        "peak_gib": peak / 2**30,
        "machine": _machine(),
    }


def same(at: Settings) -> dict[str, Any]:
    """Whether builds on one thread and on two find the same rows, two builds each."""
    X, Q = data(at)
    _, method = METHODS[at.method]
    found = [method.query(method.build(X, threads), Q, K) for threads in (1, 1, 2, 2)]
    return {
        "one": bool((found[0] == found[1]).all()),
        "two": bool((found[2] == found[3]).all()),
        "both": bool((found[0] == found[2]).all()),
    }


def _in_process(work: Callable[[Settings], dict[str, Any]], at: Settings) -> dict[str, Any]:
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(at.threads)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, at).result()


def line(record: dict[str, Any]) -> str:
    """A row of the table."""
    at, found = Settings(*record["key"]), record["figures"]
    build, query = found["build"], found["query"]
    return (
        f"| {at.method} | {at.rows:,} | {at.metric} | {build[0]:.1f} | {build[1]:.1f} "
        f"| {query[0]:.1f} | {query[1]:.1f} | {found['recall']:.4f} | {found['peak_gib']:.2f} |"
    )


#: What a measurement does not show, as of the versions in requirements-neighbours.txt.
LIBRARIES = """
| library | licence | installation on Linux, x86-64 |
| --- | --- | --- |
| scikit-learn | BSD-3-Clause | is there |
| faiss-cpu 1.15.1 | MIT | wheel of 19 MB, one for all Python versions |
| hnswlib 0.8.0 | Apache-2.0 | source only: needs a C++ compiler |
| usearch 2.26.6 | Apache-2.0 | wheel of 2 MB a Python version; numkong, 46 MB installed |
| pynndescent 0.7.0 | BSD-2-Clause | wheel of 0.1 MB; numba and llvmlite, 64 MB of wheels; compiles |

None of them can change the metric of an index: it is built again when the length scales have moved.

The choice is faiss with inverted lists: the highest recall, the shortest time to build, and the same
result on any number of threads. Graphs were built with 16 links and width 64 only.
"""


def page(records: list[dict[str, Any]], alike: list[dict[str, Any]]) -> str:
    """Both tables, in Markdown."""
    machines = sorted({record["figures"]["machine"] for record in records})
    counts = [f"{n:,}" for n in sorted({record["key"][3] for record in records})]
    order = list(METHODS)
    records = sorted(
        records, key=lambda r: (r["key"][2], r["key"][1] == "learned", order.index(r["key"][0]))
    )
    yes = {True: "yes", False: "no"}
    lines = [
        f"# Search for {K} neighbours on Covertype",
        "",
        "`benchmarks/neighbours.py` writes this page and describes the protocol. Times of queries are "
        f"scaled to {QUERIES:,} from {' or '.join(counts)}; a tenth of the rows named are the queries. "
        f"Two threads on {'; '.join(machines)}, shared with other jobs, so that CPU seconds tell more "
        "than wall seconds; repeated, CPU seconds agreed to within a factor of two.",
        "",
        "| method | rows | metric | build, s | CPU s | query, s | CPU s | recall | peak GiB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(line, records),
        "",
        "The same rows found by two builds with one seed:",
        "",
        "| method | one thread | two threads | one and two |",
        "| --- | --- | --- | --- |",
    ]
    for record in sorted(alike, key=lambda r: order.index(r["key"][0])):
        answers = (yes[record["figures"][name]] for name in ("one", "two", "both"))
        lines.append(f"| {record['key'][0]} | {' | '.join(answers)} |")
    return "\n".join(lines) + "\n" + LIBRARIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=[""], help="whose names contain one of these")
    parser.add_argument("--metrics", nargs="+", default=["standardised", "learned"])
    parser.add_argument("--rows", type=int, default=100_000, help="so many, drawn at random")
    parser.add_argument("--queries", type=int, default=5000, help="so many, scaled up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--same", action="store_true", help="compare builds on one thread and on two")
    given = parser.parse_args()
    table()
    kind = "neighbours-same" if given.same else "neighbours"
    store = Store(FOLDER / f"{kind}.jsonl")
    for name in [name for name in METHODS if any(part in name for part in given.methods)]:
        if not find_spec(METHODS[name][0]):
            continue
        for metric in given.metrics[:1] if given.same else given.metrics:
            at = Settings(name, metric, given.rows, given.queries, given.threads)
            if store.get(list(at)) is None:
                figures = _in_process(same if given.same else measure, at)
                store.add({"key": list(at), "figures": figures})
            record = store.get(list(at))
            assert record is not None
            print(record["figures"] | {"method": name} if given.same else line(record), flush=True)
    tables = [Store(FOLDER / f"{kind}.jsonl").all() for kind in ("neighbours", "neighbours-same")]
    PAGE.write_text(page(*tables), encoding="utf-8")


if __name__ == "__main__":
    main()
