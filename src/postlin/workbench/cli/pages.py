"""The sections of the reports."""

import warnings

import numpy as np

import postlin
from postlin.workbench.cli.outputs import SHORT, comparison_rows, summary_rows
from postlin.workbench.evaluation.diagnostics import convergence_histories, evidence_surface
from postlin.workbench.evaluation.folds import Data, Results
from postlin.workbench.evaluation.methods import make_classifier
from postlin.workbench.evaluation.scores import Cell, Summary, group, pooled
from postlin.workbench.paper.results import PAPER, SETS, Comparison, Timing
from postlin.workbench.paper.synthetic import Example
from postlin.workbench.report import (
    Figure,
    Section,
    Table,
    convergence,
    evidence_traces,
    reliability,
    render,
    roc,
    synthetic,
)
from postlin.workbench.report import evidence_surface as surface_figure

FOOTER = f"Made by postlin {postlin.__version__}. One file, no network, no scripts."


def scores_section(data: Data, summaries: dict[Cell, Summary]) -> Section:
    """The table of scores, with the paper's errors where it has them."""
    header, rows = summary_rows(summaries)
    if data.name in SETS:
        column = list(SETS).index(data.name)
        header.insert(3, "error in the paper")
        for cell, row in zip(summaries, rows, strict=True):
            paper = PAPER.get((cell.likelihood, cell.method))
            row.insert(3, f"{paper[column]:.3f}" if paper else "–")
    lead = (
        f"{len(data.codes)} rows, {data.X.shape[1]} features; classes {data.classes[0]!r} and "
        f"{data.classes[1]!r}. Scores are on held-out rows; ± is a standard error."
    )
    caption = (
        "Lower is better for error, NLPD (mean negative log probability), Brier and calibration error."
    )
    return Section("Scores", [lead], [Table(header, rows, caption, text_columns=2)])


def curves_section(results: Results) -> Section:
    """Reliability, ROC and evidence traces, method by method."""
    curves = {}
    traces = {}
    for cell, folds in group(results).items():
        name = f"{cell.method} {SHORT[cell.likelihood]}"
        curves[name] = pooled(folds)
        traces[name] = next(iter(folds.values())).trace
    text = "All held-out predictions together. The evidence traces are those of the first fold."
    return Section(
        "Predictions and learning", [text], [reliability(curves), roc(curves), evidence_traces(traces)]
    )


def inference_section(data: Data, X: np.ndarray, likelihood: str) -> Section:
    """How inference converges, and the surface that learning climbs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_classifier("PPL", likelihood).fit(X, data.codes)
        threshold = make_classifier("PPL", "noisy_threshold").fit(X, data.codes)
        surface = evidence_surface(X, data.codes, model)
    panels = convergence_histories(X, threshold.y_train_, threshold.kernel_.theta)
    text = (
        "With the noisy threshold, plain parallel iteration is what the paper runs for ten iterations; "
        "posterior linearisation and EP are shown with it and as postlin iterates them, at the "
        "parameters that PPL learned from all rows."
    )
    title = f"log evidence, PPL {SHORT[likelihood]}, {data.name}"
    items: list[Figure | Table] = [
        convergence(panels, 1e-8),
        surface_figure(surface.log_variance, surface.log_length, surface.values, surface.path, title),
    ]
    return Section("Inside inference", [text], items)


def evaluation_page(data: Data, summaries: dict[Cell, Summary], results: Results, X: np.ndarray) -> str:
    """The report of ``postlin evaluate``."""
    first = next(iter(summaries))
    sections = [
        scores_section(data, summaries),
        curves_section(results),
        inference_section(data, X, first.likelihood),
    ]
    title = f"Gaussian process classification of {data.name}"
    lead = (
        "Cross-validated methods side by side: Laplace (L), expectation propagation (PEP, SEP) and "
        "posterior linearisation (PPL, SPL), in parallel and in sequence."
    )
    return render(title, lead, sections, FOOTER)


def table_section(
    table: dict[tuple[str, str], list[Comparison | None]], protocol: str, seeds: int
) -> Section:
    """Table I beside the paper's, and an account of the cells that differ."""
    header, rows = comparison_rows(table, seeds)
    marked = frozenset(
        (i, j + 2)
        for i, cells in enumerate(table.values())
        for j, cell in enumerate(cells)
        if cell is not None and abs(cell.difference) > 0.015
    )
    text = (
        f"Protocol {protocol!r}, {seeds} shuffle{'s' if seeds > 1 else ''} into ten folds. In "
        "brackets the paper's "
        "error and the difference: pt counts data points, se our standard errors. Marked cells differ "
        "from the paper by more than 0.015."
    )
    why = [
        "Where cells differ: the paper does not state its shuffle, the threshold of the housing "
        "target, the treatment of missing values, or EP's small variance. It also stops after ten "
        "undamped iterations. Iterated to convergence, parallel and sequential PL are one method "
        "with one error; the paper's differ from each other by up to 0.014 in a cell, and its PEP "
        "with the noisy threshold ends far from any fixed point."
    ]
    caption = "Average classification errors; the last column is weighted by the number of points."
    return Section(
        "Table I",
        [text, *(why if marked else [])],
        [Table(header, rows, caption, marked, text_columns=2)],
    )


def synthetic_section(example: Example) -> Section:
    """The supplement's example."""
    fates = [[order, fate] for order, fate in example.ep.items()]
    text = (
        "Two latent values with prior mean (−0.5, −3), unit variances and correlation 0.8, both "
        "labels +1, noisy "
        f"threshold with ε = 0.01. PL converges to ({example.mean[0]:.4f}, {example.mean[1]:.4f}), "
        "the mode of "
        "highest density. The paper reports −14.3 for the order 2, 1, where plain EP in fact converges."
    )
    return Section(
        "Synthetic example",
        [text],
        [
            synthetic(
                example.axis1,
                example.axis2,
                example.density,
                example.mean,
                example.covariance,
                example.path,
            ),
            Table(["plain EP", "what happens"], fates, "Undamped EP without fixes.", text_columns=2),
        ],
    )


def timing_section(timings: list[Timing], protocol: str) -> Section:
    """The paper's timings beside ours."""
    rows = [
        [t.method, f"{t.seconds:.2f}", f"{t.paper:.1f}", f"{t.paper / t.seconds:.1f}"] for t in timings
    ]
    return Section(
        "Timing",
        [
            f"A fit with hyperparameters on crab, probit, protocol {protocol!r}; the paper's figures "
            "are Matlab's, on its machine."
        ],
        [
            Table(
                ["method", "seconds", "paper", "paper / ours"],
                rows,
                "Medians of three interleaved rounds.",
            )
        ],
    )
