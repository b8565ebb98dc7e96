"""``postlin fit`` and ``postlin predict``: a model from one table, predictions for another."""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import postlin
from postlin.estimator.classifier import GPClassifier
from postlin.workbench.cli.errors import BadInputError, one_sentence
from postlin.workbench.cli.options import Target, choices
from postlin.workbench.cli.show import notes
from postlin.workbench.cli.tables import load_data, numeric, read_frame
from postlin.workbench.cli.write import write_text
from postlin.workbench.evaluation.methods import make_classifier


def fit(
    data: Annotated[str, typer.Argument(help="A CSV or Parquet file, or a built-in data set.")],
    model: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("model.postlin"),
    target: Target = None,
    method: Annotated[str, typer.Option(help="One of L, PEP, SEP, PPL, SPL.")] = "PPL",
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="One of probit, logit, noisy_threshold; probit if not given. Joint has its own."
        ),
    ] = None,
    multi_class: Annotated[
        str, typer.Option(help="Of more than two classes: one_vs_rest, one_vs_one or joint.")
    ] = "one_vs_rest",
) -> None:
    """Train on a table and save the model."""
    with one_sentence():
        source = load_data(data, target)
        chosen = choices(method, likelihood, multi_class, len(source.classes))
        if len(chosen) != 1:
            raise BadInputError("fit takes one --method, one --likelihood and one --multi-class.")
        if not model.parent.is_dir():
            raise BadInputError(f"there is no folder {str(model.parent)!r} to save the model in.")
        (only,) = chosen
        estimator = make_classifier(only.method, only.likelihood, multi_class=only.multi_class)
        model_of = make_pipeline(StandardScaler(), estimator)
        with notes.status(f"fitting {len(source.codes)} rows"):
            model_of.fit(
                pd.DataFrame(source.X, columns=list(source.feature_names)),
                np.array(source.classes)[source.codes],
            )
        _save(model_of, model)
        notes.print(f"{_account(model_of[-1])}; saved {model}", markup=False)


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
        loaded = _load(model)
        frame = read_frame(data)
        columns = list(loaded.feature_names_in_)
        absent = [name for name in columns if name not in frame.columns]
        if absent:
            raise BadInputError(
                f"{str(data)!r} lacks the model's columns {', '.join(map(repr, absent))}; it has "
                f"{', '.join(map(str, frame.columns))}."
            )
        X = pd.DataFrame(numeric(frame[columns], str(data)), columns=columns)
        p, labels = loaded.predict_proba(X), loaded.classes_
        table = pd.DataFrame(
            {"label": labels[p.argmax(axis=1)]} | {f"p({c})": p[:, k] for k, c in enumerate(labels)}
        )
        text = table.to_csv(index=False)
        if out is None:
            sys.stdout.write(text)
        else:
            write_text(out, text)
            notes.print(f"written: {out} ({len(table)} rows)")


def _account(fitted: GPClassifier) -> str:
    """What was learned, in a line."""
    state = "converged" if fitted.converged_ else "NOT converged"
    problems = len(fitted._estimators)
    if problems > 1:
        strategy = fitted.multi_class.replace("_", " ")
        what = f"{fitted.n_classes_} classes, {strategy} in {problems} problems, mean log evidence"
    else:
        what = f"{fitted.kernel_}, log evidence"
    return f"{what} {fitted.log_marginal_likelihood_value_:.3f}, {state}"


def _save(model: Pipeline, path: Path) -> None:
    try:
        postlin.save(model, path)
    except OSError as error:
        raise BadInputError(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def _load(path: Path) -> Pipeline:
    """A model with the names of its columns."""
    try:
        model = postlin.load(path)
    except FileNotFoundError:
        raise BadInputError(
            f"there is no model file {str(path)!r}: make one with 'postlin fit'."
        ) from None
    except OSError as error:
        raise BadInputError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    if not hasattr(model, "feature_names_in_"):
        raise BadInputError(
            f"the model in {str(path)!r} was fitted without column names: make one with 'postlin fit'."
        )
    return model
