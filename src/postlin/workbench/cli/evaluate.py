"""``postlin evaluate``: cross-validate methods on a data set."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from postlin import datasets
from postlin.workbench.cli import inputs, outputs
from postlin.workbench.evaluation.folds import Data, Scaling, Store, Task, run, scale
from postlin.workbench.evaluation.scores import group, summarise
from postlin.workbench.report.sections import evaluation_page, summary_rows


@inputs.one_sentence()
def evaluate(
    data: inputs.Source,
    target: inputs.Target = None,
    methods: Annotated[
        str | None,
        typer.Option(help=f"Some, separated by commas, of {inputs.METHODS_HELP} All by default."),
    ] = None,
    likelihoods: Annotated[
        str | None, typer.Option(help=f"Some, separated by commas, of {inputs.LIKELIHOODS_HELP}")
    ] = None,
    multi_class: Annotated[
        str, typer.Option(help=f"Some, separated by commas, of {inputs.MULTI_CLASS_HELP}")
    ] = "one_vs_rest",
    folds: Annotated[int, typer.Option(min=2, help="Number of folds of the cross-validation.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the shuffle that makes the folds.")] = 0,
    scaling: Annotated[
        Scaling | None,
        typer.Option(
            help="Scaling of features; by default the paper's sets are whitened, others standardised."
        ),
    ] = None,
    jobs: inputs.Jobs = 1,
    dask: inputs.Dask = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for scores, report and finished folds; a stopped run goes on there."),
    ] = None,
) -> None:
    """Cross-validate methods on a data set and show their scores, each with a standard error."""
    source = inputs.read_data(data, target)
    chosen = inputs.choices(methods, likelihoods, multi_class, len(source.classes))
    _check_folds(source, folds)
    how = scaling or ("whiten" if data in datasets.NAMES else "standardise")
    X = scale(source.X, how)  # first, so that data that cannot be whitened fail before any work
    tasks = [
        Task(source.name, method, likelihood, "converged", seed, k, folds, scaling=how, multi_class=way)
        for method, likelihood, way in chosen
        for k in range(folds)
    ]
    store = Store(out / "folds.jsonl" if out else None)
    with outputs.progress(source.name) as report:
        results = run({source.name: source}, tasks, store, jobs=jobs, dask=dask, report=report)
    summaries = {cell: summarise(part) for cell, part in group(results).items()}
    names = 2 if len(source.classes) == 2 else 3
    title = f"{source.name}: {folds}-fold cross-validation"
    outputs.print_table(title, *summary_rows(summaries), text_columns=names)
    if out:
        outputs.write_results(out, summaries)
        outputs.write_text(out / "report.html", evaluation_page(source, summaries, results, X))
        outputs.notes.print(f"written: {out / 'report.html'}, results.json, results.csv")


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
        outputs.notes.print(
            f"class {rare!r} has {rows} rows, fewer than the {folds} folds: "
            "some folds hold out none of it.",
            markup=False,
        )
