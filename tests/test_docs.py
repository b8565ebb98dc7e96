"""The documentation: its code runs and prints what it says, nothing public is missing, it builds."""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

import postlin

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"_build", "_templates", "auto_gallery", "generated", "gallery"}


def _sources(suffix: str) -> list[Path]:
    found = DOCS.rglob(f"*.{suffix}")
    return sorted(path for path in found if not GENERATED & set(path.relative_to(DOCS).parts))


PAGES = [ROOT / "README.md", *_sources("md")]


def _blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks of a page, with the line at which each begins."""
    matches = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start()) + 2, match[1]) for match in matches]


def _promised(lines: list[str], statement: ast.stmt) -> list[str]:
    """What the lines ``#> ...`` below a statement say that it prints."""
    below = lines[statement.end_lineno :]
    return [line[3:] for line in takewhile(lambda line: line.startswith("#>"), below)]


def _run(page: Path, first: int, code: str, names: dict) -> None:
    """Statement by statement, comparing what is printed with what is promised."""
    lines = code.splitlines()
    tree = ast.increment_lineno(ast.parse(code), 0)
    for statement in tree.body:
        promised = _promised(lines, statement)
        at = first + statement.lineno - 1
        ast.increment_lineno(statement, first - 1)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module([statement], []), str(page), "exec"), names)
        if promised:
            assert printed.getvalue().splitlines() == promised, f"{page}, line {at}"


WITH_CODE = [page for page in PAGES if _blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    blocks = _blocks(page.read_text(encoding="utf-8"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for first, code in blocks:
        _run(page, first, code, names)


def test_a_wrong_promise_is_found():
    with pytest.raises(AssertionError):
        _run(ROOT / "README.md", 1, "print(1)\n#> 2\n", {})


COMMANDED = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "benchmarks").glob("*.md"))]


def _commands(text: str) -> list[list[str]]:
    """The words of the commands that a page shows, in blocks and in sentences."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines += [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", code)]
    words = [
        shlex.split(line, comments=True) for line in lines if re.match(r"(postlin|make|python) ", line)
    ]
    return [line for line in words if len(line) > 1]


def _unknown(words: list[str]) -> set[str]:
    """What a command names that does not exist: a target, a script, a subcommand or its options."""
    program, name, *arguments = words
    options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return {name} - {*targets}
    if program == "python":
        if name == "-m":
            return set()
        script = ROOT / name
        text = script.read_text(encoding="utf-8") if script.exists() else ""
        missing = set() if script.exists() else {name}
        return missing | {option for option in options if f'"{option}"' not in text}
    typer = pytest.importorskip("typer")
    app = pytest.importorskip("postlin.workbench.cli.app", exc_type=ImportError).app
    commands = typer.main.get_command(app).commands
    if name not in commands:
        return {name} - {"COMMAND"}
    known = {option for parameter in commands[name].params for option in parameter.opts} | {"--help"}
    return options - known


@pytest.mark.parametrize("page", COMMANDED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_exists(page):
    commands = _commands(page.read_text(encoding="utf-8"))
    assert {" ".join(words): missing for words in commands if (missing := _unknown(words))} == {}


def test_a_wrong_command_is_found():
    page = "`make nothing`\n```sh\npostlin fit a.csv --no-such  # a comment\npython no/such.py\n```\n"
    found = [_unknown(words) for words in _commands(page)]
    assert found == [{"--no-such"}, {"no/such.py"}, {"nothing"}]


@pytest.mark.parametrize("page", ["own_likelihood", "own_rule"])
def test_own_parts_take_less_than_forty_lines(page):
    (_, code), *_ = _blocks((DOCS / "guide" / f"{page}.md").read_text(encoding="utf-8"))
    assert "class " in code
    assert len(code.splitlines()) < 40


def test_every_public_name_is_in_the_reference():
    reference = (DOCS / "api.rst").read_text(encoding="utf-8")
    names = [f"postlin.{name}" for name in postlin.__all__]
    names += [f"postlin.likelihoods.{name}" for name in postlin.likelihoods.__all__]
    plotting = pytest.importorskip("postlin.plotting", exc_type=ImportError)
    names += [f"postlin.plotting.{name}" for name in plotting.__all__]
    missing = [n for n in names if not re.search(rf"(?<![\w.]){re.escape(n)}(?!\w)", reference)]
    assert not missing


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in [*_sources("md"), *_sources("rst")]:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            entries = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / entry).relative_to(DOCS).as_posix() for entry in entries}
    pages = {
        p.relative_to(DOCS).with_suffix("").as_posix() for p in [*_sources("md"), *_sources("rst")]
    }
    assert pages - listed == {"index"}
    assert listed - pages == {"auto_gallery/index"}


def _messages() -> list[str]:
    """What the library says when it raises or warns; ``…`` stands for what is filled in."""
    inner = {"cli", "evaluation", "paper", "report"}
    found = []
    for path in (ROOT / "src" / "postlin").rglob("*.py"):
        if inner & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.search(r"(Error|Warning)$", ast.unparse(node.func)):
                found += [_text(argument) for argument in node.args]
    return [message for message in found if len(re.findall("[a-z]+", message)) > 2]


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return "…"


def test_every_message_is_explained():
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    explained = " ".join(re.sub(r"[*`…:;,.()]+", " ", text).split())

    def parts(message: str) -> list[str]:
        """Runs of three words, or all where there are two."""
        runs = [re.sub(r"[*`:;,.()]+", " ", run).split() for run in message.split("…")]
        return [
            " ".join(run[k : k + 3]) for run in runs for k in range(max(len(run) > 1, len(run) - 2))
        ]

    silent = [m for m in _messages() if not any(part in explained for part in parts(m))]
    assert not silent


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", tmp_path / "doctrees", DOCS, tmp_path / "html"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for page in ("index", "api", "guide/rules", "auto_gallery/index", "generated/postlin.GPClassifier"):
        assert (tmp_path / "html" / f"{page}.html").exists()
