"""The package as a whole: what it exports, what it imports, what its examples print."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import postlin

ROOT = Path(__file__).parent.parent


def test_every_public_name_exists_and_is_documented():
    for name in postlin.__all__:
        assert getattr(postlin, name).__doc__


def modules_after(statement):
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_import_brings_only_numpy_scipy_and_scikit_learn():
    ours = modules_after("import postlin")
    theirs = modules_after("import sklearn.gaussian_process")
    foreign = {name.partition(".")[0] for name in ours - theirs} - set(sys.stdlib_module_names)
    assert foreign <= {"postlin", "numpy", "scipy", "sklearn", "threadpoolctl"}
    # which bring forty modules of linear models and support vector machines
    assert not {"sklearn.compose", "sklearn.model_selection"} & (ours - theirs)


def test_notation_names_what_the_code_has():
    text = (ROOT / "docs" / "notation.md").read_text()
    names = set(re.findall(r"`postlin\.([a-z_.]+)`", text))
    assert names
    for name in names:
        assert pkgutil.resolve_name(f"postlin.{name}")


@pytest.mark.parametrize("page", ["README.md", "docs/notation.md"])
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they may write files
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
