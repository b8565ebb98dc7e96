"""``postlin evaluate``: cross-validate methods on a data set."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from sklearn.preprocessing import StandardScaler

from postlin import datasets
from postlin._typing import Array
from postlin.cli import pages
from postlin.cli.errors import BadInputError, one_sentence
from postlin.cli.options import Dask, Jobs, ScalingName, Target, combinations
from postlin.cli.show import notes, print_table, progress, summary_rows
from postlin.cli.tables import load_data
from postlin.cli.write import write_results, write_text
from postlin.datasets import whiten
from postlin.evaluation.folds import Data, Task
from postlin.evaluation.methods import METHODS, SMALL_VARIANCE
from postlin.evaluation.runner import run
from postlin.evaluation.store import Store
from postlin.evaluation.summary import group, summarise


def evaluate(
    data: Annotated[str, typer.Argument(help="A built-in data set, or a CSV or Parquet file.")],
    target: Target = None,
    methods: Annotated[str, typer.Option(help="Some of L,PEP,SEP,PPL,SPL.")] = ",".join(METHODS),
    likelihoods: Annotated[str, typer.Option(help="Some of probit,logit,noisy_threshold.")] = "probit",
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the shuffle.")] = 0,
    scaling: Annotated[
        ScalingName | None,
        typer.Option(help="Of the features: built-in sets are whitened, files standardised."),
    ] = None,
    jobs: Jobs = 1,
    dask: Dask = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results as JSON and CSV, and report.html.")
    ] = None,
) -> None:
    """Cross-validate methods on a data set and show their scores, each with a standard error."""
    with one_sentence():
        pairs = combinations(methods, likelihoods)
        source = load_data(data, target)
        _check_folds(source, folds)
        chosen = scaling or (ScalingName.whiten if data in datasets.NAMES else ScalingName.standardise)
        X = scale(source.X, chosen)  # now, so that what cannot be whitened is said before any work
        tasks = [
            Task(
                source.name,
                method,
                likelihood,
                "converged",
                seed,
                fold,
                folds,
                SMALL_VARIANCE,
                chosen.value,
                paper_folds=False,
            )
            for method, likelihood in pairs
            for fold in range(folds)
        ]
        store = Store(out / "folds.jsonl" if out else None)
        with progress(source.name) as report:
            results = run({source.name: source}, tasks, store, jobs=jobs, dask=dask, report=report)
        summaries = {cell: summarise(part) for cell, part in group(results).items()}
        header, rows = summary_rows(summaries)
        print_table(f"{source.name}: {folds}-fold cross-validation", header, rows)
        if out:
            write_results(out, summaries)
            write_text(out / "report.html", pages.evaluation_page(source, summaries, results, X))
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
    smallest = int(np.bincount(data.codes, minlength=2).min())
    if smallest < folds:
        rare = data.classes[int(np.argmin(np.bincount(data.codes, minlength=2)))]
        raise BadInputError(
            f"class {rare!r} has {smallest} rows, fewer than the {folds} folds: use --folds "
            f"{max(2, smallest)} "
            "or add data."
            if smallest >= 2
            else f"class {rare!r} has a single row, which cannot be both learned from and predicted."
        )
