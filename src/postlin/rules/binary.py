"""The rules for two classes: what they are asked for, and the Gaussian, slope and curvature of each.

| rule    | Gaussian                | slope | curvature          |
|---------|-------------------------|-------|--------------------|
| Laplace | (posterior mean, v = 0) | g_y   | −h_y               |
| EP      | the cavity              | g_y   | −h_y               |
| PL      | the posterior marginal  | g_y   | −g₊g₋ (A²/V, SLR)  |
| CL      | the cavity              | g_y   | −g₊g₋ (A²/V, SLR)  |

The site formula (``sites``) makes a site of them.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from postlin._typing import Array, Marginals, override
from postlin._validation import check_order, is_real
from postlin.exceptions import ImproperCavityError, NegativeSiteWarning
from postlin.likelihoods import BinaryLikelihood, Likelihood
from postlin.likelihoods.base import Change, Response
from postlin.likelihoods.conditional_moments import ConditionalMoments
from postlin.linalg.arrays import on_host
from postlin.linalg.functions import functions
from postlin.rules.scales import SiteScales, cavity_scales, linear_scales, mode_scales
from postlin.rules.sites import (
    AtCavity,
    AtMarginal,
    AtMode,
    Proposal,
    SiteRule,
    Sites,
    SiteView,
    set_sites,
)


class Rule(SiteRule):
    """How a site is set from the likelihood and the present posterior.

    A subclass implements ``propose``. The class attributes tell the solvers what else it needs.
    """

    #: The order of the quadrature that replaces the exact integral of the evidence, as in the paper.
    evidence_order: int | None = None

    #: Whether the rule needs a density p(y|f) rather than conditional moments.
    needs_density: ClassVar[bool] = True

    #: Whether sites depend on posterior variances, which cost as much as the factorisation.
    looks_at_variance: ClassVar[bool] = True

    #: Whether every cavity must be proper while the sites are iterated.
    needs_cavity: ClassVar[bool] = False

    #: Whether the series about the rule's posterior, which the correction begins, is of use.
    has_correction: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.evidence_order is not None:
            check_order(self.evidence_order, "evidence_order")

    @abstractmethod
    def propose(self, likelihood: Likelihood, y: Array, view: SiteView) -> Proposal:
        """The sites that the rule sets, given the posterior marginals and present sites."""

    def set_sites(self, likelihood: Likelihood, y: Array, view: SiteView) -> tuple[Sites, np.ndarray]:
        """The proposed sites without their derivatives, and which of them a policy has changed."""
        proposal = self.propose(likelihood, y, view)
        return proposal.sites, proposal.overruled

    def propose_cautiously(self, likelihood: Likelihood, y: Array, view: SiteView) -> Sites:
        """Sites for the first steps from the prior, which must not be far too weak."""
        return self.propose(likelihood, y, view).sites

    def changes(self, likelihood: Likelihood, y: Array, at: Marginals) -> list[Change]:
        """Derivatives of slope and curvature at these Gaussians by the likelihood's parameters."""
        assert isinstance(likelihood, BinaryLikelihood)
        return likelihood.density_changes(y, *at)

    def scales(self, likelihood: Likelihood, y: Array, view: SiteView) -> SiteScales:
        """The scales of the sites in the evidence."""
        return cavity_scales(likelihood, y, view, self.evidence_order)

    def check(self, likelihood: Likelihood) -> None:
        """Raise ``ValueError`` where this rule cannot use the likelihood."""
        if self.needs_density and not likelihood.has_density:
            raise ValueError(
                f"inference={self.name!r} needs a density p(y|f), and the {likelihood.name} likelihood "
                "has only conditional moments: use inference='pl' or 'cl'."
            )

    def check_inducing(self) -> None:
        """Raise ``ValueError`` where this rule cannot be used with inducing points."""

    def check_correction(self, likelihood: Likelihood) -> None:
        """Raise ``ValueError`` where the result has no correction (``inference.exact.expansion``)."""
        if not self.has_correction:
            raise ValueError(
                f"inference={self.name!r} has no correction, since the series diverges at its sites: "
                "use inference='pl', 'cl' or 'ep', or corrected=False."
            )
        if not likelihood.has_density:
            raise ValueError(
                f"the correction needs a density p(y|f), and the {likelihood.name} likelihood has only "
                "conditional moments."
            )
        if self.evidence_order is not None:
            raise ValueError(
                f"the correction belongs to the exact integral, which evidence_order="
                f"{self.evidence_order} replaces: leave evidence_order out, or corrected=False."
            )

    def check_verifiable(self) -> None:
        """Raise ``ValueError`` where the posterior of this rule is too far from the exact one."""


__all__ = ["CL", "EP", "PL", "REGISTRY", "Laplace", "Rule"]

#: A precision of at most this size underflows next: it counts as zero, which is not negative.
_NO_PRECISION = 1e-290

NegativeSites = Literal["keep", "raise", "clamp", "skip", "small_variance"]


@dataclass(frozen=True)
class Laplace(Rule):
    """A Gaussian about the mode of the posterior."""

    name: ClassVar[str] = "laplace"
    has_correction: ClassVar[bool] = False
    looks_at_variance: ClassVar[bool] = False
    is_newton: ClassVar[bool] = True

    def propose(self, likelihood: Likelihood, y: Array, view: SiteView) -> Proposal:
        """Newton's method for the mode, written as a site update."""
        at = Marginals(view.mean, functions(view.mean).zeros_like(view.mean))
        response = _density_response(likelihood, y, at)
        return AtMode(set_sites(at, response), at, response)

    @override
    def scales(self, likelihood: Likelihood, y: Array, view: SiteView) -> SiteScales:
        return mode_scales(likelihood, y, view)

    @override
    def check(self, likelihood: Likelihood) -> None:
        super().check(likelihood)
        if not getattr(likelihood, "differentiable", False):
            raise ValueError(
                f"inference='laplace' cannot use the {likelihood.name} likelihood: its gradient is "
                "zero almost everywhere, so the prior would never be changed. Use inference='pl' "
                "or 'ep', or fold white noise into it (WithNoise, or fold_noise=True)."
            )

    @override
    def check_verifiable(self) -> None:
        raise ValueError(
            "verify cannot start from a Laplace fit, which may be too far from the exact posterior: "
            "fit with inference='pl', 'cl' or 'ep'."
        )


@dataclass(frozen=True)
class EP(Rule):
    """Expectation propagation: the site that matches the moments of cavity times likelihood.

    ``negative_sites`` says what happens to sites of negative precision, which occur where a likelihood
    is not log-concave:

    - ``"keep"``: they stay, and steps are shortened so that the posterior is always positive
      definite and every cavity proper. The most accurate choice.
    - ``"raise"``: plain undamped EP, which raises ``ImproperCavityError`` where it breaks.
    - ``"clamp"``: their precision is set to zero.
    - ``"skip"``: they stay as they were before the update, so that the result depends on the start
      wherever such sites are left. Its evidence is not used to learn hyperparameters.
    - ``"small_variance"``: their variance is set to ``small_variance``, as in the paper.

    The last three issue a ``NegativeSiteWarning``.
    """

    negative_sites: NegativeSites = "keep"
    small_variance: float = 1e-2
    evidence_order: int | None = None
    name: ClassVar[str] = "ep"
    needs_cavity: ClassVar[bool] = True
    needs_fixed_point: ClassVar[bool] = True
    remedy: ClassVar[str] = "use inference='cl' or 'pl', which have no such trouble"
    #: With inducing points 112 hostile problems take 29 % less time than without this; with 0.5, 41 %
    #: less, but more of those with the noisy threshold end elsewhere, or nowhere.
    warm_below: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        if self.negative_sites not in get_args(NegativeSites):
            raise ValueError(
                f"negative_sites must be one of {', '.join(map(repr, get_args(NegativeSites)))}, "
                f"got {self.negative_sites!r}."
            )
        if not is_real(self.small_variance) or not 0 < self.small_variance < float("inf"):
            raise ValueError(f"small_variance must be positive, got {self.small_variance!r}.")
        super().__post_init__()

    def propose(self, likelihood: Likelihood, y: Array, view: SiteView) -> Proposal:
        """The sites with which cavity × site has the moments of cavity × likelihood."""
        cavity = _proper_cavity(view)
        response = _density_response(likelihood, y, cavity)
        sites = set_sites(cavity, response)
        if self.negative_sites in ("keep", "raise"):
            return AtCavity(sites, cavity, response, view, _none(view), None)
        f, changed = functions(sites.tau), sites.tau < -_NO_PRECISION
        if not f.any(changed):
            return AtCavity(sites, cavity, response, view, changed, None)
        # g/ρ has all digits where ν/τ, which is m + g/ρ too, has none because both underflow
        mean = cavity.mean + response.g / f.where(changed, response.rho, 1.0)
        policy, replacement = self._policy(sites, mean, view, changed)
        kept = Sites(*(f.where(changed, a, b) for a, b in zip(policy, sites, strict=True)))
        return AtCavity(kept, cavity, response, view, changed, replacement)

    def _policy(
        self, sites: Sites, mean: Array, view: SiteView, where: np.ndarray
    ) -> tuple[Sites, np.ndarray]:
        """The sites that replace negative ones of these means, and their derivatives by the latter."""
        f = functions(sites.tau)
        zero, one = f.zeros_like(sites.tau), f.ones_like(sites.tau)
        if self.negative_sites == "skip":
            return Sites(view.tau, view.nu), f.rows([[zero, zero], [zero, zero]])
        if self.negative_sites == "small_variance":
            tau, precision = f.where(where, sites.tau, 1.0), 1.0 / self.small_variance
            by_site = f.rows([[zero, zero], [-mean * precision / tau, precision / tau]])
            return Sites(precision * one, precision * mean), by_site
        return Sites(zero, sites.nu), f.rows([[zero, zero], [zero, one]])

    @property
    @override
    def plain_only(self) -> bool:
        return self.negative_sites == "raise"

    @override
    def check_inducing(self) -> None:
        if self.negative_sites != "keep":
            raise ValueError(
                "EP with inducing points keeps sites of negative precision: use "
                f"EP(negative_sites='keep'), not {self.negative_sites!r}."
            )

    @override
    def doubt(self, overruled: np.ndarray) -> str:
        count = int(overruled.sum())
        if not count or self.negative_sites != "skip":
            return ""
        return (
            f"{count} sites stay where they happened to be, so that the result depends on the start "
            "and has no evidence"
        )

    @override
    def policy_warning(self, overruled: np.ndarray) -> NegativeSiteWarning | None:
        count = int(overruled.sum())
        if not count:
            return None
        rows = ", ".join(map(str, np.flatnonzero(overruled)[:5]))
        return NegativeSiteWarning(
            f"EP asked for negative precision at {count} sites (rows {rows}"
            f"{', …' if count > 5 else ''}), which negative_sites={self.negative_sites!r} changed; use "
            '"keep", which is more accurate, or inference="pl".'
        )


@dataclass(frozen=True)
class PL(Rule):
    """Posterior linearisation: statistical linear regression at the posterior marginal.

    ``evidence_order`` replaces the exact integral of the evidence by Gauss–Hermite quadrature of
    that order about the posterior, as the paper does with 10.
    """

    evidence_order: int | None = None
    name: ClassVar[str] = "pl"
    needs_density: ClassVar[bool] = False
    warm_up: ClassVar[int] = 3

    def propose(self, likelihood: Likelihood, y: Array, view: SiteView) -> Proposal:
        """The sites τ = A²/Ω, ν = A(y − b)/Ω of paper eqs. (10), (13), (14)."""
        at = Marginals(view.mean, view.variance)
        response = likelihood.regression(y, *at)
        return AtMarginal(set_sites(at, response), at, response)

    @override
    def set_sites(self, likelihood: Likelihood, y: Array, view: SiteView) -> tuple[Sites, np.ndarray]:
        return _regressed(likelihood, y, Marginals(view.mean, view.variance)), _none(view)

    @override
    def propose_cautiously(self, likelihood: Likelihood, y: Array, view: SiteView) -> Sites:
        return _regressed_cautiously(likelihood, y, Marginals(view.mean, view.variance))

    @override
    def changes(self, likelihood: Likelihood, y: Array, at: Marginals) -> list[Change]:
        return likelihood.regression_changes(y, *at)

    @override
    def scales(self, likelihood: Likelihood, y: Array, view: SiteView) -> SiteScales:
        if isinstance(likelihood, ConditionalMoments):
            return linear_scales(likelihood, y, view)
        return super().scales(likelihood, y, view)


@dataclass(frozen=True)
class CL(Rule):
    """Cavity linearisation: statistical linear regression at the cavity.

    Cavity × site has the mean of cavity × likelihood, as in EP. Its variance is that of cavity ×
    likelihood averaged over the labels that the cavity predicts. An average of variances is positive
    and below the cavity's own, so that every site has positive precision, and removing it from a
    posterior leaves a proper cavity, whatever the likelihood.
    """

    name: ClassVar[str] = "cl"
    needs_density: ClassVar[bool] = False
    needs_cavity: ClassVar[bool] = True
    is_unique: ClassVar[bool] = False
    warm_up: ClassVar[int] = 3  # without it 6 of 120 probit settings of `make convergence` are lost
    #: Of 2,400 hostile problems 75 end without a solution; with 0.45, which is best for PL, 101 do.
    newton_below: ClassVar[float] = 1.0
    #: With inducing points 7 of 52 settings of benchmarks/sparse_convergence.py are lost without this.
    warm_below: ClassVar[float] = 0.5

    def propose(self, likelihood: Likelihood, y: Array, view: SiteView) -> Proposal:
        """The sites τ = A²/Ω, ν = A(y − b)/Ω of the regression of y on f at the cavity."""
        cavity = _proper_cavity(view)
        response = likelihood.regression(y, *cavity)
        return AtCavity(set_sites(cavity, response), cavity, response, view, _none(view), None)

    @override
    def set_sites(self, likelihood: Likelihood, y: Array, view: SiteView) -> tuple[Sites, np.ndarray]:
        return _regressed(likelihood, y, _proper_cavity(view)), _none(view)

    @override
    def propose_cautiously(self, likelihood: Likelihood, y: Array, view: SiteView) -> Sites:
        return _regressed_cautiously(likelihood, y, _proper_cavity(view))

    @override
    def changes(self, likelihood: Likelihood, y: Array, at: Marginals) -> list[Change]:
        return likelihood.regression_changes(y, *at)


#: The rules by name, as ``inference="pl"``.
REGISTRY: dict[str, type[Rule]] = {rule.name: rule for rule in (PL, CL, EP, Laplace)}


def _proper_cavity(view: SiteView) -> Marginals:
    """The cavities; raises ``ImproperCavityError`` about the first that is improper."""
    if not functions(view.gap).any(~(view.gap > 0)):
        return view.cavity
    # the last axis runs over the sites
    variance, gap = np.atleast_1d(on_host(view.variance), on_host(view.gap))
    first = tuple(np.argwhere(~(gap > 0))[0])
    raise ImproperCavityError(
        int(first[-1]), float(variance[first] / gap[first]) if gap[first] else np.inf
    )


def _none(view: SiteView) -> np.ndarray:
    """That a policy has changed no site."""
    return np.zeros(np.shape(view.tau), dtype=bool)


def _regressed(likelihood: Likelihood, y: Array, at: Marginals) -> Sites:
    """The sites of the regression of y on f ~ N(m, v).

    This omits the derivatives, which only Newton's method needs, and takes half the time.
    """
    if not isinstance(likelihood, BinaryLikelihood):
        return set_sites(at, likelihood.regression(y, *at))
    plus, minus = likelihood.slopes(*at)
    stretch = 1.0 / (1.0 + plus * minus * at.variance)
    tau = -plus * minus * stretch
    return Sites(tau, tau * at.mean + functions(tau).where(y > 0, plus, minus) * stretch)


def _regressed_cautiously(likelihood: Likelihood, y: Array, at: Marginals) -> Sites:
    """Sites with the curvature max(−h_y, −g₊g₋).

    The slope of a badly misclassified point stays large while its precision goes to zero. At the
    prior many such points together would move the mean too far.
    """
    response = likelihood.regression(y, *at)
    if likelihood.has_density:
        rho = functions(response.rho).maximum(response.rho, -response.g_by_m)
        response = response._replace(rho=rho)
    return set_sites(at, response)


def _density_response(likelihood: Likelihood, y: Array, at: Marginals) -> Response:
    """Slope g_y and curvature −h_y, for the rules that use the density."""
    assert isinstance(likelihood, BinaryLikelihood)  # which Rule.check ensures
    jet = likelihood.jet(y, at.mean, at.variance)
    return Response(jet.g, -jet.h, jet.h, jet.g_by_v, -jet.c, -jet.h_by_v)
