"""Inference on a GPU: time, memory, and agreement with the CPU.

Needs NumPy, SciPy, scikit-learn, array-api-compat and PyTorch with CUDA; CuPy is tried where it is there.

    python benchmarks/gpu.py --out gpu.md                  # everything
    python benchmarks/gpu.py --sizes 8000 --parts race     # one part

The parts about inducing points are in inducing.py, those about neighbours and the joint softmax in
gpufits.py. The data of the others are those of all benchmarks (d = 8), the kernel is the paper's, with
σ² = 30 and ℓ = 3.7 for evaluations. Every part prints as it goes, and one that fails does not stop the
others. Covertype must be in benchmarks/.store where the machine has no network.
"""

import argparse
import datetime
import gc
import os
import platform
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import gpufits
import inducing
import numpy as np
import scipy
import sklearn
import torch
from problems import synthetic
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import postlin
from postlin.inference.result import EXACT
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel
from postlin.likelihoods import Probit
from postlin.linalg.arrays import HOST, place_of
from postlin.rules import REGISTRY as RULES
from postlin.schedules import Parallel

VARIANCE, LENGTH_SCALE, NOISE = 30.0, 3.7, 0.1
#: What is compared with the CPU, and what is timed there.
AGREEMENT, RACE = 4000, 8000
NEW = 10_000


class Report:
    """Lines, shown at once and written at the end of every part."""

    def __init__(self, path):
        self.path, self.lines = (
            path,
            ["# postlin on a GPU", "", "`benchmarks/gpu.py` writes this page."],
        )

    def say(self, line=""):
        """Show a line and keep it."""
        print(line, flush=True)
        self.lines.append(line)
        if self.path:
            Path(self.path).write_text("\n".join(self.lines) + "\n", encoding="utf-8")


class Device:
    """Where the tensors are, its clock and its memory."""

    def __init__(self, name):
        self.name = name
        self.is_cuda = name.startswith("cuda")
        self.place = place_of(torch.zeros(1, dtype=torch.float64, device=name))

    def put(self, array):
        """A tensor there."""
        return torch.asarray(array, device=self.name)

    def clean(self):
        """Free what is not used, and forget the peak."""
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def seconds(self, function):
        """What it gives, and how long it took."""
        self._wait()
        began = time.perf_counter()
        result = function()
        self._wait()
        return result, time.perf_counter() - began

    def best(self, function, times=3):
        """The shortest of several runs."""
        return min(self.seconds(function)[1] for _ in range(times))

    def _wait(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    @property
    def peak(self):
        """The most memory of tensors since ``clean``, in GB."""
        return torch.cuda.max_memory_allocated() / 1e9 if self.is_cuda else float("nan")


def kernel(scale=1.0):
    return ConstantKernel(VARIANCE * scale) * RBF(LENGTH_SCALE * scale) + WhiteKernel(NOISE, "fixed")


def hyperparameters(scale=1.0):
    return Hyperparameters(kernel(scale), Probit())


def model_of(X, y, place, rule="pl"):
    return ExactModel(X, y, RULES[rule](), Parallel(), 1e-8, 100, place=place)


def evaluate(model, at, start=None):
    """Log evidence, gradient, sites and factorisations."""
    fitted = model.infer(at, start)
    value, gradient = fitted.value_and_gradient(EXACT)
    assert fitted.converged, f"not converged: residual {fitted.residual}"
    return value, gradient, fitted.start, fitted.record.n_factorisations


# --- parts


def machine(report, device, sizes):
    """What it is, and a first run that wakes the libraries."""
    gpu = "none"
    if device.is_cuda:
        properties = torch.cuda.get_device_properties(0)
        gpu = f"{properties.name}, {properties.total_memory / 1e9:.0f} GB"
    versions = {
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "PyTorch": torch.__version__,
        "CUDA": torch.version.cuda,
        "postlin": postlin.__version__,
    }
    report.say(
        f"{datetime.date.today()}; GPU: {gpu}; CPU: {os.cpu_count()} cores, {platform.machine()}."
    )
    report.say(", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    model = model_of(*synthetic(300), device.place)
    evaluate(model, hyperparameters())


def agreement(report, device, sizes):
    for rule in ("pl", "cl", "ep", "laplace"):
        n = AGREEMENT if rule == "pl" else AGREEMENT // 4
        X, y = synthetic(n)
        answers = [
            evaluate(model_of(X, y, place, rule), hyperparameters()) for place in (HOST, device.place)
        ]
        (cpu, slope, *_), (gpu, there, *_) = answers
        report.say(
            f"- {rule}, n = {n}; CPU {cpu:.9f}; GPU {gpu:.9f}; relative difference {abs(gpu / cpu - 1):.1e}; "
            f"gradient {np.abs(there - slope).max() / np.abs(slope).max():.1e}."
        )


def race(report, device, sizes):
    X, y = synthetic(RACE)
    (value, *_), fast = device.seconds(
        lambda: evaluate(model_of(X, y, device.place), hyperparameters())
    )
    again = device.best(lambda: evaluate(model_of(X, y, device.place), hyperparameters()), 2)
    report.say(f"- n = {RACE}, cold evidence + gradient; GPU {fast:.2f} s, again {again:.2f} s.")
    (expected, *_), slow = device.seconds(lambda: evaluate(model_of(X, y, HOST), hyperparameters()))
    report.say(
        f"- the same on the CPU; {slow:.1f} s, {slow / again:.0f} times as long; relative difference "
        f"{abs(value / expected - 1):.1e}."
    )


def evaluations(report, device, sizes):
    """Evidence with gradient, and predictions."""
    for n in sizes:
        device.clean()
        X, y = synthetic(n)
        _cold_and_warm(report, device, model_of(X, y, device.place), n)
        device.clean()
        predictions(report, device, X, y, n)


def _cold_and_warm(report, device, model, n):
    (value, _, sites, count), cold = device.seconds(lambda: evaluate(model, hyperparameters()))
    report.say(
        f"- n = {n}, cold evidence + gradient; {cold:.1f} s; {count} factorisations; log evidence "
        f"{value:.6f}; peak {device.peak:.1f} GB, {device.peak * 1e9 / (8 * n**2):.2f} matrices."
    )
    moved = hyperparameters(1.05)
    (_, _, _, count), warm = device.seconds(lambda: evaluate(model, moved, sites))
    report.say(f"- n = {n}, warm, θ changed by 5 %; {warm:.1f} s; {count} factorisations.")


def predictions(report, device, X, y, n):
    classifier = postlin.GPClassifier(kernel(), optimizer=None)
    classifier, fitting = device.seconds(lambda: classifier.fit(device.put(X), y))
    new = device.put(np.random.default_rng(1).normal(size=(NEW, X.shape[1])))
    p, seconds = device.seconds(lambda: classifier.predict_proba(new))
    assert p.device == new.device
    assert bool(torch.isfinite(p).all())
    report.say(
        f"- n = {n}, `fit` without hyperparameters {fitting:.1f} s; {NEW} predictions {seconds:.2f} s; "
        f"peak {device.peak:.1f} GB."
    )


def whole_fit(report, device, sizes):
    n = 20_000 if max(sizes) >= 20_000 else max(sizes)
    X, y = synthetic(n)
    device.clean()
    name = device.name if device.is_cuda else None
    classifier = postlin.GPClassifier(device=name)
    rows = X if name else device.put(X)
    classifier, seconds = device.seconds(lambda: classifier.fit(rows, y))
    report.say(
        f"- n = {n}, `GPClassifier({'device=' + repr(name) if name else ''}).fit(X, y)`; {seconds:.1f} s; "
        f"{len(classifier.evidence_path_)} evaluations; {classifier.kernel_}; log evidence "
        f"{classifier.log_marginal_likelihood_value_:.4f}; peak {device.peak:.1f} GB."
    )


def with_cupy(report, device, sizes):
    try:
        import cupy
    except ImportError:
        report.say("- CuPy is not installed.")
        return
    n = 2000
    X, y = synthetic(n)
    at = hyperparameters()
    expected, slope, *_ = evaluate(model_of(X, y, HOST), at)
    value, there, *_ = evaluate(model_of(X, y, place_of(cupy.zeros(1))), at)
    report.say(
        f"- CuPy {cupy.__version__}, n = {n}; relative difference {abs(value / expected - 1):.1e}; gradient "
        f"{np.abs(there - slope).max() / np.abs(slope).max():.1e}."
    )
    classifier = postlin.GPClassifier(kernel(), optimizer=None).fit(cupy.asarray(X), cupy.asarray(y))
    p = classifier.predict_proba(cupy.asarray(X[:5]))
    assert isinstance(p, cupy.ndarray)
    with_numpy = postlin.GPClassifier(kernel(), optimizer=None).fit(X, y).predict_proba(X[:5])
    report.say(f"- CuPy, probabilities; largest difference {np.abs(p.get() - with_numpy).max():.1e}.")
    ep = postlin.infer(
        _covariance(cupy, X[:300]), y[:300], likelihood="noisy_threshold", inference="ep"
    )
    on_cpu = postlin.infer(
        _covariance(np, X[:300]), y[:300], likelihood="noisy_threshold", inference="ep"
    )
    report.say(
        f"- CuPy, EP with noisy threshold; difference {ep.log_evidence - on_cpu.log_evidence:.1e}."
    )


def _covariance(xp, X):
    return xp.asarray(kernel()(X))


TITLES = {
    "machine": "Machine",
    "agreement": "Agreement with the CPU",
    "with_cupy": "CuPy arrays",
    "race": "Comparison with the CPU of the same machine",
    "evaluations": "Evidence with gradient, and predictions",
    "whole_fit": "A fit with hyperparameters",
    **inducing.TITLES,
    **gpufits.TITLES,
}
WITH_ROWS = (*gpufits.PARTS, *inducing.PARTS)
PARTS = (machine, *WITH_ROWS, agreement, with_cupy, race, evaluations, whole_fit)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 50_000])
    parser.add_argument("--rows", type=int, default=581_012, help="of Covertype, for inducing points")
    parser.add_argument("--points", type=int, default=2048, help="the number of inducing points")
    parser.add_argument("--out", help="a Markdown file for the figures")
    parser.add_argument(
        "--device", default="cuda", help='"cuda", or "cpu" to try the script with PyTorch'
    )
    parser.add_argument("--parts", nargs="+", choices=[p.__name__ for p in PARTS], default=None)
    options = parser.parse_args()
    report, device = Report(options.out), Device(options.device)
    began = time.perf_counter()
    for part in PARTS:
        if options.parts and part.__name__ not in options.parts:
            continue
        report.say(f"\n## {TITLES[part.__name__]}\n")
        try:
            part(report, device, options if part in WITH_ROWS else options.sizes)
        except Exception:
            traceback.print_exc()
            report.say(f"FAILED: {traceback.format_exc().splitlines()[-1]}")
        device.clean()
        print(f"({time.perf_counter() - began:.0f} s so far)", flush=True)


if __name__ == "__main__":
    main()
