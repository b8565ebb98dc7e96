"""What the figures of a report draw: curves worth drawing, with methods that agree drawn as one."""

import warnings

import numpy as np

from postlin._typing import Array
from postlin.estimator.parameters import default_kernel
from postlin.inference.infer import infer
from postlin.rules.binary import EP, PL, Rule
from postlin.schedules import Parallel
from postlin.workbench.evaluation.comparison import Conclusion
from postlin.workbench.evaluation.folds import Results
from postlin.workbench.evaluation.methods import BASELINES, SMALL_VARIANCE
from postlin.workbench.evaluation.scores import group
from postlin.workbench.report import predictions
from postlin.workbench.report.drawing import listing
from postlin.workbench.report.words import names_of

#: The most curves in a figure.
MOST = 6
#: Traces of the log evidence that are nowhere this far apart are drawn as one.
_SAME = 0.5


def drawn_class(codes: np.ndarray) -> int:
    """Return which of two classes the figures are about: the rarer one, or else the second."""
    first, second = np.bincount(codes, minlength=2)
    return int(second <= first)


def curves_of(conclusion: Conclusion, k: int = 1) -> predictions.Curves:
    """Return outcomes and probabilities of class ``k`` for the methods worth a curve, by their names.

    Methods with practically the same predictions are one; class frequencies have no curve.
    """
    names = names_of(conclusion.ranking)
    groups = [cells for cells in conclusion.alike if cells[0].method != "majority"]
    ours = [cells for cells in groups if cells[0].method not in BASELINES]
    baselines = [cells for cells in groups if cells[0].method in BASELINES]
    shown = ours[: MOST - len(baselines)] + baselines
    curves = {}
    for cells in shown:
        _, y, p = conclusion.predictions[cells[0]]
        curves[", ".join(names[cell] for cell in cells)] = (y == k).astype(float), p[:, k]
    return curves


def drawn_as_one(conclusion: Conclusion) -> str:
    """Return a sentence for each group of methods that are drawn as one, after a space."""
    same = [cells for cells in conclusion.alike if len(cells) > 1]
    names = names_of(conclusion.ranking)
    return "".join(
        f" {listing([names[cell] for cell in cells])} give the same probabilities to within 0.02, and "
        "are drawn as one."
        for cells in same
    )


def traces_of(results: Results) -> dict[str, list[float]]:
    """Return the evidence by evaluation of some methods, in their first fold; equal ones are one."""
    first = {cell: next(iter(folds.values())).trace for cell, folds in group(results).items()}
    learned = {cell: trace for cell, trace in first.items() if trace}
    names, alike = names_of(learned), list[tuple[list[str], list[float]]]()
    for cell, trace in learned.items():
        for same, other in alike:
            if len(other) == len(trace) and np.max(np.abs(np.subtract(trace, other))) < _SAME:
                same.append(names[cell])
                break
        else:
            alike.append(([names[cell]], trace))
    return {", ".join(same): trace for same, trace in alike[:MOST]}


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
