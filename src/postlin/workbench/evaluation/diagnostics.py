"""What a report shows besides scores: the residuals of the iterations."""

import warnings
from copy import copy
from typing import NamedTuple

from postlin._typing import Array
from postlin.estimator.classifier import GPClassifier
from postlin.estimator.fits import Fit
from postlin.estimator.parameters import default_kernel
from postlin.inference.infer import infer
from postlin.rules.binary import EP, PL, Rule
from postlin.schedules import Parallel
from postlin.workbench.evaluation.methods import SMALL_VARIANCE

#: Iterations of undamped parallel iteration: as in the paper, but more.
_PLAIN_ITERATIONS = 40


def convergence_histories(X: Array, y: Array, theta: Array) -> dict[str, dict[str, list[float]]]:
    """Residuals of PPL and PEP with the noisy threshold, by plain iteration and by our solver."""
    K = default_kernel().clone_with_theta(theta)(X)
    fixed = EP(negative_sites="small_variance", small_variance=SMALL_VARIANCE)
    rules: dict[str, tuple[Rule, Rule]] = {"PPL": (PL(), PL()), "PEP": (fixed, EP())}

    def residuals(rule: Rule, iterations: int | None = None) -> list[float]:
        how = Parallel(iterations=iterations)
        return infer(K, y, likelihood="noisy_threshold", inference=rule, schedule=how).history.residuals

    with warnings.catch_warnings(action="ignore"):
        return {
            name: {"plain iteration": residuals(plain, _PLAIN_ITERATIONS), "postlin": residuals(ours)}
            for name, (plain, ours) in rules.items()
        }


class ProblemHistory(NamedTuple):
    """Residuals of a problem at learned hyperparameters, from the prior, plain and by our solver."""

    name: str
    theta: Array
    log_evidence: float
    plain: list[float]
    ours: list[float]
    converged: bool


def problem_histories(model: GPClassifier) -> list[ProblemHistory]:
    """The history of each binary problem of a fit, or of the one joint problem."""
    return [_history(fit) for fit in model._estimators]


def _history(fit: Fit) -> ProblemHistory:
    here = fit.hyperparameters
    undamped = copy(fit.model)
    undamped.schedule = Parallel(iterations=_PLAIN_ITERATIONS)
    plain, ours = (way.infer(here).history.residuals for way in (undamped, fit.model))
    value, converged = fit.log_marginal_likelihood_value_, fit.record.converged
    return ProblemHistory(fit.name, here.theta, value, plain, ours, converged)
