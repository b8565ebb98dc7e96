"""The methods that ``large.py`` compares: how each is fitted, on which sets, and for how long."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from largedata import Split
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, WhiteKernel

from postlin import GPClassifier

#: The smaller sets, those with two classes, and all.
SMALL = ("weather", "electricity", "protein")
BINARY = (*SMALL, "flights", "covertype")
LARGE = ("covertype", "covertype7")
ALL = (*BINARY, "covertype7")
GPU = "cuda"
#: Threads of every method.
THREADS = 2
#: Inducing points of postlin and of SVGP, and rows of a search for hyperparameters.
POINTS, SVGP_POINTS, COARSE = 500, 512, 20_000
#: Of SVGP: at most so many epochs and seconds; rows a step and rate as in covertype.py.
EPOCHS, SECONDS, BATCH, RATE = 100, 300.0, 1024, 0.01
#: Trees of a forest.
TREES = 300
#: Vecchia's neighbours in GPBoost.
NEIGHBOURS = 20


class Method(NamedTuple):
    """A method; its fit takes a split and a seed, and returns a model and a remark about it."""

    fit: Callable[[Split, int], tuple[Any, str]]
    sets: tuple[str, ...] = ALL
    minutes: float = 60.0  # after which it is stopped
    seeds: int = 5  # at most
    module: str = "sklearn"  # that must be installed
    device: str | None = None  # on which it works

    @property
    def available(self) -> bool:
        """Whether this machine has what it needs."""
        if self.device is None:
            return find_spec(self.module) is not None
        if find_spec("torch") is None:
            return False
        import torch

        return torch.cuda.is_available()


def _boosted(data: Split, **options: Any) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(**options).fit(data.X, data.y)


def _boosting(data: Split, seed: int) -> tuple[Any, str]:
    """As it comes: 100 iterations at most, stopped early beyond 10,000 rows."""
    model = _boosted(data, random_state=seed)
    return model, f"{model.n_iter_} iterations"


def _longer(data: Split, seed: int) -> tuple[Any, str]:
    """More and larger trees, stopped by a tenth of the training rows."""
    model = _boosted(
        data,
        max_iter=1500,
        learning_rate=0.15,
        max_leaf_nodes=127,
        early_stopping=True,
        random_state=seed,
    )
    return model, f"{model.n_iter_} iterations"


def _slower(data: Split, seed: int) -> tuple[Any, str]:
    """Lower rates: at .15 the loss of seven classes rises again after a dozen iterations.

    Of three rates the one whose loss on a tenth of the training rows is least.
    """
    tried = {
        rate: _boosted(
            data,
            max_iter=1500,
            learning_rate=rate,
            max_leaf_nodes=127,
            l2_regularization=1.0,
            early_stopping=True,
            random_state=seed,
        )
        for rate in (0.1, 0.05, 0.02)
    }
    rate = max(tried, key=lambda rate: float(tried[rate].validation_score_.max()))
    return tried[rate], f"rate {rate}, {tried[rate].n_iter_} iterations"


def _best_of_nine(data: Split, seed: int) -> tuple[Any, str]:
    """The settings and iterations that a tenth of the training rows prefers, fitted to all of them."""
    best: tuple[float, dict[str, Any]] = (-np.inf, {})
    for rate in (0.15, 0.05, 0.02):
        for leaves in (15, 31, 127):
            options = {"learning_rate": rate, "max_leaf_nodes": leaves, "random_state": seed}
            tried = _boosted(data, max_iter=5000, early_stopping=True, n_iter_no_change=20, **options)
            scores = tried.validation_score_  # before any iteration, and after each
            found = float(scores.max()), options | {"max_iter": max(1, int(scores.argmax()))}
            best = max(best, found, key=lambda pair: pair[0])
    chosen = best[1]
    model = _boosted(data, early_stopping=False, **chosen)
    return model, (
        f"rate {chosen['learning_rate']}, {chosen['max_leaf_nodes']} leaves, "
        f"{chosen['max_iter']} iterations"
    )


def _forest(data: Split, seed: int) -> tuple[Any, str]:
    model = RandomForestClassifier(TREES, n_jobs=THREADS, random_state=seed)
    return model.fit(data.X, data.y), f"{TREES} trees"


def _extra(data: Split, seed: int) -> tuple[Any, str]:
    model = ExtraTreesClassifier(TREES, n_jobs=THREADS, random_state=seed)
    return model.fit(data.X, data.y), f"{TREES} trees"


def _scales(data: Split) -> np.ndarray:
    """Where length scales start, one for every feature: at the size of standardised data."""
    d = data.X.shape[1]
    return np.full(d, np.sqrt(d))


def _svgp(data: Split, seed: int) -> tuple[Any, str]:
    from peers.binary_svgp import BinarySVGP

    model = BinarySVGP(SVGP_POINTS, _scales(data), EPOCHS, SECONDS, BATCH, RATE)
    model.fit(data.X, data.y)
    return model, f"{SVGP_POINTS} points, {model.about}"


class Vecchia:
    """GPBoost's model of neighbours with Laplace's method, and predict_proba as in scikit-learn."""

    def __init__(self, data: Split, seed: int) -> None:
        import gpboost

        self.model = gpboost.GPModel(
            gp_coords=data.X,
            cov_function="matern_ard",
            cov_fct_shape=1.5,
            gp_approx="vecchia",
            num_neighbors=NEIGHBOURS,
            likelihood="bernoulli_probit",
            num_parallel_threads=THREADS,
            seed=seed,
        )
        self.model.fit(y=data.y.astype(float))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """From the neighbours among the training rows."""
        p = self.model.predict(gp_coords_pred=X, predict_response=True)["mu"]
        return np.column_stack([1 - p, p])


def _gpboost(data: Split, seed: int) -> tuple[Any, str]:
    return Vecchia(data, seed), f"{NEIGHBOURS} neighbours, Matérn 3/2"


def _kernel(data: Split) -> Kernel:
    return 10.0 * RBF(_scales(data)) + WhiteKernel(0.1, "fixed")


def _state(model: GPClassifier) -> str:
    return "converged" if model.converged_ else "not converged"


def _inducing(data: Split, seed: int) -> tuple[Any, str]:
    """Searched for first on a sample, then on all rows."""
    model = GPClassifier(_kernel(data), inducing=POINTS, coarse_rows=COARSE, random_state=seed)
    model.fit(data.X, data.y)
    return model, f"{POINTS} points, {_state(model)}"


def _inducing_of_few(data: Split, seed: int) -> tuple[Any, str]:
    """Searched for on the first rows, which are a sample; only inference sees all."""
    few = slice(0, COARSE)
    first = GPClassifier(_kernel(data), inducing=POINTS, random_state=seed)
    first.fit(data.X[few], data.y[few])
    model = GPClassifier(
        first.kernel_, inducing=first.inducing_points_, optimizer=None, random_state=seed
    )
    model.fit(data.X, data.y)
    return model, f"{POINTS} points, {_state(model)}"


def _about(model: GPClassifier) -> str:
    """What was chosen."""
    kernel = model.kernel_[0] if isinstance(model.kernel_, list) else model.kernel_
    shape = kernel.k1.k2
    name = f"Matérn {shape.nu:g}" if isinstance(shape, Matern) else "RBF"
    points = getattr(model, "inducing_points_", None)
    whole = "" if points is None else f", {len(points)} points"
    return f"{name}, {model.n_neighbors_} neighbours{whole}"


def _neighbours(data: Split, seed: int, device: str | None = None) -> tuple[Any, str]:
    """All that is learned and chosen by default."""
    model = GPClassifier(n_neighbors="auto", inducing="auto", random_state=seed, device=device)
    return model.fit(data.X, data.y), _about(model)


def _given(data: Split, seed: int, device: str | None = None) -> tuple[Any, str]:
    """A kernel and 64 neighbours that are given."""
    scale = np.std(data.X, axis=0)
    scale = np.where(scale > 0, scale, 1.0) * np.sqrt(data.X.shape[1])
    bounds = np.stack([1e-5 * scale, 1e5 * scale], axis=1)
    kernel = ConstantKernel(10.0, (1e-3, 1e4)) * Matern(scale, bounds, nu=0.5)
    kernel += WhiteKernel(0.1, (1e-4, 10.0))
    model = GPClassifier(kernel, n_neighbors=64, inducing="auto", random_state=seed, device=device)
    return model.fit(data.X, data.y), _about(model)


METHODS = {
    "HistGradientBoosting": Method(_boosting),
    "HistGradientBoosting, 127 leaves": Method(_longer),
    "HistGradientBoosting, 127 leaves, lower rates": Method(_slower, ("covertype7",), minutes=120.0),
    "HistGradientBoosting, best of nine": Method(_best_of_nine, SMALL),
    "RandomForest": Method(_forest),
    "ExtraTrees": Method(_extra),
    "GPyTorch, SVGP": Method(_svgp, BINARY, seeds=1, module="gpytorch"),
    "GPBoost, Vecchia": Method(_gpboost, SMALL, minutes=15, seeds=1, module="gpboost"),
    "postlin, inducing points": Method(_inducing, BINARY),
    f"postlin, inducing points, hyperparameters of {COARSE:,} rows": Method(_inducing_of_few, BINARY),
    "postlin, neighbours": Method(_neighbours),
    "postlin, 64 neighbours, Matérn ½ given": Method(_given, LARGE),
    "postlin, neighbours, on a GPU": Method(partial(_neighbours, device=GPU), device=GPU),
    "postlin, 64 neighbours, Matérn ½ given, on a GPU": Method(
        partial(_given, device=GPU), LARGE, device=GPU
    ),
}
