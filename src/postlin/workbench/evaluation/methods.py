"""Methods as estimators: the paper's, run to convergence or under its protocol, and baselines."""

from typing import Literal, get_args

from sklearn.base import ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from postlin.estimator.classifier import GPClassifier
from postlin.estimator.parameters import default_kernel
from postlin.likelihoods import BinaryLikelihood, Logit, NoisyThreshold, Probit
from postlin.rules.binary import CL, EP, PL, Laplace, Rule
from postlin.schedules import Parallel, Sequential

Protocol = Literal["converged", "paper"]
MultiClass = Literal["one_vs_rest", "one_vs_one", "joint"]

#: The paper's methods, whose names begin with P for the parallel and S for the sequential schedule, and
#: all: a rule alone takes the default schedule, which is the parallel one.
METHODS = ("L", "PEP", "SEP", "PPL", "SPL")
RULES = ("PL", "EP", "CL", "L")
ALL_METHODS = (*RULES, "PPL", "SPL", "PEP", "SEP", "PCL", "SCL")
#: The rules that are worth comparing: Laplace's method is less accurate than each of them.
DEFAULT_METHODS = ("PL", "EP", "CL")
LIKELIHOODS = ("probit", "logit", "noisy_threshold")
STRATEGIES: tuple[MultiClass, ...] = get_args(MultiClass)

#: The methods that can predict from neighbours, whose small problems are solved together.
LOCAL_METHODS = (*RULES, "PPL", "PEP", "PCL")
#: The methods that can treat all classes jointly, and the likelihood that they then use.
JOINT_METHODS, SOFTMAX = ("PL", "L", "PPL"), "softmax"

#: The "small positive number" to which the paper sets EP's negative site variances.
SMALL_VARIANCE = 1e-2
#: Iterations and quadrature order of the paper's protocol.
_PAPER_ITERATIONS, _PAPER_ORDER = 10, 10
_PAPER_LIKELIHOODS: dict[str, BinaryLikelihood] = {
    "probit": Probit(),
    "logit": Logit(order=_PAPER_ORDER),
    "noisy_threshold": NoisyThreshold(0.01),
}


def possible(method: str, likelihood: str) -> bool:
    """Whether the method can use the likelihood: Laplace cannot use the noisy threshold."""
    return not (method == "L" and likelihood == "noisy_threshold")


def make_classifier(
    method: str,
    likelihood: str,
    protocol: Protocol = "converged",
    small_variance: float = SMALL_VARIANCE,
    multi_class: MultiClass | None = None,
    n_neighbors: int | str | None = None,
    inducing: int | None = None,
    device: str | None = None,
) -> GPClassifier:
    """An unfitted classifier for a method and a likelihood; ``fit`` learns its hyperparameters.

    The protocol ``"paper"`` runs ten undamped iterations with quadrature of order 10, computes PL's
    evidence by quadrature, replaces EP's negative site variances by ``small_variance`` and optimises
    by BFGS with finite differences. ``multi_class`` is None for two classes; with ``"joint"`` the
    likelihood is softmax. With ``n_neighbors`` every row is predicted from its nearest rows, on top of
    inducing points where these help, or of so many; with ``inducing`` alone from inducing points.
    """
    paper = protocol == "paper"
    rule = _rule(method, small_variance if paper else None)
    if multi_class == "joint":
        return GPClassifier(inference=rule, multi_class=multi_class)
    schedule = Sequential if method.startswith("S") else Parallel
    if not paper:
        return GPClassifier(
            likelihood=likelihood,
            inference=rule,
            schedule=schedule(),
            multi_class=multi_class or "one_vs_rest",
            n_neighbors=n_neighbors,
            inducing="auto" if n_neighbors is not None and inducing is None else inducing,
            random_state=None if n_neighbors is None and inducing is None else 0,
            device=device,
        )
    return GPClassifier(
        default_kernel(),  # which starts at a length scale of one, for the paper's whitened features
        likelihood=_PAPER_LIKELIHOODS[likelihood],
        inference=rule,
        # Laplace is Newton's method, which textbooks run to convergence.
        schedule=schedule(None if method == "L" else _PAPER_ITERATIONS),
        optimizer="bfgs_finite_differences",
    )


def _rule(method: str, small_variance: float | None) -> Rule:
    """The rule of a method; under the paper's protocol the repair of EP has a small variance."""
    if method == "L":
        return Laplace()
    if method.endswith("CL"):
        return CL()
    if method.endswith("PL"):
        return PL() if small_variance is None else PL(evidence_order=_PAPER_ORDER)
    if small_variance is None:
        return EP()
    return EP(negative_sites="small_variance", small_variance=small_variance)


#: The baselines, with the names by which tables call them.
BASELINES = {
    "majority": "class frequencies",
    "logistic": "logistic regression",
    "boosting": "gradient boosting",
}


def make_baseline(name: str) -> ClassifierMixin:
    """An unfitted baseline, as scikit-learn sets it up.

    Class frequencies predict the most frequent class, with the shares of all classes in the rows to
    learn from as probabilities: what a method must beat to have learned anything.
    """
    if name == "majority":
        return DummyClassifier(strategy="prior")
    if name == "logistic":
        return LogisticRegression(max_iter=1000)  # at 100 it often stops with a warning
    return HistGradientBoostingClassifier(random_state=0)
