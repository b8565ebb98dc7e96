"""Options that commands share."""

from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from postlin.workbench.cli.errors import BadInputError
from postlin.workbench.evaluation.methods import (
    JOINT_METHODS,
    LIKELIHOODS,
    METHODS,
    SOFTMAX,
    STRATEGIES,
    MultiClass,
    possible,
)


class ScalingName(StrEnum):
    """What is done to features first."""

    whiten = "whiten"
    standardise = "standardise"
    none = "none"


class ProtocolName(StrEnum):
    """How inference and learning are run."""

    converged = "converged"
    paper = "paper"


Target = Annotated[str | None, typer.Option(help="Column with the class; the last one if not given.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes, with one BLAS thread each.")]
Dask = Annotated[str | None, typer.Option(help="Address of a Dask scheduler whose workers do it.")]


class Choice(NamedTuple):
    """A method, its likelihood, and how it treats many classes (None where there are two)."""

    method: str
    likelihood: str
    multi_class: MultiClass | None


def parse(text: str, known: tuple[str, ...], what: str) -> list[str]:
    """A list from 'A,B,C', every part of it known."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in parts if part not in known]
    if unknown or not parts:
        raise BadInputError(f"{what} must be some of {', '.join(known)}, got {text!r}.")
    return list(dict.fromkeys(parts))


def combinations(methods: str, likelihoods: str) -> list[tuple[str, str]]:
    """(method, likelihood) pairs asked for; Laplace with the noisy threshold is left out or refused."""
    pairs = [
        (method, likelihood)
        for likelihood in parse(likelihoods, LIKELIHOODS, "--likelihoods")
        for method in parse(methods, METHODS, "--methods")
    ]
    usable = [pair for pair in pairs if possible(*pair)]
    if not usable:
        raise BadInputError(
            "L cannot use noisy_threshold, whose gradient is zero almost everywhere: use PPL or PEP."
        )
    return usable


def choices(
    methods: str | None, likelihoods: str | None, multi_class: str, n_classes: int
) -> list[Choice]:
    """What was asked for, for so many classes; what was not said is all methods, and probit."""
    wanted = parse(multi_class, STRATEGIES, "--multi-class")
    strategies = [strategy for strategy in STRATEGIES if strategy in wanted]
    apart = [strategy for strategy in strategies if strategy != "joint"]
    if n_classes == 2 or apart:
        pairs = combinations(methods or ",".join(METHODS), likelihoods or "probit")
    if n_classes == 2:
        return [Choice(*pair, None) for pair in pairs]
    found = [Choice(*pair, strategy) for strategy in apart for pair in pairs]
    if "joint" in strategies:
        found += [Choice(m, SOFTMAX, "joint") for m in _jointly(methods, likelihoods, not apart)]
    return found


def _jointly(methods: str | None, likelihoods: str | None, alone: bool) -> list[str]:
    """The methods for all classes at a time; others are refused where nothing else was asked for."""
    named = list(JOINT_METHODS) if methods is None else parse(methods, METHODS, "--methods")
    usable = [method for method in named if method in JOINT_METHODS]
    others = [method for method in named if method not in JOINT_METHODS]
    if others and (alone or not usable):
        raise BadInputError(
            f"{' and '.join(others)} cannot treat all classes at a time: with --multi-class joint "
            f"use {' or '.join(JOINT_METHODS)}, or use --multi-class one_vs_rest."
        )
    if alone and likelihoods is not None:
        raise BadInputError(
            f"--multi-class joint has a likelihood of its own, softmax: leave {likelihoods!r} out, or "
            "use --multi-class one_vs_rest."
        )
    return usable
