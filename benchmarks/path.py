"""Prints the path of one fit through the package: every file whose code runs, and the deepest calls.

    python benchmarks/path.py                  # the numbers
    python benchmarks/path.py --files --calls  # with the files and the deepest chain of calls

Each fit is made twice, and the second is counted: what runs once, at import, is no part of a fit.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import postlin
from postlin import GPClassifier
from postlin.datasets import load, whiten

ROOT = str(Path(postlin.__file__).parent)


def path_of(work):
    """The calls into each file of the package, and the deepest chain of calls (file, function)."""
    files, stack, deepest = Counter(), [], []

    def watch(frame, event, argument):
        if not frame.f_code.co_filename.startswith(ROOT):
            return
        if event == "call":
            name = frame.f_code.co_filename[len(ROOT) + 1 :]
            files[name] += 1
            stack.append((frame, name))
            if len(stack) > len(deepest):
                deepest[:] = [(name, f.f_code.co_name) for f, name in stack]
        elif event == "return" and stack and stack[-1][0] is frame:
            stack.pop()

    work()
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return files, deepest


def fits():
    """What is counted, by name: fits with hyperparameters, and inference with its gradient."""
    crab = load("crab")
    X, y = whiten(crab.X), crab.y
    glass = load("glass_types")
    many, kinds = whiten(glass.X)[::3], glass.y[::3]
    K = np.exp(-0.5 * (X[:, :1] - X[:, 0]) ** 2) + 0.1 * np.eye(len(y))
    signs = np.where(y == y[0], 1.0, -1.0)
    return {
        "exact": lambda: GPClassifier().fit(X, y),
        "joint": lambda: GPClassifier(multi_class="joint").fit(many, kinds),
        "sparse": lambda: GPClassifier(inducing=20).fit(X, y),
        "infer": lambda: postlin.infer(K, signs).evidence_gradient(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--calls", action="store_true", help="list the deepest chain of calls")
    arguments = parser.parse_args()
    print(f"{'':8s}{'files':>7s}{'deep':>7s}")
    for name, work in fits().items():
        files, deepest = path_of(work)
        print(f"{name:8s}{len(files):7d}{len(deepest):7d}", flush=True)
        if arguments.files:
            print("".join(f"    {file:40s}{calls:9d} calls\n" for file, calls in sorted(files.items())))
        if arguments.calls:
            print("".join(f"    {file:40s}{function}\n" for file, function in deepest))


if __name__ == "__main__":
    main()
