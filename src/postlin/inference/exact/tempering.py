"""Tempered sequential Monte Carlo: from draws of a fit's posterior to draws of the exact one.

Particles are drawn from q and taken to q exp(βΦ) for rising β (``bridge``). At every level β rises
until the effective sample size is 0.7 of the particles, these are resampled, and then move by
Hamiltonian dynamics. For q alone the dynamics is a rotation of d and its momentum u, which is computed
exactly; Φ adds kicks. In the coordinates d = L z and u = L r,

    d ← d cos ε + u sin ε,    u ← u cos ε − d sin ε,    u ← u + h β Σ ∇Φ(d),

where only the kicks, h = ε or ½ε at both ends, change the energy ½|z|² + ½|r|²: by
h β u·∇Φ + ½ h²β² ∇Φ·Σ∇Φ. So a step takes one product with Σ and none with L.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from postlin._typing import Array
from postlin.inference.exact.bridge import Bridge
from postlin.linalg.threads import in_order

#: β rises until this part of the particles is effective.
_KEPT = 0.7
#: The moves of a level, and the angle by which each of them rotates.
_MOVES, _ANGLE = 3, 1.4
#: The step ε is made shorter while a smaller part of the pilots' moves than the first is accepted, and
#: longer while a larger part than the second is, by these factors.
_RARELY, _OFTEN = 0.7, 0.9
_SHORTER, _LONGER = 0.75, 1.25
#: The most steps of a move, which rotates by a smaller angle if steps are short, and the shortest step.
_STEPS, _LEAST = 64, 1e-3
#: The particles whose moves decide on the step.
_PILOTS = 64
#: The particles that move together, in one thread: their arrays fit the cache.
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Run:
    """One run of the Monte Carlo: from draws of the fit's posterior to draws of the exact one."""

    log_evidence: float
    exponents: Array  # β after each level; the last is 1 unless the run was cut short
    effective_sample_sizes: Array  # of the weights of each level
    acceptance_rates: Array  # of the moves of each level
    n_ancestors: int  # of the particles at first, how many have descendants at the end
    seconds: float
    is_complete: bool  # whether no time limit has cut the run short

    @property
    def n_levels(self) -> int:
        """The number of levels."""
        return len(self.exponents)

    def __repr__(self) -> str:
        state = "" if self.is_complete else "cut short, "
        return (
            f"<Run: {state}log evidence {self.log_evidence:.6g}, {self.n_levels} levels, "
            f"{self.seconds:.1f} s>"
        )


class Particles(NamedTuple):
    """d, Φ(d), ∇Φ(d) and Σ∇Φ(d) of each particle."""

    d: Array
    log_ratio: Array
    slope: Array
    force: Array

    @classmethod
    def at(cls, bridge: Bridge, d: Array) -> "Particles":
        """The particles at d."""
        log_ratio, slope = bridge.log_ratio(d)
        return cls(d, log_ratio, slope, slope @ bridge.covariance)

    def some(self, which: slice | np.ndarray) -> "Particles":
        """Some of the particles; a slice is a view of them."""
        return Particles(*(part[which] for part in self))


def tempered(
    bridge: Bridge,
    n: int,
    seed: np.random.SeedSequence,
    *,
    n_jobs: int,
    is_late: Callable[[], bool],
    tell: Callable[[Array], object],
) -> tuple[Run, Array, Array]:
    """One run with n particles; the particles d at its end, and the logarithms of their weights.

    Where ``is_late``, the run ends early with weighted particles. ``tell`` is called with the exponents
    so far after every level. The result does not depend on ``n_jobs``, the number of threads.
    """
    began = perf_counter()
    cloud = _Cloud(bridge, n, seed, n_jobs)
    exponents, sizes, rates = [0.0], list[float](), list[float]()
    log_z = bridge.offset
    while exponents[-1] < 1.0 and not is_late():
        exponents.append(_next_exponent(cloud.particles.log_ratio, exponents[-1]))
        gain, size = cloud.resample(exponents[-1] - exponents[-2])
        log_z += gain
        sizes.append(size)
        rates.append(cloud.move(exponents[-1], is_late))
        tell(np.array(exponents[1:]))
    left = (1.0 - exponents[-1]) * cloud.particles.log_ratio
    total = logsumexp(left)
    if exponents[-1] < 1.0:
        sizes.append(_effective(left))
    run = Run(
        float(log_z + total - np.log(n)),
        np.array(exponents[1:]),
        np.array(sizes),
        np.array(rates),
        len(np.unique(cloud.ancestors)),
        perf_counter() - began,
        not cloud.is_cut and exponents[-1] == 1.0,
    )
    return run, cloud.particles.d, left - total


class _Cloud:
    """Particles with a source of random numbers for each block of them."""

    def __init__(self, bridge: Bridge, n: int, seed: np.random.SeedSequence, n_jobs: int) -> None:
        own, *others = seed.spawn(1 + -(-n // _BLOCK))
        self._bridge, self._n_jobs = bridge, n_jobs
        self._rng = np.random.default_rng(own)
        self._rngs = [np.random.default_rng(other) for other in others]
        self._step = _ANGLE
        #: Whether moves are missing because the time was up.
        self.is_cut = False
        self.ancestors = np.arange(n)
        parts = in_order(self._drawn, n, _BLOCK, n_jobs=n_jobs)
        self.particles = Particles(*map(np.concatenate, zip(*parts, strict=True)))
        log_ratio = self.particles.log_ratio
        log_ratio[~np.isfinite(log_ratio)] = -np.inf
        if not np.isfinite(log_ratio).any():
            raise ValueError(
                "no draw from the fit has a positive likelihood: the fit is too far from the exact "
                "posterior to be verified."
            )

    def _drawn(self, rows: slice) -> Particles:
        d = self._bridge.drawn(self._rngs[rows.start // _BLOCK], rows.stop - rows.start)
        return Particles.at(self._bridge, d)

    def resample(self, rise: float) -> tuple[float, float]:
        """Resample after β has risen; the gain in log evidence and the effective sample size."""
        log_weights = rise * self.particles.log_ratio
        n, total = len(log_weights), logsumexp(log_weights)
        ends = np.cumsum(np.exp(log_weights - total))
        chosen = np.searchsorted(ends / ends[-1], (np.arange(n) + self._rng.random()) / n, "right")
        self.particles, self.ancestors = self.particles.some(chosen), self.ancestors[chosen]
        return float(total - np.log(n)), _effective(log_weights)

    def move(self, exponent: float, is_late: Callable[[], bool]) -> float:
        """Move all particles, with a step that the pilots have chosen; the part that was accepted."""
        self._choose_step(exponent)
        accepted, n = list[float](), len(self.ancestors)
        for _ in range(_MOVES):
            if is_late():
                self.is_cut = True
                break
            parts = in_order(lambda rows: self._moved(rows, exponent), n, _BLOCK, n_jobs=self._n_jobs)
            accepted.append(sum(parts) / n)
        return float(np.mean(accepted)) if accepted else 0.0

    def _choose_step(self, exponent: float) -> None:
        """Change the step until the pilots accept as many moves as they should."""

        def accepted() -> float:
            pilots = self.particles.some(slice(0, _PILOTS))
            log_ratio, _ = _proposed(self._bridge, pilots, self._rng, self._step, exponent)
            return float(np.mean(np.exp(np.minimum(log_ratio, 0.0))))

        now = accepted()
        if now > _OFTEN:
            while now > _OFTEN and self._step < _ANGLE:
                self._step = min(_LONGER * self._step, _ANGLE)
                now = accepted()
        while now < _RARELY and self._step > _LEAST:
            self._step *= _SHORTER
            now = accepted()

    def _moved(self, rows: slice, exponent: float) -> float:
        """Move a block of particles in place; the sum of their acceptance probabilities."""
        rng, here = self._rngs[rows.start // _BLOCK], self.particles.some(rows)
        log_ratio, there = _proposed(self._bridge, here, rng, self._step, exponent)
        accepted = rng.random(len(log_ratio)) < np.exp(np.minimum(log_ratio, 0.0))
        for present, proposed in zip(here, there, strict=True):
            present[accepted] = proposed[accepted]
        return float(np.exp(np.minimum(log_ratio, 0.0)).sum())


def _proposed(
    bridge: Bridge, here: Particles, rng: np.random.Generator, step: float, exponent: float
) -> tuple[Array, Particles]:
    """Where Hamiltonian dynamics takes particles, and the logarithms of the acceptance ratios."""
    steps = min(int(np.ceil(_ANGLE / step)), _STEPS)
    angle = min(step, _ANGLE / steps)
    cos, sin, kick = np.cos(angle), np.sin(angle), angle * exponent
    u, there = bridge.drawn(rng, len(here.d)), here
    log_ratio = -exponent * here.log_ratio
    with np.errstate(all="ignore"):  # a step that is far too long may overflow; it is refused
        for k in range(steps + 1):
            h = kick if 0 < k < steps else 0.5 * kick
            work = u + 0.5 * h * there.force
            log_ratio -= h * np.einsum("ij,ij->i", work, there.slope)
            if k == steps:
                break
            u += h * there.force
            d = cos * there.d + sin * u
            u *= cos
            u -= sin * there.d
            there = Particles.at(bridge, d)
        log_ratio += exponent * there.log_ratio
    log_ratio[~(log_ratio > -np.inf)] = -np.inf  # not a number, too
    return log_ratio, there


def _effective(log_weights: Array) -> float:
    """The effective sample size (Σw)²/Σw²."""
    return float(np.exp(2.0 * logsumexp(log_weights) - logsumexp(2.0 * log_weights)))


def _next_exponent(log_ratio: Array, exponent: float) -> float:
    """The largest β up to 1 at which the particles' weights are effective enough."""
    least, rise = _KEPT * np.isfinite(log_ratio).sum(), 1.0 - exponent
    if _effective(rise * log_ratio) >= least:
        return 1.0
    low, high = 0.0, rise
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _effective(middle * log_ratio) >= least else (low, middle)
    return exponent + high
