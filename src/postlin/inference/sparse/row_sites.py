"""How solved rows answer to small changes: the derivatives of ``local``, backwards."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from postlin._typing import Array, Marginals
from postlin.likelihoods import BinaryLikelihood, Likelihood
from postlin.rules.binary import Rule
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Proposal, Sites, SiteView

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
            if self.method.rule.needs_cavity:
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


#: What an improper cavity is given for 1 − τv, so that a result that is not converged stays finite.
_LEAST_GAP = 1e-10


class RowAdjoint(NamedTuple):
    """Derivatives of what is asked for by μ, s and λ, and by the rule's own answer."""

    mu: Array
    s: Array
    lam: Array
    answer: Array  # [dτ̂, dν̂ − m dτ̂]


@dataclass(frozen=True)
class Linearised:
    """Solved rows, and how their sites and their share of the evidence answer to small changes."""

    method: Method
    y: Array
    seen: Seen
    sites: Sites
    view: SiteView
    proposal: Proposal

    @classmethod
    def at(cls, method: Method, y: Array, seen: Seen, sites: Sites) -> "Linearised":
        """At sites that are solved for."""
        view = seen.view(sites)
        return cls(method, y, seen, sites, view, method.rule.propose(method.likelihood, y, view))

    @cached_property
    def d(self) -> Array:
        """1/(1 + λτ)."""
        d: Array = 1.0 / (1.0 + self.seen.lam * self.sites.tau)
        return d

    @property
    def felt(self) -> Sites:
        """(τ', ν'): the sites as g feels them."""
        return Sites(self.sites.tau * self.d, self.sites.nu * self.d)

    @property
    def pull(self) -> Array:
        """ν − τm, which is ν' − τ'μ."""
        pull: Array = self.sites.nu - self.sites.tau * self.view.mean
        return pull

    @property
    def marginals(self) -> Marginals:
        """Of f."""
        return Marginals(self.view.mean, self.view.variance)

    @property
    def improper(self) -> np.ndarray:
        """Rows without a proper cavity: their sites and the posterior do not belong together yet."""
        return ~(self.view.gap > 0)

    @property
    def cavity(self) -> SiteView:
        """The view with every cavity proper, so that no evidence is ever without a number."""
        return self.view._replace(gap=np.where(self.improper, _LEAST_GAP, self.view.gap))

    @cached_property
    def scales(self) -> SiteScales:
        """The rows' terms of the evidence, of one observation each."""
        return self.method.rule.scales(self.method.likelihood, self.y, self.cavity)

    def normalisers(self) -> Array:
        """What integrating e adds to the log evidence: ½ log d + ½ λν²d."""
        lam, nu, d = self.seen.lam, self.sites.nu, self.d
        terms: Array = 0.5 * (lam * nu**2 * d + np.log(d))
        return terms

    @cached_property
    def _local(self) -> tuple[Array, Array]:
        return newton_matrix(self.seen, self.sites, self.proposal)

    def pull_back(self, weight: Array, t: Array, u: Array, evidence: bool) -> RowAdjoint:
        """From adjoints t on dτ' and u on dν' − μdτ', of max(w, 1) rows, to those on what is seen.

        With ``evidence`` that of the log evidence is added: all of it, for what the sites change
        through the posterior of w and what they change here cancels but for the mismatch at the
        cavity.
        """
        _, s, lam, q = self.seen
        d, by, copies = self.d, self._local[0], weight / q
        G = weight * self.scales.gradient if evidence else np.zeros((4, len(d)))
        v_by_tau = -lam * d**2 * (lam + 2.0 * s * d)
        right = np.array(
            [
                G[2] + q * v_by_tau * G[1] + weight * t * d**2,
                G[3] + q * lam * d * G[0] + weight * u * d,
            ]
        )
        (a, b), (c, e) = self._local[1]
        answer = np.array([e * right[0] - c * right[1], a * right[1] - b * right[0]]) / (a * e - b * c)
        mean_bar = G[0] + (by[:, 0] * answer).sum(axis=0)
        variance_bar = G[1] + (by[:, 1] * answer).sum(axis=0)
        tau, pull = self.felt.tau, self.pull
        direct = -t * tau**2 - u * tau * pull
        if evidence:
            direct = direct + 0.5 * (pull**2 - tau * (1.0 - s * tau))
        lam_bar = d * pull * mean_bar + d**2 * (1.0 - 2.0 * s * tau) * variance_bar + copies * direct
        return RowAdjoint(d * mean_bar, d**2 * variance_bar, lam_bar, answer)

    def by_parameters(self, weight: Array, adjoint: RowAdjoint) -> Array:
        """∂ log evidence by the likelihood's parameters, summed over the rows."""
        likelihood = self.method.likelihood
        assert isinstance(likelihood, BinaryLikelihood)
        changes = self.method.rule.changes(likelihood, self.y, self.proposal.at)
        return np.array(
            [
                np.sum(adjoint.answer * self.proposal.by_parameter(change)) + np.sum(weight * direct)
                for change, direct in zip(changes, self.scales.by_parameters, strict=True)
            ]
        )
