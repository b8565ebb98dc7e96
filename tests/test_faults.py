"""What goes wrong around a run: full disks, bad paths, odd tables, missing packages, lost servers."""

import errno
import json
import os
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import postlin
from postlin._files import sealed, write_atomically
from postlin.workbench.cli.app import app
from postlin.workbench.evaluation import folds
from postlin.workbench.evaluation.folds import FoldResult, Store, Task

QUICK = ("--methods", "L", "--folds", "2")


def command(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


def refused(result, *words):
    """Check that a command ended with one sentence, which holds the words."""
    assert result.exit_code == 2
    said = result.stderr.strip()  # a progress bar leaves an empty line
    assert said.startswith("postlin: ")
    assert len(said.splitlines()) == 1
    assert len(result.stderr) < 2000
    for word in words:
        assert word in result.stderr
    return True


@pytest.fixture(scope="module")
def frame():
    X = np.random.default_rng(0).normal(size=(40, 2))
    return pd.DataFrame(X, columns=["a", "b"]).assign(y=np.where(X[:, 0] > 0, "yes", "no"))


@pytest.fixture
def table(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


# stored folds

TASK = Task("data", "L", "probit")
RESULT = FoldResult([0, 1], [0.25, 0.75], -1.5, 0.1, True, [0.0], [-1.5])


def test_a_store_keeps_what_it_was_given_and_no_line_with_a_flipped_bit(tmp_path):
    path = tmp_path / "folds.jsonl"
    store = Store(path)
    for key in ("one", "two", "three"):
        store.add(key, TASK, RESULT)
    content = path.read_bytes()
    assert all(json.loads(line)["result"]["p"] == [0.25, 0.75] for line in content.splitlines())
    second = content.index(b"\n") + 1
    for where in range(second, content.index(b"\n", second)):
        for bit in (1, 4):
            flipped = bytes([content[where] ^ 1 << bit])
            path.write_bytes(content[:where] + flipped + content[where + 1 :])
            again = Store(path)
            if flipped == b"\n":
                continue
            assert (again.get("one"), again.get("two"), again.get("three")) == (RESULT, None, RESULT)
            assert "is damaged in line 2, or" in again.problems[0]


def test_a_line_that_a_kill_has_cut_short_is_written_anew(tmp_path):
    path = tmp_path / "folds.jsonl"
    Store(path).add("one", TASK, RESULT)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    store = Store(path)
    store.add("two", TASK, RESULT)
    assert path.read_bytes().startswith(whole)
    assert not Store(path).problems
    assert Store(path).get("two") == RESULT


@pytest.mark.parametrize(
    "change",
    [{"p": [0.5]}, {"p": [0.5, None]}, {"p": [0.5, float("nan")]}, {"y": ["a", "b"]}, {"seconds": "1"}],
)
def test_a_line_that_holds_no_result_is_damaged(tmp_path, change):
    record = {"fingerprint": "one", "task": {}, "result": vars(RESULT) | change}
    (tmp_path / "f").write_bytes(sealed(record))
    store = Store(tmp_path / "f")
    assert store.get("one") is None
    assert store.problems


def test_results_are_not_lost_because_a_fold_cannot_be_stored(table, tmp_path, monkeypatch):
    sync = os.fsync
    left = [9]  # enough to try the files, and for one fold

    def full(file):
        left[0] -= 1
        if left[0] <= 0 <= left[0] + 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return sync(file)

    monkeypatch.setattr(os, "fsync", full)
    result = command("evaluate", table, "--methods", "L,PPL", "--folds", 2, "--out", tmp_path / "out")
    assert "PPL" in result.stdout
    assert result.stderr.count("No space left on device") == 1


def test_a_damaged_fold_is_named_and_computed_again(table, tmp_path):
    out = tmp_path / "out"
    command("evaluate", table, *QUICK, "--out", out)
    (before,) = json.loads((out / "results.json").read_text())
    path = out / "folds.jsonl"
    content = bytearray(path.read_bytes())
    content[content.index(b'"p": [') + 9] ^= 1
    path.write_bytes(content)
    again = command("evaluate", table, *QUICK, "--out", out)
    assert "folds.jsonl' is damaged in line 1, or" in again.stderr
    (after,) = json.loads((out / "results.json").read_text())
    assert all(after[name] == before[name] for name in before if not name.startswith("seconds"))


# where results go


def bad_folders(folder):
    (folder / "file").write_text("precious")
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "folds.jsonl")
    return {
        folder / "file": "cannot be written",
        folder / "file" / "out": "Not a directory",
        "/proc/out": "cannot be written: No such file",
        "/dev/full": "cannot be written",
        folder / ("n" * 300): "File name too long",
        folder / "pipe": "no ordinary file",
    }


@pytest.mark.parametrize("what", ["evaluate", "reproduce"])
def test_out_is_tried_before_the_work(table, tmp_path, monkeypatch, what):
    monkeypatch.setattr("postlin.workbench.cli.experiments.run", None)
    for out, reason in bad_folders(tmp_path).items():
        start = ("evaluate", table, *QUICK) if what == "evaluate" else ("reproduce", "table")
        assert refused(command(*start, "--out", out), "cannot be written: ", reason)
    assert (tmp_path / "file").read_text() == "precious"


def test_the_files_of_models_and_predictions_are_tried_before_the_work(table, tmp_path, monkeypatch):
    model = tmp_path / "m"
    assert command("fit", table, "--model", model, "--method", "L").exit_code == 0
    monkeypatch.setattr(postlin.GPClassifier, "fit", None)
    monkeypatch.setattr(postlin.GPClassifier, "predict_proba", None)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/full", tmp_path / ("n" * 300)):
        assert refused(command("fit", table, "--model", path), "cannot be written: ")
        assert refused(
            command("predict", table, "--model", model, "--out", path), "cannot be written: "
        )


def test_a_model_that_cannot_be_saved_where_it_should_is_saved_elsewhere(table, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    save = postlin.save

    def full(model, path):
        if path == tmp_path / "m":
            raise OSError(errno.ENOSPC, "No space left on device")
        save(model, path)

    monkeypatch.setattr(postlin, "save", full)
    result = command("fit", table, "--model", tmp_path / "m", "--method", "L")
    (saved,) = (tmp_path / "elsewhere").glob("*/model.postlin")
    assert "m' cannot be written: No space left on device." in result.stderr
    assert f"saved {saved}" in result.stderr
    assert postlin.load(saved).score(pd.read_csv(table)[["a", "b"]], pd.read_csv(table)["y"]) > 0.8


def test_temporary_files_of_processes_that_are_no_more_are_removed(tmp_path):
    (path := tmp_path / "a[1]").write_text("old")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    alive = tmp_path / f"a[1].{os.getppid()}.part"
    others = [alive, tmp_path / f"b.{child}.part", tmp_path / "a[1].my.part"]
    for other in (tmp_path / f"a[1].{child}.part", *others):
        other.write_text("")
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_text() == "new"
    assert set(tmp_path.iterdir()) == {path, *others}


def test_a_long_name_can_be_written(tmp_path):
    path = tmp_path / ("ä" * 127)
    write_atomically(path, lambda file: file.write(b"new"))
    assert list(tmp_path.iterdir()) == [path]


# tables


def test_square_brackets_in_paths(frame, tmp_path):
    folder = tmp_path / "[bold]x[red] [0-9]"
    folder.mkdir()
    for name in ("t[1].csv", "t[1].parquet"):
        source = folder / name
        frame.to_parquet(source) if name.endswith("parquet") else frame.to_csv(source, index=False)
        result = command("evaluate", source, *QUICK, "--out", folder / "out[red]")
        assert result.exit_code == 0, result.stderr
        assert "t[1]: 2-fold" in result.stdout
        assert f"written: {folder / 'out[red]' / 'report.html'}, results" in result.stderr
    rows = postlin.parquet(folder, target="y")
    assert (
        postlin.GPClassifier(inducing=3, optimizer=None).fit(rows).score(frame[["a", "b"]], frame["y"])
    )
    command("fit", folder / "t[1].csv", "--model", folder / "m[1]")
    result = command(
        "predict", folder / "t[1].csv", "--model", folder / "m[1]", "--out", folder / "p[2]"
    )
    assert f"written: {folder / 'p[2]'} (40 rows)" in result.stderr
    assert len(pd.read_csv(folder / "p[2]")) == 40


@pytest.mark.parametrize("text", [b"x" * 2**25, b"a,y\n1,2\n" + b"," * 2**25, b'"' + b"x\t" * 2**24])
def test_lines_without_end_are_refused_at_once(tmp_path, text):
    (tmp_path / "t.csv").write_bytes(text)
    began = time.monotonic()
    assert refused(command("fit", tmp_path / "t.csv"), "is longer than 16 MiB: this is no table")
    assert time.monotonic() - began < 5


def test_long_values_are_shortened_in_messages(tmp_path):
    rows = "".join(f"{k},{k % 2}\n" for k in range(20))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}{'v' * 10**6},1\n")
    assert refused(command("fit", tmp_path / "t.csv"), "and 1 other value ('vvvv", "…")
    (tmp_path / "t.csv").write_text(f"a,{'n' * 10**6}\n1,1\n2,0\n")
    assert refused(command("fit", tmp_path / "t.csv", "--target", "z"), "the columns are a, nnn", "…")


def test_pipes_are_not_waited_for(table, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe.csv")
    assert refused(
        command("evaluate", pipe), "is a pipe or a device: write the table to an ordinary file"
    )
    assert refused(command("predict", table, "--model", pipe), "it is no ordinary file")
    with pytest.raises(ValueError, match="is no ordinary file"):
        postlin.parquet(pipe, target="y")


FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "'quoted",
    "-1",
    "+2.5e3",
    "plain",
]


def test_labels_are_written_so_that_no_spreadsheet_executes_them(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(len(FORMULAS) * 4, 2))
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=FORMULAS * 4)
    frame.to_csv(tmp_path / "=t.csv", index=False)
    out = tmp_path / "p.csv"
    model = tmp_path / "m"
    kernel = postlin.GPClassifier(optimizer=None)
    postlin.save(kernel.fit(frame[["a", "b"]], frame["y"]), model)
    assert command("predict", tmp_path / "=t.csv", "--model", model, "--out", out).exit_code == 0
    found = pd.read_csv(out, dtype=str)
    assert not any(str(value)[0] in "=+@\t\r" for value in found["label"] if value != "+2.5e3")
    assert list(found.columns[1:]) == [f"p({label})" for label in sorted(FORMULAS)]
    labels = [label.removeprefix("'") for label in found["label"]]
    assert labels == list(kernel.predict(frame[["a", "b"]]))
    assert {"-1", "'=1+1"} & set(found["label"])


# packages and schedulers


def test_a_scheduler_that_does_not_answer_gets_a_sentence(table, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(folds, "_PATIENCE", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        began = time.monotonic()
        result = command("evaluate", table, *QUICK, "--dask", address)
        assert refused(result, f"there is no Dask scheduler at {address!r} that answers within")
        assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("package", "words"),
    [("skops", "pip install skops"), ("distributed", "pip install 'dask[array,dataframe]'")],
)
def test_missing_packages_get_a_sentence_before_the_work(table, tmp_path, monkeypatch, package, words):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(postlin.GPClassifier, "fit", None)
    if package == "skops":
        assert refused(command("fit", table, "--model", tmp_path / "m"), words)
        assert not (tmp_path / "m").exists()
    else:
        assert refused(command("evaluate", table, *QUICK, "--dask", "tcp://127.0.0.1:9"), words)
