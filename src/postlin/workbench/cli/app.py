"""The command ``postlin`` and its short sub-commands: fit, predict, verify and datasets."""

import shlex
import sys
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from rich.padding import Padding
from sklearn.pipeline import Pipeline

import postlin
from postlin import datasets
from postlin.estimator.classifier import GPClassifier
from postlin.estimator.files import check_skops
from postlin.workbench.cli import inputs, large, outputs, tables
from postlin.workbench.cli.experiments import evaluate, reproduce
from postlin.workbench.cli.large import seconds_of_folds
from postlin.workbench.cli.progress import fitting
from postlin.workbench.cli.reading import Spelling
from postlin.workbench.evaluation.folds import Data, Task, make_model

_MODEL = Path("model.postlin")
#: The format of predicted probabilities.
_DIGITS = "%.6g"

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(evaluate)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(postlin.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Gaussian process classification by posterior or cavity linearisation, EP and Laplace."""


@app.command()
@inputs.one_sentence()
def fit(
    data: inputs.Source,
    model: Annotated[Path, typer.Option(help="The file in which the model is saved.")] = _MODEL,
    target: inputs.Target = None,
    method: Annotated[str, typer.Option(help=f"One of {inputs.METHODS_HELP}")] = "PL",
    likelihood: Annotated[str | None, typer.Option(help=f"One of {inputs.LIKELIHOODS_HELP}")] = None,
    multi_class: Annotated[str, typer.Option(help=f"One of {inputs.MULTI_CLASS_HELP}")] = "one_vs_rest",
    n_neighbors: large.Neighbours = None,
    inducing: large.Inducing = None,
    device: large.Device = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            help="A saved model of the same columns and classes, from which the search goes on."
        ),
    ] = None,
    scaling: tables.ScaleBy = None,
    impute: tables.ImputeBy = "median",
    drop: tables.Drop = None,
    ids: tables.Id = None,
    categorical: tables.Categorical = None,
    numeric: tables.Numeric = None,
    sep: tables.Sep = None,
    decimal: tables.Decimal = None,
    encoding: tables.Encoding = None,
) -> None:
    """Train on a table and save the model, which takes tables of the same kind as they are.

    Ctrl-C saves the best model so far.
    """
    spelling = Spelling(sep, decimal, encoding)
    about = tables.Options(spelling, impute, drop, ids, categorical, numeric, scaling)
    source = tables.read_data(data, target, about)
    size = large.large(n_neighbors, inducing, device, len(source.codes))
    chosen = inputs.choices(method, likelihood, multi_class, len(source.classes), size.option)
    if len(chosen) != 1:
        raise inputs.BadInputError("fit takes one --method, one --likelihood and one --multi-class.")
    outputs.check_folder(model, "model", data)
    check_skops()
    task = Task(source.name, *chosen[0][:2], multi_class=chosen[0].multi_class, **size._asdict())
    estimator = make_model(task).set_params(keep_on_interrupt=True)
    if start_from is not None:
        settings = estimator.get_params(deep=False) | {"warm_start": True}
        estimator = _classifier(_read_model(start_from)).set_params(**settings)
    assert source.preparation is not None
    pipeline = Pipeline([*source.preparation.steps(), ("classifier", estimator)])
    for remark in source.remarks:
        outputs.note(remark)
    large.check_room(source, [task], 1)
    forecast = seconds_of_folds({source.name: source}, whole=True)
    if prospect := large.prospect(source, [task], size, 1, forecast):
        outputs.note(prospect)
    _fit_shown(pipeline, source, forecast(task))
    saved = outputs.save_model(pipeline, model)
    outputs.note(f"{_learned(estimator)}; saved {saved}")
    if any(part.interrupted for part in estimator._estimators):
        raise KeyboardInterrupt(
            "interrupted; the model with the best hyperparameters so far is saved: the same command "
            f"with --start-from {shlex.quote(str(saved))} goes on from there."
        )


def _fit_shown(pipeline: Pipeline, source: Data, expected: float) -> None:
    """Fit and show the progress, and then what the fit warns of."""
    rows = f"fitting {len(source.codes):,} rows"
    try:
        with fitting(rows, expected) as progress, warnings.catch_warnings(record=True) as told:
            progress.searched("preparing the rows")
            pipeline.fit(source.X, np.array(source.classes)[source.codes])
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "interrupted before the search had a result: there is nothing to keep."
        ) from None
    for text in (str(warning.message) for warning in told):
        if not text.startswith("interrupted"):  # which ``fit`` says in the words of the command line
            outputs.note(f"warning: {text}")


@app.command()
@inputs.one_sentence()
def predict(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file with the model's columns.")],
    model: Annotated[Path, typer.Option(help="A model that 'postlin fit' has saved.")] = _MODEL,
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file for the predictions; by default they go to standard output."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Columns of the table to put in front, by commas.", metavar="NAMES"),
    ] = None,
    sep: tables.Sep = None,
    decimal: tables.Decimal = None,
    encoding: tables.Encoding = None,
) -> None:
    """Predict labels and probabilities, with six digits, for the rows of a table.

    Labels that a spreadsheet would execute, such as =1+1, get an apostrophe in front.
    """
    fitted = _read_model(model)
    if out is not None:
        outputs.check_folder(out, "predictions", data, model)
    X, kept = tables.read_rows(fitted, data, Spelling(sep, decimal, encoding), keep)
    p, labels = fitted.predict_proba(X), fitted.classes_
    table = pd.DataFrame(p, columns=[f"p({c})" for c in labels])
    table.insert(0, "label", labels[p.argmax(axis=1)])
    text = outputs.as_csv(pd.concat([kept.reset_index(drop=True), table], axis=1), _DIGITS)
    if out is None:
        sys.stdout.write(text)
    else:
        outputs.write_text(out, text)
        outputs.note(f"written: {out} ({len(table)} rows)")


@app.command()
@inputs.one_sentence()
def verify(
    model: Annotated[Path, typer.Argument(help="A model that 'postlin fit' has saved.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A CSV or Parquet file with rows at which probabilities are compared; by default the "
            "training rows."
        ),
    ] = None,
    particles: Annotated[int, typer.Option(help="Number of particles of each run.")] = 1000,
    runs: Annotated[int, typer.Option(help="Number of runs, whose spread tells their accuracy.")] = 3,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which the finished runs are shown.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file for exact probabilities, their standard deviations and the fit's."),
    ] = None,
    sep: tables.Sep = None,
    decimal: tables.Decimal = None,
    encoding: tables.Encoding = None,
) -> None:
    """Tell how far a model is from the exact posterior, by Monte Carlo."""
    fitted = _read_model(model)
    if out is not None:
        outputs.check_folder(out, "probabilities", model, *([data] if data else []))
    spelling = Spelling(sep, decimal, encoding)
    X = None if data is None else tables.read_rows(fitted, data, spelling).X
    if isinstance(fitted, Pipeline) and X is not None:
        X = fitted[:-1].transform(X)
    last = _classifier(fitted).set_params(verbose=1)  # progress, line by line
    found = last.verify(X, n_particles=particles, n_runs=runs, random_state=seed, time_limit=time_limit)
    outputs.console.print(str(found), markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        outputs.write_text(out, outputs.as_csv(outputs.verified_table(found)))
        outputs.note(f"written: {out} ({len(found.probabilities)} rows)")


def _learned(fitted: GPClassifier) -> str:
    """One line about the fit: the kernel or the number of problems, the evidence, the convergence."""
    state = "converged" if fitted.converged_ else "NOT converged"
    problems, criterion = len(fitted._estimators), fitted._estimators[0].criterion
    if problems > 1:
        strategy = fitted.multi_class.replace("_", " ")
        what = f"{fitted.n_classes_} classes, {strategy} in {problems} problems, mean {criterion}"
    else:
        what = f"{fitted.kernel_}, {criterion}"
    return f"{what} {fitted.log_marginal_likelihood_value_:.3f}, {state}"


def _classifier(model: Pipeline | GPClassifier) -> GPClassifier:
    """The classifier of a model, which may have steps that prepare its rows."""
    return model[-1] if isinstance(model, Pipeline) else model


def _read_model(path: Path) -> Pipeline | GPClassifier:
    """The model in a file, which must know the names of its columns."""
    try:
        model = postlin.load(path)
    except FileNotFoundError:
        raise inputs.BadInputError(
            f"there is no model file {str(path)!r}: make one with 'postlin fit'."
        ) from None
    except OSError as error:
        raise inputs.BadInputError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    if not hasattr(model, "feature_names_in_"):
        raise inputs.BadInputError(
            f"the model in {str(path)!r} was fitted without column names: make one with 'postlin fit'."
        )
    return model


app.command()(reproduce)


@app.command("datasets")
def list_datasets() -> None:
    """List the built-in data sets and the assumptions made about them."""
    for name in inputs.BUILT_IN:
        data = inputs.built_in(name)
        counts = ", ".join(f"{c} {int((data.codes == k).sum())}" for k, c in enumerate(data.classes))
        shape = f"{data.X.shape[0]} rows, {data.X.shape[1]} features; {counts}"
        outputs.console.print(f"[bold]{name}[/bold]  {shape}", highlight=False)
        outputs.console.print(Padding(datasets.load(name).description, (0, 0, 1, 4)), highlight=False)
