"""Files that appear whole or not at all, and lines of JSON that carry a checksum."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

#: The most bytes of a name to which the ending of a temporary file is added.
_LONGEST = 200
#: What is written to find out whether a file can be: a block of a disk.
_TRIAL = bytes(4096)


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call ``write`` with a temporary file beside ``path``, and then give that file its name.

    The content is on disk before the file is renamed. Where anything fails, an older file at ``path``
    stays as it was and the temporary file is removed. Temporary files of processes that were killed
    are removed too.
    """
    _check(path)
    _remove_stale(path)
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def try_to_write(path: Path) -> None:
    """Raise ``OSError`` if ``write_atomically`` could not write to ``path``, which stays as it is."""
    _check(path)
    _remove_stale(path)
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as file:
            file.write(_TRIAL)
            file.flush()
            os.fsync(file.fileno())
    finally:
        temporary.unlink(missing_ok=True)


def reason(error: OSError) -> str:
    """Why a file could not be read or written, as a part of a sentence."""
    return error.strerror or str(error) or type(error).__name__


def _check(path: Path) -> None:
    """Raise ``OSError`` for a path that no file can have."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "the name holds a null character")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if path.exists() and not path.is_file():  # renaming a file would remove the device or the pipe
        raise OSError(errno.EINVAL, "it is no ordinary file")


def _stem(path: Path) -> str:
    """The beginning of the names of temporary files, which ends in a dot."""
    name = os.fsencode(path.name)
    if len(name) > _LONGEST:
        name = name[: _LONGEST // 2] + hashlib.sha256(name).hexdigest().encode()
    return f"{os.fsdecode(name)}."


def _temporary(path: Path) -> Path:
    return path.with_name(f"{_stem(path)}{os.getpid()}.part")


def _remove_stale(path: Path) -> None:
    """Remove the temporary files for this path of processes that are no more."""
    stem = _stem(path)
    for name in os.listdir(path.parent):
        owner = name.removeprefix(stem).removesuffix(".part")
        if name == f"{stem}{owner}.part" and owner.isdecimal() and not _is_alive(int(owner)):
            path.with_name(name).unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # where this signal would interrupt the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # the process of another user
        return True
    return True


_SEAL = ', "sha256": "'
#: The number of bytes of the checksum at the end of a line.
_SEAL_LENGTH = len(_SEAL) + 64 + len('"}')


def sealed(record: dict[str, Any], default: Callable[[Any], object] | None = None) -> bytes:
    """A record, which must not be empty, as a line of JSON whose last entry is a checksum of it."""
    text = json.dumps(record, default=default)
    return f'{text[:-1]}{_SEAL}{hashlib.sha256(text.encode()).hexdigest()}"}}\n'.encode()


def unsealed(
    line: bytes, object_hook: Callable[[dict[str, Any]], object] | None = None
) -> dict[str, Any]:
    """The record of a line of ``sealed``; raise ``ValueError`` if a bit of the line has changed."""
    line = line.removesuffix(b"\n")
    text = line[:-_SEAL_LENGTH] + b"}"
    seal = f'{_SEAL}{hashlib.sha256(text).hexdigest()}"}}'.encode()
    if line[-_SEAL_LENGTH:] != seal:
        raise ValueError
    record = json.loads(text, object_hook=object_hook)
    if not isinstance(record, dict):
        raise ValueError
    return record
