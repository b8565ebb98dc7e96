"""Writing files so that they appear whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call ``write`` with a temporary file beside ``path``, and then give that file its name.

    The content is on disk before the file is renamed. Where anything fails, an older file at ``path``
    stays as it was and the temporary file is removed.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
