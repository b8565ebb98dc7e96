"""How many local problems are solved a second, by rule and number of neighbours, and how many converge.

Run ``python benchmarks/local.py``; it takes about two minutes on one core. The data are synthetic: a
smooth boundary with label noise (like weather) and a rough one with a large kernel variance (like
electricity). Time is that of the process, so that other load does not matter.
"""

import argparse
import time

import numpy as np
from sklearn.neighbors import NearestNeighbors

from postlin.inference.local.gradient import gradients, log_scores
from postlin.inference.local.problems import LocalProblems
from postlin.inference.local.solver import solve
from postlin.likelihoods import Logit, NoisyThreshold, Probit
from postlin.rules import CL, EP, PL, Laplace

LIKELIHOODS = {"probit": Probit(), "logit": Logit(), "noisy threshold": NoisyThreshold(0.01)}


def labels(X, rng, *, smooth):
    f = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] if smooth else np.sin(6 * X[:, 0]) * np.sign(X[:, 1])
    return np.where(f + (0.8 if smooth else 0.2) * rng.normal(size=len(X)) > 0, 1.0, -1.0)


def problems(kind, k, queries, likelihood, rule):
    """Problems of k neighbours among 20,000 rows."""
    rng, smooth = np.random.default_rng(0), kind == "smooth"
    X = rng.normal(size=(20_000 + queries, 6))
    y = labels(X, rng, smooth=smooth)
    rows, there = X[:-queries], X[-queries:]
    near = NearestNeighbors(n_neighbors=k).fit(rows).kneighbors(there, return_distance=False)
    P = np.concatenate([rows[near], there[:, None]], axis=1)
    squared = np.sum((P[:, :, None] - P[:, None]) ** 2, axis=-1)
    K = 10.0 * np.exp(-squared / 18.0) if smooth else 1e4 * np.exp(-np.sqrt(squared))
    K += 0.1 * np.eye(k + 1)
    return LocalProblems(K, np.zeros((queries, k + 1)), y[near], likelihood, rule), y[-queries:]


def row(kind, k, name, rule):
    queries = max(100, 16_000 // k)
    task, y = problems(kind, k, queries, LIKELIHOODS[name], rule)
    before = time.process_time()
    found = solve(task)
    solved = time.process_time()
    score = log_scores(task.likelihood, y, found.mean[:, -1], found.variance[:, -1])
    gradients(task, found, score.by_mean, score.by_variance)
    end = time.process_time()
    print(
        f"| {kind} | {name} | {rule.name} | {k} | {queries / (solved - before):.0f} | "
        f"{queries / (end - before):.0f} | {found.n_factorisations.mean():.1f} | "
        f"{100 * found.converged.mean():.1f} % |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--k", type=int, nargs="+", default=[16, 32, 64, 128])
    chosen = parser.parse_args()
    print("| data | likelihood | rule | k | a second | with gradient | factorisations | converged |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in ("smooth", "rough"):
        for name in LIKELIHOODS:
            for rule in (PL(), CL(), EP(), Laplace()):
                if name == "noisy threshold" and rule.name == "laplace":
                    continue
                for k in chosen.k:
                    row(kind, k, name, rule)


if __name__ == "__main__":
    main()
