"""One row at a time: the site that agrees with the marginal it makes, given what all others say.

The shared part of a row's latent value, g = Rᵀw, has mean μ and variance s under the posterior of
w. The row's own part e ~ N(0, λ) is integrated exactly: with a site (τ, ν) on f = g + e and d =
1/(1 + λτ)

    m = (μ + λν) d,     v = λd + s d²,     τ' = τd,     ν' = νd,

m and v being the marginal of f and (τ', ν') the site as g feels it. The rule wants (τ, ν) to be
what it proposes at (m, v): two unknowns a row, by Newton's method, elementwise. In the coordinates
(dτ, dν − m dτ)

    dm = λd (dν − m dτ) + d dμ + d (ν − τm) dλ,
    dv = −λd² (λ + 2sd) dτ + d² ds + d² (1 − 2sτ') dλ,
    dτ' = d² dτ − τ'² dλ,     dν' − μ dτ' = d (dν − m dτ) − τ'(ν − τm) dλ.

A row of weight w stands for max(w, 1) rows, each with its own e, with a site of strength q = min(w, 1).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.likelihoods import Likelihood
from postlin.proposals import Proposal
from postlin.rules import EP, Rule
from postlin.sites import Sites, SiteView

#: A move smaller than this, in units of the marginal, is followed once more and then is none.
_SOLVED = 1e-7
#: Newton's method is used for smaller moves than this, and where det(I − J) is larger than that.
_NEAR, _STABLE = 0.3, 0.05
#: A row with a larger move than this left is not solved.
_UNSOLVED = 1e-6
#: Most evaluations of the rule for a row.
_EVALUATIONS = 100
#: A step is halved so often before a damped plain step is taken instead.
_HALVINGS = 3
#: At the start, the largest part of the precision of g that may be the row's own site.
_OWN_PART = 0.5


class Seen(NamedTuple):
    """What the posterior over w says of some rows, and how strong their sites are."""

    mu: Array
    s: Array
    lam: Array
    strength: Array  # q

    def at(self, chosen: np.ndarray) -> "Seen":
        """Some of them."""
        return Seen(*(part[chosen] for part in self))

    def view(self, sites: Sites) -> SiteView:
        """What a rule looks at, with these sites of strength q, for an observation of strength one."""
        mu, s, lam, q = self
        tau, nu = sites
        d = 1.0 / (1.0 + lam * tau)
        m, v = (mu + lam * nu) * d, (lam + s * d) * d
        return SiteView(m, v, tau / q, nu / q, d * (1.0 - s * tau * d), q)


@dataclass(frozen=True)
class Method:
    """A likelihood and a rule."""

    likelihood: Likelihood
    rule: Rule

    def cautious(self, y: Array, seen: Seen) -> Sites:
        """(τ', ν') for the first passes: of a curvature that is never too small, at (μ, λ + s)."""
        mu, s, lam, q = seen
        response = self.likelihood.regression(y, mu, lam + s)
        rho = (
            np.maximum(response.rho, -response.g_by_m) if self.likelihood.has_density else response.rho
        )
        return Sites(q * rho, q * (rho * mu + response.g))

    def solve(self, y: Array, seen: Seen) -> tuple[Sites, int]:
        """The sites (of strength q), and how many rows could not be solved."""
        sites = self._start(y, seen)
        rows = np.arange(len(y))
        newton = _Newton(self, y, seen, sites)
        for _ in range(_EVALUATIONS):
            solved = newton.advance()
            if solved.any():
                sites.tau[rows[solved]], sites.nu[rows[solved]] = newton.take(solved)
                rows = rows[~solved]
                newton.keep(~solved)
            if not len(rows):
                return sites, 0
        sites.tau[rows], sites.nu[rows] = newton.take(np.ones(len(rows), dtype=bool))
        return sites, int((newton.size > _UNSOLVED).sum())

    def _start(self, y: Array, seen: Seen) -> Sites:
        """The sites at (μ, λ + s), weakened where they would claim most of what is known of g."""
        mu, s, lam, q = seen
        zero, one = np.zeros_like(mu), np.ones_like(mu)
        (tau, nu), _ = self.rule.set_sites(self.likelihood, y, SiteView(mu, lam + s, zero, zero, one))
        tau, nu = q * np.maximum(tau, 0.0), q * nu
        part = s * tau / (1.0 + lam * tau)
        shrink = np.minimum(1.0, _OWN_PART / np.maximum(part, _OWN_PART))
        return Sites(shrink * tau, shrink * nu)


def newton_matrix(seen: Seen, sites: Sites, proposal: Proposal) -> tuple[Array, Array]:
    """The rule's derivatives [row, column, point], and I − J of the local map in (dτ, dν − m dτ)."""
    _, s, lam, q = seen
    d = 1.0 / (1.0 + lam * sites.tau)
    by = proposal.jacobian()
    matrix = -by[:, 2:]
    matrix[:, 0] += by[:, 1] * (q * lam * d**2 * (lam + 2.0 * s * d))
    matrix[:, 1] -= by[:, 0] * (q * lam * d)
    matrix[0, 0] += 1.0
    matrix[1, 1] += 1.0
    return by, matrix


class _Newton:
    """Newton's method for many rows, those that are solved leaving.

    A badly mislabelled row may have several solutions, or creep past where there almost is one. Damped
    plain steps lead to the same of them for all that is seen nearby, and Newton's method is used only
    where these steps would arrive: near a solution, and where none of them points away from it.
    """

    def __init__(self, method: Method, y: Array, seen: Seen, sites: Sites) -> None:
        self.method, self.y, self.seen = method, y, seen
        n = len(y)
        self.tau, self.nu = sites.tau.copy(), sites.nu.copy()
        self.mean = np.zeros(n)  # m there
        self.size = np.full(n, np.inf)  # how far it is from being solved
        self.plain = np.zeros((2, n))  # half of what the rule asks for there, in (dτ, dν − m dτ)
        self.step = np.zeros((2, n))  # what is tried next
        self.halvings = np.zeros(n, dtype=int)  # of a step of Newton's
        self.follow = np.ones(n, dtype=bool)  # whether it is a plain one, good whatever it leads to

    def keep(self, chosen: np.ndarray) -> None:
        """Go on with some rows."""
        self.y, self.seen = self.y[chosen], self.seen.at(chosen)
        for name in ("tau", "nu", "mean", "size", "halvings", "follow", "plain", "step"):
            setattr(self, name, getattr(self, name)[..., chosen])

    def take(self, chosen: np.ndarray) -> Sites:
        """The sites of some rows."""
        return Sites(self.tau[chosen], self.nu[chosen])

    def advance(self) -> np.ndarray:
        """Try the steps; says which rows are solved."""
        trial, sound = self._trial()
        view = self.seen.view(trial)
        proposal = self.method.rule.propose(self.method.likelihood, self.y, view)
        d_tau = proposal.sites.tau - view.tau
        move = np.array([d_tau, proposal.sites.nu - view.nu - view.mean * d_tau])
        size = np.maximum(np.abs(move[0]) * view.variance, np.abs(move[1]) * np.sqrt(view.variance))
        good = sound & ((size < self.size) | (self.follow & np.isfinite(size)))
        stuck = ~good & (self.size < _UNSOLVED) & (self.halvings > 0)  # rounding has taken over
        new = (trial.tau, trial.nu, view.mean, size)
        for old, value in zip((self.tau, self.nu, self.mean, self.size), new, strict=True):
            np.copyto(old, value, where=good)
        half = 0.5 * self.seen.strength * move
        np.copyto(self.plain, half, where=good)
        newton, arrives = self._newton(trial, proposal, move)
        arrives &= size < _NEAR
        self.halvings = np.where(good, 0, self.halvings + 1)
        self.follow = np.where(good, ~arrives, self.halvings > _HALVINGS)
        self.step = np.where(good, np.where(arrives, newton, half), 0.5 * self.step)
        self.step = np.where(~good & self.follow, self.plain, self.step)
        solved = good & arrives & (size < _SOLVED)
        tau, nu = self._after()
        np.copyto(self.tau, tau, where=solved)
        np.copyto(self.nu, nu, where=solved)
        return np.asarray(solved | stuck)

    def _after(self) -> Sites:
        tau = self.tau + self.step[0]
        return Sites(tau, self.nu + self.step[1] + self.mean * self.step[0])

    def _trial(self) -> tuple[Sites, np.ndarray]:
        """The sites to try, those that make no Gaussian left as they are; and which do."""
        tau, nu = self._after()
        with np.errstate(all="ignore"):  # a step may lead out of all range
            d = 1.0 / (1.0 + self.seen.lam * tau)
            sound = (d > 0) & np.isfinite(tau) & np.isfinite(nu)
            if isinstance(self.method.rule, EP):
                sound &= self.seen.s * tau * d < 1.0  # a proper cavity
        return Sites(np.where(sound, tau, self.tau), np.where(sound, nu, self.nu)), sound

    def _newton(self, sites: Sites, proposal: Proposal, move: Array) -> tuple[Array, np.ndarray]:
        """Newton's steps, precisions that are wanted positive kept so; and where they may be used."""
        _, ((a, b), (c, d)) = newton_matrix(self.seen, sites, proposal)
        determinant = a * d - b * c
        regular = determinant > _STABLE
        inverse = np.divide(self.seen.strength, determinant, out=np.zeros_like(a), where=regular)
        step = inverse * np.array([d * move[0] - b * move[1], a * move[1] - c * move[0]])
        wanted = np.minimum(sites.tau, self.seen.strength * proposal.sites.tau)
        floor = np.where(wanted > 0, 0.1 * wanted, -np.inf)
        step[0] = np.maximum(step[0], floor - sites.tau)
        return step, regular & np.isfinite(step).all(axis=0)
