"""Install the wheel of a folder into empty environments, and use it there.

    python tests/installed.py dist

One environment has the oldest versions of NumPy, SciPy and scikit-learn that postlin supports, another
the newest. Every package comes as a wheel, so that no compiler is needed, and no extra is installed.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from oldest import oldest

PROJECT = Path(__file__).parent.parent / "pyproject.toml"

USE = """
import sys
from importlib.metadata import distributions, version
import numpy as np
import postlin
from postlin.datasets import load, whiten
crab = load("crab")
X, y = whiten(crab.X), crab.y
model = postlin.GPClassifier().fit(X[::2], y[::2])
assert model.converged_ and model.score(X[1::2], y[1::2]) > 0.95
assert postlin.infer(np.eye(2), [1, -1]).converged
extras = {"torch", "pandas", "matplotlib", "dask", "pyarrow"}
assert not extras & ({d.name.lower() for d in distributions()} | set(sys.modules))
print(*(f"{name} {version(name)}" for name in ("postlin", "numpy", "scipy", "scikit-learn")))
"""


def try_out(wheel: Path, pins: list[str]) -> str:
    """Install the wheel beside these versions in an environment of its own; return what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--only-binary=:all:", str(wheel), *pins], check=True)
        used = subprocess.run([python, "-c", USE], cwd=folder, capture_output=True, text=True)
    if used.returncode:
        raise SystemExit(f"with {pins or 'the newest versions'}: {used.stderr}")
    return used.stdout.strip()


def main() -> None:
    """Try both environments."""
    (wheel,) = Path(sys.argv[1]).glob("*.whl")
    for pins in (oldest(PROJECT), []):
        print(try_out(wheel.resolve(), pins), flush=True)


if __name__ == "__main__":
    main()
