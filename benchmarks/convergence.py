"""Does inference converge, and at what cost? All six data sets, twenty kernels, three likelihoods.

Prints, for every method and likelihood, how many of the 120 settings converged to 1e-8 from a cold
start, and the factorisations that took. Also checks that the two schedules of PL agree, and
those of CL.

With ``--joint``: fifty random data sets of three to ten classes, each with a kernel drawn at random,
for softmax over all classes at a time by PL and Laplace.
"""

import argparse
import warnings
from itertools import product

import numpy as np
from joblib import Parallel, delayed
from scipy.spatial.distance import pdist, squareform
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import ConvergenceWarning, GPClassifier, infer
from postlin.datasets import NAMES, load, whiten

VARIANCES = (1e-2, 1.0, 1e2, 1e4)
LENGTH_SCALES = (0.1, 0.5, 2.0, 8.0, 30.0)
LIKELIHOODS = ("probit", "logit", "noisy_threshold")
METHODS = {
    "PPL": ("pl", "parallel"),
    "SPL": ("pl", "sequential"),
    "PCL": ("cl", "parallel"),
    "SCL": ("cl", "sequential"),
    "PEP": ("ep", "parallel"),
    "SEP": ("ep", "sequential"),
    "L": ("laplace", "parallel"),
}


def solve(name, variance, length_scale, likelihood, methods):
    """Run the methods on one setting: {method: (converged, factorisations, sites, m, v)}."""
    bunch = load(name)
    y = np.where(bunch.y == np.unique(bunch.y)[1], 1.0, -1.0)
    squared = squareform(pdist(whiten(bunch.X), "sqeuclidean"))
    K = variance * np.exp(-0.5 * squared / length_scale**2) + 0.1 * np.eye(len(y))
    results = {}
    for method in methods:
        inference, schedule = METHODS[method]
        if inference == "laplace" and likelihood == "noisy_threshold":
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no warning but ours
            warnings.simplefilter("ignore", ConvergenceWarning)
            r = infer(K, y, likelihood=likelihood, inference=inference, schedule=schedule)
        assert np.isfinite(r.log_evidence)
        assert np.isfinite(r.mean).all()
        results[method] = r.converged, r.n_factorisations, r.sites, r.mean, r.variance
    return likelihood, results


def schedules_differ_by(results, rule):
    """The largest difference of the sites of two schedules, in units of the marginal."""
    parallel, sequential = results["P" + rule], results["S" + rule]
    if not (parallel[0] and sequential[0]):
        return 0.0
    (_, _, one, m, v), (_, _, other, _, _) = parallel, sequential
    d_tau, d_nu = other.tau - one.tau, other.nu - one.nu
    return max(np.abs(d_tau * v).max(), np.abs((d_nu - m * d_tau) * np.sqrt(v)).max())


def solve_jointly(seed, rule):
    """One random setting: (converged, flagged, factorisations, all numbers finite)."""
    rng = np.random.default_rng(seed)
    C, n, d = int(rng.integers(3, 11)), int(rng.integers(30, 121)), int(rng.integers(1, 6))
    X = rng.normal(size=(n, d))
    noise = rng.gumbel(size=(n, C)) * rng.uniform(0, 2)
    y = np.argmax(X @ rng.normal(size=(d, C)) + noise, axis=1)
    y[:C] = np.arange(C)
    kernel = ConstantKernel(10.0 ** rng.uniform(-2, 4)) * RBF(10.0 ** rng.uniform(-1, 1))
    if rng.random() < 0.5:
        kernel += WhiteKernel(10.0 ** rng.uniform(-3, 0))
    model = GPClassifier(kernel, multi_class="joint", inference=rule, optimizer=None)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        value, slope = model.fit(X, y).log_marginal_likelihood(eval_gradient=True)
        p = model.predict_proba(rng.normal(size=(50, d)))
    strange = [w for w in said if not issubclass(w.category, ConvergenceWarning)]
    assert not strange, strange[0].message
    finite = np.isfinite(value) and np.isfinite(slope).all() and np.isfinite(p).all()
    return model.converged_, bool(said), model.base_estimator_.record.n_factorisations, bool(finite)


def joint(settings, jobs):
    """The table for all classes at a time."""
    head = ("method", "settings", "converged", "flagged", "neither", "not finite", "median", "most")
    print(("{:9s}" + "{:>11s}" * 7).format(*head))
    for rule in ("pl", "laplace"):
        outcomes = Parallel(n_jobs=jobs)(delayed(solve_jointly)(k, rule) for k in range(settings))
        converged, flagged, counts, finite = (
            np.array(column) for column in zip(*outcomes, strict=True)
        )
        neither = int(np.sum(~converged & ~flagged))
        row = (settings, converged.sum(), flagged.sum(), neither, np.sum(~finite))
        print(f"{rule:9s}" + "".join(f"{x:11d}" for x in row), end="")
        print(f"{np.median(counts):11.1f}{counts.max():11d}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--joint", action="store_true", help="softmax over all classes at a time")
    parser.add_argument("--settings", type=int, default=50, help="with --joint: how many")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"some of {','.join(METHODS)}")
    parser.add_argument("--data", default=",".join(NAMES))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.joint:
        joint(arguments.settings, arguments.jobs)
        return
    methods = arguments.methods.split(",")
    settings = product(arguments.data.split(","), VARIANCES, LENGTH_SCALES, LIKELIHOODS)
    outcomes = Parallel(n_jobs=arguments.jobs)(delayed(solve)(*s, methods) for s in settings)
    print(f"{'method':7s}{'likelihood':17s}{'converged':>11s}{'median':>8s}{'90 %':>6s}{'most':>6s}")
    print(f"{'':24s}{'to 1e-8':>11s}   factorisations")
    for method, likelihood in product(methods, LIKELIHOODS):
        rows = [r[method] for kind, r in outcomes if kind == likelihood and method in r]
        if not rows:
            continue
        converged = sum(row[0] for row in rows)
        counts = np.array([row[1] for row in rows])
        print(
            f"{method:7s}{likelihood:17s}{converged:6d}/{len(rows):d}{np.median(counts):8.1f}"
            f"{np.percentile(counts, 90):6.0f}{counts.max():6d}"
        )
    for rule in ("PL", "CL"):
        if {"P" + rule, "S" + rule} <= set(methods):
            worst = max(schedules_differ_by(r, rule) for _, r in outcomes)
            print(f"largest difference between the sites of P{rule} and S{rule}: {worst:.1e}")


if __name__ == "__main__":
    main()
