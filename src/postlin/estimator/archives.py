"""The archive in a model file is checked before anything in it is inflated or allocated.

``save`` writes the members of the archive uncompressed, so that none is larger than the file. Only
sparse matrices, which steps of a pipeline may hold, are compressed; theirs is a bounded ratio.
"""

import json
import math
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from numpy.lib import format as npy

#: Sparse matrices may be as many times as large as the file, and this many bytes larger.
_RATIO, _ALLOWANCE = 100, 2**20
#: The kinds of numbers, texts and dates that arrays may hold.
_KINDS = set("biufUSMm")
_SCHEMA = "schema.json"


def check_archive(payload: bytes) -> None:
    """Raise an error unless the archive could have been written by ``save``.

    No member may be declared larger than it is, occur twice or be superfluous; arrays must be as large
    as their headers say; and objects that are repeated must be described in full every time, so that
    reading the description takes time in proportion to its length.
    """
    with ZipFile(BytesIO(payload)) as archive:
        members = _members(archive, len(payload))
        _require(_SCHEMA in members, "it has no description")
        schema = json.loads(archive.read(_SCHEMA))
        owners: dict[str, object] = {}
        for node in _nodes(schema, {}):
            if "file" not in node:
                continue
            name, owner = node["file"], node.get("__id__")
            _require(name in members and name != _SCHEMA, "a part is missing")
            _require(owner and owners.setdefault(name, owner) == owner, "a part belongs to two objects")
            if node["__loader__"] == "NdArrayNode":
                _check_array(archive, members[name])
            elif node["__loader__"] == "SparseMatrixNode":
                _check_sparse(archive.read(name), len(payload))
        _require(owners.keys() | {_SCHEMA} == members.keys(), "a part belongs to no object")


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _members(archive: ZipFile, size: int) -> dict[str, ZipInfo]:
    """The members by name; no more is declared than there is."""
    members = {info.filename: info for info in archive.infolist()}
    _require(len(members) == len(archive.infolist()), "a part occurs twice")
    for info in members.values():
        _require(info.compress_type == ZIP_STORED, "a part is compressed")
        _require(info.file_size == info.compress_size, "a part has two sizes")
    _require(sum(info.file_size for info in members.values()) <= size, "its parts exceed the file")
    return members


def _nodes(schema: Any, sizes: dict[object, int]) -> Iterator[dict[str, Any]]:
    """The objects that a description describes; ``sizes`` are their numbers of entries by id."""
    if isinstance(schema, list):
        for value in schema:
            yield from _nodes(value, sizes)
    elif isinstance(schema, dict):
        size = 1
        for value in schema.values():
            for node in _nodes(value, sizes):
                size += 1
                yield node
        identity = schema.get("__id__")
        if identity is not None:
            _require(sizes.setdefault(identity, size) == size, "two objects are mixed up")
        yield schema


def _check_array(archive: ZipFile, member: ZipInfo) -> None:
    """Raise ``ValueError`` unless an array is as large as its header says."""
    with archive.open(member) as file:
        _require_size(file, member.file_size)


def _check_sparse(content: bytes, size: int) -> None:
    """Raise ``ValueError`` unless the arrays of a sparse matrix are of bounded size."""
    with ZipFile(BytesIO(content)) as archive:
        infos = archive.infolist()
        declared = sum(info.file_size for info in infos)
        _require(declared <= _RATIO * size + _ALLOWANCE, "a sparse matrix is too large for the file")
        for info in infos:
            _check_array(archive, info)


def _require_size(file: Any, size: int) -> None:
    version = npy.read_magic(file)
    _require(version in ((1, 0), (2, 0)), "an array is of an unknown version")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    _require(dtype.kind in _KINDS and all(n >= 0 for n in shape), "an array has an unknown type")
    _require(file.tell() + math.prod(shape) * dtype.itemsize == size, "an array has another size")
