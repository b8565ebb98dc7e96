"""Gaussian process classification by posterior linearisation, with Laplace and EP beside it."""

from postlin import datasets, likelihoods, rules, schedules
from postlin.classifier import GPClassifier
from postlin.exceptions import (
    CheckpointError,
    ConvergenceWarning,
    ImproperCavityError,
    ModelFileError,
    NegativeSiteWarning,
    NotPositiveDefiniteError,
)
from postlin.files import load, save
from postlin.inference import Approximation, infer
from postlin.rules import EP, PL, Laplace
from postlin.search import Evaluation
from postlin.sites import Sites
from postlin.sparse.parquet import parquet
from postlin.sparse.sources import stream

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
