"""``postlin evaluate``: cross-validate methods on a data set."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from sklearn.preprocessing import StandardScaler

from postlin import datasets
from postlin._typing import Array
from postlin.datasets import whiten
from postlin.workbench.cli.errors import BadInputError, one_sentence
from postlin.workbench.cli.options import Dask, Jobs, ScalingName, Target, choices
from postlin.workbench.cli.show import notes, print_table, progress
from postlin.workbench.cli.tables import load_data
from postlin.workbench.cli.write import write_results, write_text
from postlin.workbench.evaluation.folds import Data, Task
from postlin.workbench.evaluation.methods import SMALL_VARIANCE
from postlin.workbench.evaluation.runner import run
from postlin.workbench.evaluation.store import Store
from postlin.workbench.evaluation.summary import group, summarise
from postlin.workbench.report.sections import evaluation_page, summary_rows


def evaluate(
    data: Annotated[str, typer.Argument(help="A built-in data set, or a CSV or Parquet file.")],
    target: Target = None,
    methods: Annotated[
        str | None, typer.Option(help="Some of L,PEP,SEP,PPL,SPL; joint has L,PPL. All if not given.")
    ] = None,
    likelihoods: Annotated[
        str | None,
        typer.Option(
            help="Some of probit, logit, noisy_threshold; probit if not given. Joint has its own."
        ),
    ] = None,
    multi_class: Annotated[
        str, typer.Option(help="Of more than two classes: some of one_vs_rest, one_vs_one, joint.")
    ] = "one_vs_rest",
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the shuffle.")] = 0,
    scaling: Annotated[
        ScalingName | None,
        typer.Option(help="Of the features: the paper's sets are whitened, others standardised."),
    ] = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results as JSON and CSV, and report.html.")
    ] = None,
) -> None:
    """Cross-validate methods on a data set and show their scores, each with a standard error."""
    with one_sentence():
        source = load_data(data, target)
        chosen_methods = choices(methods, likelihoods, multi_class, len(source.classes))
        _check_folds(source, folds)
        chosen = scaling or (ScalingName.whiten if data in datasets.NAMES else ScalingName.standardise)
        X = scale(source.X, chosen)  # now, so that what cannot be whitened is said before any work
        tasks = [
            Task(
                source.name,
                choice.method,
                choice.likelihood,
                "converged",
                seed,
                fold,
                folds,
                SMALL_VARIANCE,
                chosen.value,
                paper_folds=False,
                multi_class=choice.multi_class,
            )
            for choice in chosen_methods
            for fold in range(folds)
        ]
        store = Store(out / "folds.jsonl" if out else None)
        with progress(source.name) as report:
            results = run({source.name: source}, tasks, store, jobs=jobs, dask=dask, report=report)
        summaries = {cell: summarise(part) for cell, part in group(results).items()}
        header, rows = summary_rows(summaries)
        names = 2 if len(source.classes) == 2 else 3
        print_table(f"{source.name}: {folds}-fold cross-validation", header, rows, names)
        if out:
            write_results(out, summaries)
            write_text(out / "report.html", evaluation_page(source, summaries, results, X))
            notes.print(f"written: {out / 'report.html'}, results.json, results.csv")


def scale(X: Array, how: ScalingName) -> Array:
    """All rows scaled."""
    if how is ScalingName.whiten:
        return whiten(X)
    if how is ScalingName.standardise:
        scaled: Array = StandardScaler().fit_transform(X)
        return scaled
    return X


def _check_folds(data: Data, folds: int) -> None:
    """Every class must be learned from in every fold.

    Of two classes both must be predicted in every fold too. Of many the rare ones need not, if folds
    can be made at all.
    """
    counts = np.bincount(data.codes)
    rare, rows = data.classes[int(np.argmin(counts))], int(counts.min())
    if rows < 2:
        raise BadInputError(
            f"class {rare!r} has a single row, which cannot be both learned from and predicted"
            + (": leave it out, or put rare classes together." if len(counts) > 2 else ".")
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
            f"class {rare!r} has {rows} rows, fewer than the {folds} folds: some hold out none of it.",
            markup=False,
        )
