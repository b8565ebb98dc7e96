"""The command ``postlin`` and its sub-commands."""

from typing import Annotated

import typer
from rich.padding import Padding

import postlin
from postlin import datasets
from postlin.workbench.cli.evaluate import evaluate
from postlin.workbench.cli.fit_predict import fit, predict
from postlin.workbench.cli.reproduce import reproduce
from postlin.workbench.cli.show import console
from postlin.workbench.cli.tables import BUILT_IN, built_in

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Gaussian process classification by posterior linearisation, EP and Laplace.",
)
for command in (evaluate, fit, predict, reproduce):
    app.command()(command)


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
    """Gaussian process classification by posterior linearisation, EP and Laplace."""


@app.command("datasets")
def list_datasets() -> None:
    """List the built-in data sets and what is assumed about them."""
    for name in BUILT_IN:
        data = built_in(name)
        counts = ", ".join(f"{c} {int((data.codes == k).sum())}" for k, c in enumerate(data.classes))
        shape = f"{data.X.shape[0]} rows, {data.X.shape[1]} features; {counts}"
        console.print(f"[bold]{name}[/bold]  {shape}", highlight=False)
        console.print(Padding(datasets.load(name).description, (0, 0, 1, 4)), highlight=False)
