"""The prior mean of the latent function: a number, or a function of the rows."""

from collections.abc import Callable
from numbers import Real

import numpy as np

from postlin._typing import Array

#: A number, or a function from rows (n, d) to numbers (n,).
PriorMean = float | Callable[[np.ndarray], Array]


def check_prior_mean(prior_mean: object) -> None:
    """Raise ``ValueError`` unless this is a finite number or a function."""
    number = isinstance(prior_mean, Real) and not isinstance(prior_mean, bool | np.bool_)
    if not (callable(prior_mean) or (number and np.isfinite(float(prior_mean)))):  # type: ignore[arg-type]
        raise ValueError(
            "prior_mean must be a finite number, or a function from rows to one number for each, got "
            f"{prior_mean!r}."
        )


def is_zero(prior_mean: PriorMean) -> bool:
    """Whether this is the number zero."""
    return not callable(prior_mean) and prior_mean == 0.0


def mean_at(prior_mean: PriorMean, rows: np.ndarray) -> Array:
    """The prior mean at every row; ``ValueError`` if the function returns anything else."""
    n = len(rows)
    if not callable(prior_mean):
        return np.full(n, float(prior_mean))
    found = prior_mean(rows)
    try:
        values = np.asarray(found, float)
    except (TypeError, ValueError):
        raise ValueError(
            f"prior_mean must return numbers, and returned {type(found).__name__}."
        ) from None
    if values.shape != (n,):
        raise ValueError(
            f"prior_mean must return one number for each row, an array of shape ({n},), and returned "
            f"one of shape {values.shape}."
        )
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(
            f"prior_mean returned {values[row]} at row {row}: it must be finite everywhere."
        )
    return values
