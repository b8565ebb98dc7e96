"""Cholesky factors and inverses of triangles in place: by halves, for one thread, or by LAPACK.

Halves turn most of the work into large matrix products, which run at the full speed of a core. Of the
74 Gflop/s of ``dsyrk`` with n = 2000, LAPACK's Cholesky factorisation reaches 41 and its inverse of a
triangle 41; by halves they reach 53 and 58 (n = 1000: 37 and 24, by halves 44 and 47).

SciPy's functions copy every block that is not contiguous, and they let no other thread run, for minutes
if matrices are large. So the routines of BLAS and LAPACK are called here by the addresses that SciPy
publishes for compiled code.
"""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

from scipy.linalg import cython_blas, cython_lapack, lapack

from postlin._typing import Array

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
