"""The rules for many classes jointly: PL and Laplace."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from postlin._typing import override
from postlin.likelihoods.softmax import Nodes, SoftmaxMoments, label_spread
from postlin.linalg.blocks import outer, symmetric, times, transposed
from postlin.rules.joint_sites import ByRegression, JointAtMode, JointProposal, JointView
from postlin.rules.sites import SiteRule, Sites

#: The number of nodes. Compared with 2¹⁵ nodes, over random Gaussians with standard deviations of 0.5,
#: 2, 10 and 50 in four to ten classes, probabilities were off by up to 5e-5, 4e-4, 2e-3 and 2e-3 on
#: average.
NODES = 1024


@dataclass(frozen=True)
class JointRule(SiteRule):
    """How a site is set from softmax and the present posterior."""

    nodes: int = NODES

    #: Whether the evidence matches site and likelihood at the mode rather than at the cavity.
    at_mode: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.nodes, bool) or not isinstance(self.nodes, int) or self.nodes < 64:
            raise ValueError(f"nodes must be a whole number of at least 64, got {self.nodes!r}.")

    @abstractmethod
    def propose(self, nodes: Nodes, y: np.ndarray, view: JointView) -> JointProposal:
        """The sites that the rule sets for labels y, indices of classes, at the view's marginals."""

    def propose_cautiously(self, nodes: Nodes, y: np.ndarray, view: JointView) -> Sites:
        """Sites for the first steps from the prior, which must not be far too weak."""
        return self.propose(nodes, y, view).sites


@dataclass(frozen=True)
class JointPL(JointRule):
    """Posterior linearisation: statistical linear regression at the posterior marginal."""

    name: ClassVar[str] = "pl"
    warm_up: ClassVar[int] = 3

    @override
    def propose(self, nodes: Nodes, y: np.ndarray, view: JointView) -> ByRegression:
        return ByRegression.at(nodes, y, view)

    def propose_cautiously(self, nodes: Nodes, y: np.ndarray, view: JointView) -> Sites:
        """Sites with the larger of the regression's curvature and that of log p̄_y.

        As in the binary rule, a badly misclassified point keeps its pull while its precision vanishes.
        If its label has a probability above zero at a single node only, all that is known of the
        curvature is that softmax's never exceeds ½, which is then used for the site.
        """
        mean, root, *_ = view
        moments = SoftmaxMoments.at(mean, root, nodes)
        own = moments.slopes[np.arange(len(y)), y]
        spread = label_spread(y, mean, root, nodes) - outer(own, own)
        left = np.eye(mean.shape[1]) - moments.explained
        values, vectors = np.linalg.eigh(symmetric(left - spread))
        above = (vectors * np.maximum(values, 0.0)[:, None, :]) @ transposed(vectors)
        values, vectors = np.linalg.eigh(left - above)
        least = 1.0 / (1.0 + 0.5 * np.linalg.norm(nodes.H @ root, ord=2, axis=(1, 2)) ** 2)
        values = np.maximum(values, least[:, None])[:, None, :]
        solved = (vectors / values) @ transposed(vectors)
        scaled = (vectors * (1.0 / values - 1.0)) @ transposed(vectors)
        return view.sites_from(scaled, times(solved, own))


@dataclass(frozen=True)
class JointLaplace(JointRule):
    """A Gaussian about the mode of the posterior."""

    name: ClassVar[str] = "laplace"
    at_mode: ClassVar[bool] = True

    def propose(self, nodes: Nodes, y: np.ndarray, view: JointView) -> JointAtMode:
        """Newton's method for the mode, written as a site update."""
        return JointAtMode.at(nodes.H, y, view)


def joint_rule(inference: object) -> JointRule:
    """``inference`` itself where it is a joint rule, or else the joint rule of the same name."""
    return inference if isinstance(inference, JointRule) else REGISTRY[_name(inference)]()


def binary_counterpart(inference: object) -> object:
    """The name of a joint rule, which is also that of a binary rule; any other object unchanged."""
    return inference.name if isinstance(inference, JointRule) else inference


def _name(inference: object) -> str:
    return str(getattr(inference, "name", inference))


def check_joint(likelihood: object, inference: object, schedule: object, fold_noise: bool) -> None:
    """Raise ``ValueError`` where ``multi_class="joint"`` cannot use one of the parameters."""
    if _name(inference) not in REGISTRY:
        raise ValueError(
            f"multi_class='joint' knows inference='pl' and 'laplace', got {inference!r}: use "
            "'one_vs_rest' for others."
        )
    if getattr(likelihood, "name", None) not in ("probit", "logit"):
        raise ValueError(
            f"multi_class='joint' has the softmax likelihood, and {likelihood!r} is one for two "
            "classes: leave it at its default, or use 'one_vs_rest'."
        )
    if getattr(schedule, "name", schedule) != "parallel":
        raise ValueError(f"multi_class='joint' has the parallel schedule only, got {schedule!r}.")
    if fold_noise:
        raise ValueError("fold_noise=True is for binary problems: use multi_class='one_vs_rest'.")


#: The rules by name.
REGISTRY: dict[str, type[JointRule]] = {rule.name: rule for rule in (JointPL, JointLaplace)}
