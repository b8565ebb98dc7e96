"""How many passes sparse inference takes: a hundred random settings of data, kernel, m and likelihood.

    python benchmarks/sparse_convergence.py [--settings 100] [--seed 0] [--tol 1e-6] [--rule pl]

Every setting draws a data set of the paper, a likelihood, m inducing points by k-means and a kernel:
variance from 0.1 to 10,000, length scale from 0.3 to 10 times the root of the number of features, white
noise from 0.001 to 1. Settings that do not converge within 200 passes are flagged, as to a user.
"""

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import rules
from postlin.datasets import NAMES, load, whiten
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.sparse_model import SparseModel
from postlin.likelihoods import Logit, NoisyThreshold, Probit
from postlin.streaming.views import ArrayRows


class Setting(NamedTuple):
    """One of the hundred."""

    data: str
    likelihood: object
    m: int
    variance: float
    length_scale: float
    noise: float


def settings(count: int, seed: int) -> Iterator[Setting]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        name = str(rng.choice(NAMES))
        d = load(name).X.shape[1]
        likelihood = [Probit(), NoisyThreshold(), Logit()][rng.choice(3, p=[0.4, 0.4, 0.2])]
        yield Setting(
            name,
            likelihood,
            int(rng.integers(8, 160)),
            float(10 ** rng.uniform(-1, 4)),
            float(np.sqrt(d) * 10 ** rng.uniform(-0.5, 1)),
            float(10 ** rng.uniform(-3, 0)),
        )


def run(setting: Setting, rule: rules.Rule, tol: float) -> tuple[object, float]:
    bunch = load(setting.data)
    X, y = whiten(bunch.X), np.where(bunch.y == np.unique(bunch.y)[1], 1.0, -1.0)
    Z = KMeans(setting.m, n_init=1, random_state=0).fit(X).cluster_centers_
    kernel = ConstantKernel(setting.variance) * RBF(setting.length_scale) + WhiteKernel(setting.noise)
    model = SparseModel(ArrayRows(X, y), Z, rule, tol=tol)
    began = time.perf_counter()
    found = model.infer(Hyperparameters(kernel, setting.likelihood))
    return found, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--rule", choices=list(rules.REGISTRY), default="pl")
    options = parser.parse_args()
    print("data            likelihood         m  variance  length  noise  passes  residual  evidence")
    passes: dict[str, list[int]] = {}
    flagged = 0
    for setting in settings(options.settings, options.seed):
        rule = rules.REGISTRY[options.rule]()
        likelihood = setting.likelihood
        if options.rule == "laplace" and not likelihood.differentiable:
            continue
        found, _ = run(setting, rule, options.tol)
        passes.setdefault(likelihood.name, []).append(found.n_iter)
        flagged += not found.converged
        flag = "" if found.converged else "  NOT CONVERGED"
        print(
            f"{setting.data:14s}  {likelihood.name:15s} {setting.m:4d}  {setting.variance:8.3g}  "
            f"{setting.length_scale:6.3g}  {setting.noise:5.2g}  {found.n_iter:6d}  "
            f"{found.residual:8.1e}  {found.log_evidence:9.3f}{flag}",
            flush=True,
        )
    together = [count for counts in passes.values() for count in counts]
    for name, counts in [*passes.items(), ("all", together)]:
        print(
            f"{name}: {len(counts)} settings, passes median {np.median(counts):g}, "
            f"90 % {np.quantile(counts, 0.9):g}, most {max(counts)}"
        )
    print(f"{flagged} of {len(together)} not converged to {options.tol:g}, and flagged")


if __name__ == "__main__":
    main()
