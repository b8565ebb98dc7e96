"""Input that a person can mend: one sentence, exit code 2, nothing written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class BadInputError(Exception):
    """What was wrong, where, and what to do about it."""


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turn bad input into one line on standard error and exit code 2."""
    try:
        yield
    except (BadInputError, ValueError, MemoryError) as error:
        sys.stderr.write(f"postlin: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("postlin: interrupted; finished folds are kept where --out was given.\n")
        sys.exit(130)
