"""What a person gives the command line: tables, built-in data sets and options, checked."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import numpy as np
import typer

from postlin import datasets
from postlin.workbench.evaluation.folds import Data
from postlin.workbench.evaluation.methods import (
    ALL_METHODS,
    BASELINES,
    DEFAULT_METHODS,
    JOINT_METHODS,
    LIKELIHOODS,
    LOCAL_METHODS,
    RULES,
    SOFTMAX,
    STRATEGIES,
    MultiClass,
    possible,
)

#: The most characters of a name in a message.
_LONGEST_NAME = 80
#: The most names of columns that a message lists.
_MOST_NAMES = 30

#: The names of the data sets that come with the package.
BUILT_IN = (*datasets.NAMES, *datasets.MANY_CLASSES)

Source = Annotated[
    str, typer.Argument(help="The name of a built-in data set, or the path of a CSV or Parquet file.")
]
Target = Annotated[
    str | None, typer.Option(help="The column that holds the class; by default the last one.")
]
METHODS_HELP = (
    "PL (posterior linearisation), EP (expectation propagation), CL (cavity linearisation) and L "
    "(Laplace's method). PPL, SPL, PEP, SEP, PCL and SCL are the same with a parallel or sequential "
    "schedule, as the paper calls them; joint fits can use PL and L."
)
BASELINES_HELP = (
    "The baselines are majority (the class frequencies), logistic (logistic regression) and boosting "
    "(gradient-boosted trees), by scikit-learn on the same folds."
)
LIKELIHOODS_HELP = "probit (the default), logit and noisy_threshold; joint fits use softmax."
MULTI_CLASS_HELP = (
    "one_vs_rest and one_vs_one, which split many classes into binary problems, and joint, which "
    "treats them in one softmax model."
)
Jobs = Annotated[int, typer.Option(min=1, help="Number of processes, each with one BLAS thread.")]
Dask = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler whose workers replace local processes.")
]


class BadInputError(Exception):
    """Input that the user can correct; each problem says what is wrong and what to do about it."""

    def __init__(self, *problems: str) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn bad input into one line a problem on standard error and exit code 2."""
    try:
        yield
    except (BadInputError, ValueError, MemoryError, ImportError) as error:
        for problem in getattr(error, "problems", (str(error),)):
            sys.stderr.write(f"postlin: {' '.join(problem.split())}\n")
        sys.exit(2)
    except KeyboardInterrupt as stop:
        told = str(stop) or "interrupted; there is nothing to keep."
        sys.stderr.write(f"postlin: {told}\n")
        sys.exit(130)


class Choice(NamedTuple):
    """A method, its likelihood, and its strategy for many classes (None for two classes)."""

    method: str
    likelihood: str  # empty for baselines
    multi_class: MultiClass | None


def parse(text: str, known: tuple[str, ...], what: str) -> list[str]:
    """The different parts of 'A,B,C', each of which must be known."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in parts if part not in known]
    if unknown or not parts:
        raise BadInputError(f"{what} must be some of {', '.join(known)}, got {text!r}.")
    return list(dict.fromkeys(parts))


def combinations(
    methods: str, likelihoods: str, known: tuple[str, ...] = ALL_METHODS
) -> list[tuple[str, str]]:
    """The possible pairs of a known method and a likelihood; having none is an error."""
    with_likelihoods = parse(likelihoods, LIKELIHOODS, "--likelihoods")
    wanted = parse(methods, known, "--methods")
    pairs = [
        (m, likelihood) for likelihood in with_likelihoods for m in wanted if possible(m, likelihood)
    ]
    if not pairs:
        raise BadInputError(
            "L cannot use noisy_threshold, whose gradient is zero almost everywhere: use PL or EP."
        )
    return pairs


def with_baselines(methods: str | None) -> tuple[str | None, list[Choice]]:
    """The other methods, None for the default ones and "" for none, and the baselines asked for."""
    if methods is None:
        return None, [Choice(name, "", None) for name in BASELINES]
    named = parse(methods, (*ALL_METHODS, *BASELINES), "--methods")
    others = ",".join(name for name in named if name not in BASELINES)
    return others, [Choice(name, "", None) for name in named if name in BASELINES]


def choices(
    methods: str | None,
    likelihoods: str | None,
    multi_class: str,
    n_classes: int,
    only: str | None = None,
) -> list[Choice]:
    """What the options ask for, given the number of classes.

    The default is PL, EP and CL with probit, and PL alone jointly. ``only`` is an option that parallel
    methods for two classes alone have; with it the default is PL.
    """
    wanted = parse(multi_class, STRATEGIES, "--multi-class")
    if only is not None:
        methods = methods or "PL"
        if set(parse(methods, ALL_METHODS, "--methods")) - set(LOCAL_METHODS):
            raise BadInputError(f"with {only} the methods are {', '.join(RULES)}.")
        if n_classes > 2 and "joint" in wanted:
            raise BadInputError(
                f"with {only} many classes are split into binary problems: use --multi-class "
                "one_vs_rest or one_vs_one."
            )
    several = [strategy for strategy in STRATEGIES if strategy in wanted]
    strategies: list[MultiClass | None] = [None] if n_classes == 2 else [*several]
    binary = [strategy for strategy in strategies if strategy != "joint"]
    found = []
    if binary:
        pairs = combinations(methods or ",".join(DEFAULT_METHODS), likelihoods or "probit")
        found = [Choice(*pair, strategy) for strategy in binary for pair in pairs]
    if "joint" in strategies:
        found += [Choice(m, SOFTMAX, "joint") for m in _joint(methods, likelihoods, not binary)]
    return found


def _joint(methods: str | None, likelihoods: str | None, alone: bool) -> list[str]:
    """The methods to use jointly; unsuitable ones are an error if joint is the only strategy."""
    named = ["PL"] if methods is None else parse(methods, ALL_METHODS, "--methods")
    usable = [method for method in named if method in JOINT_METHODS]
    others = [method for method in named if method not in JOINT_METHODS]
    if others and (alone or not usable):
        raise BadInputError(
            f"{' and '.join(others)} cannot treat all classes jointly: with --multi-class joint "
            f"use PL or L, or use --multi-class one_vs_rest."
        )
    if alone and likelihoods is not None:
        raise BadInputError(
            f"--multi-class joint has a likelihood of its own, softmax: leave {likelihoods!r} out, or "
            "use --multi-class one_vs_rest."
        )
    return usable


def built_in(name: str) -> Data:
    """A data set that comes with the package."""
    bunch = datasets.load(name)
    classes, codes = np.unique(bunch.y, return_inverse=True)
    return Data(name, bunch.X, codes, tuple(map(str, classes)), tuple(bunch.feature_names))


def listed(names: Iterable[str]) -> str:
    """The names in a message; the first of them, if there are many."""
    some = [shortened(name) for name in names]
    return ", ".join(some[:_MOST_NAMES]) + ", …" * (len(some) > _MOST_NAMES)


def shortened(text: str) -> str:
    """A text of any length, made fit for a message."""
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"
