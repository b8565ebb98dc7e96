"""Compares the numbers of two versions of postlin.

Writes the log evidence, its gradient and probabilities of all 360 settings of ``convergence.py`` for
every method, of ten joint and of ten sparse problems to a file, and compares with a file written by
another version:

    PYTHONPATH=old/src python benchmarks/same.py --write old.npz
    python benchmarks/same.py --compare old.npz
"""

import argparse
import warnings
from itertools import product

import numpy as np
from convergence import LENGTH_SCALES, LIKELIHOODS, METHODS, VARIANCES
from joblib import Parallel, delayed
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from postlin import GPClassifier, infer
from postlin.datasets import NAMES, load, whiten

#: Rows that are predicted.
NEW = slice(0, None, 7)


def exact(name, variance, length_scale, likelihood, methods):
    """{key: numbers} of one setting: evidence, two projections of the gradient, probabilities."""
    bunch = load(name)
    X, y = whiten(bunch.X), np.where(bunch.y == np.unique(bunch.y)[1], 1.0, -1.0)
    k = variance * np.exp(-0.5 * cdist(X, X, "sqeuclidean") / length_scale**2)
    cross, K = k[:, NEW] * 0.9, k + 0.1 * np.eye(len(y))
    found = {}
    for method in methods:
        inference, schedule = METHODS[method]
        if (inference, likelihood) == ("laplace", "noisy_threshold"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            r = infer(K, y, likelihood=likelihood, inference=inference, schedule=schedule)
        gradient = r.evidence_gradient()
        slopes = [np.sum(gradient * k), np.trace(gradient), *gradient[0, :5]]
        p = r.predict_proba(cross, np.full(cross.shape[1], variance + 0.1))
        found[f"{name} {variance} {length_scale} {likelihood} {method}"] = np.array(
            [r.log_evidence, *slopes, *p, float(r.n_factorisations)]
        )
    return found


def _of(model, X, new):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
        return np.array([value, *slope, *model.predict_proba(new).ravel(), float(model.n_iter_)])


def joint(seed):
    """A random problem of several classes, jointly."""
    rng = np.random.default_rng(seed)
    C, n, d = int(rng.integers(3, 7)), int(rng.integers(30, 91)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    y = np.argmax(X @ rng.normal(size=(d, C)) + rng.gumbel(size=(n, C)), axis=1)
    y[:C] = np.arange(C)
    kernel = ConstantKernel(10.0 ** rng.uniform(-1, 3)) * RBF(10.0 ** rng.uniform(-0.5, 1))
    kernel += WhiteKernel(10.0 ** rng.uniform(-3, 0))
    weight = None if seed % 2 else rng.integers(1, 3, n).astype(float)
    model = GPClassifier(
        kernel,
        multi_class="joint",
        inference=("pl", "laplace")[seed % 3 == 2],
        shared_kernel=seed % 4 != 3,
        optimizer=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, weight)
    return {f"joint {seed}": _of(model, X, rng.normal(size=(40, d)))}


def sparse(seed):
    """A random problem with inducing points."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(200, 2000)), int(rng.integers(1, 6))
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + 0.4 * rng.normal(size=n) > 0
    profile = RBF(np.full(d, 1.5)) if seed % 2 else Matern(1.3, nu=1.5)
    kernel = ConstantKernel(10.0 ** rng.uniform(-1, 2)) * profile + WhiteKernel(0.1)
    weight = None if seed % 3 else rng.uniform(0.5, 2.5, n)
    model = GPClassifier(
        kernel,
        likelihood=LIKELIHOODS[seed % 3],
        inference="ep" if seed % 5 == 4 else "pl",
        inducing=X[:30],
        optimizer=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, weight)
    return {f"sparse {seed}": _of(model, X, rng.normal(size=(40, d)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", help="a file for the numbers")
    parser.add_argument("--compare", help="a file of another version")
    parser.add_argument("--methods", default=",".join(METHODS), help="some of PPL,SPL,PEP,SEP,L")
    parser.add_argument("--data", default=",".join(NAMES))
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    settings = product(arguments.data.split(","), VARIANCES, LENGTH_SCALES, LIKELIHOODS)
    jobs = [delayed(exact)(*s, arguments.methods.split(",")) for s in settings]
    jobs += [delayed(joint)(seed) for seed in range(10)] + [delayed(sparse)(seed) for seed in range(10)]
    numbers = {}
    for part in Parallel(n_jobs=arguments.jobs)(jobs):
        numbers |= part
    if arguments.write:
        np.savez_compressed(arguments.write, **numbers)
    if arguments.compare:
        with np.load(arguments.compare) as other:
            report(numbers, other)


def report(numbers, other):
    """The largest differences, and where: relative to max(1, |number|)."""
    groups = {}
    for key, found in numbers.items():
        before = other[key]
        gaps = np.abs(found - before) / np.maximum(1.0, np.abs(before))
        group = key.split()[0] if key.startswith(("joint", "sparse")) else key.split()[-1]
        groups.setdefault(group, []).append((gaps[:-1].max(), found[-1] - before[-1], key))
    for group, rows in groups.items():
        worst = max(rows)
        more = sum(row[1] for row in rows)
        print(
            f"{group:7s}{len(rows):5d} problems, largest difference {worst[0]:.1e} ({worst[2]}), ",
            end="",
        )
        print(f"steps more or fewer in all: {more:+.0f}")


if __name__ == "__main__":
    main()
