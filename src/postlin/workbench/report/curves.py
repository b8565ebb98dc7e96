"""What the figures of a report draw: curves worth drawing, with methods that agree drawn as one."""

import numpy as np

from postlin.workbench.evaluation.baselines import BASELINES
from postlin.workbench.evaluation.comparison import Conclusion
from postlin.workbench.evaluation.folds import Results
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
