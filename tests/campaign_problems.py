"""Generated classification problems, ordinary and hostile; each follows from its seed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import log_expit
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Hyperparameter,
    Kernel,
    Matern,
    NormalizedKernelMixin,
    RationalQuadratic,
    StationaryKernelMixin,
    WhiteKernel,
)

from postlin import EP, PL, GPClassifier
from postlin.likelihoods import DensityLikelihood, NoisyThreshold
from postlin.schedules import Hybrid, Parallel, Sequential


class Cauchy(StationaryKernelMixin, NormalizedKernelMixin, Kernel):
    """A kernel as a user writes it: 1/(1 + |x − x'|²/a)."""

    def __init__(self, a=1.0, a_bounds=(1e-5, 1e5)):
        self.a, self.a_bounds = a, a_bounds

    @property
    def hyperparameter_a(self):
        return Hyperparameter("a", "numeric", self.a_bounds)

    def __call__(self, X, Y=None, eval_gradient=False):
        X, Y = np.atleast_2d(X), np.atleast_2d(X if Y is None else Y)
        ratio = ((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=-1) / self.a
        K = 1.0 / (1.0 + ratio)
        return (K, (K**2 * ratio)[:, :, None]) if eval_gradient else K


class NoCovariance(Cauchy):
    """A kernel that is no covariance: the sign of its matrix is wrong."""

    def __call__(self, X, Y=None, eval_gradient=False):
        found = super().__call__(X, Y, eval_gradient)
        return tuple(-part for part in found) if eval_gradient else -found


class LogLog(DensityLikelihood):
    """p(+1|f) = 1 − exp(−exp(f)): log-concave, but not symmetric."""

    name = "log_log"

    def log_density(self, y, f):
        rate = np.exp(np.minimum(f, 600.0))
        return np.where(y > 0, np.log(-np.expm1(-np.maximum(rate, 1e-300))), -rate)


class Robust(DensityLikelihood):
    """A logistic curve between 0.02 and 0.98: not log-concave."""

    name = "robust"

    def log_density(self, y, f):
        return np.logaddexp(np.log(0.02), np.log(0.96) + log_expit(y * f))


@dataclass
class Problem:
    """Rows, labels, weights and the parameters of a classifier, with the kinds that it belongs to."""

    seed: int
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    new: np.ndarray  # rows to predict
    options: dict[str, Any]
    kinds: list[str] = field(default_factory=list)

    @classmethod
    def drawn(cls, seed):
        """The problem of this seed."""
        draw = _Draw(np.random.default_rng(seed))
        options = draw.method()
        n = draw.size(options)
        X = draw.features(n)
        y = draw.labels(X, options)
        options["kernel"] = draw.kernel(X)
        weight = draw.weights(n)
        new = np.concatenate([X[:3], X[:2] + draw.scale * draw.rng.normal(size=X[:2].shape)])
        if "inducing" in options:
            most = 4 if options["learn_inducing"] else 1 + n // 3
            options["inducing"] = int(draw.rng.integers(1, most + 1))
        return cls(seed, X, y, weight, new, options, draw.kinds)

    def classifier(self, **changes):
        """A classifier with the parameters of this problem, some of them changed."""
        return GPClassifier(**{"random_state": 0, **self.options, **changes})


class _Draw:
    """The choices that make a problem; every choice is noted as a kind."""

    def __init__(self, rng):
        self.rng, self.kinds, self.scale = rng, [], 1.0
        self.several = rng.random() < 0.25

    def one_of(self, kind, choices):
        """One of the values {name: (weight, value)}; the name becomes a kind."""
        names = list(choices)
        part = np.array([choices[name][0] for name in names], float)
        name = names[self.rng.choice(len(names), p=part / part.sum())]
        self.kinds.append(f"{kind}: {name}")
        return choices[name][1]

    def method(self):
        """The parameters that do not depend on the data."""
        rng = self.rng
        options = {
            "inference": self.one_of("rule", self._rules()),
            "likelihood": self.one_of("likelihood", self._likelihoods()),
            "schedule": self.one_of("schedule", self._schedules()),
            "optimizer": self.one_of(
                "optimiser", {"bfgs": (55, "bfgs"), "none": (40, None), "l-bfgs": (5, "fmin_l_bfgs_b")}
            ),
        }
        if self.several:
            ways = {"one_vs_rest": 4, "one_vs_one": 3, "joint": 4}
            options["multi_class"] = self.one_of("classes", {k: (v, k) for k, v in ways.items()})
            options["shared_kernel"] = [None, True, False][rng.integers(3)]
        else:
            self.kinds.append("classes: two")
        if options.get("multi_class") == "joint":
            options |= {"inference": ["pl", "laplace"][rng.integers(2)], "schedule": "parallel"}
            options["likelihood"] = "probit"
            self.kinds[:3] = [f"rule: joint {options['inference']}"]
        elif rng.random() < 0.12:
            self.kinds.append("inducing points")
            options |= {"inducing": 1, "learn_inducing": bool(rng.random() < 0.15)}
            options |= {"schedule": "parallel"}
        if rng.random() < 0.05:
            options["class_weight"] = "balanced"
        if options["optimizer"] and rng.random() < 0.05:
            options["n_restarts_optimizer"] = 1
        return options

    @staticmethod
    def _rules():
        policies = ("clamp", "skip", "small_variance", "raise")
        others = {f"EP {policy}": (3, EP(policy)) for policy in policies}
        plain = {"PL": (25, "pl"), "CL": (15, "cl"), "EP": (25, "ep"), "Laplace": (15, "laplace")}
        return plain | others | {"PL, order 10": (3, PL(evidence_order=10))}

    def _likelihoods(self):
        rate = float(self.rng.choice([0.001, 0.01, 0.1, 0.3]))
        return {
            "probit": (40, "probit"),
            "logit": (20, "logit"),
            "noisy threshold": (15, NoisyThreshold(rate)),
            "noisy threshold, learned": (7, NoisyThreshold(0.05, epsilon_bounds=(1e-4, 0.4))),
            "density, log-concave": (5, LogLog()),
            "density, robust": (5, Robust()),
        }

    def _schedules(self):
        return {
            "parallel": (70, "parallel"),
            "sequential": (12, "sequential"),
            "hybrid": (8, Hybrid(first=int(self.rng.integers(1, 4)))),
            "parallel, ten": (4, Parallel(iterations=10)),
            "sequential, five": (4, Sequential(iterations=5)),
        }

    def size(self, options):
        """The number of rows: fewer where each costs more."""
        slow = isinstance(options["likelihood"], DensityLikelihood) or self.several
        slow = slow or options.get("learn_inducing", False)
        return int(self.rng.integers(6 if self.several else 2, 24 if slow else 61))

    def features(self, n):
        """Rows, with duplicates, constant columns and scales of all sizes."""
        rng = self.rng
        d = int(rng.choice([1, 2, 2, 3, 5, 20]))
        X = rng.normal(size=(n, d))
        if rng.random() < 0.2:
            self.kinds.append("duplicates")
            X = X[rng.integers(max(1, n // 3), size=n)]
        if rng.random() < 0.12:
            self.kinds.append("constant column")
            X[:, rng.integers(d)] = rng.normal()
        if rng.random() < 0.3:
            exponent = int(rng.choice([-12, -6, -3, 3, 6, 12]))
            self.kinds.append(f"scale: 1e{exponent}")
            self.scale = 10.0**exponent
        if rng.random() < 0.08:
            self.kinds.append("scale: mixed")
            X = X * 10.0 ** rng.integers(-6, 7, size=d)
        return X * self.scale

    def labels(self, X, options):
        """Labels that follow the rows, contradict each other, or are nearly all equal."""
        rng, n = self.rng, len(X)
        spread = np.std(X, axis=0)
        Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        latent = Z @ rng.normal(size=Z.shape[1]) + np.sin(2 * Z[:, 0])
        kinds = {"separable": (3, 0.0), "noisy": (4, 0.8), "random": (2, 1e6), "rare": (1, 0.3)}
        noise = self.one_of("labels", kinds)
        latent = latent + noise * rng.normal(size=n)
        if self.kinds[-1] == "labels: rare":
            codes = (latent >= np.sort(latent)[-max(1, n // 20)]).astype(int)
        else:
            edges = np.quantile(latent, [0.35, 0.7] if self.several else [0.5])
            codes = np.searchsorted(edges, latent)
        codes[:2] = [0, 1]  # two classes at least
        names = [np.array([0, 1, 2]), np.array(["ant", "bee", "cat"]), np.array([-1.0, 1.0, 7.0])]
        return names[rng.integers(len(names))][codes]

    def kernel(self, X):
        """A kernel whose length scale fits the rows, or not."""
        rng, d = self.rng, X.shape[1]
        length = float(self.scale * np.sqrt(d) * 10.0 ** rng.uniform(-0.7, 0.7))
        if rng.random() < 0.2:
            self.kinds.append("start far away")
            length = 1.0
        wide = (1e-5 * length, 1e5 * length)
        variance = ConstantKernel(float(10.0 ** rng.uniform(-1, 3)), (1e-5, 1e8))
        part = self.one_of(
            "kernel",
            {
                "RBF": (8, variance * RBF(length, wide)),
                "default": (4, None),
                "ARD": (5, variance * RBF(np.full(d, length), wide)),
                "Matern 1/2": (3, variance * Matern(length, wide, nu=0.5)),
                "Matern 3/2": (3, variance * Matern(length, wide, nu=1.5)),
                "Matern 5/2": (3, variance * Matern(length, wide, nu=2.5)),
                "rational quadratic": (3, variance * RationalQuadratic(length, 1.0, wide)),
                "periodic": (2, variance * ExpSineSquared(1.0, length, (1e-3, 1e3), wide)),
                "dot product": (3, DotProduct(length, wide)),
                "scaled dot product": (2, variance * DotProduct(1.0, "fixed")),
                "sum": (3, variance * RBF(length, wide) + DotProduct(1.0)),
                "product": (2, RBF(length, wide) * Matern(length, wide) + ConstantKernel(1.0)),
                "constant": (1, ConstantKernel(2.0)),
                "user's": (3, variance * Cauchy(length**2, (1e-8 * length**2, 1e8 * length**2))),
                "no covariance": (0.5, NoCovariance(1.0)),
            },
        )
        if part is not None and rng.random() < 0.5:
            self.kinds.append("white noise")
            part = part + WhiteKernel(0.1, "fixed" if rng.random() < 0.5 else (1e-4, 10.0))
        return part

    def weights(self, n):
        """Weights of the rows: none, small integers with zeros, or with large ratios."""
        rng = self.rng
        return self.one_of(
            "weights",
            {
                "none": (70, None),
                "integers": (15, np.append([1, 1], rng.integers(0, 4, size=n - 2)).astype(float)),
                "ratios": (10, 10.0 ** rng.uniform(-3, 3, size=n)),
                "hundreds": (5, rng.integers(100, 900, size=n).astype(float)),
            },
        )
