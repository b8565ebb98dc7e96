"""The report of ``postlin evaluate`` where there are more than two classes."""

import warnings

import numpy as np

from postlin._typing import Array
from postlin.workbench.cli.outputs import SHORT, spoken, summary_rows
from postlin.workbench.cli.pages import FOOTER
from postlin.workbench.evaluation.diagnostics import ProblemHistory, problem_histories
from postlin.workbench.evaluation.folds import Data, Results
from postlin.workbench.evaluation.methods import MultiClass, make_classifier
from postlin.workbench.evaluation.scores import (
    Cell,
    ClassScore,
    Summary,
    class_scores,
    confusion,
    event,
    group,
    pooled,
)
from postlin.workbench.report import (
    Figure,
    Section,
    Table,
    confusion_matrix,
    convergence,
    evidence_traces,
    reliability,
    render,
    roc,
)
from postlin.workbench.report.text import listing, number

#: So many classes have a curve of their own, those with most rows first.
_CURVES = 8
#: So many classes are named in the text.
_NAMED = 8
#: The longest name of a class beside a figure.
_LONGEST = 20


def many_classes_page(
    data: Data, summaries: dict[Cell, Summary], results: Results, X: np.ndarray
) -> str:
    """The whole report."""
    best = min(summaries, key=lambda cell: summaries[cell].nlpd.mean)
    predictions = {cell: pooled(folds) for cell, folds in group(results).items()}
    sections = [
        _scores_section(data, summaries),
        _classes_section(data, predictions, best),
        _curves_section(results, predictions),
        _inference_section(data, X, list(summaries)),
    ]
    lead = (
        "Cross-validated methods side by side: Laplace (L), expectation propagation (PEP, SEP) and "
        "posterior linearisation (PPL, SPL), in parallel and in sequence. Many classes are taken apart "
        "into problems with two, each against the rest or each against each other, or treated jointly."
    )
    return render(f"Gaussian process classification of {data.name}", lead, sections, FOOTER)


def _scores_section(data: Data, summaries: dict[Cell, Summary]) -> Section:
    header, rows = summary_rows(summaries)
    # names stay on one line: the table scrolls
    header[2] = header[2].replace("-", "\N{NON-BREAKING HYPHEN}")
    rows = [[cell.replace(" ", "\N{NO-BREAK SPACE}") for cell in row] for row in rows]
    named = [repr(name) for name in data.classes[:_NAMED]]
    if len(data.classes) > _NAMED:
        named.append(f"{len(data.classes) - _NAMED} more")
    lead = (
        f"{len(data.codes)} rows, {data.X.shape[1]} features; {len(data.classes)} classes, "
        f"{listing(named)}. Scores are on held-out rows; ± is a standard error."
    )
    caption = (
        "Lower is better for error, NLPD (mean negative log probability), Brier (summed over classes) "
        "and calibration error (of the predicted class). Log evidences are comparable only where the "
        "likelihood and the treatment of many classes are the same: taken apart, they are means over "
        "the problems."
    )
    return Section("Scores", [lead], [Table(header, rows, caption, text_columns=3)])


def _classes_section(data: Data, predictions: dict[Cell, tuple[Array, Array]], best: Cell) -> Section:
    """What is found of each class: by the best method in full, by all of them in short."""
    y, p = predictions[best]
    scores = {cell: class_scores(*pair) for cell, pair in predictions.items()}
    name = spoken(best)
    text = [f"The figures are those of {name}, which has the lowest NLPD."]
    shown = np.sort(np.argsort(-np.bincount(data.codes), kind="stable")[:_CURVES])
    if len(data.classes) > _CURVES:
        text.append(f"Curves are those of the {_CURVES} classes with most rows.")
    curves = {_in_legend(data.classes, k): ((y == k).astype(float), p[:, k]) for k in shown}
    items: list[Figure | Table] = [
        _one_by_one(data, scores[best], name),
        confusion_matrix(confusion(y, p), data.classes, name),
        reliability(curves, "the class"),
        roc(curves, "the share of a class found against the share of others mistaken for it"),
    ]
    if len(scores) > 1:
        items.append(_recalls(data, scores))
    return Section("Classes", text, items)


def _in_legend(classes: tuple[str, ...], k: int) -> str:
    """The name of a class, cut where a figure beside it needs the room; its number tells it apart."""
    name = " ".join(classes[k].split())
    return name if len(name) <= _LONGEST else f"{k + 1}: {name[:_LONGEST]}…"


def _one_by_one(data: Data, scores: list[ClassScore], name: str) -> Table:
    header = ["class", "rows", "recall", "precision", "NLPD"]
    rows = [
        [label, str(s.rows), _digits(s.recall), _digits(s.precision), _digits(s.nlpd)]
        for label, s in zip(data.classes, scores, strict=True)
    ]
    caption = (
        f"Classes one by one, {name}. Recall is the share of a class that is recognised, precision the "
        "share of what is taken for it that is of it; NLPD is over the rows of the class."
    )
    return Table(header, rows, caption)


def _recalls(data: Data, scores: dict[Cell, list[ClassScore]]) -> Table:
    header = ["class", "rows", *map(spoken, scores)]
    rows = [
        [label, str(of_class[0].rows), *(_digits(s.recall) for s in of_class)]
        for label, *of_class in zip(data.classes, *scores.values(), strict=True)
    ]
    return Table(header, rows, "Recall of each class by each method.")


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _curves_section(results: Results, predictions: dict[Cell, tuple[Array, Array]]) -> Section:
    """Reliability of the predicted class and evidence traces, method by method."""
    curves = {spoken(cell): event(*pair) for cell, pair in predictions.items()}
    traces = {spoken(cell): next(iter(folds.values())).trace for cell, folds in group(results).items()}
    text = (
        "All held-out predictions together; probabilities are those of the predicted class. The "
        "evidence traces are those of the first fold, and means over the problems where classes are "
        "taken apart."
    )
    items: list[Figure | Table] = [reliability(curves, "right predictions"), evidence_traces(traces)]
    return Section("Predictions and learning", [text], items)


def _inference_section(data: Data, X: np.ndarray, cells: list[Cell]) -> Section:
    """How PL converges in the hardest problem of each treatment, and what is learned in all of them."""
    strategies: dict[MultiClass, str] = {}
    for cell in cells:
        strategies.setdefault(cell.multi_class, cell.likelihood)  # type: ignore[arg-type]
    panels, rows = {}, []
    for strategy, likelihood in strategies.items():
        problems = _problems(data, X, strategy, likelihood)
        slowest = max(problems, key=lambda problem: len(problem.ours))
        title = f"{SHORT[strategy]}: {slowest.name}"
        panels[title] = {"plain iteration": slowest.plain, "postlin": slowest.ours}
        rows += [_learned(strategy, problem) for problem in problems]
    text = (
        "PPL learned from all rows: the problem that takes it most iterations, from the prior at the "
        "parameters learned, by plain parallel iteration and as postlin iterates; and what was "
        "learned in every problem."
    )
    header = ["problem", "multi-class", "variance", "length scale", "log evidence", "converged"]
    table = Table(header, rows, "Problems and their parameters, PPL.", text_columns=2)
    return Section("Inside inference", [text], [convergence(panels, 1e-8), table])


def _problems(data: Data, X: np.ndarray, strategy: MultiClass, likelihood: str) -> list[ProblemHistory]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they would say is in the table
        model = make_classifier("PPL", likelihood, multi_class=strategy)
        return problem_histories(model.fit(X, np.array(data.classes)[data.codes]))


def _learned(strategy: MultiClass, problem: ProblemHistory) -> list[str]:
    variance, length = np.exp(problem.theta)
    figures = [number(variance), number(length), number(problem.log_evidence, 4)]
    return [problem.name, SHORT[strategy], *figures, "yes" if problem.converged else "NO"]
