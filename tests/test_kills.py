"""A hundred kills: what is run again ends as if nothing had happened, and leaves nothing behind."""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import postlin
from postlin.learning import checkpoint
from postlin.workbench.cli.app import app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here"),
]


def command(*arguments):
    """Run the command line."""
    app([*map(str, arguments)], standalone_mode=False)


def sparse_fit(path, predictions):
    """Fit with a checkpoint that is written after every pass."""
    checkpoint.EVERY = 0.0
    warnings.simplefilter("error", postlin.FileWarning)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.4 * rng.normal(size=2000) > 0
    model = postlin.GPClassifier(inducing=40, random_state=0, checkpoint=path).fit(X, y)
    np.save(predictions, model.predict_proba(X[:50]))


def saves(path, times):
    """Save a model so many times."""
    X = np.random.default_rng(0).normal(size=(300, 400))
    model = postlin.GPClassifier(optimizer=None).fit(X, X[:, 0] > 0)
    for _ in range(times):
        postlin.save(model, path)


def _quietly(temporary, work, arguments):
    os.environ["JOBLIB_TEMP_FOLDER"] = tempfile.tempdir = str(temporary)
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        work(*arguments)


#: Makes processes that have imported what they need, so that kills hit their work.
processes = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
processes.set_forkserver_preload(
    [
        "postlin.workbench.cli.app",
        "postlin.estimator.sparse_fitting",
        "matplotlib.pyplot",
        "skops.io",
        "pytest",
    ]
)


def run(folder, work, *arguments, kill_after=None):
    """Do some work in another process, which is killed after some seconds; return its exit code."""
    (folder / "tmp").mkdir(exist_ok=True)
    process = processes.Process(target=_quietly, args=(folder / "tmp", work, arguments))
    process.start()
    process.join(kill_after)
    if process.is_alive():
        process.kill()
    process.join()
    return process.exitcode


def timed(folder, work, *arguments):
    """The seconds that some work takes without a kill."""
    run(folder, time.sleep, 0)  # which starts the process that makes the others
    began = time.monotonic()
    assert run(folder, work, *arguments) == 0
    return time.monotonic() - began


def killed(folder, kills, seconds, whole, work, *arguments):
    """Kill the work at random times until there were so many kills; then let it end.

    After each run that ends by itself ``whole`` checks its results and removes what it has stored.
    """
    rng, done = np.random.default_rng(kills), 0
    while done < kills:
        code = run(folder, work, *arguments, kill_after=float(rng.uniform(0.02, 1.0)) * seconds)
        assert code in (0, -signal.SIGKILL)
        done += code != 0
        if code == 0:
            whole()
    assert run(folder, work, *arguments) == 0


def left_behind(folder):
    """Temporary files and folders."""
    return [path for path in folder.rglob("*") if path.suffix == ".part" or path.parent.name == "tmp"]


def scores(out):
    """All results but the seconds."""
    found = json.loads((out / "results.json").read_text())
    return [{k: v for k, v in each.items() if not k.startswith("seconds")} for each in found]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 2)), columns=["a", "b"])
    frame["y"] = np.where(frame["a"] + 0.5 * rng.normal(size=100) > 0, "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


@pytest.mark.parametrize(("what", "kills"), [("evaluate", 25), ("reproduce", 15)])
def test_experiments(tmp_path, table, what, kills):
    given = ["evaluate", table, "--methods", "L,PPL"]
    if what == "reproduce":
        given = ["reproduce", "table", "--sets", "crab", "--methods", "L", "--likelihoods", "probit"]
    expected, out = tmp_path / "whole", tmp_path / "killed"
    seconds = timed(tmp_path, command, *given, "--out", expected)

    def whole():
        assert scores(out) == scores(expected)
        (out / "folds.jsonl").unlink()

    killed(tmp_path, kills, seconds, whole, command, *given, "--out", out)
    assert scores(out) == scores(expected)
    assert not left_behind(tmp_path)
    assert {path.name for path in out.iterdir()} == {path.name for path in expected.iterdir()}


def test_sparse_fits(tmp_path):
    path, found = tmp_path / "fit", tmp_path / "p.npy"
    seconds = timed(tmp_path, sparse_fit, path, found)
    expected = np.load(found)
    path.unlink()

    def whole():
        np.testing.assert_allclose(np.load(found), expected, rtol=1e-9)
        path.unlink()

    killed(tmp_path, 30, seconds / 2, whole, sparse_fit, path, found)
    np.testing.assert_allclose(np.load(found), expected, rtol=1e-9)
    assert not left_behind(tmp_path)


def test_saves(tmp_path):
    path = tmp_path / "m"
    seconds = timed(tmp_path, saves, path, 20)
    X = np.random.default_rng(1).normal(size=(20, 400))
    expected = postlin.load(path).predict_proba(X)

    def whole():
        np.testing.assert_array_equal(postlin.load(path).predict_proba(X), expected)

    killed(tmp_path, 30, seconds, whole, saves, path, 20)
    whole()
    assert not left_behind(tmp_path)
