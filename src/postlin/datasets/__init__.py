"""The data sets of the paper, which come with the package, and the whitening that it uses."""

import bz2
import csv
from collections.abc import Callable
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from sklearn.utils import Bunch

from postlin._typing import Array

__all__ = ["MANY_CLASSES", "NAMES", "load", "whiten"]


class _Recipe(NamedTuple):
    """How a label in the last column becomes a class, what the data are, and which file holds them."""

    to_class: Callable[[str], str]
    description: str
    file: str | None = None  # None: the file has the name of the data set


_RECIPES: dict[str, _Recipe] = {
    "breast_cancer": _Recipe(
        str,
        "Wisconsin breast cancer, 699 biopsies, 9 graded features, malignant or benign. 16 missing "
        "values of Bare.nuclei are replaced by the median (an assumption); 236 rows are duplicates.",
    ),
    "crab": _Recipe(
        str, "Leptograpsus crabs, 200 animals: species and 5 measurements; the class is the sex."
    ),
    "glass": _Recipe(
        lambda label: "window" if int(label) <= 4 else "other",
        "Forensic glass, 214 fragments, 9 features: window glass (types 1 to 4) or not.",
    ),
    "housing": _Recipe(
        lambda value: "above 25" if float(value) > 25 else "25 or below",
        "Boston housing, 506 tracts, 13 features: median value above 25 thousand dollars or not (the "
        "threshold is an assumption). The column 'b' encodes the share of Black residents by a "
        "formula that presumes segregation to raise prices; the set is here only to reproduce the "
        "paper and should not be used for anything else.",
    ),
    "ionosphere": _Recipe(
        str,
        "Radar returns from the ionosphere, 351, 33 features (a constant one is dropped): good or bad.",
    ),
    "thyroid": _Recipe(
        lambda label: "normal" if label == "Normal" else "not normal",
        "Thyroid function, 215 patients, 5 laboratory tests: normal or not (hyper or hypo).",
    ),
    # From here on, data sets with more than two classes.
    "glass_types": _Recipe(
        str,
        "Forensic glass, 214 fragments, 9 features, with its six types: building windows, float "
        "processed (1) or not (2), vehicle windows (3), containers (5), tableware (6), headlamps (7).",
        "glass",
    ),
    "thyroid_types": _Recipe(
        str, "Thyroid function, 215 patients, 5 laboratory tests: normal, hyper or hypo.", "thyroid"
    ),
}

#: The paper's data sets, with two classes each.
NAMES: tuple[str, ...] = tuple(_RECIPES)[:6]
#: Two of them with all their classes.
MANY_CLASSES: tuple[str, ...] = tuple(_RECIPES)[6:]


def load(name: str) -> Bunch:
    """Return a data set by its name: ``X``, ``y`` (class names), ``feature_names``, ``description``.

    ``NAMES`` lists the paper's six data sets with two classes, ``MANY_CLASSES`` those with more.

    >>> from postlin.datasets import load
    >>> crab = load("crab")
    >>> crab.X.shape, sorted(set(crab.y.tolist()))
    ((200, 6), ['F', 'M'])
    """
    if name not in _RECIPES:
        raise ValueError(f"name must be one of {', '.join(map(repr, _RECIPES))}, got {name!r}.")
    recipe = _RECIPES[name]
    path = files("postlin.datasets").joinpath("data", f"{recipe.file or name}.csv.bz2")
    header, *rows = csv.reader(bz2.decompress(path.read_bytes()).decode().splitlines())
    X = np.array([[float(cell) if cell else np.nan for cell in row[:-1]] for row in rows])
    X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    y = np.array([recipe.to_class(row[-1]) for row in rows])
    return Bunch(X=X, y=y, feature_names=header[:-1], description=recipe.description)


def whiten(X: Array) -> Array:
    """X transformed to zero mean and identity covariance, as in the paper.

    >>> import numpy as np
    >>> from postlin.datasets import load, whiten
    >>> Z = whiten(load("crab").X)
    >>> np.allclose(Z.T @ Z / len(Z), np.eye(6))
    True
    """
    centred = np.asarray(X, float) - np.mean(X, axis=0)
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    if singular[-1] <= singular[0] * max(centred.shape) * np.finfo(float).eps:
        raise ValueError(
            "X cannot be whitened: a column is constant or a combination of others; drop it first."
        )
    # Rotated back to the axes of X, so that features keep their meaning.
    return np.asarray(left @ right * np.sqrt(len(centred)))
