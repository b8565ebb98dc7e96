"""``postlin fit`` and ``postlin predict``: a model from one table, predictions for another."""

import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from sklearn.preprocessing import StandardScaler

from postlin.cli.errors import BadInputError, one_sentence
from postlin.cli.model_file import Model, load, save
from postlin.cli.options import Target, combinations
from postlin.cli.show import notes
from postlin.cli.tables import load_data, numeric, read_frame
from postlin.cli.write import write_text
from postlin.evaluation.methods import make_classifier


def fit(
    data: Annotated[str, typer.Argument(help="A CSV or Parquet file, or a built-in data set.")],
    model: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("model.postlin"),
    target: Target = None,
    method: Annotated[str, typer.Option(help="One of L, PEP, SEP, PPL, SPL.")] = "PPL",
    likelihood: Annotated[str, typer.Option(help="One of probit, logit, noisy_threshold.")] = "probit",
) -> None:
    """Train on a table and save the model."""
    with one_sentence():
        pairs = combinations(method, likelihood)
        if len(pairs) != 1:
            raise BadInputError("fit takes one --method and one --likelihood.")
        source = load_data(data, target)
        if not model.parent.is_dir():
            raise BadInputError(f"there is no folder {str(model.parent)!r} to save the model in.")
        scaler = StandardScaler().fit(source.X)
        with notes.status(f"fitting {len(source.codes)} rows"):
            classifier = make_classifier(*pairs[0]).fit(scaler.transform(source.X), source.codes)
        save(
            Model(
                *pairs[0], source.feature_names, source.classes, scaler.mean_, scaler.scale_, classifier
            ),
            model,
        )
        notes.print(
            f"{classifier.kernel_}, log evidence {classifier.log_marginal_likelihood_value_:.3f}, "
            f"{'converged' if classifier.converged_ else 'NOT converged'}; saved {model}"
        )


def predict(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file with the model's columns.")],
    model: Annotated[Path, typer.Option(help="A model that 'postlin fit' has saved.")] = Path(
        "model.postlin"
    ),
    out: Annotated[
        Path | None, typer.Option(help="CSV file for the predictions; else standard output.")
    ] = None,
) -> None:
    """Predict labels and probabilities for the rows of a table."""
    with one_sentence():
        loaded = load(model)
        frame = read_frame(data)
        absent = [name for name in loaded.columns if name not in frame.columns]
        if absent:
            raise BadInputError(
                f"{str(data)!r} lacks the model's columns {', '.join(map(repr, absent))}; it has "
                f"{', '.join(map(str, frame.columns))}."
            )
        X = numeric(frame[list(loaded.columns)], str(data))
        p = loaded.probabilities(X)
        first, second = loaded.classes
        table = pd.DataFrame(
            {
                "label": [second if b > a else first for a, b in p],
                f"p({first})": p[:, 0],
                f"p({second})": p[:, 1],
            }
        )
        text = table.to_csv(index=False)
        if out is None:
            sys.stdout.write(text)
        else:
            write_text(out, text)
            notes.print(f"written: {out} ({len(table)} rows)")
