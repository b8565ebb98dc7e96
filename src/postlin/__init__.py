"""Gaussian process classification by posterior linearisation, with CL, EP and Laplace beside it."""

from typing import TYPE_CHECKING, Any

from postlin import datasets, likelihoods, rules, schedules
from postlin.estimator.classifier import GPClassifier
from postlin.estimator.files import load, save
from postlin.estimator.table import table_classifier
from postlin.estimator.verification import Verification
from postlin.exceptions import (
    CheckpointError,
    ConvergenceWarning,
    FileWarning,
    ImproperCavityError,
    ModelFileError,
    NegativeSiteWarning,
    NotPositiveDefiniteError,
)
from postlin.inference.infer import infer
from postlin.inference.result import Approximation
from postlin.learning.hyperprior import ARDPrior
from postlin.learning.search import Evaluation
from postlin.rules import CL, EP, PL, Laplace
from postlin.rules.sites import Sites

if TYPE_CHECKING:
    from postlin.streaming.parquet import parquet
    from postlin.streaming.sources import stream

__version__ = "0.2.0"

__all__ = [
    "CL",
    "EP",
    "PL",
    "ARDPrior",
    "Approximation",
    "CheckpointError",
    "ConvergenceWarning",
    "Evaluation",
    "FileWarning",
    "GPClassifier",
    "ImproperCavityError",
    "Laplace",
    "ModelFileError",
    "NegativeSiteWarning",
    "NotPositiveDefiniteError",
    "Sites",
    "Verification",
    "datasets",
    "infer",
    "likelihoods",
    "load",
    "parquet",
    "rules",
    "save",
    "schedules",
    "stream",
    "table_classifier",
]


def __getattr__(name: str) -> Any:
    """Import the functions that read data in passes when one of them is first asked for."""
    if name not in ("parquet", "stream"):
        raise AttributeError(f"module 'postlin' has no attribute {name!r}")
    from postlin.streaming import parquet, sources

    return parquet.parquet if name == "parquet" else sources.stream


def __dir__() -> list[str]:
    return sorted(__all__)
