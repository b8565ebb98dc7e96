"""The pages of ``postlin evaluate``, for any number of classes, and of ``postlin reproduce``."""

import warnings
from functools import partial

import numpy as np

import postlin
from postlin._typing import Array
from postlin.plotting import EvidenceDisplay
from postlin.workbench.evaluation import diagnostics, scores
from postlin.workbench.evaluation.folds import Data, Results, Task
from postlin.workbench.evaluation.methods import LIKELIHOODS, SOFTMAX, STRATEGIES, make_classifier
from postlin.workbench.evaluation.scores import COLUMNS, GAPS, Cell, Score, Summary, group, pooled
from postlin.workbench.paper.results import PAPER, SETS, Comparison, TableI, Timing
from postlin.workbench.paper.synthetic import Example
from postlin.workbench.report import figures
from postlin.workbench.report.drawing import count, listing, number, short
from postlin.workbench.report.page import Figure, Section, Table, render

FOOTER = f"Made by postlin {postlin.__version__}. One file, no network, no scripts."
#: Likelihoods and multi-class strategies as tables name them.
SHORT = {name: name.replace("_", " ") for name in (*LIKELIHOODS, SOFTMAX, *STRATEGIES)}
#: Decimals of the scores that are not shown with three.
_DECIMALS = {"log_evidence": 1, "seconds": 2, "evidence_gap": 2}
#: Up to this many classes have a curve of their own, those with most rows first, and up to this many
#: are named in the text; the longest name of a class in a legend.
_CURVES, _NAMED, _LONGEST = 8, 8, 21
#: Cells that differ from the paper by more than this are marked.
_DIFFERENT = 0.015
_TOL = 1e-8


def spoken(about: Cell | Task) -> str:
    """Return method, likelihood and multi-class strategy, such as 'PPL probit, one vs rest'."""
    name = f"{about.method} {SHORT[about.likelihood]}"
    return name if about.multi_class is None else f"{name}, {SHORT[about.multi_class]}"


def with_error(score: Score, decimals: int = 3) -> str:
    """Return a score and its standard error, such as '0.045 ± 0.012'."""
    text = f"{score.mean:.{decimals}f}"
    return text if score.error is None else f"{text} ± {score.error:.{decimals}f}"


def summary_rows(summaries: dict[Cell, Summary]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of scores, with strategies if there are many classes."""
    many = any(cell.multi_class for cell in summaries)
    gaps = [name for name in GAPS if any(getattr(s, name) is not None for s in summaries.values())]
    header = ["method", "likelihood", *(["multi-class"] if many else []), *COLUMNS.values()]
    header += [GAPS[name] for name in gaps]
    rows = []
    for cell, summary in summaries.items():
        names = [cell.method, SHORT[cell.likelihood]]
        names += [SHORT[cell.multi_class]] if cell.multi_class else []
        names += [with_error(getattr(summary, name), _DECIMALS.get(name, 3)) for name in COLUMNS]
        for name in gaps:
            gap = getattr(summary, name)
            names.append("–" if gap is None else with_error(gap, _DECIMALS.get(name, 3)))
        rows.append([*names, f"{summary.converged}/{summary.folds}"])
    return [*header, "converged"], rows


def comparison_rows(table: TableI, seeds: int) -> tuple[list[str], list[list[str]]]:
    """Return Table I with our errors and, in brackets, the paper's error and the difference."""
    rows = [
        [SHORT[likelihood], method, *(_compared(cell, seeds) for cell in cells)]
        for (likelihood, method), cells in table.items()
    ]
    return ["likelihood", "method", *SETS, "average"], rows


def _compared(cell: Comparison | None, seeds: int) -> str:
    if cell is None:
        return "–"
    ours = with_error(cell.ours) if seeds > 1 else f"{cell.ours.mean:.3f}"
    if seeds > 1 and cell.in_standard_errors is not None:
        unit = f"{cell.in_standard_errors:+.1f} se"
    elif cell.in_points is not None:
        unit = f"{cell.in_points:+.1f} pt"
    else:
        unit = f"{cell.difference:+.3f}"
    return f"{ours} ({cell.paper:.3f}, {unit})"


def evaluation_page(
    data: Data, summaries: dict[Cell, Summary], results: Results, X: Array, *, local: bool = False
) -> str:
    """Return the report of ``postlin evaluate``; ``X`` are all rows, scaled.

    ``local`` fits predict from neighbours, and have neither an evidence surface nor iterations to show.
    """
    lead = (
        "Cross-validated methods side by side: Laplace (L), expectation propagation (PEP, SEP), "
        "posterior linearisation (PPL, SPL) and cavity linearisation (PCL, SCL), in parallel and in "
        "sequence."
    )
    if local:
        lead += (
            " Every row is predicted from its nearest rows; the log evidence and its traces stand for "
            "the estimated leave-one-out log score."
        )
    sections = [scores_section(data, summaries)]
    if len(data.classes) > 2:
        lead += (
            " Many classes are split into binary problems, each class against the rest or each against "
            "each other, or treated jointly."
        )
        sections.append(classes_section(data, summaries, results))
    sections.append(curves_section(data, results))
    if not local:
        sections.append(inference_section(data, X, list(summaries)))
    return render(f"Gaussian process classification of {data.name}", lead, sections, FOOTER)


def scores_section(data: Data, summaries: dict[Cell, Summary]) -> Section:
    """Return the table of scores, with the paper's errors for the paper's data sets."""
    header, rows = summary_rows(summaries)
    many = len(data.classes) > 2
    if data.name in SETS:
        column = list(SETS).index(data.name)
        header.insert(3, "error in the paper")
        for cell, row in zip(summaries, rows, strict=True):
            paper = PAPER.get((cell.likelihood, cell.method))
            row.insert(3, f"{paper[column]:.3f}" if paper else "–")
    # names stay on one line: the table scrolls
    header[2] = header[2].replace("-", "\N{NON-BREAKING HYPHEN}")
    rows = [[cell.replace(" ", "\N{NO-BREAK SPACE}") for cell in row] for row in rows]
    named = [repr(name) for name in data.classes[:_NAMED]]
    if len(data.classes) > _NAMED:
        named.append(f"{len(data.classes) - _NAMED} more")
    lead = (
        f"{len(data.codes)} rows, {count(data.X.shape[1], 'feature')}; {len(data.classes)} classes, "
        f"{listing(named)}. Scores are on held-out rows; ± is a standard error."
    )
    caption = (
        "Lower is better for error, NLPD (mean negative log probability), Brier and calibration error."
    )
    if GAPS["probability_gap"] in header:
        caption += (
            " Δ evidence is the log evidence minus the exact one at the same hyperparameters, and |Δp| "
            "the mean distance of the probabilities from the exact ones, by Monte Carlo."
        )
    if many:
        caption += (
            " The Brier score is summed over the classes, and the calibration error is that of the "
            "predicted class. Log evidences are comparable only where the likelihood and the "
            "multi-class strategy are the same: split into binary problems, they are means over these."
        )
    return Section("Scores", [lead], [Table(header, rows, caption, text_columns=3 if many else 2)])


def classes_section(data: Data, summaries: dict[Cell, Summary], results: Results) -> Section:
    """Return the scores of each class: all of them for the best method, recall for every method."""
    best = min(summaries, key=lambda cell: summaries[cell].nlpd.mean)
    predictions = {cell: pooled(folds) for cell, folds in group(results).items()}
    found = {cell: scores.class_scores(*pair) for cell, pair in predictions.items()}
    name, (y, p) = spoken(best), predictions[best]
    text = [f"The figures show {name}, which has the lowest NLPD."]
    shown = np.sort(np.argsort(-np.bincount(data.codes), kind="stable")[:_CURVES])
    if len(data.classes) > _CURVES:
        text.append(f"There are curves for the {_CURVES} classes with most rows.")
    curves = {_in_legend(data.classes, k): ((y == k).astype(float), p[:, k]) for k in shown}
    rows = [
        [label, str(score[0]), *map(_digits, score[1:])]
        for label, score in zip(data.classes, found[best], strict=True)
    ]
    caption = (
        f"Classes one by one, {name}. Recall is the share of a class that is recognised, precision the "
        "share of correct predictions of it; NLPD is over the rows of the class."
    )
    items: list[Figure | Table] = [
        Table(["class", "rows", "recall", "precision", "NLPD"], rows, caption),
        figures.confusion_matrix(scores.confusion(y, p), data.classes, name),
        figures.reliability(curves, "the class"),
        figures.roc(curves, "the share of a class found against the share of others mistaken for it"),
    ]
    if len(found) > 1:
        rows = [
            [label, str(of_class[0].rows), *(_digits(s.recall) for s in of_class)]
            for label, *of_class in zip(data.classes, *found.values(), strict=True)
        ]
        header = ["class", "rows", *map(spoken, found)]
        items.append(Table(header, rows, "Recall of each class by each method."))
    return Section("Classes", text, items)


def _in_legend(classes: tuple[str, ...], k: int) -> str:
    """Return the name of class ``k``; if it must be cut, its number tells it apart."""
    name = short(classes[k], _LONGEST)
    return f"{k + 1}: {name}" if name.endswith("…") else name


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def curves_section(data: Data, results: Results) -> Section:
    """Return reliability, ROC (for two classes) and evidence traces of every method."""
    cells = {spoken(cell): folds for cell, folds in group(results).items()}
    curves = {name: scores.event(*pooled(folds)) for name, folds in cells.items()}
    first = {name: next(iter(folds.values())).trace for name, folds in cells.items()}
    traces = figures.evidence_traces(first)
    text = "The predictions of all held-out rows are pooled. The evidence traces are of the first fold"
    if len(data.classes) > 2:
        text += (
            ", means over the problems where classes are split. Probabilities are those of the "
            "predicted class."
        )
        shown = [figures.reliability(curves, "correct predictions"), traces]
    else:
        text += "."
        zeros, ones = (f"class {name!r}" for name in data.classes)
        mean = f"the share of {ones} found against the share of {zeros} mistaken for it"
        shown = [figures.reliability(curves, ones), figures.roc(curves, mean), traces]
    return Section("Predictions and learning", [text], [*shown])


def inference_section(data: Data, X: Array, cells: list[Cell]) -> Section:
    """Return how inference converges, and what is learned, with PPL on all rows."""
    with warnings.catch_warnings(action="ignore"):  # the table and the figures show what they say
        if len(data.classes) > 2:
            return _many_problems(data, X, cells)
        return _one_problem(data, X, cells[0].likelihood)


def _one_problem(data: Data, X: Array, likelihood: str) -> Section:
    """Return PL and EP with the noisy threshold, and the evidence surface."""
    model = make_classifier("PPL", likelihood).fit(X, data.codes)
    threshold = make_classifier("PPL", "noisy_threshold").fit(X, data.codes)
    panels = diagnostics.convergence_histories(X, threshold.y_train_, threshold.kernel_.theta)
    text = (
        "The noisy threshold at the parameters that PPL learned from all rows: posterior linearisation "
        "and EP, each by plain parallel iteration, of which the paper runs ten iterations, and as "
        "postlin iterates."
    )
    axes = ("length_scale", "constant_value")
    surface = partial(EvidenceDisplay.from_estimator, model, axes, grid_resolution=21)
    contours = figures.evidence_surface(surface, f"PPL {SHORT[likelihood]}, {data.name}")
    return Section("Inside inference", [text], [figures.convergence(panels, _TOL), contours])


def _many_problems(data: Data, X: Array, cells: list[Cell]) -> Section:
    """Return the slowest problem of each multi-class strategy, and what is learned in all of them."""
    likelihoods = {cell.multi_class: cell.likelihood for cell in reversed(cells)}
    panels, rows = {}, []
    for strategy in (s for s in STRATEGIES if s in likelihoods):
        model = make_classifier("PPL", likelihoods[strategy], multi_class=strategy)
        problems = diagnostics.problem_histories(model.fit(X, np.array(data.classes)[data.codes]))
        slowest = max(problems, key=lambda problem: len(problem.ours))
        title = f"{SHORT[strategy]}: {slowest.name}"
        panels[title] = {"plain iteration": slowest.plain, "postlin": slowest.ours}
        for problem in problems:
            values = *map(number, np.exp(problem.theta)), number(problem.log_evidence, 4)
            rows.append([problem.name, SHORT[strategy], *values, "yes" if problem.converged else "NO"])
    text = (
        "PPL learned from all rows. The figure shows the problem that takes most iterations, from the "
        "prior at the learned parameters, by plain parallel iteration and as postlin iterates; the "
        "table shows what was learned in every problem."
    )
    header = ["problem", "multi-class", "variance", "length scale", "log evidence", "converged"]
    table = Table(header, rows, "Problems and their parameters, PPL.", text_columns=2)
    return Section("Inside inference", [text], [figures.convergence(panels, _TOL), table])


def table_section(table: TableI, protocol: str, seeds: int) -> Section:
    """Return Table I beside the paper's, and why cells may differ."""
    header, rows = comparison_rows(table, seeds)
    marked = frozenset(
        (i, j + 2)
        for i, cells in enumerate(table.values())
        for j, cell in enumerate(cells)
        if cell is not None and abs(cell.difference) > _DIFFERENT
    )
    text = [
        f"Protocol {protocol!r}, {count(seeds, 'shuffle')} into ten folds. The paper's error and the "
        "difference are in brackets: pt counts data points, se our standard errors. Marked cells "
        f"differ from the paper by more than {_DIFFERENT}."
    ]
    if marked:
        text.append(
            "Where cells differ: the paper does not state its shuffle, the threshold of the housing "
            "target, the treatment of missing values, or EP's small variance. It also stops after ten "
            "undamped iterations. Iterated to convergence, parallel and sequential PL are one method "
            "with one error; the paper's differ from each other by up to 0.014 in a cell, and its PEP "
            "with the noisy threshold ends far from any fixed point."
        )
    caption = "Average classification errors; the last column is weighted by the number of points."
    return Section("Table I", text, [Table(header, rows, caption, marked, text_columns=2)])


def synthetic_section(example: Example) -> Section:
    """Return the supplement's example."""
    text = (
        "Two latent values with prior mean (−0.5, −3), unit variances and correlation 0.8, both labels "
        "+1, noisy threshold with ε = 0.01. PL converges to "
        f"({example.mean[0]:.4f}, {example.mean[1]:.4f}), the mode of highest density. The paper "
        "reports −14.3 for the order 2, 1, where plain EP in fact converges."
    )
    rows = [[order, fate] for order, fate in example.ep.items()]
    table = Table(["plain EP", "what happens"], rows, "Undamped EP without fixes.", text_columns=2)
    return Section("Synthetic example", [text], [figures.synthetic(*example[:-1]), table])


def timing_section(timings: list[Timing], protocol: str) -> Section:
    """Return the paper's timings beside ours."""
    text = (
        f"A fit with hyperparameters on crab, probit, protocol {protocol!r}; the paper measured Matlab "
        "on its own machine."
    )
    rows = [
        [t.method, f"{t.seconds:.2f}", f"{t.paper:.1f}", f"{t.paper / t.seconds:.1f}"] for t in timings
    ]
    header = ["method", "seconds", "paper", "paper / ours"]
    return Section("Timing", [text], [Table(header, rows, "Medians of three interleaved rounds.")])
