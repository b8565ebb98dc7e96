"""Triangles of matrices: panel by panel, solves for many rows, factors and inverses in place.

Factors and inverses are computed by halves, for one thread, or by LAPACK. Halves turn most of the work
into large matrix products, which run at the full speed of a core. Of the 74 Gflop/s of ``dsyrk`` with
n = 2000, LAPACK's Cholesky factorisation reaches 41 and its inverse of a triangle 41; by halves they
reach 53 and 58 (n = 1000: 37 and 24, by halves 44 and 47).

SciPy's functions copy every block that is not contiguous, and they let no other thread run, for minutes
if matrices are large. So the routines of BLAS and LAPACK are called here by the addresses that SciPy
publishes for compiled code.
"""

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cython_blas, cython_lapack, lapack, solve_triangular

from postlin._typing import Array, cached_property
from postlin.exceptions import NotPositiveDefiniteError
from postlin.linalg import arrays
from postlin.linalg.arrays import Matrix
from postlin.linalg.arrays import diagonal_of as diagonal_of
from postlin.linalg.threads import has_one_thread, slices

#: The number of entries of a panel, 256 KiB, and its fewest columns. This is the fastest size of those
#: measured: smaller panels take more calls, and larger ones do not fit the cache.
_PANEL = 2**15
_NARROW = 48


def panels(n: int, width: int | None = None) -> list[slice]:
    """Slices of consecutive columns of an n × n matrix."""
    return slices(n, width or max(_NARROW, _PANEL // n))


def lower_panels(n: int, width: int | None = None) -> Iterator[tuple[slice, slice]]:
    """Slices (rows, columns) of the panels that cover the lower triangle."""
    return ((slice(columns.start, n), columns) for columns in panels(n, width))


def times(matrix: Array, x: Array) -> Array:
    """The product of a symmetric matrix, given by its lower triangle, and a vector."""
    product: Array = blas.dsymv(1.0, matrix, x, lower=1)
    return product


def clear_corners(matrix: Array, width: int | None = None) -> None:
    """Set those entries above the diagonal to zero that lie in the lower panels."""
    for columns in panels(len(matrix), width):
        np.copyto(matrix[columns, columns], 0.0, where=_above_diagonal(columns.stop - columns.start))


def mirror(matrix: Array) -> Array:
    """Copy the lower triangle onto the upper one, in place."""
    for columns in panels(len(matrix)):
        corner = matrix[columns, columns]
        np.copyto(corner, corner.T, where=_above_diagonal(len(corner)))
    return mirror_panels(matrix)


@lru_cache
def _above_diagonal(n: int) -> NDArray[np.bool_]:
    return np.triu(np.ones((n, n), dtype=bool), 1)


def mirror_panels(matrix: Array) -> Array:
    """Copy the lower triangle onto the upper one, in place, except in the diagonal blocks."""
    for columns in panels(len(matrix)):
        matrix[columns, columns.stop :] = matrix[columns.stop :, columns].T
    return matrix


def gains_before(added: Array, before: Array, ends: Array) -> Array:
    """1 − 1/L²ᵢᵢ to full precision, for a Cholesky factor L of B.

    The arguments are (B − I)ᵢᵢ, Σ_{k<i} L²ᵢₖ and 1/Lᵢᵢ. Where t = L²ᵢᵢ − 1 is small, only the
    difference of the first two gives it accurately; the result is t/(1 + t).
    """
    weak = added < 1.0
    t = np.where(weak, added - before, 0.0)  # rounding could make t = −1 where (B − I)ᵢᵢ is large
    return np.where(weak, t / (1.0 + t), 1.0 - ends**2)


def inverted(L: Array) -> Array:
    """Replace the lower triangular L by L⁻¹, and return it."""
    if has_one_thread(len(L)):
        invert(L)
    else:
        invert_whole(L)
    return L


#: The numbers of columns and of rows that are solved for at a time, which fit the cache.
_BLOCK, _ROWS = 64, 1024
#: The number of columns on a device, where few large products are fast.
_WIDE = 256


@dataclass(frozen=True, eq=False)
class Triangle:
    """A lower triangular matrix L, with solves for many rows by matrix products alone.

    The solves use the inverses of the diagonal blocks. NumPy's products let other threads run
    meanwhile, unlike SciPy's triangular solves, and are twice as fast on a chunk of rows.
    """

    L: Matrix

    @classmethod
    def of(cls, A: Matrix) -> "Triangle":
        """The Cholesky factor of a matrix; ``NotPositiveDefiniteError`` if it has none."""
        if isinstance(A, np.ndarray):
            L, failed = lapack.dpotrf(A, lower=1, clean=1)
        else:
            L, failed = arrays.cholesky(A)
        if failed:
            raise NotPositiveDefiniteError("a matrix is not positive definite.")
        return cls(L)

    @cached_property
    def inverse(self) -> Matrix:
        """L⁻¹."""
        return self._inverted(slice(0, len(self.L)))

    @property
    def log_determinant(self) -> float:
        """log |L|."""
        return float(np.log(arrays.diagonal(self.L)).sum())

    def _inverted(self, block: slice) -> Matrix:
        """The inverse of a block on the diagonal."""
        corner = self.L[block, block]
        eye = arrays.place_of(corner).eye(block.stop - block.start)
        if isinstance(corner, np.ndarray):
            return np.asarray(solve_triangular(corner, eye, lower=True), float)
        return arrays.solve_lower(corner, eye)

    @cached_property
    def _blocks(self) -> list[tuple[slice, Matrix]]:
        width = _BLOCK if isinstance(self.L, np.ndarray) else _WIDE
        return [(block, self._inverted(block)) for block in slices(len(self.L), width)]

    def __getstate__(self) -> dict[str, Array]:
        return {"L": arrays.on_host(self.L)}

    def solve_vector(self, x: Matrix, *, transposed: bool = False) -> Matrix:
        """L⁻¹x or L⁻ᵀx for a vector x."""
        if isinstance(self.L, np.ndarray):
            return np.asarray(solve_triangular(self.L, x, lower=True, trans=int(transposed)), float)
        return arrays.solve_lower(self.L, x[:, None], transposed=transposed)[:, 0]

    def solve(self, rows: Matrix, *, transposed: bool = False) -> Matrix:
        """L⁻¹x or L⁻ᵀx for every row x, in place."""
        blocks = self._blocks[::-1] if transposed else self._blocks
        first, _ = blocks[0]
        at_a_time = _ROWS if isinstance(rows, np.ndarray) else len(rows)
        for some in slices(len(rows), at_a_time):
            x = rows[some]
            for block, inverse in blocks:
                known = slice(block.stop, None) if transposed else slice(0, block.start)
                beside, corner = (self.L, inverse) if transposed else (self.L.T, inverse.T)
                part = x[:, block]
                if block is not first:
                    part = part - x[:, known] @ beside[known, block]
                x[:, block] = part @ corner
        return rows

    def solve_transposed(self, rows: Matrix) -> Matrix:
        """L⁻ᵀx for every row x, in place."""
        return self.solve(rows, transposed=True)


class Cholesky:
    """The factorisation I + A = L Lᵀ of B = I + A for semi-definite A, with solves and the inverse."""

    _panels = staticmethod(lower_panels)

    def __init__(self, A: Matrix) -> None:
        """Take over the array of A: its lower triangle, with zeros above it in the panels."""
        self._added = np.array(arrays.diagonal(A))
        arrays.add_to_diagonal(A, 1.0)
        self._array, failed = self._factorised(A)
        if failed:
            raise NotPositiveDefiniteError(
                "the covariance matrix is not positive semi-definite, or holds NaN or infinity."
            )
        self.is_inverted = False  # whether the array holds L⁻¹ in place of L
        self.half_log_det = float(np.log(arrays.diagonal(self._array)).sum())

    def _factorised(self, B: Matrix) -> tuple[Matrix, int]:
        """The array with L in its lower triangle, and 0 if B has such a factor."""
        return B, factorise(B) if has_one_thread(len(B)) else factorise_whole(B)

    def solve(self, x: Matrix) -> Matrix:
        """B⁻¹ times a vector or columns."""
        return self.whiten(self.whiten(x), transposed=True, overwrite=True)

    def whiten(self, columns: Matrix, *, transposed: bool = False, overwrite: bool = False) -> Array:
        """L⁻¹ or L⁻ᵀ times a vector or columns."""
        A: Array = self._array
        result: Array
        if columns.ndim == 1:
            product = blas.dtrmv if self.is_inverted else blas.dtrsv
            result = product(A, columns, lower=1, trans=transposed, overwrite_x=overwrite)
        else:
            product = blas.dtrmm if self.is_inverted else blas.dtrsm
            result = product(1.0, A, columns, lower=1, trans_a=transposed, overwrite_b=overwrite)
        return result

    def _invert(self) -> Matrix:
        """Replace L by L⁻¹ in the array, and return it."""
        if not self.is_inverted:
            self._array, self.is_inverted = inverted(self._array), True
        return self._array

    def _squares(self, axis: int) -> Array:
        """Sums of squares of the columns (axis 0) or rows of the array, without its diagonal."""
        ends = np.array(arrays.diagonal(self._array))
        arrays.set_diagonal(self._array, 0.0)
        total = np.zeros(len(ends))
        for rows, columns in self._panels(len(ends)):
            part = self._array[rows, columns].T if axis else self._array[rows, columns]
            total[(columns, rows)[axis]] += arrays.on_host(arrays.column_products(part, part))
        arrays.set_diagonal(self._array, ends)
        return total

    def into_inverse(self) -> Matrix:
        """The array with B⁻¹ in its lower triangle; this factor cannot be used any more."""
        inverse = self._invert()
        square(inverse)
        del self._array
        return inverse


#: Triangles with at most this many rows are left to LAPACK: to factorise (alone, or as a part), to
#: invert, and to solve with. The fastest of those measured.
_WHOLE, _PART, _INVERTED, _SOLVED = 512, 128, 64, 64

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


def _routine(module: ModuleType, name: str) -> Callable[..., None]:
    """A routine of BLAS or LAPACK. All its arguments are addresses."""
    capsule = module.__pyx_capi__[name]
    signature = _name(capsule)
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (signature.count(b",") + 1))
    return prototype(_pointer(capsule, signature))


_gemm, _syrk, _trmm, _trsm = (
    _routine(cython_blas, name) for name in ("dgemm", "dsyrk", "dtrmm", "dtrsm")
)
_potrf, _trtri, _lauum = (_routine(cython_lapack, name) for name in ("dpotrf", "dtrtri", "dlauum"))

#: The integers of this BLAS: of 32 bits, unless SciPy was built for another.
_Integer = ctypes.c_int if b" int *" in _name(cython_blas.__pyx_capi__["dgemm"]) else ctypes.c_int64
_ONE, _MINUS = (ctypes.byref(ctypes.c_double(number)) for number in (1.0, -1.0))
_LOWER, _RIGHT, _LEFT, _YES, _NO = b"L", b"R", b"L", b"T", b"N"


@lru_cache(maxsize=4096)
def _integer(value: int) -> Any:
    return ctypes.byref(_Integer(value))


def _at(block: Array) -> int:
    """The address of a block."""
    address: int = block.__array_interface__["data"][0]
    return address


def _stride(block: Array) -> Any:
    """The distance of two columns of a block, in entries."""
    return _integer(block.strides[1] // block.itemsize)


@lru_cache
def _halves(n: int) -> tuple[slice, slice]:
    """The first and the second half of n rows; a large half begins at a multiple of 32."""
    middle = n // 2 if n < 128 else (n // 2 + 31) // 32 * 32
    return slice(0, middle), slice(middle, n)


def factorise(A: Array) -> int:
    """Replace the lower triangle of A, stored by columns, by its Cholesky factor.

    Returns 0, or the order of the first leading minor that has no factor. The strict upper triangle is
    left as it is.
    """
    if len(A) > _WHOLE:
        return _factorise(A)
    return int(lapack.dpotrf(A, lower=1, overwrite_a=1, clean=0)[1])


def factorise_whole(A: Array) -> int:
    """``factorise`` by LAPACK, which uses the threads of BLAS."""
    info = _Integer(0)
    _potrf(_LOWER, _integer(len(A)), _at(A), _stride(A), ctypes.byref(info))
    return info.value


def _factorise(A: Array) -> int:
    if len(A) <= _PART:
        return factorise_whole(A)
    first, second = _halves(len(A))
    top, side, bottom = A[first, first], A[second, first], A[second, second]
    if failed := _factorise(top):
        return failed
    _solve(side, top)
    rows, columns = (_integer(size) for size in side.shape)
    _syrk(_LOWER, _NO, rows, columns, _MINUS, _at(side), _stride(A), _ONE, _at(bottom), _stride(A))
    failed = _factorise(bottom)
    return failed and failed + first.stop


def _solve(X: Array, L: Array) -> None:
    """Replace X by X L⁻ᵀ."""
    rows, columns = (_integer(size) for size in X.shape)
    if len(L) <= _SOLVED:
        sides = _RIGHT, _LOWER, _YES, _NO
        _trsm(*sides, rows, columns, _ONE, _at(L), _stride(L), _at(X), _stride(X))
        return
    first, second = _halves(len(L))
    left, right, corner = X[:, first], X[:, second], L[second, first]
    _solve(left, L[first, first])
    inner, outer = (_integer(half.shape[1]) for half in (left, right))
    product = _at(left), _stride(X), _at(corner), _stride(L)
    _gemm(_NO, _YES, rows, outer, inner, _MINUS, *product, _ONE, _at(right), _stride(X))
    _solve(right, L[second, second])


def invert(L: Array) -> None:
    """Replace the lower triangular L, stored by columns, by L⁻¹; nothing above the diagonal changes."""
    if len(L) <= _INVERTED:
        return invert_whole(L)
    first, second = _halves(len(L))
    top, side, bottom = L[first, first], L[second, first], L[second, second]
    invert(top)
    invert(bottom)
    size = (*(_integer(size) for size in side.shape),)
    ends = _at(side), _stride(L)
    _trmm(_LEFT, _LOWER, _NO, _NO, *size, _MINUS, _at(bottom), _stride(L), *ends)
    _trmm(_RIGHT, _LOWER, _NO, _NO, *size, _ONE, _at(top), _stride(L), *ends)
    return None


def invert_whole(L: Array) -> None:
    """``invert`` by LAPACK, which uses the threads of BLAS."""
    info = _Integer(0)
    _trtri(_LOWER, _NO, _integer(len(L)), _at(L), _stride(L), ctypes.byref(info))


def square(L: Array) -> None:
    """Replace the lower triangular L, stored by columns, by the lower triangle of LᵀL."""
    info = _Integer(0)
    _lauum(_LOWER, _integer(len(L)), _at(L), _stride(L), ctypes.byref(info))
