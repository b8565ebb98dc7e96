"""``postlin reproduce``: the paper's Table I, its synthetic example and its timings."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from postlin.datasets import whiten
from postlin.workbench.cli.errors import one_sentence
from postlin.workbench.cli.options import Dask, Jobs, ProtocolName, combinations, parse
from postlin.workbench.cli.show import console, notes, print_table, progress
from postlin.workbench.cli.tables import built_in
from postlin.workbench.cli.write import write_results, write_text
from postlin.workbench.evaluation.folds import Task
from postlin.workbench.evaluation.methods import LIKELIHOODS, METHODS, SMALL_VARIANCE
from postlin.workbench.evaluation.runner import Results, run
from postlin.workbench.evaluation.store import Store
from postlin.workbench.evaluation.summary import Cell, group, summarise
from postlin.workbench.paper.synthetic import example
from postlin.workbench.paper.table import PAPER, SETS, compare
from postlin.workbench.paper.timing import timings
from postlin.workbench.report import sections
from postlin.workbench.report.drawing import standalone
from postlin.workbench.report.page import Figure, Section, render


class What(StrEnum):
    """Parts of the paper."""

    table = "table"
    synthetic = "synthetic"
    timing = "timing"
    all = "all"


def reproduce(
    what: Annotated[What, typer.Argument(help="Which part of the paper.")] = What.all,
    protocol: Annotated[
        ProtocolName,
        typer.Option(help="Ours, iterated to convergence, or the paper's ten undamped iterations."),
    ] = ProtocolName.converged,
    seeds: Annotated[int, typer.Option(min=1, help="Shuffles; several give standard errors.")] = 1,
    sets: Annotated[str, typer.Option(help="Some of the six data sets.")] = ",".join(SETS),
    methods: Annotated[str, typer.Option(help="Some of L,PEP,SEP,PPL,SPL.")] = ",".join(METHODS),
    likelihoods: Annotated[str, typer.Option(help="Some of probit,logit,noisy_threshold.")] = ",".join(
        LIKELIHOODS
    ),
    small_variance: Annotated[
        float, typer.Option(help="What the paper's fix sets EP's negative site variances to.")
    ] = SMALL_VARIANCE,
    jobs: Jobs = 1,
    dask: Dask = None,
    out: Annotated[Path, typer.Option(help="Folder for results and report.html.")] = Path(
        "postlin-reproduced"
    ),
) -> None:
    """Reproduce the paper: Table I, the synthetic example, the timings, with a report.

    Finished folds are stored as they end; a run that was stopped goes on from there.
    """
    with one_sentence():
        chosen = parse(sets, tuple(SETS), "--sets")
        pairs = combinations(methods, likelihoods)
        parts: list[Section] = []
        if what in (What.table, What.all):
            tasks = table_tasks(chosen, pairs, protocol, seeds, small_variance)
            parts += _table(tasks, protocol, seeds, jobs, dask, out)
        if what in (What.synthetic, What.all):
            parts.append(_synthetic(out))
        if what in (What.timing, What.all):
            parts.append(_timing(protocol))
        lead = (
            "Gaussian process classification using posterior linearisation: every figure computed anew."
        )
        write_text(out / "report.html", render("The paper, reproduced", lead, parts, sections.FOOTER))
        notes.print(f"written: {out / 'report.html'}")


def table_tasks(
    sets: list[str],
    pairs: list[tuple[str, str]],
    protocol: ProtocolName,
    seeds: int,
    small_variance: float,
) -> list[Task]:
    """The folds of Table I, in the paper's order; larger sets first keep several processes busy."""
    return [
        Task(
            name,
            method,
            likelihood,
            protocol.value,
            seed,
            fold,
            10,
            small_variance if protocol is ProtocolName.paper else SMALL_VARIANCE,
            "whiten",
            paper_folds=True,
        )
        for seed in range(seeds)
        for name in sorted(sets, key=lambda s: -SETS[s])
        for likelihood, method in PAPER
        if (method, likelihood) in pairs
        for fold in range(10)
    ]


def _table(
    tasks: list[Task], protocol: ProtocolName, seeds: int, jobs: int, dask: str | None, out: Path
) -> list[Section]:
    data = {name: built_in(name) for name in dict.fromkeys(task.data for task in tasks)}
    with progress("Table I") as report:
        results = run(data, tasks, Store(out / "folds.jsonl"), jobs=jobs, dask=dask, report=report)
    summaries = {cell: summarise(part) for cell, part in group(results).items()}
    table = compare(summaries)
    header, rows = sections.comparison_rows(table, seeds)
    print_table(f"Table I: ours (the paper's, difference), protocol {protocol.value}", header, rows)
    write_results(out, summaries)
    first = Cell(tasks[0].data, tasks[0].method, tasks[0].likelihood)
    shown = "crab" if "crab" in data else next(iter(data))
    return [
        sections.table_section(table, protocol.value, seeds),
        sections.curves_section(data[shown], _of(results, shown, tasks[0].likelihood)),
        sections.inference_section(data[shown], whiten(data[shown].X), [first]),
    ]


def _of(results: Results, name: str, likelihood: str) -> Results:
    """The results of one data set and likelihood, for pictures."""
    return {t: r for t, r in results.items() if t.data == name and t.likelihood == likelihood}


def _synthetic(out: Path) -> Section:
    found = example()
    console.print(f"PL converges to ({found.mean[0]:.4f}, {found.mean[1]:.4f})")
    print_table("Plain EP", ["order", "what happens"], [[k, v] for k, v in found.ep.items()])
    section = sections.synthetic_section(found)
    picture = section.items[0]
    assert isinstance(picture, Figure)
    write_text(out / "synthetic.svg", standalone(picture.svg, picture.alt))
    return section


def _timing(protocol: ProtocolName) -> Section:
    with notes.status("timing five methods on crab"):
        found = timings(protocol.value)
    rows = [[t.method, f"{t.seconds:.2f}", f"{t.paper:.1f}"] for t in found]
    print_table("Seconds a fit on crab, probit", ["method", "ours", "paper"], rows, 1)
    return sections.timing_section(found, protocol.value)
