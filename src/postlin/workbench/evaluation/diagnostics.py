"""What a report shows besides scores: the residuals of the iterations."""

import warnings

from postlin._typing import Array
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
