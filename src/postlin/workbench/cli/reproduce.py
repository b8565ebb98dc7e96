"""``postlin reproduce``: the paper's Table I, its synthetic example and its timings."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from postlin.datasets import whiten
from postlin.workbench.cli import inputs, outputs
from postlin.workbench.evaluation.folds import Store, Task, run
from postlin.workbench.evaluation.methods import LIKELIHOODS, METHODS, SMALL_VARIANCE, Protocol
from postlin.workbench.evaluation.scores import Cell, group, summarise
from postlin.workbench.paper.results import PAPER, SETS, compare, timings
from postlin.workbench.paper.synthetic import example
from postlin.workbench.report import sections
from postlin.workbench.report.drawing import standalone
from postlin.workbench.report.page import Figure, Section, render

_FOLDS = 10


@inputs.one_sentence()
def reproduce(
    what: Annotated[
        Literal["table", "synthetic", "timing", "all"],
        typer.Argument(
            help="The part of the paper: Table I, the supplement's example, the timings, or all three."
        ),
    ] = "all",
    protocol: Annotated[
        Protocol,
        typer.Option(help="Iterate to convergence, or ten times without damping as the paper does."),
    ] = "converged",
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of shuffles; several give standard errors.")
    ] = 1,
    sets: Annotated[str, typer.Option(help="Data sets, separated by commas.")] = ",".join(SETS),
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = ",".join(METHODS),
    likelihoods: Annotated[str, typer.Option(help="Likelihoods, separated by commas.")] = ",".join(
        LIKELIHOODS
    ),
    small_variance: Annotated[
        float,
        typer.Option(help="The value to which the paper's protocol sets EP's negative site variances."),
    ] = SMALL_VARIANCE,
    jobs: inputs.Jobs = 1,
    dask: inputs.Dask = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the results, the report and the finished folds.")
    ] = Path("postlin-reproduced"),
) -> None:
    """Reproduce Table I, the synthetic example and the timings of the paper, and write a report.

    Every finished fold is stored; a run that was stopped goes on from there.
    """
    chosen = inputs.parse(sets, tuple(SETS), "--sets")
    pairs = inputs.combinations(methods, likelihoods)
    parts: list[Section] = []
    if what in ("table", "all"):
        variance = small_variance if protocol == "paper" else SMALL_VARIANCE
        tasks = [
            Task(name, method, likelihood, protocol, seed, k, _FOLDS, variance, paper_folds=True)
            for seed in range(seeds)
            for name in sorted(chosen, key=lambda s: -SETS[s])  # large ones first keep processes busy
            for likelihood, method in PAPER
            if (method, likelihood) in pairs
            for k in range(_FOLDS)
        ]
        parts += _table(tasks, protocol, seeds, jobs, dask, out)
    if what in ("synthetic", "all"):
        parts.append(_synthetic(out))
    if what in ("timing", "all"):
        parts.append(_timing(protocol))
    lead = "Gaussian process classification using posterior linearisation: all numbers computed anew."
    page = render("The paper, reproduced", lead, parts, sections.FOOTER)
    outputs.write_text(out / "report.html", page)
    outputs.notes.print(f"written: {out / 'report.html'}")


def _table(
    tasks: list[Task], protocol: Protocol, seeds: int, jobs: int, dask: str | None, out: Path
) -> list[Section]:
    """Run the folds, print and write their scores, and return the sections of the report."""
    data = {name: inputs.built_in(name) for name in dict.fromkeys(task.data for task in tasks)}
    with outputs.progress("Table I") as report:
        results = run(data, tasks, Store(out / "folds.jsonl"), jobs=jobs, dask=dask, report=report)
    summaries = {cell: summarise(part) for cell, part in group(results).items()}
    table = compare(summaries)
    title = f"Table I: ours (the paper's, difference), protocol {protocol}"
    outputs.print_table(title, *sections.comparison_rows(table, seeds))
    outputs.write_results(out, summaries)
    shown, likelihood = data.get("crab", next(iter(data.values()))), tasks[0].likelihood
    drawn = {t: r for t, r in results.items() if (t.data, t.likelihood) == (shown.name, likelihood)}
    return [
        sections.table_section(table, protocol, seeds),
        sections.curves_section(shown, drawn),
        sections.inference_section(shown, whiten(shown.X), [Cell(shown.name, "PPL", likelihood)]),
    ]


def _synthetic(out: Path) -> Section:
    found = example()
    outputs.console.print(f"PL converges to ({found.mean[0]:.4f}, {found.mean[1]:.4f})")
    outputs.print_table("Plain EP", ["order", "what happens"], [[k, v] for k, v in found.ep.items()])
    section = sections.synthetic_section(found)
    picture = section.items[0]
    assert isinstance(picture, Figure)
    outputs.write_text(out / "synthetic.svg", standalone(picture.svg, picture.alt))
    return section


def _timing(protocol: Protocol) -> Section:
    with outputs.notes.status("timing five methods on crab"):
        found = timings(protocol)
    rows = [[t.method, f"{t.seconds:.2f}", f"{t.paper:.1f}"] for t in found]
    outputs.print_table("Seconds per fit on crab, probit", ["method", "ours", "paper"], rows, 1)
    return sections.timing_section(found, protocol)
