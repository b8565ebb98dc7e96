"""What a report shows besides scores: how the iterations go, and where the optimiser walked."""

import warnings
from copy import copy
from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.estimator.classifier import GPClassifier
from postlin.estimator.fits import Fit
from postlin.estimator.parameters import default_kernel
from postlin.inference.infer import infer
from postlin.rules.binary import EP, PL, Rule
from postlin.schedules import Parallel
from postlin.workbench.evaluation.methods import SMALL_VARIANCE

_PLAIN_ITERATIONS = 40


class Surface(NamedTuple):
    """Log evidence over (ln σ₁², ln ℓ), and the optimiser's path."""

    log_variance: Array
    log_length: Array
    values: Array
    path: Array


def convergence_histories(X: Array, y: Array, theta: Array) -> dict[str, dict[str, list[float]]]:
    """Residuals of PPL and PEP with the noisy threshold: plain iteration, and ours."""
    K = default_kernel().clone_with_theta(theta)(X)
    rules: dict[str, tuple[Rule, Rule]] = {
        "PPL": (PL(), PL()),
        "PEP": (EP(negative_sites="small_variance", small_variance=SMALL_VARIANCE), EP()),
    }
    panels = {}
    for name, (plain, ours) in rules.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            undamped = infer(
                K,
                y,
                likelihood="noisy_threshold",
                inference=plain,
                schedule=Parallel(iterations=_PLAIN_ITERATIONS),
            )
            solved = infer(K, y, likelihood="noisy_threshold", inference=ours)
        panels[name] = {
            "plain iteration": undamped.history.residuals,
            "postlin": solved.history.residuals,
        }
    return panels


class ProblemHistory(NamedTuple):
    """A problem at the parameters learned: residuals from the prior, by plain iteration and by ours."""

    name: str
    theta: Array
    log_evidence: float
    plain: list[float]
    ours: list[float]
    converged: bool


def problem_histories(model: GPClassifier) -> list[ProblemHistory]:
    """How inference goes in each problem of a fit, or in the one for all classes."""
    return [_history(fit) for fit in model._estimators]


def _history(fit: Fit) -> ProblemHistory:
    here = fit.hyperparameters
    undamped = copy(fit.model)
    undamped.schedule = Parallel(iterations=_PLAIN_ITERATIONS)
    plain, ours = (way.infer(here).history.residuals for way in (undamped, fit.model))
    value, converged = fit.log_marginal_likelihood_value_, fit.record.converged
    return ProblemHistory(fit.name, here.theta, value, plain, ours, converged)


def evidence_surface(X: Array, y: Array, classifier: GPClassifier, points: int = 21) -> Surface:
    """The evidence about the optimum of a fitted classifier, wide enough to hold its path."""
    path = np.array([theta for theta, _ in classifier.evidence_path_])
    inside = np.vstack([path, classifier.kernel_.theta])
    low, high = inside.min(axis=0) - 1.0, inside.max(axis=0) + 1.0
    variances, lengths = (np.linspace(a, b, points) for a, b in zip(low, high, strict=True))
    values = np.array(
        [[classifier.log_marginal_likelihood(np.array([v, s])) for s in lengths] for v in variances]
    )
    return Surface(variances, lengths, values, path)
