"""Times the fits of two versions of postlin in turns, in one run: CPU and wall seconds, and ratios.

    python benchmarks/turns.py --old ../old/src --new src --repeats 9
    python benchmarks/turns.py --old ../old/src --new src --memory 4000

The data are crab (200 rows), ionosphere (351), breast cancer (699), and random rows for other sizes.
Each version lives in a process of its own, so that imports are not counted; every repeat is one fit by
the old and one by the new version, and which comes first alternates.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

CHILD = r"""
import resource, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
from postlin import GPClassifier
from postlin.datasets import load, whiten

def data(n):
    names = {200: "crab", 351: "ionosphere", 699: "breast_cancer"}
    if n in names:
        bunch = load(names[n])
        return whiten(bunch.X), bunch.y
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=n) > 0

for line in sys.stdin:
    n = int(line)
    X, y = data(n)
    wall, cpu = time.perf_counter(), time.process_time()
    model = GPClassifier().fit(X, y)
    seconds = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    value = model.log_marginal_likelihood_value_
    print(*seconds, peak, repr(float(value)), len(model.evidence_path_), flush=True)
"""


class Version:
    """One version of the package, in a process that waits for jobs: sizes, unless told otherwise."""

    def __init__(self, source: str, program: tuple[str, ...] = ("-c", CHILD)) -> None:
        environment = os.environ | {"PYTHONPATH": str(Path(source).resolve())}
        self.child = subprocess.Popen(
            [sys.executable, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def answer(self, job: str) -> str:
        """The line that the process prints in answer to a line."""
        self.child.stdin.write(f"{job}\n")
        self.child.stdin.flush()
        return self.child.stdout.readline()

    def fit(self, n: int) -> list[float]:
        """CPU seconds, wall seconds, peak MiB of the process, log evidence and evaluations."""
        return [float(x) for x in self.answer(str(n)).split()]

    def end(self) -> None:
        """End the process."""
        self.child.stdin.close()
        self.child.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", default="src")
    parser.add_argument("--sizes", default="200,351,699,2000")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--memory", type=int, help="compare the peak memory of one fit of so many rows")
    arguments = parser.parse_args()
    sources = {"old": arguments.old, "new": arguments.new}
    if arguments.memory:
        for name, source in sources.items():
            version = Version(source)
            print(f"{name}: peak {version.fit(arguments.memory)[2]:.0f} MiB at n = {arguments.memory}")
            version.end()
        return
    versions = {name: Version(source) for name, source in sources.items()}
    head = (
        "n",
        "CPU, old",
        "CPU, new",
        "ratio",
        "wall, old",
        "wall, new",
        "ratio",
        "evidence differs by",
    )
    print("".join(f"{h:>11s}" for h in head))
    for n in map(int, arguments.sizes.split(",")):
        for version in versions.values():
            version.fit(n)  # a first one that warms caches up
        rows = {name: [] for name in versions}
        for k in range(arguments.repeats):
            for name in sorted(versions, reverse=bool(k % 2)):
                rows[name].append(versions[name].fit(n))
        old, new = (np.median(np.array(rows[name]), axis=0) for name in ("old", "new"))
        numbers = [old[0], new[0], new[0] / old[0], old[1], new[1], new[1] / old[1]]
        print(
            f"{n:11d}" + "".join(f"{x:11.4f}" for x in numbers) + f"{abs(old[3] - new[3]):15.1e}",
            flush=True,
        )
    for version in versions.values():
        version.end()


if __name__ == "__main__":
    main()
