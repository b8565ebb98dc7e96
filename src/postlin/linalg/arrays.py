"""Where matrices are stored, and everything that depends on the array library.

Vectors of n numbers are NumPy arrays everywhere, since moving them costs next to nothing. Matrices of
n² numbers stay in one ``Place``: the memory of NumPy, a GPU, or another device of PyTorch, CuPy or
array-api-strict. No other module uses functions of these libraries outside the array API standard.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.spatial.distance import cdist

from postlin._typing import Array

#: A matrix of any of these libraries; in NumPy's memory it is an ``Array``.
Matrix = Any

#: Triangles of at most this many rows are inverted as general matrices.
_LEAF = 12

#: The libraries other than NumPy, and the names of their classes of arrays.
_CLASSES = {"torch": "Tensor", "cupy": "ndarray", "array_api_strict": "Array"}


@dataclass(frozen=True)
class Place:
    """An array library with the interface of the array API standard, and one of its devices."""

    xp: Any
    device: Any = None

    @property
    def is_host(self) -> bool:
        """Whether matrices here are NumPy arrays, on which LAPACK works."""
        return self.xp is np

    def put(self, values: Any) -> Matrix:
        """Copy the values to this place, as doubles."""
        return self.give(np.array(values, dtype=np.float64))

    def give(self, values: np.ndarray) -> Any:
        """Move a NumPy array of any type to this place."""
        return values if self.is_host else self.xp.asarray(values, device=self.device)

    def zeros(self, rows: int, columns: int) -> Matrix:
        """A matrix of zeros, stored row by row."""
        if self.is_host:
            return np.zeros((rows, columns))
        return self.xp.zeros((rows, columns), dtype=self.xp.float64, device=self.device)

    @property
    def has_memory(self) -> bool:
        """Whether the device has its own memory."""
        return "cuda" in str(self.device).lower()

    def available_memory(self) -> float:
        """The number of bytes that are still available on a device with its own memory."""
        if "CUDA" in str(self.device):  # a device of CuPy
            import cupy

            with self.device:
                free, _ = cupy.cuda.runtime.memGetInfo()
                return float(free + cupy.get_default_memory_pool().free_bytes())
        from torch import cuda

        free, _ = cuda.mem_get_info(self.device)
        return float(free + cuda.memory_reserved(self.device) - cuda.memory_allocated(self.device))

    def __reduce__(self) -> tuple[Any, tuple[str, Any]]:
        return _place, (self.xp.__name__, self.device)  # modules cannot be pickled

    def __str__(self) -> str:
        library = str(self.xp.__name__).rpartition(".")[2]
        return library if self.is_host else f"{library} on {self.device}"


def _place(library: str, device: Any) -> Place:
    return Place(import_module(library), device)


#: The memory of NumPy.
HOST = Place(np)


def _library(x: object) -> str | None:
    """The name of the library other than NumPy that x is an array of, if there is one."""
    for base in () if isinstance(x, np.ndarray) else type(x).__mro__:
        library = base.__module__.partition(".")[0]
        if _CLASSES.get(library) == base.__name__:
            return library
    return None


@cache
def _compat() -> ModuleType:
    """The package that gives all array libraries one interface; NumPy's arrays do without it."""
    try:
        return import_module("array_api_compat")
    except ImportError:
        raise ImportError(
            "arrays of PyTorch and CuPy need the package array-api-compat, which is not installed: "
            "pip install 'postlin[gpu]', or convert the arrays to NumPy."
        ) from None


def place_of(x: Any) -> Place:
    """The place of an array; HOST unless it belongs to PyTorch, CuPy or array-api-strict."""
    return Place(namespace(x), _compat().device(x)) if _library(x) else HOST


def place_named(device: object) -> Place:
    """The place with the name of a PyTorch device; "cpu" means NumPy's memory."""
    if device == "cpu":
        return HOST
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"device={device!r} needs PyTorch, which is not installed: pip install 'postlin[gpu]', "
            "pass CuPy arrays, or leave device=None to work on the CPU."
        ) from None
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(
            f"device={device!r} asks for a GPU and PyTorch finds none here: leave device=None to work "
            "on the CPU."
        )
    try:
        return place_of(torch.zeros(1, dtype=torch.float64, device=device))
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device={device!r} cannot hold PyTorch doubles ({str(error).splitlines()[0]}): use "
            'for example "cuda" or "cuda:1", or leave device=None to work on the CPU.'
        ) from None


def namespace(x: Any) -> Any:
    """The namespace of functions for an array."""
    return np if isinstance(x, np.ndarray) else _compat().array_namespace(x)


def on_host(x: Any) -> Any:
    """Convert an array of another library to NumPy; return anything else unchanged."""
    match _library(x):
        case "torch":
            return x.detach().cpu().numpy()
        case "cupy":
            return x.get()
        case "array_api_strict":
            return np.asarray(x.to_device(namespace(x).Device("CPU_DEVICE")))
    return x


def as_matrix(x: Any, place: Place) -> Matrix:
    """The array as doubles at a place; an array of doubles that is there already is not copied."""
    if place.is_host:
        return np.asarray(on_host(x), float)
    if place_of(x) != place:
        return place.put(on_host(x))
    x = x.detach() if _library(x) == "torch" else x
    return place.xp.astype(x, place.xp.float64, copy=False)


def like(x: Any, values: np.ndarray) -> Any:
    """Copy numbers to the library and device of x; return arrays of other types unchanged."""
    return place_of(x).give(values.copy()) if values.dtype.kind in "biuf" else values


def copied(A: Matrix) -> Matrix:
    """A copy of the matrix, stored row by row."""
    place = place_of(A)
    if place.is_host:
        return A.copy()
    copy = place.zeros(*A.shape)
    copy[:, :] = A
    return copy


def diagonal(A: Matrix) -> Array:
    """The diagonal as a NumPy vector, which must not be written to."""
    if isinstance(A, np.ndarray):
        return A.diagonal()
    return np.asarray(on_host(namespace(A).linalg.diagonal(A)), float)


def diagonal_of(A: Matrix) -> Matrix:
    """The diagonal as a view that can be written to; on devices A must be stored row by row."""
    if isinstance(A, np.ndarray):
        entries = A.diagonal()  # a view, which NumPy makes read-only
        entries.setflags(write=True)
        return entries
    return namespace(A).reshape(A, (-1,))[:: A.shape[0] + 1]


def add_to_diagonal(A: Matrix, values: Array | float) -> None:
    """Add numbers to the diagonal of a square matrix in place."""
    entries = diagonal_of(A)
    entries += _values_for(A, values)


def set_diagonal(A: Matrix, values: Array | float) -> None:
    """Write numbers onto the diagonal of a square matrix in place."""
    diagonal_of(A)[:] = _values_for(A, values)


def _values_for(A: Matrix, values: Array | float) -> Matrix:
    """Values that can be combined with A: a plain number, or a vector where A is."""
    if isinstance(values, float):
        return float(values)
    return values if isinstance(A, np.ndarray) else place_of(A).put(values)


def column_products(A: Matrix, B: Matrix) -> Matrix:
    """Σᵢ Aᵢⱼ Bᵢⱼ for every j."""
    if isinstance(A, np.ndarray):
        return np.einsum("ij,ij->j", A, B)
    return namespace(A).sum(A * B, axis=0)


def inner_product(A: Matrix, B: Matrix) -> float:
    """Σᵢⱼ Aᵢⱼ Bᵢⱼ."""
    if isinstance(A, np.ndarray):
        return float(np.einsum("ij,ij->", A, B))
    return float(namespace(A).sum(A * B))


def clipped(A: Matrix) -> Matrix:
    """The entries moved into [−1, 1], in place where the library can."""
    if isinstance(A, np.ndarray):
        return np.clip(A, -1.0, 1.0, out=A)
    return namespace(A).clip(A, -1.0, 1.0)


def ratio(A: Matrix, B: Matrix) -> Matrix:
    """A/B for B ≥ 0, and 0 where B = 0."""
    if isinstance(A, np.ndarray):
        return np.divide(A, B, out=np.zeros_like(B), where=B > 0)
    positive = namespace(B).astype(B > 0, B.dtype)
    return positive * A / (B + (1.0 - positive))


def squared_distances(left: Matrix, right: Matrix) -> Matrix:
    """Squared distances between the rows of two arrays, from differences, which do not cancel."""
    if isinstance(left, np.ndarray):
        return cdist(left, right, "sqeuclidean")
    total = (left[:, 0][:, None] - right[:, 0][None, :]) ** 2
    for k in range(1, left.shape[1]):
        total += (left[:, k][:, None] - right[:, k][None, :]) ** 2
    return total


def smallest(A: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """The columns of the k smallest entries of each row, in any order, and the largest of these."""
    xp = namespace(A)
    if _library(A) == "torch":
        values, columns = xp.topk(A, k, dim=1, largest=False, sorted=False)
        return columns, xp.max(values, axis=1)
    if _library(A) in (None, "cupy"):
        columns = xp.argpartition(A, k - 1, axis=1)[:, :k]
        return columns, xp.max(xp.take_along_axis(A, columns, axis=1), axis=1)
    columns = xp.argsort(A, axis=1)[:, :k]
    return columns, xp.sort(A, axis=1)[:, k - 1]


def cholesky(A: Matrix) -> tuple[Matrix, int]:
    """The lower Cholesky factor of a block and 0, or A and the order of the first minor without one."""
    failed = False
    try:
        if _library(A) == "torch":
            L, failed = namespace(A).linalg.cholesky_ex(A)
        else:
            L = _cholesky(A)
    except np.linalg.LinAlgError:
        L, failed = A, True
    if not failed and np.isfinite(diagonal(L)).all():
        return L, 0
    return A, int(lapack.dpotrf(on_host(A), lower=1)[1]) or A.shape[0]


def solve_lower(L: Matrix, X: Matrix, *, transposed: bool = False) -> Matrix:
    """L⁻¹ X or L⁻ᵀ X for a lower triangular block L."""
    if _library(L) == "torch":
        return namespace(L).linalg.solve_triangular(L.T if transposed else L, X, upper=transposed)
    if _library(L) == "cupy":
        cupyx = import_module("cupyx.scipy.linalg")
        return cupyx.solve_triangular(L, X, lower=True, trans=int(transposed))
    return namespace(L).linalg.solve(L.T if transposed else L, X)


def cholesky_each(A: Matrix) -> tuple[Matrix, np.ndarray]:
    """The lower Cholesky factors of a stack of matrices, and which exist; the others are I."""
    xp = namespace(A)
    if _library(A) == "torch":
        L, failed = xp.linalg.cholesky_ex(A)
        found = on_host(failed == 0) & np.isfinite(on_host(xp.sum(L, axis=(1, 2))))
        for i in np.flatnonzero(~found):
            L[i, :, :] = xp.eye(A.shape[1], dtype=A.dtype, device=A.device)
        return L, found
    found = np.ones(A.shape[0], dtype=bool)
    try:
        return _cholesky(A), found
    except np.linalg.LinAlgError:  # it does not say which
        L = xp.empty_like(A)
    for j in range(A.shape[0]):
        L[j, :, :], found[j] = _cholesky_or_eye(A[j, :, :])
    return L, found


def _cholesky(A: Matrix) -> Matrix:
    """The lower Cholesky factor of a matrix or of a stack of them; raises ``LinAlgError``."""
    if _library(A) == "cupy":
        with import_module("cupyx").errstate(linalg="raise"):
            return namespace(A).linalg.cholesky(A)
    return namespace(A).linalg.cholesky(A)


def _cholesky_or_eye(A: Matrix) -> tuple[Matrix, bool]:
    try:
        return _cholesky(A), True
    except np.linalg.LinAlgError:
        return place_of(A).put(np.eye(A.shape[0])), False


def solve_each(A: Matrix, X: Matrix) -> tuple[Matrix, np.ndarray]:
    """The solutions of a stack of linear systems A x = X, and which of them exist; the others are 0."""
    xp = namespace(A)
    if _library(A) == "torch":
        solution, failed = xp.linalg.solve_ex(A, X)
        singular = on_host(failed != 0)
    else:
        solution, singular = _solve_or_zero(A, X)
    found = ~singular & np.isfinite(on_host(xp.sum(solution, axis=(1, 2))))
    for i in np.flatnonzero(~found):
        solution[i, :, :] = 0.0
    return solution, found


def _solve_or_zero(A: Matrix, X: Matrix) -> tuple[Matrix, np.ndarray]:
    """The solutions of a stack of linear systems, and which of them have none."""
    xp, singular = namespace(A), np.zeros(A.shape[0], dtype=bool)
    try:
        return xp.linalg.solve(A, X), singular
    except np.linalg.LinAlgError:  # it does not say which
        solution = xp.zeros_like(X)
    for i in range(A.shape[0]):
        try:
            solution[i, :, :] = xp.linalg.solve(A[i, :, :], X[i, :, :])
        except np.linalg.LinAlgError:
            singular[i] = True
    return solution, singular


def solve_lower_each(L: Matrix, X: Matrix) -> Matrix:
    """L⁻¹ X for a stack of lower triangular matrices."""
    if _library(L) == "torch":
        return namespace(L).linalg.solve_triangular(L, X, upper=False)
    return _inverted_lower(L) @ X


def _inverted_lower(L: Matrix) -> Matrix:
    """The inverses of a stack of lower triangular matrices, by halves.

    In NumPy this takes a third of the time of ``linalg.solve`` for matrices of 65 rows, half for 33.
    """
    xp, size = namespace(L), L.shape[1]
    if size <= _LEAF:
        return xp.linalg.inv(L)
    half, inverse = size // 2, xp.zeros_like(L)
    upper = inverse[:, :half, :half] = _inverted_lower(L[:, :half, :half])
    lower = inverse[:, half:, half:] = _inverted_lower(L[:, half:, half:])
    inverse[:, half:, :half] = -(lower @ (L[:, half:, :half] @ upper))
    return inverse
