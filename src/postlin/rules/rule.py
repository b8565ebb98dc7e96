"""What a rule for two classes is: how it sets sites, and what the solvers ask of it."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from postlin._typing import Array, Marginals
from postlin._validation import check_order
from postlin.likelihoods import BinaryLikelihood, Likelihood
from postlin.likelihoods.base import Change
from postlin.rules.scales import SiteScales, cavity_scales
from postlin.rules.sites import Proposal, SiteRule, Sites, SiteView


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
        """Raise ``ValueError`` where the result has no correction (``inference.exact.correction``)."""
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
