"""What a release consists of: its version everywhere, its metadata, and distributions that install."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest
from oldest import oldest

import postlin

ROOT = Path(__file__).parent.parent
RELEASE = postlin.__version__.partition(".dev")[0]
#: What the wheel may have at most, in KiB.
WHEEL = 560


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CITATION.cff", r"^version: (.+)$"),
        ("conda/meta.yaml", r'set version = "(.+)"'),
        ("CHANGELOG.md", r"^## \[?([\d.]+)"),
    ],
)
def test_files_name_the_version(file, pattern):
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == RELEASE


def test_files_agree_on_the_date():
    changed = re.search(r"^## \[.+\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^date-released: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert changed is not None
    assert cited is not None
    assert changed[1] == cited[1]


def test_links_of_the_package_page_are_absolute():
    text = metadata("postlin")["Description"] or metadata("postlin").get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_links_of_the_readme_lead_to_files():
    links = re.findall(r"\]\(((?!https?:|#)[^)\s#]+)[^)]*\)", (ROOT / "README.md").read_text())
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_conda_requires_what_the_package_requires():
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    recipe = (ROOT / "conda" / "meta.yaml").read_text().partition("  run:")[2].partition("test:")[0]
    listed = {line.replace(" ", "") for line in re.findall(r"- (.+)", recipe)}
    assert listed == {*requirements, "python>=3.11"}


def test_the_oldest_versions_are_the_lower_bounds():
    assert oldest(ROOT / "pyproject.toml")[0] == "numpy==1.26.0"


@pytest.mark.slow
def test_distributions_build_and_install(tmp_path):
    def run(*command):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "build", "--outdir", str(tmp_path))
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, tmp_path.iterdir()))
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < WHEEL * 1024
    out = run(sys.executable, str(ROOT / "tests" / "installed.py"), str(tmp_path))
    assert "numpy 1.26.0" in out
    assert len(out.splitlines()) == 2
