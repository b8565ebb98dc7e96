"""Model files: loading one executes no code from it, and damaged files are refused.

A file holds a line that says what it is, a line of JSON (format, versions, checksum), and the model as
skops writes it: arrays and a description of objects. Only objects of the types listed below are made,
so that even a forged file with a valid checksum can only change numbers.

The archive is checked before anything in it is inflated or allocated. ``save`` writes the members of
the archive uncompressed, so that none is larger than the file. Only sparse matrices, which steps of a
pipeline may hold, are compressed; theirs is a bounded ratio.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import sklearn
from numpy.lib import format as npy
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import kernels
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import postlin
from postlin import likelihoods, rules, schedules
from postlin._files import write_atomically
from postlin.estimator import fits, joint_fit, strategies
from postlin.estimator.classifier import GPClassifier
from postlin.estimator.loaded import check_model, transformed
from postlin.exceptions import ModelFileError
from postlin.inference import result
from postlin.learning import hyperparameters, hyperprior, joint_model, models
from postlin.likelihoods.softmax import Softmax
from postlin.rules import joint, weights

_MAGIC = b"postlin model\n"
#: The number of the layout of the file and of the objects in it.
_FORMAT = 5
#: The most bytes of a header; those that ``save`` writes are much shorter.
_LONGEST_HEADER = 1000
#: The most characters of a file, or of the error of another library about it, in a message.
_LONGEST_REASON = 200

_TYPES: tuple[type, ...] = (
    GPClassifier,
    fits.ExactFit,
    joint_fit.JointFit,
    models.ExactModel,
    joint_model.JointModel,
    hyperparameters.Hyperparameters,
    hyperparameters.WithPoints,
    hyperprior.ARDPrior,
    result.Record,
    result.History,
    weights.Weights,
    weights.Observations,
    likelihoods.WithNoise,
    Softmax,
    *joint.REGISTRY.values(),
    *likelihoods.REGISTRY.values(),
    *rules.REGISTRY.values(),
    *schedules.REGISTRY.values(),
    *strategies.REGISTRY.values(),
    kernels.CompoundKernel,
    kernels.ConstantKernel,
    kernels.DotProduct,
    kernels.ExpSineSquared,
    kernels.Exponentiation,
    kernels.Matern,
    kernels.PairwiseKernel,
    kernels.Product,
    kernels.RBF,
    kernels.RationalQuadratic,
    kernels.Sum,
    kernels.WhiteKernel,
)
#: All types that a file may name beside those that skops knows to be harmless. The types of fits with
#: inducing points and neighbours, and the steps that read tables, are given by name: their modules are
#: imported only when needed. A dtype is no more than the kind of an array's numbers.
TRUSTED = frozenset(f"{t.__module__}.{t.__qualname__}" for t in _TYPES) | {
    "postlin.estimator.sparse_fit.SparseFit",
    "postlin.learning.sparse_model.SparseModel",
    "postlin.estimator.local_fit.LocalFit",
    "postlin.estimator.local_fit.LocalRows",
    "postlin.estimator.local_fit.Neighbourhood",
    "postlin.learning.local_model.LocalModel",
    "postlin.learning.global_fit.GlobalFit",
    "postlin.streaming.sources.MappedSlice",
    "postlin.tables.preparation.Columnwise",
    "postlin.tables.preparation.Numbers",
    "postlin.tables.preparation.Texts",
    "postlin.tables.preparation.Dates",
    "postlin.tables.preparation.Standardised",
    "postlin.tables.preparation.Whitening",
    "numpy.dtype",
}


def save(model: GPClassifier | Pipeline, path: str | os.PathLike[str]) -> None:
    """Write a fitted ``GPClassifier``, or a pipeline that ends in one, to a file.

    The file appears whole or not at all.
    """
    skops = check_skops()
    _check(model)
    payload: bytes = skops.dumps(model)
    strange = sorted(set(skops.get_untrusted_types(data=payload)) - TRUSTED)
    if strange:
        raise ModelFileError(
            f"the model holds {', '.join(strange)}, which a model file cannot: use kernels of "
            "scikit-learn, likelihoods and rules of postlin and no functions, or pickle it."
        )
    header = _header(payload, transformed(model))
    write_atomically(Path(path), lambda file: file.write(_MAGIC + header + payload))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model from a file of ``save``; raise ``ModelFileError`` for any other file.

    A model that was loaded predicts: its parts are checked, and unless it is very large it has already
    predicted a few rows.
    """
    path = Path(path)
    about, payload = _read(path)
    skops = check_skops()
    try:
        check_archive(payload)
        found = set(skops.get_untrusted_types(data=payload))
        if not found <= TRUSTED:
            raise ModelFileError(
                f"{str(path)!r} holds {_shown(found - TRUSTED)}, which no model file of postlin does: "
                "it is not loaded."
            )
        model = skops.loads(payload, trusted=sorted(found))
        _check(model)
        check_model(model, about["features"])
    except ModelFileError:
        raise
    except Exception as error:  # a foreign description can provoke any error
        reason = f"{type(error).__name__}: {_shown([str(error)])}"
        raise ModelFileError(
            f"{str(path)!r} cannot be read ({reason}): fit the model again."
        ) from error
    return model


def _shown(texts: Iterable[str]) -> str:
    """Texts of a file that is not trusted, made fit for a message: in one line, and not too long."""
    whole = ", ".join(sorted(texts))
    printable = "".join(c if c.isprintable() else " " for c in whole[: _LONGEST_REASON + 1])
    return printable if len(whole) <= _LONGEST_REASON else f"{printable[:_LONGEST_REASON]}…"


def check_skops() -> Any:
    """The module that reads and writes objects; ``ImportError`` says how to install it."""
    try:
        from skops import io
    except ImportError:
        raise ImportError("model files need skops: pip install skops.") from None
    return io


def _check(model: object) -> None:
    """Raise ``ModelFileError`` unless this is a fitted classifier or a pipeline that ends in one."""
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not isinstance(last, GPClassifier):
        raise ModelFileError(
            f"a model file holds a GPClassifier or a pipeline that ends in one, not a "
            f"{type(last).__name__}."
        )
    try:
        check_is_fitted(last)
    except NotFittedError:
        raise ModelFileError("the model is not fitted: call fit before save.") from None
    if callable(last.prior_mean):
        raise ModelFileError(
            "the prior_mean of the model is a function, which a model file cannot hold: use a number, "
            "or pickle the model."
        )
    first: Any = last._decomposition.estimators_[0]
    if first.method == "local" and first.near.rows is None:
        raise ModelFileError(
            "the rows of the model are on a Dask cluster, and a model with neighbours needs them: fit "
            "it to a file that is memory-mapped, or to arrays."
        )


def _header(payload: bytes, features: int | None) -> bytes:
    about = {"format": _FORMAT, "postlin": postlin.__version__, "scikit-learn": sklearn.__version__}
    about |= {"features": features}
    return json.dumps(about | {"sha256": _digest(about, payload)}).encode() + b"\n"


def _digest(about: dict[str, Any], payload: bytes) -> str:
    """The checksum of the header and the model."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode() + payload).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header and the model in a file; ``ModelFileError`` if the file is damaged or foreign."""
    if path.exists() and not path.is_file():  # a folder, or a pipe that could be read forever
        raise ModelFileError(f"{str(path)!r} is not a postlin model file: it is no ordinary file.")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelFileError(f"{str(path)!r} is not a postlin model file.")
        header, payload = file.readline(_LONGEST_HEADER), file.read()
    try:
        about = json.loads(header)
        checksum = about.pop("sha256")
        if header != json.dumps(about | {"sha256": checksum}).encode() + b"\n":
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ModelFileError(f"{str(path)!r} is damaged: its header cannot be read.") from None
    if _digest(about, payload) != checksum:
        raise ModelFileError(f"{str(path)!r} is damaged: its checksum does not match its content.")
    if about.get("format") != _FORMAT:
        raise ModelFileError(
            f"{str(path)!r} was written by postlin {about.get('postlin')} in format "
            f"{about.get('format')}, and postlin {postlin.__version__} reads format {_FORMAT}: fit the "
            "model again."
        )
    return about, payload


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
