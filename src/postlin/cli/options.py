"""Options that commands share."""

from enum import StrEnum
from typing import Annotated

import typer

from postlin.cli.errors import BadInputError
from postlin.evaluation.methods import LIKELIHOODS, METHODS, possible


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
