"""``postlin evaluate`` and ``postlin reproduce``: methods on folds of data, and the paper's results."""

import shlex
import sys
import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from postlin import datasets
from postlin.workbench.cli import inputs, large, outputs, tables
from postlin.workbench.cli.large import seconds_of_folds
from postlin.workbench.cli.progress import Folds, fitting
from postlin.workbench.cli.reading import Spelling
from postlin.workbench.evaluation.comparison import conclude
from postlin.workbench.evaluation.explanation import explain
from postlin.workbench.evaluation.folds import (
    Data,
    EvaluationInterruptedError,
    Results,
    Store,
    Task,
    fingerprint,
    run,
)
from postlin.workbench.evaluation.methods import (
    DEFAULT_METHODS,
    LIKELIHOODS,
    METHODS,
    SMALL_VARIANCE,
    Protocol,
)
from postlin.workbench.evaluation.scores import Cell, Summary, cell_of, group, summarise
from postlin.workbench.paper import PAPER, SETS, compare, example, timings
from postlin.workbench.report import paper, sections
from postlin.workbench.report.drawing import standalone
from postlin.workbench.report.page import Figure, Section, render
from postlin.workbench.report.words import spoken

#: Folds of the paper's cross-validation.
_FOLDS = 10
#: The files in the folder of results that hold finished folds and the report.
_STORE, _REPORT = "folds.jsonl", "report.html"


@inputs.one_sentence()
def evaluate(
    data: inputs.Source,
    target: inputs.Target = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Some, separated by commas, of {inputs.METHODS_HELP} {inputs.BASELINES_HELP} "
            f"By default {', '.join(DEFAULT_METHODS)} and the baselines."
        ),
    ] = None,
    likelihoods: Annotated[
        str | None, typer.Option(help=f"Some, separated by commas, of {inputs.LIKELIHOODS_HELP}")
    ] = None,
    multi_class: Annotated[
        str, typer.Option(help=f"Some, separated by commas, of {inputs.MULTI_CLASS_HELP}")
    ] = "one_vs_rest",
    n_neighbors: large.Neighbours = None,
    inducing: large.Inducing = None,
    device: large.Device = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds of the cross-validation.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the shuffle that makes the folds.")] = 0,
    scaling: tables.ScaleBy = None,
    impute: tables.ImputeBy = "median",
    drop: tables.Drop = None,
    ids: tables.Id = None,
    categorical: tables.Categorical = None,
    numeric: tables.Numeric = None,
    sep: tables.Sep = None,
    decimal: tables.Decimal = None,
    encoding: tables.Encoding = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compare every fit with the exact posterior, by Monte Carlo, where possible.",
        ),
    ] = False,
    jobs: inputs.Jobs = 1,
    dask: inputs.Dask = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for scores, report and finished folds; a stopped run goes on there."),
    ] = None,
) -> None:
    """Compare methods and baselines by cross-validation: which is best, and how sure that is."""
    spelling = Spelling(sep, decimal, encoding)
    about = tables.Options(spelling, impute, drop, ids, categorical, numeric, scaling)
    source = tables.read_data(data, target, about, partial(_check_folds, folds=folds))
    rows = len(source.codes)
    size = large.large(n_neighbors, inducing, device, rows - -(-rows // folds))
    wanted, baselines = inputs.with_baselines(methods)
    chosen = []
    if wanted != "":
        chosen = inputs.choices(wanted, likelihoods, multi_class, len(source.classes), size.option)
    of_models = {"verify": verify or None, **size._asdict()}
    tasks = [
        Task(
            source.name,
            method,
            likelihood,
            seed=seed,
            fold=fold,
            n_folds=folds,
            multi_class=way,
            **(of_models if likelihood else {}),
        )
        for method, likelihood, way in (*chosen, *baselines)
        for fold in range(folds)
    ]
    _try_to_write(out)
    for remark in source.remarks:
        outputs.note(remark)
    large.check_room(source, tasks, jobs if dask is None else 1)
    forecast = seconds_of_folds({source.name: source})
    if prospect := large.prospect(source, tasks, size, jobs, forecast):
        outputs.note(prospect)
    results, summaries, failures = _run(source.name, {source.name: source}, tasks, jobs, dask, out)
    conclusion = conclude(source, results)
    outputs.print_conclusion(source, folds, conclusion, summaries)
    if out:
        outputs.write_results(out, summaries)
        best = {task: one for task, one in results.items() if cell_of(task) == conclusion.best}
        with fitting("looking at the features"):
            explanation = explain(source, best, jobs) if conclusion.best.method != "majority" else None
        page = sections.evaluation_page(
            source, summaries, results, conclusion, explanation, _origin(), failures
        )
        outputs.write_text(out / _REPORT, page)
        outputs.note(f"written: {out / _REPORT}, results.json, results.csv")


def _origin() -> sections.Origin:
    """The command that is running, and the time."""
    now = datetime.now().astimezone().isoformat(" ", "minutes")
    return sections.Origin(shlex.join(["postlin", *sys.argv[1:]]), now)


def _try_to_write(out: Path | None) -> None:
    """Raise ``BadInputError`` before any work if a folder cannot hold the results."""
    if out:
        names = _STORE, "results.json", "results.csv", _REPORT
        outputs.check_writable(*(out / name for name in names))


def _run(
    what: str, data: dict[str, Data], tasks: list[Task], jobs: int, dask: str | None, out: Path | None
) -> tuple[Results, dict[Cell, Summary], list[str]]:
    """Run the folds that the folder does not hold yet, summarise all of them, and say which failed."""
    store = Store(out / _STORE if out else None)
    folds = Folds(data, jobs, out)
    try:
        with folds.shown(what) as report:
            results = run(data, tasks, store, jobs=jobs, dask=dask, report=report, board=folds.make)
    except EvaluationInterruptedError as stop:
        raise KeyboardInterrupt(_kept(what, data, stop.results, len(tasks), out)) from None
    for problem in store.problems:
        outputs.note(problem)
    failures = [
        f"{spoken(task)} failed in fold {task.fold + 1} of {task.data}, and is scored without it: "
        f"{reason}"
        for task, reason in store.failures.items()
    ]
    for failure in failures:
        outputs.note(failure)
    return results, {cell: summarise(part) for cell, part in group(results).items()}, failures


def _kept(what: str, data: dict[str, Data], results: Results, total: int, out: Path | None) -> str:
    """Show the scores of the finished folds, keep these, and say where and how to go on."""
    if not results:
        return "interrupted before the first fold ended: there is nothing to keep."
    scores = {cell: summarise(part) for cell, part in group(results).items()}
    rows = [
        [cell.data, spoken(cell), str(s.folds), f"{s.error.mean:.4f}", f"{s.nlpd.mean:.4f}"]
        for cell, s in scores.items()
    ]
    header = ["data", "method", "finished folds", "error", "log-loss"]
    outputs.print_table(f"{what}, as far as it went", header, rows)
    folder = out
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="postlin-"))
        store = Store(folder / _STORE)
        for task, result in results.items():
            store.add(fingerprint(data[task.data], task), task, result)
    return (
        f"interrupted; {len(results)} of {total} folds are kept in {str(folder / _STORE)!r}: the same "
        f"command with --out {shlex.quote(str(folder))} goes on from there."
    )


def _check_folds(data: Data, folds: int) -> None:
    """Check that there are rows of every class to learn from in every fold.

    With two classes, both must also occur in every held-out part. With many, rare classes may be absent
    from some, as long as the most frequent class has a row for each.
    """
    counts = np.bincount(data.codes)
    rare, rows = data.classes[int(np.argmin(counts))], int(counts.min())
    if rows < 2:
        raise inputs.BadInputError(
            f"class {rare!r} has a single row, which cannot be both learned from and predicted"
            + (": leave it out, or merge rare classes." if len(counts) > 2 else ".")
        )
    enough = rows if len(counts) == 2 else int(counts.max())
    if enough < folds:
        name = data.classes[int(np.flatnonzero(counts == enough)[0])]
        raise inputs.BadInputError(
            f"class {name!r} has {enough} rows, fewer than the {folds} folds"
            f"{', and none has more' if len(counts) > 2 else ''}: use --folds {enough} or add data."
        )
    if rows < folds:
        few = f"class {rare!r} has {rows} rows, fewer than the {folds} folds"
        outputs.note(f"{few}: some folds hold out none of it.")


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
    pairs = inputs.combinations(methods, likelihoods, METHODS)
    parts: list[Section] = []
    _try_to_write(out)
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
    outputs.write_text(out / _REPORT, page)
    outputs.note(f"written: {out / _REPORT}")


def _table(
    tasks: list[Task], protocol: Protocol, seeds: int, jobs: int, dask: str | None, out: Path
) -> list[Section]:
    """Run the folds, print and write their scores, and return the sections of the report."""
    data = {name: inputs.built_in(name) for name in dict.fromkeys(task.data for task in tasks)}
    results, summaries, _ = _run("Table I", data, tasks, jobs, dask, out)
    table = compare(summaries)
    outputs.console.print(
        f"Table I, protocol {protocol}: our errors in per cent, and behind them the difference from "
        "the paper's in percentage points.\n"
    )
    for likelihood, header, rows in paper.in_the_terminal(table, seeds):
        outputs.print_table(likelihood, header, rows, text_columns=1)
    outputs.write_results(out, summaries)
    shown, likelihood = data.get("crab", next(iter(data.values()))), tasks[0].likelihood
    drawn = {t: r for t, r in results.items() if (t.data, t.likelihood) == (shown.name, likelihood)}
    return [
        paper.table_section(table, protocol, seeds),
        paper.curves_section(shown, drawn),
        paper.inference_section(shown, datasets.whiten(np.asarray(shown.X)), likelihood),
    ]


def _synthetic(out: Path) -> Section:
    found = example()
    outputs.console.print(f"PL converges to ({found.mean[0]:.4f}, {found.mean[1]:.4f})")
    outputs.print_table("Plain EP", ["order", "what happens"], [[k, v] for k, v in found.ep.items()])
    section = paper.synthetic_section(found)
    picture = section.items[0]
    assert isinstance(picture, Figure)
    outputs.write_text(out / "synthetic.svg", standalone(picture.svg, picture.alt))
    return section


def _timing(protocol: Protocol) -> Section:
    with outputs.notes.status("timing five methods on crab"):
        found = timings(protocol)
    rows = [[t.method, f"{t.seconds:.2f}", f"{t.paper:.1f}"] for t in found]
    outputs.print_table("Seconds per fit on crab, probit", ["method", "ours", "paper"], rows, 1)
    return paper.timing_section(found, protocol)
