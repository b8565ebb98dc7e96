"""Rules for many classes jointly: PL, and Laplace beside it."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from postlin._typing import Array
from postlin.likelihoods.softmax import SoftmaxMoments, label_spread
from postlin.linalg.blocks import inverted, outer, symmetric, times
from postlin.rules.joint_sites import ByRegression, JointAtMode, JointProposal
from postlin.rules.sites import SiteRule, Sites

#: The nodes of expectations. Against 2¹⁵ of them, over random Gaussians with standard deviations of
#: 0.5, 2, 10 and 50 in four to ten classes, probabilities were off by up to 5e-5, 4e-4, 2e-3 and 2e-3
#: on average.
NODES = 1024


@dataclass(frozen=True)
class JointRule(SiteRule):
    """How a site is set from softmax and the present posterior."""

    nodes: int = NODES

    #: Whether the evidence matches site and likelihood at the mode, and not at the cavity.
    at_mode: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.nodes, bool) or not isinstance(self.nodes, int) or self.nodes < 64:
            raise ValueError(f"nodes must be a whole number of at least 64, got {self.nodes!r}.")

    @abstractmethod
    def propose(
        self, y: np.ndarray, mean: Array, root: Array, H: Array, z: Array, weights: Array
    ) -> JointProposal:
        """The sites that the rule sets at the marginals N(mean, root rootᵀ)."""

    def propose_cautiously(
        self, y: np.ndarray, mean: Array, root: Array, H: Array, z: Array, weights: Array
    ) -> Sites:
        """Sites for the first steps from the prior, which must not be far too weak."""
        return self.propose(y, mean, root, H, z, weights).sites


@dataclass(frozen=True)
class JointPL(JointRule):
    """Posterior linearisation of softmax."""

    name: ClassVar[str] = "pl"
    warm_up: ClassVar[int] = 3

    def propose(
        self, y: np.ndarray, mean: Array, root: Array, H: Array, z: Array, weights: Array
    ) -> ByRegression:
        """Statistical linear regression of the label at the posterior marginal."""
        return ByRegression.at(y, mean, root, H, z, weights)

    def propose_cautiously(
        self, y: np.ndarray, mean: Array, root: Array, H: Array, z: Array, weights: Array
    ) -> Sites:
        """Sites with the larger of the regression's curvature and that of log p̄_y.

        As in the binary rule, a badly misclassified point keeps its pull while its precision vanishes.
        If its label is possible at a single node only, all that is known of the curvature is that
        softmax's never exceeds ½: the site is then made with ½.
        """
        moments = SoftmaxMoments.at(mean, root, H, z, weights)
        own = moments.slopes[np.arange(len(y)), y]
        spread = label_spread(y, mean, root, H, z, weights) - outer(own, own)
        excess = symmetric(np.eye(mean.shape[1]) - spread - moments.explained)
        values, vectors = np.linalg.eigh(excess)
        above = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        values, vectors = np.linalg.eigh(np.eye(mean.shape[1]) - moments.explained - above)
        least = 1.0 / (1.0 + 0.5 * np.linalg.norm(H @ root, ord=2, axis=(1, 2)) ** 2)
        values = np.maximum(values, least[:, None])[:, None, :]
        solved = (vectors / values) @ np.swapaxes(vectors, 1, 2)
        scaled = (vectors * (1.0 / values - 1.0)) @ np.swapaxes(vectors, 1, 2)
        inverse = inverted(root)
        up = np.swapaxes(inverse, 1, 2)
        tau = symmetric(up @ scaled @ inverse)
        return Sites(tau, times(tau, mean) + times(up, times(solved, own)))


@dataclass(frozen=True)
class JointLaplace(JointRule):
    """A Gaussian about the mode, as in the textbook."""

    name: ClassVar[str] = "laplace"
    at_mode: ClassVar[bool] = True

    def propose(
        self, y: np.ndarray, mean: Array, root: Array, H: Array, z: Array, weights: Array
    ) -> JointAtMode:
        """Newton's method for the mode, written as a site update."""
        return JointAtMode.at(softmax(mean @ H.T, axis=1), root, mean, H, y)


def joint_rule(inference: object) -> JointRule:
    """The joint rule with the name, or of the kind, that ``inference`` is."""
    return inference if isinstance(inference, JointRule) else REGISTRY[str(_name(inference))]()


def binary_counterpart(inference: object) -> object:
    """The name of a joint rule, which its binary counterpart shares; other objects as they are."""
    return inference.name if isinstance(inference, JointRule) else inference


def _name(inference: object) -> object:
    return inference if isinstance(inference, str) else getattr(inference, "name", None)


def check_joint(likelihood: object, inference: object, schedule: object, fold_noise: bool) -> None:
    """Raise ``ValueError`` where parameters do not go with ``multi_class="joint"``."""
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
