"""How the report and the terminal name methods, write scores, and say what an evaluation concludes."""

from collections.abc import Iterable, Sequence

import numpy as np

from postlin.workbench.evaluation.comparison import Conclusion, Interval, Mistake
from postlin.workbench.evaluation.folds import Data, Task
from postlin.workbench.evaluation.methods import BASELINES, LIKELIHOODS, SOFTMAX, STRATEGIES
from postlin.workbench.evaluation.scores import GAPS, Cell, Score, Summary, confusion
from postlin.workbench.report.drawing import apart, count, listing, number

#: Likelihoods and multi-class strategies as tables name them.
SHORT = {name: name.replace("_", " ") for name in (*LIKELIHOODS, SOFTMAX, *STRATEGIES)}
#: What the names of methods stand for.
RULES = {
    "PL": "posterior linearisation",
    "EP": "expectation propagation",
    "CL": "cavity linearisation",
    "L": "Laplace's method",
}
#: The most letters of the name of a class within a sentence, the most methods that a sentence lists,
#: and the most kinds of mistakes.
_LONGEST, _LISTED, _WORST = 30, 4, 3


def rule_of(cell: Cell) -> str:
    """Return the rule of a method, whose name may begin with its schedule.

    >>> rule_of(Cell("crab", "SEP"))
    'EP'
    """
    return cell.method if cell.method in RULES else cell.method[1:]


def spoken(about: Cell | Task) -> str:
    """Return method, likelihood and multi-class strategy, such as 'PL probit, one vs rest'."""
    if about.method in BASELINES:
        return BASELINES[about.method]
    name = f"{about.method} {SHORT[about.likelihood]}"
    return name if about.multi_class is None else f"{name}, {SHORT[about.multi_class]}"


def names_of(cells: Iterable[Cell]) -> dict[Cell, str]:
    """Return a name for each method that leaves out what all of them share, such as 'PL (joint)'."""
    cells = list(cells)
    ours = [cell for cell in cells if cell.method not in BASELINES]
    likelihoods = {cell.likelihood for cell in ours if cell.multi_class != "joint"}
    one_strategy = len({cell.multi_class for cell in ours}) == 1
    names = {}
    for cell in cells:
        name = BASELINES.get(cell.method, cell.method)
        if cell.likelihood in likelihoods and len(likelihoods) > 1:
            name += f" {SHORT[cell.likelihood]}"
        if cell.multi_class and not one_strategy:
            name += f" ({SHORT[cell.multi_class]})"
        names[cell] = name
    return names


def with_error(score: Score, decimals: int = 3) -> str:
    """Return a score and its standard error, such as '0.045 ± 0.012'."""
    text = f"{score.mean:.{decimals}f}"
    return text if score.error is None else f"{text} ± {score.error:.{decimals}f}"


def with_interval(interval: Interval) -> str:
    """Return a log-loss and its interval, if it has one.

    >>> with_interval(Interval(0.2, -0.1, 0.5)), with_interval(Interval(0.2, 0.2, 0.2))
    ('0.200 (95 % interval 0.000 to 0.500)', '0.200')
    """
    text = f"{interval.mean:.3f}"
    if interval.low == interval.high:
        return text
    return f"{text} (95 % interval {max(interval.low, 0):.3f} to {interval.high:.3f})"


def percent(share: float) -> str:
    """Return a share in per cent.

    >>> percent(0.045), percent(1.0)
    ('4.5 %', '100.0 %')
    """
    return f"{100 * share:.1f} %"


def called(classes: Sequence[str]) -> list[str]:
    """Return the names of classes as they stand in sentences.

    >>> called(["a", "b"])
    ['‘a’', '‘b’']
    """
    return [f"‘{name}’" for name in apart(classes, _LONGEST)]


def seconds_of(value: float) -> str:
    """Return seconds in four or five letters.

    >>> seconds_of(0.1234), seconds_of(12.34), seconds_of(1234.5)
    ('0.12', '12.3', '1234')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def excess_of(interval: Interval) -> str:
    """Return a difference and its interval, if it has one.

    >>> excess_of(Interval(0.014, -0.003, 0.031)), excess_of(Interval(1e-6, -1e-6, 1e-6))
    ('+0.014 [-0.003, 0.031]', '+0.000 [0.000, 0.000]')
    """
    mean, low, high = (round(value, 3) + 0.0 for value in interval)  # no −0.000
    return f"{mean:+.3f}" if interval.low == interval.high else f"{mean:+.3f} [{low:.3f}, {high:.3f}]"


def score_rows(
    conclusion: Conclusion, summaries: dict[Cell, Summary]
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of methods, the best first, in 80 columns."""
    names = names_of(summaries)
    rows = [
        [
            names[cell],
            with_error(summaries[cell].nlpd),
            excess_of(conclusion.excess[cell]) if cell in conclusion.excess else "–",
            percent(conclusion.predictions[cell].error.mean),
            seconds_of(summaries[cell].seconds.mean),
        ]
        for cell in conclusion.ranking
    ]
    return ["method", "log-loss", "above the best [95 %]", "error", "sec."], rows


def quality(conclusion: Conclusion) -> str:
    """Return a sentence on how well the best method predicts."""
    best = conclusion.best
    loss, found = conclusion.log_loss[best], conclusion.predictions[best]
    return (
        f"log-loss {with_interval(loss)}; {found.wrong:,} of {count(len(found.y), 'row')} wrong, "
        f"an error of {percent(found.error.mean)} ({percent(found.error.low)} to "
        f"{percent(found.error.high)})"
    )


def standing(conclusion: Conclusion) -> list[str]:
    """Return sentences on the methods from which the best one can be told, and on the others."""
    names = names_of(conclusion.ranking)
    clearly = [cell for cell, excess in conclusion.excess.items() if excess.low > 0]
    failed = [cell for cell, excess in conclusion.excess.items() if excess.high < 0]
    others = [cell for cell in conclusion.excess if cell not in (*clearly, *failed)]
    sentences = []
    if clearly:
        above = [f"{names[c]} (by {conclusion.excess[c].mean:.3f})" for c in clearly]
        sentences.append(f"With 95 % confidence better than {listing(_first(above))}.")
    if others:
        sentences.append(f"No clear difference from {listing(_first([names[c] for c in others]))}.")
    if failed:
        better = listing(_first([names[c] for c in failed]))
        sentences.append(f"Worse than {better} on the folds that did not fail there.")
    if not any(cell.method in BASELINES for cell in conclusion.ranking):
        sentences.append(f"No baseline was asked for: add {', '.join(BASELINES)} to --methods.")
    return sentences


def _first(names: list[str]) -> list[str]:
    more = len(names) - _LISTED
    return names if more <= 1 else [*names[:_LISTED], f"{more} more"]


def confusions(counts: np.ndarray, classes: Sequence[str]) -> str:
    """Return which classes are most often taken for which, as part of a sentence."""
    off = counts - np.diag(np.diag(counts))
    order = np.argsort(-off, axis=None, kind="stable")[:_WORST]
    pairs = [(i, j) for i, j in zip(*np.unravel_index(order, off.shape), strict=True) if off[i, j]]
    names = called(classes)
    return listing([f"{off[i, j]:,} of {names[i]} taken for {names[j]}" for i, j in pairs])


def worst_rows(mistakes: list[Mistake], classes: Sequence[str]) -> str:
    """Return the most confident mistakes, as part of a sentence."""
    names = called(classes)
    return listing(
        [
            f"row {m.row + 1} ({names[m.label]} given probability {number(m.of_label, 2)})"
            for m in mistakes[:_WORST]
        ]
    )


def gap_rows(summaries: dict[Cell, Summary]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the gaps between fits and the exact posterior, where they are known."""
    names = names_of(summaries)
    rows = [
        [names[cell], with_error(summary.evidence_gap, 2), with_error(summary.probability_gap)]
        for cell, summary in summaries.items()
        if summary.evidence_gap is not None and summary.probability_gap is not None
    ]
    return ["method", GAPS["evidence_gap"], GAPS["probability_gap"]], rows


def sentences(data: Data, conclusion: Conclusion) -> list[str]:
    """Return what an evaluation concludes, each part in a sentence or two."""
    best = conclusion.predictions[conclusion.best]
    found = [f"Best: {names_of(conclusion.ranking)[conclusion.best]}, with {quality(conclusion)}."]
    found += [" ".join(standing(conclusion))]
    if mistakes := best.mistakes():
        counts = confusion(best.y, best.p)
        found.append(
            f"Wrong are {confusions(counts, data.classes)}; most confidently "
            f"{worst_rows(mistakes, data.classes)}."
        )
    return [sentence for sentence in found if sentence]
