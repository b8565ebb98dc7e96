"""How solved rows answer to small changes: the derivatives of ``local``, backwards."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.evidence import SiteScales, scales_at
from postlin.likelihoods import BinaryLikelihood
from postlin.proposals import Proposal
from postlin.sites import Marginals, Sites, SiteView
from postlin.sparse.local import Method, Seen, newton_matrix

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
        return scales_at(self.method.rule, self.method.likelihood, self.y, self.cavity)

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
