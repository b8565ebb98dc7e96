"""How far Laplace, EP, PL and CL are from the exact posterior, with and without the correction.

    python benchmarks/truth.py [--particles 4000] [--runs 4] [--likelihoods probit logit ...]

Three likelihoods, four data sets and two kernels make 24 settings. In each, 100 rows are learned from,
with hyperparameters that are given, and 100 other rows are predicted; of "moons", 5 % of the labels are
wrong. The truth comes from long runs of ``GPClassifier.verify``, with the spread between runs as its
error. In six settings a second method that shares no code with it, particles that move by elliptical
slices from the prior to the posterior, checks these runs. Truths are kept in benchmarks/.store as they
end: a run that was stopped goes on from there. The tables are benchmarks/truth.md.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_ndtr, logsumexp, ndtr
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, Kernel, WhiteKernel
from store import Store

from postlin import GPClassifier, datasets

HERE = Path(__file__).parent
PAGE = HERE / "truth.md"
ROWS = 100
WRONG = 0.05
EPSILON = 0.01
NOISE = 0.1
LIKELIHOODS = ("probit", "logit", "noisy_threshold")
DATA = ("crab", "ionosphere", "wdbc", "moons")
#: σ², and the length scale in units of √d.
KERNELS = {"moderate": (10.0, 1.0), "extreme": (1000.0, 0.5)}
RULES = {"Laplace": "laplace", "EP": "ep", "PL": "pl", "CL": "cl"}
#: The settings that a second method checks.
CHECKED = [(likelihood, name, "moderate") for likelihood in LIKELIHOODS for name in ("crab", "moons")]
#: Of that method: the effective part of the particles after each level, and the moves of a level.
KEPT, MOVES = 0.9, 10


class Setting(NamedTuple):
    """The key of a truth."""

    likelihood: str
    data: str
    kernel: str


class Truth(NamedTuple):
    """Log evidence and probabilities of new rows, with their standard deviations."""

    log_evidence: float
    log_evidence_sd: float
    p: np.ndarray
    p_sd: np.ndarray


def table(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised rows, their labels 0 and 1, and new rows."""
    rng = np.random.default_rng(0)
    if name == "moons":
        X, y = make_moons(2 * ROWS, noise=0.3, random_state=0)
        wrong = rng.permutation(2 * ROWS)[: round(2 * ROWS * WRONG)]
        y[wrong] = 1 - y[wrong]
    elif name == "wdbc":
        X, y = load_breast_cancer(return_X_y=True)
    else:
        loaded = datasets.load(name)
        X, y = loaded.X, np.unique(loaded.y, return_inverse=True)[1]
    chosen = rng.permutation(len(y))[: 2 * ROWS]
    X, y = X[chosen], y[chosen]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[:ROWS], y[:ROWS], X[ROWS:]


def kernel(at: Setting, d: int) -> Kernel:
    """The kernel of a setting."""
    variance, length = KERNELS[at.kernel]
    return variance * RBF(length * np.sqrt(d)) + WhiteKernel(NOISE)


def fitted(at: Setting, rule: str, **options: Any) -> GPClassifier:
    """A fit of a setting."""
    X, y, _ = table(at.data)
    model = GPClassifier(
        kernel(at, X.shape[1]), likelihood=at.likelihood, inference=rule, optimizer=None, **options
    )
    return model.fit(X, y)


def by_tempering(at: Setting, particles: int, runs: int) -> Truth:
    """From long runs of ``verify``."""
    _, _, new = table(at.data)
    found = fitted(at, "ep").verify(new, n_particles=particles, n_runs=runs, random_state=0)
    p, sd = found.probabilities[:, 1], found.probabilities_sd[:, 1]
    return Truth(found.log_evidence, found.log_evidence_sd, p, sd)


def log_likelihood(name: str, z: np.ndarray) -> np.ndarray:
    """log p(y|g) where z = y g; but for logit g has no white noise, which is integrated out here."""
    if name == "probit":
        return log_ndtr(z / np.sqrt(1.0 + NOISE))
    if name == "logit":
        return -np.logaddexp(0.0, -z)
    return np.log(EPSILON + (1.0 - 2.0 * EPSILON) * ndtr(z / np.sqrt(NOISE)))


def probability(name: str, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """p(y* = 1) where f* is normal."""
    if name == "probit":
        return ndtr(mean / np.sqrt(1.0 + variance))
    if name == "noisy_threshold":
        return EPSILON + (1.0 - 2.0 * EPSILON) * ndtr(mean / np.sqrt(variance))
    grid = np.linspace(-8.0, 8.0, 161)
    weight = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    return sum(w * expit(mean + np.sqrt(variance) * x) for w, x in zip(weight, grid, strict=True))


def _moved(f: np.ndarray, log_p: np.ndarray, beta: float, draw: Any, value: Any, rng: Any) -> Any:
    """Every particle moves once along an ellipse, by the slice sampler of Murray and others (2010)."""
    other, threshold = draw(len(f)), beta * log_p + np.log(rng.random(len(f)))
    angle = rng.uniform(0.0, 2.0 * np.pi, len(f))
    low, high = angle - 2.0 * np.pi, angle.copy()
    new, new_log_p, open_ = f.copy(), log_p.copy(), np.arange(len(f))
    while len(open_):
        a = angle[open_, None]
        tried = f[open_] * np.cos(a) + other[open_] * np.sin(a)
        found = value(tried)
        good = beta * found >= threshold[open_]
        new[open_[good]], new_log_p[open_[good]] = tried[good], found[good]
        open_ = open_[~good]
        below = angle[open_] < 0
        low[open_[below]], high[open_[~below]] = angle[open_[below]], angle[open_[~below]]
        angle[open_] = rng.uniform(low[open_], high[open_])
    return new, new_log_p


def by_slices(at: Setting, particles: int, runs: int) -> Truth:
    """Particles from the prior, taken to the posterior by elliptical slices."""
    X, y, new = table(at.data)
    k, sign = kernel(at, X.shape[1]), 2.0 * y - 1.0
    K = k(X) if at.likelihood == "logit" else k.k1(X)
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-11 * values[-1]
    root = vectors[:, kept] * np.sqrt(values[kept])
    to_new = k(new, X) @ (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    variance = np.maximum(k.diag(new) - np.einsum("ij,ij->i", to_new, k(new, X)), NOISE)
    estimates, ps = [], []
    for seed in range(runs):
        rng = np.random.default_rng([seed, 7])

        def draw(count: int, rng: Any = rng) -> np.ndarray:
            return rng.standard_normal((count, root.shape[1])) @ root.T

        def value(f: np.ndarray) -> np.ndarray:
            return log_likelihood(at.likelihood, sign * f).sum(axis=1)

        f = draw(particles)
        log_p, beta, log_z = value(f), 0.0, 0.0
        while beta < 1.0:
            step = _step(log_p, 1.0 - beta)
            log_w, beta = step * log_p, beta + step
            log_z += logsumexp(log_w) - np.log(particles)
            weight = np.exp(log_w - logsumexp(log_w))
            u = (np.arange(particles) + rng.random()) / particles
            chosen = np.minimum(np.searchsorted(np.cumsum(weight), u), particles - 1)
            f, log_p = f[chosen], log_p[chosen]
            for _ in range(MOVES):
                f, log_p = _moved(f, log_p, beta, draw, value, rng)
        estimates.append(log_z)
        ps.append(np.mean([probability(at.likelihood, to_new @ each, variance) for each in f], axis=0))
    sd, p_sd = (np.std(part, axis=0, ddof=1) / np.sqrt(runs) for part in (estimates, ps))
    log_z = logsumexp(estimates) - np.log(runs)
    return Truth(float(log_z), float(sd), np.mean(ps, axis=0), np.asarray(p_sd))


def _step(log_p: np.ndarray, most: float) -> float:
    """The step of β that keeps a part of the particles effective."""

    def effective(step: float) -> float:
        w = np.exp(step * (log_p - log_p.max()))
        return float(w.sum() ** 2 / (w**2).sum() / len(w))

    low, high = 0.0, most
    if effective(most) >= KEPT:
        return most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= KEPT else (low, middle)
    return low or high


def truth(store: Store, method: str, at: Setting, particles: int, runs: int) -> Truth:
    """A truth that is kept, or found now."""
    key = [method, *at, particles, runs]
    if store.get(key) is None:
        found = (by_tempering if method == "verify" else by_slices)(at, particles, runs)
        values = [value.tolist() if isinstance(value, np.ndarray) else value for value in found]
        store.add({"key": key, "truth": values})
    kept = store.get(key)
    assert kept is not None
    log_z, sd, p, p_sd = kept["truth"]
    return Truth(log_z, sd, np.array(p), np.array(p_sd))


class Distances(NamedTuple):
    """|Δ log Z| and mean |Δp| of a fit, as it is and corrected; empty if it has not converged."""

    ways: dict[str, tuple[float, float]]
    flagged: frozenset[str]  # the ways of which the fit says itself that they are not to be trusted


def distances(at: Setting, rule: str, exact: Truth) -> Distances:
    """How far a rule is from the truth."""
    _, _, new = table(at.data)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        plain = fitted(at, RULES[rule])
    if not plain.converged_:
        return Distances({}, frozenset())
    found = {"as it is": (plain.log_marginal_likelihood_value_, plain.predict_proba(new)[:, 1])}
    flagged = set()
    if rule != "Laplace":
        model = fitted(at, RULES[rule], corrected=True)
        found["corrected"] = model.log_marginal_likelihood_corrected_, model.predict_proba(new)[:, 1]
        both = (("as it is", plain), ("corrected", model))
        flagged = {way for way, fit in both if not fit.diagnostics_.is_trustworthy}
    ways = {
        way: (abs(float(log_z) - exact.log_evidence), float(np.abs(p - exact.p).mean()))
        for way, (log_z, p) in found.items()
    }
    return Distances(ways, frozenset(flagged))


def _trusted(found: Distances) -> Distances:
    """Without the ways that are flagged."""
    kept = {way: part for way, part in found.ways.items() if way not in found.flagged}
    return Distances(kept, frozenset())


def _cells(here: list[Distances]) -> list[str]:
    """Means and largest values of log Z, corrected, of p, corrected."""
    cells = []
    for part, digits in ((0, 3), (1, 4)):
        for way in ("as it is", "corrected"):
            values = [found.ways[way][part] for found in here if way in found.ways]
            cells.append(f"{np.mean(values):.{digits}f}, {max(values):.{digits}f}" if values else "–")
    return cells


def summary(found: dict[tuple[Setting, str], Distances], exact: dict[Setting, Truth]) -> list[str]:
    """The mean and the largest distances of each likelihood and rule."""
    lines = [
        "| likelihood | rule | fits | \\|Δ log Z\\|: mean, largest | corrected "
        "| \\|Δp\\|: mean, largest | corrected |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for likelihood in LIKELIHOODS:
        for rule in RULES:
            here = [part for (at, name), part in found.items() if at[0] == likelihood and name == rule]
            converged = [part for part in here if part.ways]
            if not converged:
                continue
            count = f"{len(converged)} of {len(here)}"
            lines.append(f"| {likelihood} | {rule} | {count} | " + " | ".join(_cells(converged)) + " |")
            trusted = [_trusted(part) for part in converged]
            left = [sum(way in part.ways for part in trusted) for way in ("as it is", "corrected")]
            if left[0] < len(converged) and rule != "Laplace":
                count = f"{left[0]}, corrected {left[1]} not flagged"
                lines.append(f"| | | {count} | " + " | ".join(_cells(trusted)) + " |")
        own = [truth for at, truth in exact.items() if at.likelihood == likelihood]
        if own:
            sds = np.mean([t.log_evidence_sd for t in own]), np.mean([t.p_sd.mean() for t in own])
            lines.append(
                f"| {likelihood} | *the truth's own error* | | {sds[0]:.3f} | | {sds[1]:.4f} | |"
            )
    return lines


def checks(store: Store, exact: dict[Setting, Truth], particles: int, runs: int) -> list[str]:
    """Both methods side by side."""
    lines = [
        "| likelihood | data | log Z, verify | log Z, slices | mean \\|Δp\\| | its error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for at in (Setting(*names) for names in CHECKED):
        if at not in exact:
            continue
        a, b = exact[at], truth(store, "slices", at, particles, runs)
        gap, error = np.abs(a.p - b.p).mean(), np.hypot(a.p_sd, b.p_sd).mean()
        lines.append(
            f"| {at.likelihood} | {at.data} | {a.log_evidence:.2f} ± {a.log_evidence_sd:.2f} "
            f"| {b.log_evidence:.2f} ± {b.log_evidence_sd:.2f} | {gap:.4f} | {error:.4f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--likelihoods", nargs="+", choices=LIKELIHOODS, default=list(LIKELIHOODS))
    given = parser.parse_args()
    (HERE / ".store").mkdir(exist_ok=True)
    store, size = Store(HERE / ".store" / "truth.jsonl"), (given.particles, given.runs)
    exact: dict[Setting, Truth] = {}
    found: dict[tuple[Setting, str], Distances] = {}
    for likelihood in given.likelihoods:
        for name in DATA:
            for size_of in KERNELS:
                at = Setting(likelihood, name, size_of)
                exact[at] = truth(store, "verify", at, *size)
                for rule in RULES:
                    if rule == "Laplace" and likelihood == "noisy_threshold":
                        continue
                    here = found[at, rule] = distances(at, rule, exact[at])
                    told = "; ".join(f"{way} {z:.3f}, {p:.4f}" for way, (z, p) in here.ways.items())
                    print(f"{' '.join(at)}, {rule}: {told or 'not converged'}", flush=True)
    lines = [
        "# How close to the exact posterior",
        "",
        "`benchmarks/truth.py` (`make truth`) writes this page and describes the protocol: 24 settings",
        "of 100 rows, distances of log evidence in nats and of the probabilities of 100 new rows. Fits",
        "that have not converged are counted, and left out of the means. A second line leaves out fits",
        "of which `summary()` says that they are not to be trusted: as they are, or corrected.",
        "",
        *summary(found, exact),
        "",
        "Two methods that share no code agree about the truth:",
        "",
        *checks(store, exact, *size),
    ]
    print("\n".join(lines))
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
