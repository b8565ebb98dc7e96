"""The paper's method names as estimators, under its protocol and under ours."""

from typing import Literal, get_args

from postlin.estimator.classifier import GPClassifier
from postlin.likelihoods import BinaryLikelihood, Logit, NoisyThreshold, Probit
from postlin.rules.binary import EP, PL, Laplace, Rule
from postlin.schedules import Parallel, Schedule, Sequential

Protocol = Literal["converged", "paper"]
MultiClass = Literal["one_vs_rest", "one_vs_one", "joint"]

METHODS = ("L", "PEP", "SEP", "PPL", "SPL")
LIKELIHOODS = ("probit", "logit", "noisy_threshold")
STRATEGIES: tuple[MultiClass, ...] = get_args(MultiClass)

#: What treats all classes at a time, with the softmax likelihood.
JOINT_METHODS, SOFTMAX = ("L", "PPL"), "softmax"

#: What "a small positive number" is where the paper's fix for EP needs one.
SMALL_VARIANCE = 1e-2
#: Iterations and quadrature order of the paper's protocol.
_PAPER_ITERATIONS, _PAPER_ORDER = 10, 10


def possible(method: str, likelihood: str) -> bool:
    """Whether the method can use the likelihood: Laplace cannot use the noisy threshold."""
    return not (method == "L" and likelihood == "noisy_threshold")


def make_classifier(
    method: str,
    likelihood: str,
    protocol: Protocol = "converged",
    small_variance: float = SMALL_VARIANCE,
    multi_class: MultiClass | None = None,
) -> GPClassifier:
    """The estimator for a method and a likelihood, hyperparameters to be learned.

    ``"paper"``: ten undamped iterations, quadrature of order 10, PL's evidence by quadrature, the
    small-variance fix for EP, BFGS with finite differences. ``multi_class`` is None for two classes;
    with ``"joint"`` the likelihood is softmax.
    """
    if multi_class == "joint":
        return GPClassifier(inference=_rule(method), multi_class=multi_class)
    if protocol == "converged":
        return GPClassifier(
            likelihood=likelihood,
            inference=_rule(method),
            schedule=_schedule(method, None),
            multi_class=multi_class or "one_vs_rest",
        )
    paper_rules: dict[str, Rule] = {
        "L": Laplace(),
        "PEP": EP(negative_sites="small_variance", small_variance=small_variance),
        "PPL": PL(evidence_order=_PAPER_ORDER),
    }
    paper_rules |= {"SEP": paper_rules["PEP"], "SPL": paper_rules["PPL"]}
    return GPClassifier(
        likelihood=_paper_likelihood(likelihood),
        inference=paper_rules[method],
        # Laplace is Newton's method, which the textbook runs to convergence.
        schedule=_schedule(method, None if method == "L" else _PAPER_ITERATIONS),
        optimizer="bfgs_finite_differences",
    )


def _rule(method: str) -> Rule:
    return Laplace() if method == "L" else EP() if method.endswith("EP") else PL()


def _schedule(method: str, iterations: int | None) -> Schedule:
    return Sequential(iterations) if method.startswith("S") else Parallel(iterations)


def _paper_likelihood(name: str) -> BinaryLikelihood:
    return {
        "probit": Probit(),
        "logit": Logit(order=_PAPER_ORDER),
        "noisy_threshold": NoisyThreshold(0.01),
    }[name]
