"""The site of each row: its two equations, solved, and their derivatives.

Under the posterior of w, Rᵀw of a row has mean μ and variance s. With the row's own site (τ, ν) and
d = 1/(1 + λτ) the marginal of f = Rᵀw + e is then N((μ + λν)d, λd + sd²), and the site must be what the
rule proposes there. In terms of Rᵀw the site has the precision τ' = τd and the pull ν' − τ'μ.

A row of weight ω stands for max(ω, 1) rows, with sites of strength q = min(ω, 1) each.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from postlin._typing import Array, cached_property
from postlin.inference.prior_mean import PriorMean, mean_at
from postlin.likelihoods import BinaryLikelihood, Likelihood
from postlin.likelihoods.on_host import anywhere
from postlin.linalg.arrays import Matrix, Place, on_host, place_of
from postlin.linalg.functions import functions
from postlin.linalg.stacks import part_of
from postlin.rules.binary import Rule
from postlin.rules.scales import SiteScales
from postlin.rules.sites import Proposal, Sites, SiteView

#: A row is solved by the next step once its move, in units of the marginal, is smaller than this.
_SOLVED = 1e-7
#: Newton's method is used for moves smaller than the first, where det(I − J) is larger than the second.
_NEWTON, _STABLE = 0.3, 0.05
#: A row counts as unsolved if its last move is larger than this.
_UNSOLVED = 1e-6
#: The most evaluations of the rule for a row; one that passes where there is almost a second solution
#: takes several hundred plain steps.
_EVALUATIONS = 1000
#: How often a step is halved before a damped plain step is taken instead.
_HALVINGS = 3
#: The largest part of the precision of Rᵀw that a row's own site may have at the start.
_OWN_PART = 0.5
#: The value of 1 − τv for an improper cavity, so that a result that is not converged stays finite.
_LEAST_GAP = 1e-10


class RowMoments(NamedTuple):
    """Mean and variance of Rᵀw, the variance of e, and the strength q of the site, for some rows."""

    mu: Array  # with the prior mean of f
    s: Array
    lam: Array
    strength: Array

    def at(self, rows: Any) -> "RowMoments":
        """The moments of the rows with these indices."""
        return RowMoments(*(part_of(part, rows) for part in self))

    def view(self, sites: Sites) -> SiteView:
        """The view of a rule with these sites of strength q, for an observation of strength one."""
        mu, s, lam, q = self
        tau, nu = sites
        d = 1.0 / (1.0 + lam * tau)
        m, v = (mu + lam * nu) * d, (lam + s * d) * d
        return SiteView(m, v, tau / q, nu / q, d * (1.0 - s * tau * d), q)


@dataclass(frozen=True)
class Method:
    """A likelihood and a rule, and the prior mean of f, to which Rᵀw and e are added."""

    likelihood: Likelihood
    rule: Rule
    prior_mean: PriorMean = 0.0

    def mean_at(self, rows: Matrix) -> Array:
        """The prior mean of f at rows, where they are."""
        mean: Array = place_of(rows).put(mean_at(self.prior_mean, on_host(rows)))
        return mean

    def at(self, place: Place) -> "Method":
        """The method with a likelihood that takes and returns arrays at a place."""
        if place.is_host:
            return self
        assert isinstance(self.likelihood, BinaryLikelihood)
        return Method(anywhere(self.likelihood, place), self.rule, self.prior_mean)

    def cautious(self, y: Array, moments: RowMoments) -> Sites:
        """Sites (τ', ν') for the first passes, at N(μ, λ + s); their curvature is never too small."""
        mu, s, lam, q = moments
        response = self.likelihood.regression(y, mu, lam + s)
        rho = response.rho
        if self.likelihood.has_density:
            rho = functions(rho).maximum(rho, -response.g_by_m)
        return Sites(q * rho, q * (rho * mu + response.g))

    def solve(self, y: Array, moments: RowMoments) -> tuple[Sites, int]:
        """The sites (of strength q), and the number of rows that could not be solved."""
        sites, f = self._start(y, moments), functions(y)
        rows = f.arange(len(y), y)
        newton = _Newton(self, y, moments, sites)
        for _ in range(_EVALUATIONS):
            solved = newton.advance()
            done = f.flatnonzero(solved)
            if len(done):
                there = part_of(rows, done)
                sites.tau[there], sites.nu[there] = part_of(newton.tau, done), part_of(newton.nu, done)
                left = f.flatnonzero(~solved)
                rows = part_of(rows, left)
                newton.keep(left)
            if not len(rows):
                return sites, 0
        sites.tau[rows], sites.nu[rows] = newton.tau, newton.nu
        return sites, int((newton.size > _UNSOLVED).sum())

    def _start(self, y: Array, moments: RowMoments) -> Sites:
        """The sites at N(μ, λ + s), weakened where they had most of the precision of Rᵀw."""
        mu, s, lam, q = moments
        f = functions(mu)
        zero, one = f.zeros_like(mu), f.ones_like(mu)
        (tau, nu), _ = self.rule.set_sites(self.likelihood, y, SiteView(mu, lam + s, zero, zero, one))
        tau, nu = q * f.maximum(tau, 0.0), q * nu
        # s τ' ≤ _OWN_PART where τ ≤ _OWN_PART/(s − _OWN_PART λ); it has no limit where λ is so large
        room = s - _OWN_PART * lam
        limit = f.where(room > 0, _OWN_PART / f.where(room > 0, room, 1.0), np.inf)
        weaker = f.minimum(tau, limit)
        shrink = f.where(tau > 0, weaker / f.where(tau > 0, tau, 1.0), 1.0)
        return Sites(weaker, shrink * nu)


def newton_matrix(moments: RowMoments, sites: Sites, proposal: Proposal) -> tuple[Array, Array]:
    """The rule's derivatives [row, column, point], and I − J of a row's map in (dτ, dν − m dτ)."""
    _, s, lam, q = moments
    d = 1.0 / (1.0 + lam * sites.tau)
    by = proposal.jacobian()
    matrix = -by[:, 2:]
    matrix[:, 0] += by[:, 1] * (q * lam * d**2 * (lam + 2.0 * s * d))
    matrix[:, 1] -= by[:, 0] * (q * lam * d)
    matrix[0, 0] += 1.0
    matrix[1, 1] += 1.0
    return by, matrix


class _Newton:
    """Newton's method for many rows at once; rows that are solved leave.

    A badly mislabelled row may have several solutions, or pass slowly where there is almost one. Damped
    plain steps lead rows with similar moments to the same solution. Newton's method is therefore used
    only where plain steps would arrive too: near a solution that none of them leads away from.
    """

    def __init__(self, method: Method, y: Array, moments: RowMoments, sites: Sites) -> None:
        self.method, self.y, self.moments = method, y, moments
        self.f = f = functions(y)
        zero = f.zeros_like(y)
        self.tau, self.nu = sites
        self.mean = zero  # the marginal mean m at (τ, ν)
        self.size = zero + np.inf  # the size of the move that the rule asks for at (τ, ν)
        self.plain = f.rows([zero, zero])  # half of that move, in (dτ, dν − m dτ)
        self.step = self.plain  # the step to try next
        self.halvings = zero  # how often a Newton step has been halved
        self.follow = zero == 0.0  # whether the step is plain: it is taken in any case

    def keep(self, rows: Any) -> None:
        """Drop all rows but those with these indices."""
        self.y, self.moments = part_of(self.y, rows), self.moments.at(rows)
        for name in ("tau", "nu", "mean", "size", "halvings", "follow", "plain", "step"):
            values = getattr(self, name)
            setattr(self, name, part_of(values, rows, axis=values.ndim - 1))

    def advance(self) -> np.ndarray:
        """Try the steps, choose the next ones, and return which rows are solved."""
        f = self.f
        trial, sound = self._trial()
        view = self.moments.view(trial)
        proposal = self.method.rule.propose(self.method.likelihood, self.y, view)
        d_tau = proposal.sites.tau - view.tau
        move = f.rows([d_tau, proposal.sites.nu - view.nu - view.mean * d_tau])
        size = f.maximum(f.abs(move[0]) * view.variance, f.abs(move[1]) * f.sqrt(view.variance))
        good = sound & ((size < self.size) | (self.follow & f.isfinite(size)))
        stuck = ~good & (self.size < _UNSOLVED) & (self.halvings > 0)  # by rounding
        half = 0.5 * self.moments.strength * move
        new, old = (*trial, view.mean, size), (self.tau, self.nu, self.mean, self.size)
        self.tau, self.nu, self.mean, self.size = f.where_each(good, new, old)
        self.plain = f.where(good, half, self.plain)
        newton, arrives = self._newton(trial, proposal, move)
        arrives = arrives & (size < _NEWTON)
        self.halvings = f.where(good, 0.0, self.halvings + 1.0)
        self.follow = f.where(good, ~arrives, self.halvings > _HALVINGS)
        self.step = f.where(good, f.where(arrives, newton, half), 0.5 * self.step)
        self.step = f.where(~good & self.follow, self.plain, self.step)
        solved = good & arrives & (size < _SOLVED)
        if f.any(solved):
            last, sound = self._trial()
            self.tau, self.nu = f.where_each(solved & sound, last, (self.tau, self.nu))
        done: np.ndarray = solved | stuck
        return done

    def _after(self) -> Sites:
        """The sites after the step."""
        tau = self.tau + self.step[0]
        return Sites(tau, self.nu + self.step[1] + self.mean * self.step[0])

    def _trial(self) -> tuple[Sites, np.ndarray]:
        """The sites to try, and where they make a Gaussian; elsewhere they are the present sites."""
        tau, nu = self._after()
        with np.errstate(all="ignore"):  # a step may overflow
            d = 1.0 / (1.0 + self.moments.lam * tau)
            sound = (d > 0) & self.f.isfinite(tau) & self.f.isfinite(nu)
            if self.method.rule.needs_cavity:
                sound &= self.moments.s * tau * d < 1.0  # a proper cavity
        return Sites(*self.f.where_each(sound, (tau, nu), (self.tau, self.nu))), sound

    def _newton(self, sites: Sites, proposal: Proposal, move: Array) -> tuple[Array, np.ndarray]:
        """Newton steps, and where they may be used; no step makes a positive precision negative."""
        _, ((a, b), (c, d)) = newton_matrix(self.moments, sites, proposal)
        determinant, strength = a * d - b * c, self.moments.strength
        f, regular = self.f, determinant > _STABLE
        inverse = f.where(regular, strength / f.where(regular, determinant, 1.0), 0.0)
        step = inverse * f.rows([d * move[0] - b * move[1], a * move[1] - c * move[0]])
        wanted = f.minimum(sites.tau, strength * proposal.sites.tau)
        floor = f.where(wanted >= 0, 0.1 * wanted, -np.inf)
        step[0] = f.maximum(step[0], floor - sites.tau)
        return step, regular & f.isfinite(step[0]) & f.isfinite(step[1])


class RowAdjoint(NamedTuple):
    """Derivatives of a scalar by μ, s and λ of each row, and by the sites that the rule proposes."""

    mu: Array
    s: Array
    lam: Array
    proposal: Array  # by dτ̂ and dν̂ − m dτ̂


@dataclass(frozen=True)
class SolvedRows:
    """Rows of a chunk with their solved sites: their terms of the log evidence, and derivatives."""

    method: Method
    y: Array
    weight: Array
    moments: RowMoments
    sites: Sites
    prior_mean: Array

    @cached_property
    def view(self) -> SiteView:
        """What the rule sees of each row; view.mean and view.variance are the marginals of f."""
        return self.moments.view(self.sites)

    @cached_property
    def d(self) -> Array:
        """1/(1 + λτ)."""
        return 1.0 / (1.0 + self.moments.lam * self.sites.tau)

    @property
    def tau(self) -> Array:
        """τ' = τd, the precision that the site adds to Rᵀw."""
        return self.sites.tau * self.d

    @property
    def pull(self) -> Array:
        """ν − τm, which is ν' − τ'μ."""
        return self.sites.nu - self.sites.tau * self.view.mean

    @property
    def improper(self) -> np.ndarray:
        """Which rows have no proper cavity: far from the fixed point sites can outweigh marginals."""
        return ~(self.view.gap > 0)

    @property
    def cavity_view(self) -> SiteView:
        """The view with a gap above zero, so that all cavities and the evidence are finite numbers."""
        gap = functions(self.view.gap).where(self.improper, _LEAST_GAP, self.view.gap)
        return self.view._replace(gap=gap)

    @cached_property
    def scales(self) -> SiteScales:
        """The scales of the sites in the evidence, for one observation of each row."""
        return self.method.rule.scales(self.method.likelihood, self.y, self.cavity_view)

    def log_evidence(self) -> float:
        """The rows' terms of the log evidence, from integrating e and from the scales.

        The first is that of exp(ν'u − ½τ'u²) at u = 0, where f has its prior mean: ½ log d + ½ λν²d
        without one.
        """
        f, nu, mean = functions(self.d), self.sites.nu * self.d, self.prior_mean
        integrals = 0.5 * (self.moments.lam * self.sites.nu * nu + f.log(self.d))
        integrals = integrals + mean * (nu - 0.5 * self.tau * mean)
        copies = f.maximum(self.weight, 1.0)
        return float(f.sum(copies * integrals) + f.sum(self.weight * self.scales.value))

    @cached_property
    def _proposal(self) -> Proposal:
        return self.method.rule.propose(self.method.likelihood, self.y, self.view)

    @cached_property
    def _local(self) -> tuple[Array, Array]:
        return newton_matrix(self.moments, self.sites, self._proposal)

    def pull_back(self, t: Array | float, u: Array | float, *, evidence: bool) -> RowAdjoint:
        """Derivatives by the moments of a scalar with derivatives t by τ' and u by ν' − μτ' of a row.

        With ``evidence`` the log evidence is added to the scalar, including all that the sites change
        through the posterior of w. That cancels with what they change here, except for the mismatch of
        site and likelihood at the cavity.
        """
        _, s, lam, q = self.moments
        d, weight, (by, ((a, b), (c, e))) = self.d, self.weight, self._local
        f = functions(d)
        G = weight * self.scales.gradient if evidence else f.zeros((4, len(d)), d)
        v_by_tau = -lam * d**2 * (lam + 2.0 * s * d)
        by_tau = G[2] + q * v_by_tau * G[1] + weight * t * d**2
        by_nu = G[3] + q * lam * d * G[0] + weight * u * d
        proposal = f.rows([e * by_tau - c * by_nu, a * by_nu - b * by_tau]) / (a * e - b * c)
        by_mean = G[0] + (by[:, 0] * proposal).sum(axis=0)
        by_variance = G[1] + (by[:, 1] * proposal).sum(axis=0)
        tau, pull = self.tau, self.pull
        direct = -t * tau**2 - u * tau * pull
        if evidence:
            direct = direct + 0.5 * (pull**2 - tau * (1.0 - s * tau))
        by_lam = d * pull * by_mean + d**2 * (1.0 - 2.0 * s * tau) * by_variance + weight / q * direct
        return RowAdjoint(d * by_mean, d**2 * by_variance, by_lam, proposal)

    def by_parameters(self, adjoint: RowAdjoint) -> Array:
        """Derivatives of the log evidence by the likelihood's parameters, summed over the rows."""
        likelihood = self.method.likelihood
        assert isinstance(likelihood, BinaryLikelihood)
        changes = self.method.rule.changes(likelihood, self.y, self._proposal.at)
        f = functions(self.weight)
        sites = [float(f.sum(adjoint.proposal * self._proposal.by_parameter(c))) for c in changes]
        scales = [float(f.sum(self.weight * scale)) for scale in self.scales.by_parameters]
        return np.array(sites) + scales
