"""Checks of input, made once and before any work; every error says in one sentence what is wrong."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.linalg import lapack

from postlin._typing import Array
from postlin.linalg import arrays
from postlin.linalg.arrays import HOST, Matrix, Place
from postlin.linalg.threads import blas_threads
from postlin.linalg.tiles import factorise, wide_panels
from postlin.linalg.triangles import lower_panels

Kind = TypeVar("Kind")

#: The number of matrices of n² doubles in memory at the same time (measured), K included: in ``infer``
#: with its gradient, and in a fit that learns a kernel, whose own matrices come on top.
MATRICES = 4
#: Variances beyond this overflow when squared twice.
HUGE = 1e75
#: Features beyond this overflow when their distances are squared and divided by small length scales.
FARTHEST = 1e100
#: Doubles can count no more observations than this one by one.
HEAVIEST = 1e15


def as_object(value: object, registry: dict[str, type], kind: type[Kind], what: str) -> Kind:
    """The value, or the object that the registry makes if the value is a name in it."""
    if isinstance(value, str) and value in registry:
        value = registry[value]()
    if isinstance(value, kind):
        return value
    names = ", ".join(map(repr, registry))
    raise ValueError(f"{what} must be one of {names} or a {kind.__name__} object, got {value!r}.")


def check_covariance(K: object, matrices: int = 0, *, known: bool = False) -> Matrix:
    """K as a matrix of doubles, stored row by row where K is, if K is a covariance matrix.

    ``ValueError`` says what is wrong; ``MemoryError`` that ``matrices`` of its size do not fit into the
    memory. If K is ``known`` to be a covariance, only its range is checked.
    """
    matrix = _as_matrix(K)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"K must be a square matrix, got shape {tuple(matrix.shape)}.")
    if matrix.shape[0] == 0:
        raise ValueError("K is empty: at least one point is needed.")
    check_memory(matrix.shape[0], matrices, arrays.place_of(matrix))
    _check_finite(matrix)
    variance = arrays.diagonal(matrix)
    if not 0 < variance.min() <= variance.max() <= HUGE:
        i = int(np.argmax(variance) if variance.min() > 0 else np.argmin(variance))
        raise ValueError(
            f"the prior variance K[{i}, {i}] = {variance[i]:g} is out of range: it must be positive "
            f"and at most {HUGE:g}; add white noise or rescale the kernel."
        )
    scale = float(variance.max())
    if not known:
        _check_symmetric(matrix, 1e-8 * max(scale, np.finfo(float).tiny))
        _check_semi_definite(matrix, scale)
    return matrix


def _as_matrix(K: object) -> Matrix:
    """K as doubles, in the memory where it is."""
    place = arrays.place_of(K)
    if place.is_host:
        return _as_numbers(K, "K must be a square matrix of numbers")
    if not place.xp.isdtype(K.dtype, ("bool", "integral", "real floating")):  # type: ignore[attr-defined]
        raise ValueError(f"K must be a square matrix of numbers, got {type(K).__name__}.")
    return arrays.as_matrix(K, place)


def _lower_panels(matrix: Matrix) -> Iterator[tuple[slice, slice]]:
    n = matrix.shape[0]
    return lower_panels(n) if arrays.place_of(matrix).is_host else wide_panels(n)


def _check_finite(matrix: Matrix) -> None:
    xp = arrays.namespace(matrix)
    for _, rows in _lower_panels(matrix):
        finite = xp.isfinite(matrix[rows, :])
        if not xp.all(finite):
            i, j = np.argwhere(~arrays.on_host(finite))[0] + np.array([rows.start, 0])
            raise ValueError(f"K must be finite, but K[{i}, {j}] is {float(matrix[int(i), int(j)])}.")


def _check_symmetric(matrix: Matrix, tolerance: float) -> None:
    xp = arrays.namespace(matrix)
    for rows, columns in _lower_panels(matrix):
        gap = xp.abs(matrix[rows, columns] - matrix[columns, rows].T)
        if float(xp.max(gap)) > tolerance:
            worst = np.unravel_index(int(xp.argmax(gap)), tuple(gap.shape))
            i, j = (int(k + first) for k, first in zip(worst, (rows.start, columns.start), strict=True))
            raise ValueError(
                f"K must be symmetric, but K[{i}, {j}] = {float(matrix[i, j]):.6g} and "
                f"K[{j}, {i}] = {float(matrix[j, i]):.6g}."
            )


def _check_semi_definite(matrix: Matrix, scale: float) -> None:
    """Raise ``ValueError`` if K has a negative eigenvalue that is not due to rounding."""
    raised = arrays.copied(matrix)
    arrays.add_to_diagonal(raised, 1e-8 * scale + np.finfo(float).tiny)
    with blas_threads(matrix.shape[0]):
        if arrays.place_of(matrix).is_host:
            _, failed = lapack.dpotrf(raised.T, overwrite_a=1, clean=0)
        else:
            failed = factorise(raised)
    if failed:
        raise ValueError(
            f"K is not positive semi-definite (its leading {failed} x {failed} block is not): it is "
            "no covariance matrix."
        )


def check_targets(y: object, n: int) -> Array:
    """The labels y as n finite numbers."""
    targets = _as_numbers(y, "y must hold numbers: map the labels to -1 and +1, or use GPClassifier")
    if targets.shape != (n,):
        raise ValueError(f"y must have shape ({n},) to match K, got {targets.shape}.")
    if not np.isfinite(targets).all():
        i = int(np.flatnonzero(~np.isfinite(targets))[0])
        raise ValueError(f"y must be finite, but y[{i}] is {targets[i]}.")
    return targets


def check_prior_mean(prior_mean: object, n: int) -> Array:
    """The prior mean of each of n points; a single number is that of all."""
    mean = _as_numbers(prior_mean, "prior_mean must be a number or an array of numbers")
    if mean.shape not in ((), (n,)):
        raise ValueError(f"prior_mean must be a number or have shape ({n},), got shape {mean.shape}.")
    if not np.isfinite(mean).all():
        raise ValueError("prior_mean must be finite.")
    return np.broadcast_to(mean, (n,)).copy()


def check_weights(weights: object, n: int, what: str = "weights") -> Array:
    """The weights as n finite numbers, none of them negative and not all of them zero."""
    numbers = _as_numbers(weights, f"{what} must be an array of numbers")
    if numbers.shape != (n,):
        raise ValueError(f"{what} must have shape ({n},), got {numbers.shape}.")
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(bad):
        raise ValueError(
            f"{what} must be finite and not negative, but that of row {bad[0]} is {numbers[bad[0]]:g}."
        )
    heavy = int(np.argmax(numbers))
    if numbers[heavy] > HEAVIEST:
        raise ValueError(
            f"{what} must be at most {HEAVIEST:g}, but that of row {heavy} is {numbers[heavy]:g}: a "
            "weight is the number of observations that the row stands for."
        )
    if not numbers.any():
        raise ValueError(f"{what} is zero everywhere: no observation is left.")
    return numbers


def first_beyond(X: Array) -> tuple[int, int] | None:
    """The place of the first entry that is not finite or beyond ``FARTHEST``, if there is one."""
    flat = X.ravel(order="K")  # a view in one order or the other
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is what is looked for
        if np.vdot(flat, flat) < FARTHEST**2:  # one sweep without a copy
            return None
    beyond = np.argwhere(~(np.abs(X) <= FARTHEST))
    return (int(beyond[0, 0]), int(beyond[0, 1])) if len(beyond) else None


def check_features(X: Array) -> None:
    """Raise ``ValueError`` if a feature of the training rows (rows, features) is too large."""
    found = first_beyond(X)
    largest = max(float(X.max(initial=0.0)), -float(X.min(initial=0.0)))  # without a copy
    if 0.0 < largest < 1.0 / FARTHEST:
        raise ValueError(
            f"the largest number in X is {largest:g}, and squares of such numbers underflow: rescale "
            "the features."
        )
    if found is not None:
        raise ValueError(
            f"row {found[0]} of X has {X[found]:g} in feature {found[1]}, and the squares of numbers "
            f"beyond {FARTHEST:g} overflow: rescale the feature or drop the row."
        )


def check_tolerance(tol: object, max_iter: object, option: str = "max_iter") -> None:
    """Raise ``ValueError`` unless tol > 0 and max_iter, the parameter named ``option``, is ≥ 1."""
    if not is_real(tol) or not 0 < float(tol) < np.inf:  # type: ignore[arg-type]
        raise ValueError(f"tol must be a positive number, got {tol!r}.")
    check_order(max_iter, option)


def _as_numbers(values: object, message: str) -> Array:
    """The values as an array of doubles; ``ValueError`` with the message if they are no numbers."""
    try:
        array = np.asarray(arrays.on_host(values))
        if array.dtype.kind not in "biuf":
            raise TypeError
        numbers: Array = np.ascontiguousarray(array, dtype=float).reshape(array.shape)
    except (TypeError, ValueError):
        raise ValueError(f"{message}, got {type(values).__name__}.") from None
    return numbers


def check_memory(n: int, matrices: int, place: Place = HOST) -> None:
    """Raise ``MemoryError`` if so many n × n matrices do not fit into the memory at ``place``."""
    needed = matrices * 8.0 * n**2
    available = place.available_memory() if place.has_memory else available_memory()
    if needed > available:
        where = f" on {place.device}" if place.has_memory else ""
        elsewhere = "" if place.has_memory else "a GPU (device='cuda'), "
        raise MemoryError(
            f"exact inference on {n:,} points needs about {needed / 2**30:.1f} GiB "
            f"({matrices} matrices of n² doubles), and {available / 2**30:.1f} GiB are available{where}"
            ": use neighbours (n_neighbors='auto'), and inducing points where these help "
            "(inducing='auto'), "
            f"{elsewhere}or a random subset of at most "
            f"{int((available / (8 * matrices)) ** 0.5):,} rows."
        )


def available_memory() -> float:
    """The bytes that this process may still use; infinity if the system does not tell."""
    limits = [float("inf")]
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limits.append(float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits)


def check_order(order: object, what: str) -> int:
    """``order`` as an int; ``ValueError`` if the parameter ``what`` is no positive integer."""
    if isinstance(order, bool) or not isinstance(order, Integral) or order < 1:
        raise ValueError(f"{what} must be a positive integer, got {order!r}.")
    return int(order)


def is_real(value: object) -> bool:
    """Whether a value is a real number; True and "1" are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_dask(X: object) -> bool:
    """Whether X is a Dask collection; before Dask is imported there are none."""
    return "dask" in sys.modules and bool(sys.modules["dask"].is_dask_collection(X))


def is_source(X: object) -> bool:
    """Whether X is a stream or a set of Parquet files, which are read in passes."""
    return hasattr(X, "loads_anywhere")
