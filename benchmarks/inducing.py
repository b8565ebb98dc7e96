"""Inducing points on a GPU: the parts of ``gpu.py`` about them, on Covertype and a million rows.

    python benchmarks/gpu.py --parts inducing_agreement inducing_passes inducing_fits
    python benchmarks/gpu.py --device cpu --rows 3000 --points 32 --parts inducing_passes   # to try it

Covertype is fetched as ``covertype.py`` does; where that fails, rows of the same shape take its place.
"""

import time
from pathlib import Path

import covertype
import million
import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import GPClassifier
from postlin.inference.sparse.passes import EvidencePass, Sweep
from postlin.inference.sparse.posterior import inducing_points
from postlin.learning.hyperparameters import Hyperparameters, WithPoints
from postlin.learning.sparse_model import SparseModel
from postlin.likelihoods import Probit
from postlin.linalg.arrays import HOST
from postlin.rules.binary import PL
from postlin.streaming.views import ArrayRows

#: Rows of the comparison with the CPU, and the tolerance of inference there.
AGREEMENT, TIGHT = 5000, 1e-9
#: Evaluations of the evidence of each sample with which inducing points are learned.
EVALUATIONS = 40


def rows_of(report, n):
    """Standardised rows of Covertype and labels ±1, and as many for testing as a tenth."""
    try:
        data = covertype.split(n)
        return data.X, 2.0 * data.y - 1.0, data.X_test, 2.0 * data.y_test - 1.0
    except (OSError, SystemExit) as error:
        report.say(f"- Covertype could not be fetched ({error}); rows of its shape take its place.")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 54))
    y = np.where(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return X[n // 10 :], y[n // 10 :], X[: n // 10], y[: n // 10]


def hyperparameters(d, Z=None, X=None):
    """The start of the fits, or with the points among the parameters."""
    at = Hyperparameters(10.0 * RBF(np.sqrt(d)) + WhiteKernel(0.1, "fixed"), Probit())
    if Z is None:
        return at
    return WithPoints.of(at, Z, np.stack([X.min(axis=0), X.max(axis=0)], axis=1))


def points(X, m):
    """The centres of m clusters of 20,000 rows."""
    return inducing_points(m, X[:20_000], len(X), seed=0)


def inducing_agreement(report, device, options):
    """Evidence and gradient in θ and Z, against the CPU's."""
    X, y, *_ = rows_of(report, max(AGREEMENT * 10 // 9 + 1, 100) if device.is_cuda else options.rows)
    X, y = X[:AGREEMENT], y[:AGREEMENT]
    Z = points(X, min(options.points, len(X) // 4))
    at, found = hyperparameters(X.shape[1], Z, X), []
    for place in (HOST, device.place):
        model = SparseModel(ArrayRows(X, y), Z, PL(), tol=TIGHT, place=place)
        result, seconds = device.seconds(lambda model=model: model.infer(at).value_and_gradient(1e-10))
        found.append((*result, seconds))
    (value, slope, slow), (there, other, fast) = found
    report.say(
        f"- n = {len(X)}, m = {len(Z)}; CPU {value:.9f} in {slow:.1f} s; there {there:.9f} in "
        f"{fast:.1f} s; relative difference {abs(there / value - 1):.1e}; gradient in {len(slope)} "
        f"parameters {np.abs(other - slope).max() / np.abs(slope).max():.1e}."
    )


def inducing_passes(report, device, options):
    """A pass over all rows, inference, and the evidence with its gradient."""
    X, y, *_ = rows_of(report, options.rows)
    Z = points(X, options.points)
    device.clean()
    model = SparseModel(ArrayRows(X, y), Z, PL(), place=device.place)
    at = hyperparameters(X.shape[1], Z, X)
    found, seconds = device.seconds(lambda: model.infer(at))
    report.say(
        f"- n = {len(X)}, m = {len(Z)}, cold inference; {seconds:.2f} s; {found.n_iter} passes; "
        f"converged {found.converged}; log evidence {found.log_evidence:.3f}; "
        f"peak {device.peak:.1f} GB."
    )
    for kind in (Sweep, EvidencePass):
        share = kind(found.posterior, found.method)
        best = device.best(lambda share=share: model.rows.total(share))
        report.say(f"- a pass, {kind.purpose}; {best:.3f} s.")
    (_, slope), seconds = device.seconds(lambda: found.value_and_gradient(1e-4))
    report.say(
        f"- the gradient in {len(slope)} parameters; {seconds:.2f} s; peak {device.peak:.1f} GB."
    )
    warm = WithPoints.of(hyperparameters(X.shape[1]), 1.01 * Z, at.box)
    found, seconds = device.seconds(lambda: model.infer(warm, found.start))
    report.say(f"- warm inference, points moved by 1 %; {seconds:.2f} s; {found.n_iter} passes.")


def inducing_fits(report, device, options):
    """A whole fit with hyperparameters, and predictions."""
    _fit(report, device, options, "points kept")


def inducing_moved(report, device, options):
    """The same with the points among the parameters, by so many evaluations on each sample."""
    what = f"points moved, at most {EVALUATIONS} evaluations of a sample"
    _fit(report, device, options, what, learn_inducing=True, optimizer=_limited)


def _limited(objective, theta, bounds):
    """L-BFGS-B, which for thousands of parameters would go on for long."""
    limit = {"maxfun": EVALUATIONS}
    found = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=limit)
    return found.x, found.fun


def _fit(report, device, options, what, **parameters):
    X, y, new, truth = rows_of(report, options.rows)
    device.clean()
    start = 10.0 * RBF(np.sqrt(X.shape[1])) + WhiteKernel(0.1, "fixed")
    model = GPClassifier(start, inducing=options.points, random_state=0, verbose=1, **parameters)
    model, seconds = device.seconds(lambda: fitted(device, model, X, y))
    say_fit(report, f"n = {len(X)}, m = {options.points}, {what}", model, seconds)
    say_scores(report, device, model, new, truth)


def fitted(device, model, X, y):
    """The model, fitted on the device."""
    if device.is_cuda:
        return model.set_params(device=device.name).fit(X, y)
    return model.fit(device.put(np.array(X)), np.array(y))


def say_fit(report, what, model, seconds):
    report.say(
        f"- {what}; {seconds:.1f} s; {len(model.evidence_path_)} evaluations, {model.n_iter_} passes "
        f"over all rows; {str(model.kernel_)[:160]}; log evidence "
        f"{model.log_marginal_likelihood_value_:.2f}."
    )


def say_scores(report, device, model, new, truth):
    began = time.perf_counter()
    p = model.predict_proba(new)[:, 1]
    seconds = time.perf_counter() - began
    right = np.where(truth > 0, p, 1.0 - p)
    report.say(
        f"- {len(new)} predictions {seconds:.2f} s; error {(right < 0.5).mean():.4f}, NLPD "
        f"{-np.log(right).mean():.4f}; peak {device.peak:.1f} GB."
    )


def inducing_million(report, device, options):
    """A million rows with 256 points, hyperparameters learned; fewer rows on the CPU."""
    n, m = (1_000_000, 256) if device.is_cuda else (options.rows, options.points)
    X, y = million.files(Path("/tmp"), n)
    start = ConstantKernel(1.0) * RBF([1.0] * million.FEATURES) + WhiteKernel(0.1)
    model = GPClassifier(start, inducing=m, random_state=0, verbose=1)
    model, seconds = device.seconds(lambda: fitted(device, model, X, y))
    say_fit(report, f"n = {n}, m = {m}", model, seconds)
    say_scores(report, device, model, *million.further())


PARTS = (inducing_agreement, inducing_passes, inducing_fits, inducing_moved, inducing_million)
TITLES = {
    "inducing_agreement": "Inducing points: agreement with the CPU",
    "inducing_passes": "Inducing points: passes",
    "inducing_fits": "Inducing points: a fit with hyperparameters",
    "inducing_moved": "Inducing points: a fit with hyperparameters and points",
    "inducing_million": "Inducing points: a million rows",
}
