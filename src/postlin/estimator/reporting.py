"""Lines about the progress of a fit, for ``verbose=1``."""

from collections.abc import Iterator
from contextlib import contextmanager

from postlin.learning.progress import Heartbeat, Progress, watched, watching
from postlin.learning.search import logger
from postlin.learning.training import shown_log


@contextmanager
def reported(verbose: int) -> Iterator[None]:
    """Log every few seconds how far the fits within are, unless somebody else watches them."""
    if not verbose or watched().is_shown:
        yield
        return
    progress = Progress()

    def tell() -> None:
        logger.info("%s", progress.status())

    with shown_log(verbose), watching(progress), Heartbeat(tell):
        yield
