"""One measurement in a process of its own: a job as JSON on standard input, figures on output.

What a library prints goes to standard error, so that the answer stands alone.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import warnings

import measures
import numpy as np


def main() -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    job = json.load(sys.stdin)
    peer = importlib.import_module(f"peers.{job['module']}").PEER(**job["options"])
    data = dict(np.load(job["data"]))
    figures = measures.KINDS[job["kind"]](peer, data, job)
    figures["versions"] = {name: importlib.metadata.version(name) for name in peer.packages}
    json.dump(figures, answer)


if __name__ == "__main__":
    main()
