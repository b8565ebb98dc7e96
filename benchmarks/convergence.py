"""Does inference converge, and at what cost? All six data sets, twenty kernels, three likelihoods.

Prints, for every method and likelihood, how many of the 120 settings converged to 1e-8 from a cold
start, and the factorisations that took. Also checks that the two schedules of PL agree.
"""

import argparse
import warnings
from itertools import product

import numpy as np
from joblib import Parallel, delayed
from scipy.spatial.distance import pdist, squareform

from postlin import ConvergenceWarning, infer
from postlin.datasets import NAMES, load, whiten

VARIANCES = (1e-2, 1.0, 1e2, 1e4)
LENGTH_SCALES = (0.1, 0.5, 2.0, 8.0, 30.0)
LIKELIHOODS = ("probit", "logit", "noisy_threshold")
METHODS = {
    "PPL": ("pl", "parallel"),
    "SPL": ("pl", "sequential"),
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


def schedules_differ_by(results):
    """The largest difference of PPL's and SPL's sites, in units of the marginal."""
    if not ("PPL" in results and "SPL" in results and results["PPL"][0] and results["SPL"][0]):
        return 0.0
    (_, _, one, m, v), (_, _, other, _, _) = results["PPL"], results["SPL"]
    d_tau, d_nu = other.tau - one.tau, other.nu - one.nu
    return max(np.abs(d_tau * v).max(), np.abs((d_nu - m * d_tau) * np.sqrt(v)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="some of PPL,SPL,PEP,SEP,L")
    parser.add_argument("--data", default=",".join(NAMES))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
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
    if {"PPL", "SPL"} <= set(methods):
        worst = max(schedules_differ_by(r) for _, r in outcomes)
        print(f"largest difference between the sites of PPL and SPL: {worst:.1e}")


if __name__ == "__main__":
    main()
