"""Input is looked at once, before any work; what is wrong gets one clear sentence."""

import sys
from collections.abc import Iterator
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

import numpy as np
from scipy.linalg import lapack

from postlin._typing import Array
from postlin.linalg.arrays import (
    HOST,
    Matrix,
    Place,
    add_to_diagonal,
    as_matrix,
    copied,
    diagonal,
    namespace,
    on_host,
    place_of,
)
from postlin.linalg.threads import blas_threads
from postlin.linalg.tiles import factorise, wide_panels
from postlin.linalg.triangles import lower_panels

Kind = TypeVar("Kind")

#: Matrices of n² doubles alive at the same time (measured), K among them: in ``infer`` with its
#: gradient, and in a fit that learns a kernel beside what the kernel itself holds.
MATRICES = 4
#: Variances beyond this overflow when squared twice.
_HUGE = 1e75


def as_object(value: object, registry: dict[str, type], kind: type[Kind], what: str) -> Kind:
    """An object of the kind, made from its name if need be."""
    if isinstance(value, str) and value in registry:
        made = registry[value]()
        assert isinstance(made, kind)
        return made
    if isinstance(value, kind):
        return value
    names = ", ".join(map(repr, registry))
    raise ValueError(f"{what} must be one of {names} or a {kind.__name__} object, got {value!r}.")


def check_covariance(K: object, matrices: int = 0, *, known: bool = False) -> Matrix:
    """A covariance matrix: square, finite, symmetric, positive semi-definite; stored row by row.

    It stays where it is. Refused where so many matrices of its size do not fit the memory there. Where
    it is ``known`` to be a covariance only its range is looked at.
    """
    matrix = _as_matrix(K)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"K must be a square matrix, got shape {tuple(matrix.shape)}.")
    if matrix.shape[0] == 0:
        raise ValueError("K is empty: at least one point is needed.")
    check_memory(matrix.shape[0], matrices, place_of(matrix))
    _check_finite(matrix)
    variance = diagonal(matrix)
    if not (variance > 0).all() or variance.max() > _HUGE:
        i = int(np.argmin(variance) if not (variance > 0).all() else np.argmax(variance))
        raise ValueError(
            f"the prior variance K[{i}, {i}] = {variance[i]:g} is out of range: it must be positive "
            f"and at most {_HUGE:g}; add white noise or rescale the kernel."
        )
    scale = float(variance.max())
    if not known:
        _check_symmetric(matrix, 1e-8 * max(scale, np.finfo(float).tiny))
        check_semi_definite(matrix, scale)
    return matrix


def _as_matrix(K: object) -> Matrix:
    """Doubles, where they are."""
    place = place_of(K)
    if place.is_host:
        return _as_numbers(K, "K must be a square matrix of numbers")
    if not place.xp.isdtype(K.dtype, ("bool", "integral", "real floating")):  # type: ignore[attr-defined]
        raise ValueError(f"K must be a square matrix of numbers, got {type(K).__name__}.")
    return as_matrix(K, place)


def _lower_panels(matrix: Matrix) -> Iterator[tuple[slice, slice]]:
    n = matrix.shape[0]
    return lower_panels(n) if place_of(matrix).is_host else wide_panels(n)


def _check_finite(matrix: Matrix) -> None:
    xp = namespace(matrix)
    for _, rows in _lower_panels(matrix):
        finite = xp.isfinite(matrix[rows, :])
        if not xp.all(finite):
            i, j = np.argwhere(~on_host(finite))[0] + np.array([rows.start, 0])
            raise ValueError(f"K must be finite, but K[{i}, {j}] is {float(matrix[int(i), int(j)])}.")


def _check_symmetric(matrix: Matrix, tolerance: float) -> None:
    xp = namespace(matrix)
    for rows, columns in _lower_panels(matrix):
        gap = xp.abs(matrix[rows, columns] - matrix[columns, rows].T)
        if float(xp.max(gap)) > tolerance:
            worst = np.unravel_index(int(xp.argmax(gap)), tuple(gap.shape))
            i, j = (int(k + first) for k, first in zip(worst, (rows.start, columns.start), strict=True))
            raise ValueError(
                f"K must be symmetric, but K[{i}, {j}] = {float(matrix[i, j]):.6g} and "
                f"K[{j}, {i}] = {float(matrix[j, i]):.6g}."
            )


def check_semi_definite(matrix: Matrix, scale: float) -> None:
    """Semi-definite but for rounding: what is added here is for this test alone."""
    raised = copied(matrix)
    add_to_diagonal(raised, 1e-8 * scale + np.finfo(float).tiny)
    with blas_threads(matrix.shape[0]):
        if place_of(matrix).is_host:
            _, failed = lapack.dpotrf(raised.T, overwrite_a=1, clean=0)
        else:
            failed = factorise(raised)
    if failed:
        raise ValueError(
            f"K is not positive semi-definite (its leading {failed} x {failed} block is not): it is "
            "no covariance matrix."
        )


def check_targets(y: object, n: int) -> Array:
    """N finite numbers."""
    targets = _as_numbers(y, "y must hold numbers: map the labels to -1 and +1, or use GPClassifier")
    if targets.shape != (n,):
        raise ValueError(f"y must have shape ({n},) to match K, got {targets.shape}.")
    if not np.isfinite(targets).all():
        i = int(np.flatnonzero(~np.isfinite(targets))[0])
        raise ValueError(f"y must be finite, but y[{i}] is {targets[i]}.")
    return targets


def check_prior_mean(prior_mean: object, n: int) -> Array:
    """A number for all points, or one for each."""
    mean = _as_numbers(prior_mean, "prior_mean must be a number or an array of numbers")
    if mean.shape not in ((), (n,)):
        raise ValueError(f"prior_mean must be a number or have shape ({n},), got shape {mean.shape}.")
    if not np.isfinite(mean).all():
        raise ValueError("prior_mean must be finite.")
    return np.broadcast_to(mean, (n,)).copy()


def check_weights(weights: object, n: int, what: str = "weights") -> Array:
    """N finite numbers, none of them negative and not all of them zero."""
    numbers = _as_numbers(weights, f"{what} must be an array of numbers")
    if numbers.shape != (n,):
        raise ValueError(f"{what} must have shape ({n},), got {numbers.shape}.")
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(bad):
        raise ValueError(
            f"{what} must be finite and not negative, but that of row {bad[0]} is {numbers[bad[0]]:g}."
        )
    if not numbers.any():
        raise ValueError(f"{what} is zero everywhere: no observation is left.")
    return numbers


def check_tolerance(tol: object, max_iter: object, option: str = "max_iter") -> None:
    """Tol > 0 and max_iter ≥ 1."""
    if not is_real(tol) or not 0 < float(tol) < np.inf:  # type: ignore[arg-type]
        raise ValueError(f"tol must be a positive number, got {tol!r}.")
    if isinstance(max_iter, bool) or not isinstance(max_iter, Integral) or max_iter < 1:
        raise ValueError(f"{option} must be a positive integer, got {max_iter!r}.")


def _as_numbers(values: object, message: str) -> Array:
    """An array of doubles, or the message."""
    try:
        array = np.asarray(on_host(values))
        if array.dtype.kind not in "biuf":
            raise TypeError
        numbers: Array = np.ascontiguousarray(array, dtype=float).reshape(array.shape)
    except (TypeError, ValueError):
        raise ValueError(f"{message}, got {type(values).__name__}.") from None
    return numbers


def check_memory(n: int, matrices: int, place: Place = HOST) -> None:
    """Refuse what would only die later."""
    needed = matrices * 8.0 * n**2
    available = place.available_memory() if place.has_memory else available_memory()
    if needed > available:
        where = f" on {place.device}" if place.has_memory else ""
        elsewhere = "" if place.has_memory else "a GPU (device='cuda'), "
        raise MemoryError(
            f"exact inference on {n:,} points needs about {needed / 2**30:.1f} GiB "
            f"({matrices} matrices of n² doubles), and {available / 2**30:.1f} GiB are available{where}"
            ": use inducing points (inducing=500), on several machines with Dask if need be, "
            f"{elsewhere}or a random subset of at most "
            f"{int((available / (8 * matrices)) ** 0.5):,} rows."
        )


def available_memory() -> float:
    """Bytes that this process may still use, as far as the system tells; else infinity."""
    figures = [float("inf")]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                figures.append(float(line.split()[1]) * 1024)
        figures.append(float(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        pass
    return min(figures)


def check_order(order: object, what: str) -> int:
    """``order`` as a positive integer, or a sentence saying that it is not one."""
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 1:
        raise ValueError(f"{what} must be a positive integer, got {order!r}.")
    return int(order)


def is_real(value: object) -> bool:
    """Whether a value is a real number, which True and "1" are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_dask(X: object) -> bool:
    """Whether this is a Dask collection; nothing is if nobody has imported Dask."""
    return "dask" in sys.modules and bool(sys.modules["dask"].is_dask_collection(X))


def is_source(X: object) -> bool:
    """Whether this is a stream or a set of Parquet files, which are read in passes."""
    return hasattr(X, "loads_anywhere")
