"""Model files of the command line: arrays and a description; nothing is executed on loading."""

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import postlin
from postlin._typing import Array
from postlin.classifier import GPClassifier, default_kernel
from postlin.cli.errors import BadInputError
from postlin.evaluation.methods import make_classifier
from postlin.sites import Sites

_FORMAT = "postlin model"


@dataclass(frozen=True)
class Model:
    """A fitted classifier with all that turns a table into predictions."""

    method: str
    likelihood: str
    columns: tuple[str, ...]
    classes: tuple[str, str]
    centre: Array
    scale: Array
    classifier: GPClassifier

    def probabilities(self, X: Array) -> Array:
        """Of the two classes, for rows with the columns of the model."""
        return self.classifier.predict_proba((X - self.centre) / self.scale)


def save(model: Model, path: Path) -> None:
    """Write the model; the file appears whole or not at all."""
    fitted = model.classifier
    about = {
        "format": _FORMAT,
        "version": postlin.__version__,
        "method": model.method,
        "likelihood": model.likelihood,
        "columns": list(model.columns),
        "classes": list(model.classes),
    }
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        np.savez_compressed(
            file,
            about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
            centre=model.centre,
            scale=model.scale,
            X=fitted.X_train_,
            y=fitted.y_train_,
            theta=fitted.kernel_.theta,
            tau=fitted.approximation_.sites.tau,
            nu=fitted.approximation_.sites.nu,
        )
    os.replace(temporary, path)


def load(path: Path) -> Model:
    """Read a model and bring it back to life; a foreign or damaged file is refused."""
    about, arrays = _read(path)
    if about.get("version") != postlin.__version__:
        raise BadInputError(
            f"{str(path)!r} was written by postlin {about.get('version')}, this is "
            f"{postlin.__version__}: "
            "fit the model again."
        )
    try:
        return _revive(about, arrays)
    except (KeyError, ValueError, TypeError) as error:
        raise BadInputError(f"{str(path)!r} is damaged ({error}): fit the model again.") from None


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    if not path.exists():
        raise BadInputError(f"there is no model file {str(path)!r}: make one with 'postlin fit'.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop("about").tobytes())
        known = about["format"] == _FORMAT
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
        known = False
    if not known:
        raise BadInputError(f"{str(path)!r} is not a postlin model file: make one with 'postlin fit'.")
    return about, arrays


def _revive(about: dict[str, Any], arrays: dict[str, Array]) -> Model:
    """The classifier at its learned parameters; from its own sites inference is a formality."""
    classifier = make_classifier(about["method"], about["likelihood"])
    classifier.set_params(optimizer=None)
    kernel = default_kernel().clone_with_theta(arrays["theta"])
    start = Sites(arrays["tau"], arrays["nu"])
    classifier._fit(kernel, arrays["X"], arrays["y"].astype(int), start)
    first, second = about["classes"]
    return Model(
        about["method"],
        about["likelihood"],
        tuple(about["columns"]),
        (str(first), str(second)),
        arrays["centre"],
        arrays["scale"],
        classifier,
    )
