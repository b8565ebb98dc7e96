"""The sections of ``postlin reproduce``: the paper's results and ours beside them."""

import warnings
from functools import partial

from postlin._typing import Array
from postlin.plotting import EvidenceDisplay
from postlin.workbench.evaluation.comparison import conclude
from postlin.workbench.evaluation.folds import Data, Results
from postlin.workbench.evaluation.methods import make_classifier
from postlin.workbench.paper import SETS, Comparison, Example, TableI, Timing
from postlin.workbench.report import inference, predictions
from postlin.workbench.report.drawing import count
from postlin.workbench.report.page import Section, Table
from postlin.workbench.report.words import SHORT, called, names_of

#: Cells that differ from the paper by more than this are marked.
_DIFFERENT = 0.015
_TOL = 1e-8


def comparison_rows(table: TableI, seeds: int) -> tuple[list[str], list[list[str]]]:
    """Return Table I: our errors in per cent, the paper's in brackets, and the difference in points."""
    rows = [
        [SHORT[likelihood], method, *(_compared(cell, seeds) for cell in cells)]
        for (likelihood, method), cells in table.items()
    ]
    return ["likelihood", "method", *(name.replace("_", " ") for name in SETS), "average"], rows


def _compared(cell: Comparison | None, seeds: int) -> str:
    if cell is None:
        return "–"
    return f"{ours(cell, seeds)} ({100 * cell.paper:.1f}; {cell.in_percentage_points:+.1f})"


def ours(cell: Comparison, seeds: int) -> str:
    """Return our error in per cent, with its standard error if there are several shuffles."""
    error = cell.ours.error if seeds > 1 else None
    return f"{100 * cell.ours.mean:.1f}" + (f"±{100 * error:.1f}" if error is not None else "")


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
        f"Protocol {protocol!r}, {count(seeds, 'shuffle')} into ten folds. Each cell has our error in "
        "per cent and, in brackets, the paper's and the difference in percentage points. Marked cells "
        f"differ from the paper by more than {100 * _DIFFERENT:.1f} percentage points."
    ]
    if seeds > 1:
        text.append("± is a standard error over the shuffles.")
    if marked:
        text.append(
            "Where cells differ: the paper does not state its shuffle, the threshold of the housing "
            "target, the treatment of missing values, or EP's small variance. It also stops after ten "
            "undamped iterations. Iterated to convergence, parallel and sequential PL are one method "
            "with one error; the paper's differ from each other by up to 1.4 percentage points in a "
            "cell, and its PEP with the noisy threshold ends far from any fixed point."
        )
    caption = (
        "Average classification errors in per cent (the paper's; difference in percentage points). The "
        "last column is weighted by the number of rows."
    )
    return Section("Table I", text, [Table(header, rows, caption, marked, text_columns=2)])


def curves_section(data: Data, results: Results) -> Section:
    """Return ROC, reliability and evidence traces of one data set, with the first shuffle."""
    first = {task: result for task, result in results.items() if task.seed == 0}
    conclusion = conclude(data, first)
    mistaken, found = called(data.classes)
    y, p = (getattr(conclusion.predictions[conclusion.best], name) for name in ("y", "p"))
    text = (
        f"The predictions of all held-out rows of {data.name} are pooled. Methods whose probabilities "
        "agree to within 0.02 everywhere are drawn as one."
    )
    best = names_of(conclusion.ranking)[conclusion.best]
    shown = [
        predictions.reliability((y == 1).astype(float), p[:, 1], best, f"of {found}"),
        predictions.roc(predictions.curves_of(conclusion), found, mistaken),
        inference.evidence_traces(inference.traces_of(first)),
    ]
    return Section("Predictions and learning", [text], [*shown])


def inference_section(data: Data, X: Array, likelihood: str) -> Section:
    """Return how PL and EP converge with the noisy threshold, and the evidence surface of PL.

    ``X`` are all rows, scaled.
    """
    with warnings.catch_warnings(action="ignore"):  # the figures show what they say
        model = make_classifier("PPL", likelihood).fit(X, data.codes)
        threshold = make_classifier("PPL", "noisy_threshold").fit(X, data.codes)
        panels = inference.convergence_histories(X, threshold.y_train_, threshold.kernel_.theta)
        axes = ("length_scale", "constant_value")
        surface = partial(EvidenceDisplay.from_estimator, model, axes, grid_resolution=21)
        contours = inference.evidence_surface(surface, f"PPL {SHORT[likelihood]}, {data.name}")
    text = (
        "The noisy threshold at the parameters that PPL learned from all rows: posterior linearisation "
        "and EP, each by plain parallel iteration, of which the paper runs ten iterations, and as "
        "postlin iterates."
    )
    return Section("Inside inference", [text], [inference.convergence(panels, _TOL), contours])


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
    return Section("Synthetic example", [text], [inference.synthetic(*example[:-1]), table])


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


def in_the_terminal(table: TableI, seeds: int) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return a table for each likelihood, in 80 columns: its name, a header, and a row for each set."""
    tables = []
    for likelihood in dict.fromkeys(likelihood for likelihood, _ in table):
        columns = {method: cells for (other, method), cells in table.items() if other == likelihood}
        rows = [
            [name.replace("_", " "), *(_short(cells[k], seeds) for cells in columns.values())]
            for k, name in enumerate([*SETS, "average"])
            if any(cells[k] is not None for cells in columns.values())
        ]
        tables.append((SHORT[likelihood], ["", *columns], rows))
    return tables


def _short(cell: Comparison | None, seeds: int) -> str:
    return "–" if cell is None else f"{ours(cell, seeds)} {cell.in_percentage_points:+.1f}"
