"""The rooms: docs/architecture.md tells the truth, and a fit imports only the rooms that it enters."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import postlin

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "postlin"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}


def test_every_file_that_the_page_names_exists():
    links = re.findall(r"\]\((\.\./[^)]+)\)", PAGE)
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+(?:\.py)?)`", PAGE)
    assert len(links) > 20
    assert named
    missing = [link for link in links if not (ROOT / "docs" / link).exists()]
    places = (SOURCE, ROOT)
    missing += [n for n in named if not any((place / n).exists() for place in places)]
    assert not missing


def test_the_page_names_every_room_and_the_picture_too():
    table = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert table | {"datasets"} == ROOMS | {"datasets"}
    picture = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert all(f">{room}<" in picture for room in table)


def test_every_room_says_what_it_is():
    packages = list(SOURCE.rglob("__init__.py"))
    silent = [p for p in packages if not re.match(r'"""\S.{20}', p.read_text(encoding="utf-8"))]
    assert not silent


def test_few_files_stand_beside_the_rooms():
    assert len(list(SOURCE.glob("*.py"))) <= 6


def _modules_after(code: str) -> list[str]:
    code = f"import sys, numpy as np, postlin\n{code}\nprint(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [name for name in out.stdout.split() if name.startswith("postlin.")]


ROWS = "X = np.random.default_rng(0).normal(size=(20, 2)); "
WORK = {
    "infer": "postlin.infer(np.eye(6), np.ones(6)).evidence_gradient()",
    "exact": "m = postlin.GPClassifier().fit(X, X[:, 0] > 0); m.predict_proba(X); m.summary()",
    "joint": "postlin.GPClassifier(multi_class='joint', optimizer=None).fit(X, np.arange(20) % 3)",
}


@pytest.mark.parametrize("work", WORK)
def test_exact_and_joint_fits_import_nothing_of_the_sparse_and_streaming_rooms(work):
    modules = _modules_after(ROWS + WORK[work])
    assert "postlin.inference.exact.problem" in modules
    assert not [name for name in modules if "sparse" in name or "streaming" in name]


def test_dir_shows_public_names_only():
    assert dir(postlin) == sorted(postlin.__all__)
    assert postlin.stream.__module__ == "postlin.streaming.sources"
    with pytest.raises(AttributeError, match="no attribute 'fit'"):
        postlin.fit  # noqa: B018
