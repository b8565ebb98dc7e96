"""Print the oldest versions of the required packages, as ``numpy==1.26.0``, for pip.

python tests/oldest.py pyproject.toml
"""

import re
import sys
import tomllib
from pathlib import Path


def oldest(project: Path) -> list[str]:
    """Each requirement of the project, pinned to its lower bound."""
    requirements = tomllib.loads(project.read_text())["project"]["dependencies"]
    found = [re.fullmatch(r"([\w-]+)>=(\d+\.\d+)(\.\d+)?", line) for line in requirements]
    if not all(found):
        raise SystemExit(f"every dependency in {project} needs a lower bound and nothing else.")
    return [f"{match[1]}=={match[2]}{match[3] or '.0'}" for match in found]


if __name__ == "__main__":
    print(*oldest(Path(sys.argv[1])))
