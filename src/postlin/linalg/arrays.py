"""Where matrices are stored, and everything that depends on the array library.

Beside one matrix, vectors of n numbers are NumPy arrays, since moving them costs next to nothing.
Matrices of n² numbers stay in one ``Place``: the memory of NumPy, a GPU, or another device of PyTorch,
CuPy or array-api-strict. So do the vectors of stacks of small matrices. Beside this module ``stacks``
and ``functions`` alone use functions of these libraries outside the array API standard.
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

#: The number of columns of each group in ``smallest``.
_GROUP = 64

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

    def zeros(self, *shape: int) -> Matrix:
        """An array of zeros, stored row by row."""
        if self.is_host:
            return np.zeros(shape)
        return self.xp.zeros(shape, dtype=self.xp.float64, device=self.device)

    def eye(self, n: int) -> Matrix:
        """The identity of n rows."""
        if self.is_host:
            return np.eye(n)
        return self.xp.eye(n, dtype=self.xp.float64, device=self.device)

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


def library(x: object) -> str | None:
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
            "pip install array-api-compat, or convert the arrays to NumPy."
        ) from None


def place_of(x: Any) -> Place:
    """The place of an array; HOST unless it belongs to PyTorch, CuPy or array-api-strict."""
    return Place(namespace(x), _compat().device(x)) if library(x) else HOST


def place_named(device: object) -> Place:
    """The place with the name of a PyTorch device; "cpu" means NumPy's memory."""
    if device == "cpu":
        return HOST
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"device={device!r} needs PyTorch, which is not installed: pip install torch "
            "array-api-compat, pass CuPy arrays, or leave device=None to work on the CPU."
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
    match library(x):
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
    x = x.detach() if library(x) == "torch" else x
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


def row_products(A: Matrix, B: Matrix) -> Matrix:
    """Σⱼ Aᵢⱼ Bᵢⱼ for every i."""
    if isinstance(A, np.ndarray):
        return np.einsum("ij,ij->i", A, B)
    return namespace(A).sum(A * B, axis=1)


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
    """The columns of the k smallest entries of each row, in any order, and the largest of these.

    Of many columns only groups with one of the k smallest minima can hold one of these entries. To find
    the minima takes one reading of the matrix, and a selection among all columns takes many.
    """
    xp, count = namespace(A), A.shape[1] // _GROUP
    if count <= 2 * k:
        return _smallest(A, k)
    grouped = xp.reshape(A[:, : count * _GROUP], (-1, _GROUP, count))  # column i + count j in group i
    groups, _ = _smallest(xp.min(grouped, axis=1), k)
    steps = xp.arange(_GROUP, dtype=groups.dtype, device=place_of(A).device) * count
    columns = xp.reshape(groups[:, :, None] + steps, (A.shape[0], -1))
    others = xp.arange(count * _GROUP, A.shape[1], dtype=groups.dtype, device=place_of(A).device)
    others = xp.broadcast_to(others[None, :], (A.shape[0], others.shape[0]))
    columns = xp.concat([columns, others], axis=1)
    chosen, largest = _smallest(xp.take_along_axis(A, columns, axis=1), k)
    return xp.take_along_axis(columns, chosen, axis=1), largest


def _smallest(A: Matrix, k: int) -> tuple[Matrix, Matrix]:
    xp = namespace(A)
    if library(A) == "torch":
        values, columns = xp.topk(A, k, dim=1, largest=False, sorted=False)
        return columns, xp.max(values, axis=1)
    if library(A) in (None, "cupy"):
        columns = xp.argpartition(A, k - 1, axis=1)[:, :k]
        return columns, xp.max(xp.take_along_axis(A, columns, axis=1), axis=1)
    columns = xp.argsort(A, axis=1)[:, :k]
    return columns, xp.sort(A, axis=1)[:, k - 1]


def cholesky(A: Matrix) -> tuple[Matrix, int]:
    """The lower Cholesky factor of a block and 0, or A and the order of the first minor without one."""
    failed = False
    try:
        if library(A) == "torch":
            L, failed = namespace(A).linalg.cholesky_ex(A)
        else:
            L = plain_cholesky(A)
    except np.linalg.LinAlgError:
        L, failed = A, True
    if not failed and np.isfinite(diagonal(L)).all():
        return L, 0
    return A, int(lapack.dpotrf(on_host(A), lower=1)[1]) or A.shape[0]


def plain_cholesky(A: Matrix) -> Matrix:
    """The lower Cholesky factor of a matrix or of a stack of them; raises ``LinAlgError``."""
    if library(A) == "cupy":
        with import_module("cupyx").errstate(linalg="raise"):
            return namespace(A).linalg.cholesky(A)
    return namespace(A).linalg.cholesky(A)


def solve_lower(L: Matrix, X: Matrix, *, transposed: bool = False) -> Matrix:
    """L⁻¹ X or L⁻ᵀ X for a lower triangular block L."""
    if library(L) == "torch":
        return namespace(L).linalg.solve_triangular(L.T if transposed else L, X, upper=transposed)
    if library(L) == "cupy":
        cupyx = import_module("cupyx.scipy.linalg")
        return cupyx.solve_triangular(L, X, lower=True, trans=int(transposed))
    return namespace(L).linalg.solve(L.T if transposed else L, X)


def all_finite(*parts: Matrix) -> bool:
    """Whether no entry of any array is NaN or infinite."""
    return all(bool(namespace(part).all(namespace(part).isfinite(part))) for part in parts)


def norm(A: Matrix) -> float:
    """The root of the sum of squares of all entries."""
    if isinstance(A, np.ndarray):
        return float(np.linalg.norm(A))
    return float(np.sqrt(float(namespace(A).sum(A * A))))


def least_squares(A: Matrix, b: Matrix, rcond: float) -> Array:
    """The smallest x with the least |A x − b|, a few numbers in NumPy, for a tall matrix A."""
    if not isinstance(A, np.ndarray):
        A, b = _reduced(A, b)
    return np.asarray(np.linalg.lstsq(A, b, rcond=rcond)[0], float)


def _reduced(A: Matrix, b: Matrix) -> tuple[Array, Array]:
    """R and Qᵀb in NumPy for A = Q R with few columns, each of which is orthogonalised twice.

    For four million rows that takes a device a tenth of the time of its libraries' factorisation.
    """
    rows = 1.0 * A.T  # stored one after another
    R = np.zeros((A.shape[1], A.shape[1]))
    for j in range(A.shape[1]):
        known, new = rows[:j, :], rows[j, :]
        for _ in range(2 if j else 0):
            along = known @ new
            new = new - along @ known
            R[:j, j] += on_host(along)
        R[j, j] = length = norm(new)
        rows[j, :] = new / length if length > 0 else new
    return R, np.asarray(on_host(rows @ b))


def is_definite(A: Matrix) -> bool:
    """Whether a symmetric matrix is positive definite."""
    if library(A) == "torch":
        return not bool(namespace(A).linalg.cholesky_ex(A)[1])
    try:
        plain_cholesky(A)
    except np.linalg.LinAlgError:
        return False
    return True
