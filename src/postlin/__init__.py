"""Gaussian process classification by posterior linearisation, with Laplace and EP beside it."""

from postlin.estimator.classifier import GPClassifier
from postlin.estimator.files import load, save
from postlin.exceptions import (
    CheckpointError,
    ConvergenceWarning,
    ImproperCavityError,
    ModelFileError,
    NegativeSiteWarning,
    NotPositiveDefiniteError,
)
from postlin.inference.infer import Approximation, infer
from postlin.learning.search import Evaluation
from postlin.rules.binary import EP, PL, Laplace
from postlin.rules.sites import Sites
from postlin.streaming.parquet import parquet
from postlin.streaming.sources import stream

__version__ = "0.1.0"

__all__ = [
    "EP",
    "PL",
    "Approximation",
    "CheckpointError",
    "ConvergenceWarning",
    "Evaluation",
    "GPClassifier",
    "ImproperCavityError",
    "Laplace",
    "ModelFileError",
    "NegativeSiteWarning",
    "NotPositiveDefiniteError",
    "Sites",
    "datasets",
    "infer",
    "likelihoods",
    "load",
    "parquet",
    "rules",
    "save",
    "schedules",
    "stream",
]
