"""``postlin evaluate``: cross-validate methods on a data set."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from postlin import datasets
from postlin.workbench.cli import pages
from postlin.workbench.cli.inputs import (
    BadInputError,
    Dask,
    Jobs,
    Source,
    Target,
    choices,
    one_sentence,
    read_data,
)
from postlin.workbench.cli.many_classes import many_classes_page
from postlin.workbench.cli.outputs import (
    notes,
    print_table,
    progress,
    summary_rows,
    write_results,
    write_text,
)
from postlin.workbench.evaluation.folds import Data, Scaling, Store, Task, run, scale
from postlin.workbench.evaluation.scores import group, summarise


def evaluate(
    data: Source,
    target: Target = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas: L (Laplace), PEP and SEP (parallel and sequential EP), "
            "PPL and SPL (parallel and sequential posterior linearisation). By default all; joint "
            "fits can use L and PPL."
        ),
    ] = None,
    likelihoods: Annotated[
        str | None,
        typer.Option(
            help="Likelihoods, separated by commas: probit, logit, noisy_threshold. By default probit; "
            "joint fits use softmax."
        ),
    ] = None,
    multi_class: Annotated[
        str,
        typer.Option(
            help="How more than two classes are treated, separated by commas: split into binary "
            "problems (one_vs_rest, one_vs_one), or jointly in one softmax model (joint)."
        ),
    ] = "one_vs_rest",
    folds: Annotated[int, typer.Option(min=2, help="Number of folds of the cross-validation.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the shuffle that makes the folds.")] = 0,
    scaling: Annotated[
        Scaling | None,
        typer.Option(
            help="How the features are scaled. By default the paper's data sets are whitened and all "
            "others standardised."
        ),
    ] = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the scores (results.json, results.csv), the report (report.html) and the "
            "finished folds, from which a stopped run goes on."
        ),
    ] = None,
) -> None:
    """Cross-validate methods on a data set and show their scores, each with a standard error."""
    with one_sentence():
        source = read_data(data, target)
        chosen = choices(methods, likelihoods, multi_class, len(source.classes))
        _check_folds(source, folds)
        how = scaling or ("whiten" if data in datasets.NAMES else "standardise")
        X = scale(source.X, how)  # first, so that data that cannot be whitened fail before any work
        tasks = [
            Task(
                source.name,
                choice.method,
                choice.likelihood,
                seed=seed,
                fold=fold,
                n_folds=folds,
                scaling=how,
                multi_class=choice.multi_class,
            )
            for choice in chosen
            for fold in range(folds)
        ]
        store = Store(out / "folds.jsonl" if out else None)
        with progress(source.name) as report:
            results = run({source.name: source}, tasks, store, jobs=jobs, dask=dask, report=report)
        summaries = {cell: summarise(part) for cell, part in group(results).items()}
        two = len(source.classes) == 2
        title = f"{source.name}: {folds}-fold cross-validation"
        print_table(title, *summary_rows(summaries), text_columns=2 if two else 3)
        if out:
            write_results(out, summaries)
            page = pages.evaluation_page if two else many_classes_page
            write_text(out / "report.html", page(source, summaries, results, X))
            notes.print(f"written: {out / 'report.html'}, results.json, results.csv")


def _check_folds(data: Data, folds: int) -> None:
    """Check that there are rows of every class to learn from in every fold.

    With two classes, both must also occur in every held-out part. With many, rare classes may be absent
    from some, as long as the most frequent class has a row for each.
    """
    counts = np.bincount(data.codes)
    rare, rows = data.classes[int(np.argmin(counts))], int(counts.min())
    if rows < 2:
        raise BadInputError(
            f"class {rare!r} has a single row, which cannot be both learned from and predicted"
            + (": leave it out, or merge rare classes." if len(counts) > 2 else ".")
        )
    enough = rows if len(counts) == 2 else int(counts.max())
    if enough < folds:
        name = data.classes[int(np.flatnonzero(counts == enough)[0])]
        raise BadInputError(
            f"class {name!r} has {enough} rows, fewer than the {folds} folds"
            f"{', and none has more' if len(counts) > 2 else ''}: use --folds {enough} or add data."
        )
    if rows < folds:
        notes.print(
            f"class {rare!r} has {rows} rows, fewer than the {folds} folds: "
            "some folds hold out none of it.",
            markup=False,
        )
