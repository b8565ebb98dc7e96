"""The command line, as a person meets it: in a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
COMMAND = [sys.executable, "-c", "from postlin.workbench.cli import main; main()"]


def postlin(*arguments, cwd=None):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table that is none of ours: two classes with odd names."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["width", "height (mm)"])
    frame.insert(
        1, "species", np.where(frame["width"] + 0.3 * rng.normal(size=60) > 0, "Älpler", "plain, one")
    )
    path = tmp_path_factory.mktemp("data") / "mine.csv"
    frame.to_csv(path, index=False)
    return path


def test_datasets_lists_all_six_with_their_assumptions():
    out = postlin("datasets")
    assert out.returncode == 0
    for name in ("breast_cancer", "crab", "glass", "housing", "ionosphere", "thyroid"):
        assert name in out.stdout
    assert "assumption" in out.stdout
    assert "segregation" in out.stdout


def test_evaluate_fit_and_predict_on_a_table_of_ones_own(table, tmp_path):
    out = postlin(
        "evaluate",
        table,
        "--target",
        "species",
        "--methods",
        "PPL,L",
        "--folds",
        3,
        "--out",
        tmp_path / "out",
    )
    assert out.returncode == 0, out.stderr
    assert "PPL" in out.stdout
    assert "±" in out.stdout
    records = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {r["method"] for r in records} == {"PPL", "L"}
    assert all(r["error"] < 0.4 and r["error_se"] is not None for r in records)
    assert len(pd.read_csv(tmp_path / "out" / "results.csv")) == 2
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()

    model = tmp_path / "m.postlin"
    out = postlin("fit", table, "--target", "species", "--model", model)
    assert out.returncode == 0, out.stderr
    predictions = tmp_path / "p.csv"
    out = postlin("predict", table, "--model", model, "--out", predictions)
    assert out.returncode == 0, out.stderr
    frame = pd.read_csv(predictions)
    assert list(frame.columns) == ["label", "p(plain, one)", "p(Älpler)"]
    truth = pd.read_csv(table)["species"]
    assert (frame["label"] == truth).mean() > 0.8
    np.testing.assert_allclose(frame["p(plain, one)"] + frame["p(Älpler)"], 1, atol=1e-6)  # six digits
    again = postlin("predict", table, "--model", model)
    assert again.stdout == predictions.read_text()


def test_saved_models_predict_what_the_estimator_does(table, tmp_path):
    from postlin import load
    from postlin.workbench.cli.tables import read_data

    postlin(
        "fit",
        table,
        "--target",
        "species",
        "--model",
        tmp_path / "m",
        "--likelihood",
        "noisy_threshold",
    )
    source = read_data(str(table), "species")
    model = load(tmp_path / "m")
    from sklearn.preprocessing import StandardScaler

    from postlin.workbench.evaluation.methods import make_classifier

    X = StandardScaler().fit_transform(source.X)
    direct = make_classifier("PPL", "noisy_threshold").fit(X, source.codes)
    np.testing.assert_allclose(model.predict_proba(source.X), direct.predict_proba(X), atol=1e-7)


def test_parquet_is_read_too(table, tmp_path):
    pd.read_csv(table).to_parquet(tmp_path / "mine.parquet")
    out = postlin(
        "evaluate", tmp_path / "mine.parquet", "--target", "species", "--methods", "L", "--folds", 2
    )
    assert out.returncode == 0, out.stderr


BAD_TABLES = {
    "empty.csv": ("", [], "is empty"),
    "header.csv": ("a,b\n", [], "has a header but no rows"),
    "text.csv": (
        "a,y\n" + "".join(f"{k},{k % 2}\n" for k in range(20)) + "many,1\n",
        [],
        r"column 'a' holds numbers and 1 other value \('many'\): correct these",
    ),
    "dates.csv": ("a,y\n" + "1/2/2020,0\n3/4/2020,1\n" * 10, [], "day and month cannot be told apart"),
    "target.csv": (
        "a,b\n1,0\n2,1\n",
        ["--target", "c"],
        "there is no column 'c'; the columns are a, b",
    ),
    "own.csv": (
        "a,y\n1,x\n2,y\n3,z\n",
        [],
        r"'y' has 3 different values in 3 rows \(the first is 'x'\), which do not look like classes",
    ),
    "one.csv": ("a,y\n1,x\n2,x\n", [], r"two classes or more, it has 1 \('x'\)"),
    "nolabel.csv": ("a,y\n1,x\n2,\n3,y\n", [], "target column 'y' has 1 missing values"),
    "alone.csv": ("y\n1\n2\n", [], "no column besides the target"),
    "few.csv": ("a,y\n1,x\n2,y\n3,x\n4,x\n5,y\n", [], "class 'y' has 2 rows, fewer than the 10 folds"),
    "infinite.csv": ("a,y\n" + "1,x\ninf,y\n" * 10, [], "'a' is infinite in data row 2"),
    "binary.csv": ("\x00\x01\x02", [], "."),
}


@pytest.mark.parametrize("name", BAD_TABLES)
@pytest.mark.parametrize("command", ["evaluate", "fit"])
def test_bad_tables_get_one_sentence_and_nothing_is_written(name, command, tmp_path):
    text, options, message = BAD_TABLES[name]
    if (name, command) == ("few.csv", "fit"):
        return  # enough to fit
    path = tmp_path / name
    path.write_text(text)
    where = ["--out", tmp_path / "out"] if command == "evaluate" else ["--model", tmp_path / "out"]
    out = postlin(command, path, *options, *where)
    assert out.returncode == 2
    assert out.stderr.startswith("postlin: ")
    assert len(out.stderr.strip().splitlines()) == 1
    import re

    assert re.search(message, out.stderr)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "nowhere.csv"), "there is no file 'nowhere.csv'"),
        (("evaluate", "."), "is a folder"),
        (("evaluate", "crab", "--methods", "XYZ"), "SEP, PCL, SCL, majority, logistic, boosting, got"),
        (("reproduce", "table", "--methods", "PCL"), "some of L, PEP, SEP, PPL, SPL, got 'PCL'"),
        (("evaluate", "crab", "--methods", "L", "--likelihoods", "noisy_threshold"), "use PL or EP"),
        (("evaluate", "crab", "--target", "sex"), "--target is for files"),
        (("fit", "crab", "--method", "PPL,L"), "one --method"),
        (("fit", "crab", "--n-neighbors", "1"), "--n-neighbors must be 'auto' or from 2 to 200"),
        (("evaluate", "crab", "--n-neighbors", "many"), "must be 'auto' or from 2 to 180"),
        (("fit", "crab", "--n-neighbors", "9", "--method", "SPL"), "the methods are PL, EP, CL, L."),
        (("fit", "crab", "--method", "logistic"), "--methods must be some of PL, EP, CL, L, PPL"),
        (
            ("fit", "glass_types", "--n-neighbors", "9", "--multi-class", "joint"),
            "split into binary problems",
        ),
        (("fit", "crab", "--model", "no/such/folder/m"), "there is no folder"),
        (("reproduce", "table", "--sets", "iris"), "--sets must be some of"),
        (("predict", "nowhere.csv", "--model", "nowhere.model"), "there is no model file"),
        (("verify", "nowhere.model"), "there is no model file"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments, message, tmp_path):
    out = postlin(*arguments, cwd=tmp_path)
    assert out.returncode == 2
    assert message in out.stderr
    assert len(out.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_foreign_damaged_and_older_models_are_refused(table, tmp_path):
    good = tmp_path / "good"
    postlin("fit", table, "--target", "species", "--model", good)
    (tmp_path / "foreign").write_bytes(b"PK not a model")
    (tmp_path / "cut").write_bytes(good.read_bytes()[:-200])
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    messages = {
        "foreign": "not a postlin model",
        "cut": "is damaged",
        "other.npz": "not a postlin model",
    }
    for name, message in messages.items():
        out = postlin("predict", table, "--model", tmp_path / name)
        assert out.returncode == 2
        assert message in out.stderr
    out = postlin("predict", table, "--model", tmp_path / "good")
    assert out.returncode == 0


def test_predicting_needs_the_models_columns(table, tmp_path):
    postlin("fit", table, "--target", "species", "--model", tmp_path / "m")
    pd.DataFrame({"width": [1.0]}).to_csv(tmp_path / "narrow.csv", index=False)
    out = postlin("predict", tmp_path / "narrow.csv", "--model", tmp_path / "m")
    assert out.returncode == 2
    assert "lacks the model's columns 'height (mm)'" in out.stderr


def test_missing_extra_is_said_plainly(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no', name='typer')")
    search = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": search}
    out = subprocess.run(COMMAND, capture_output=True, text=True, env=environment)
    assert out.returncode == 2
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[\[>]", line)[0] for line in extras["cli"] + extras["files"]} - {"postlin"}
    assert f"pip install {' '.join(sorted(needed))}\n" in out.stderr


def test_version():
    import postlin as package

    assert postlin("--version").stdout.strip() == package.__version__


def test_reproduce_killed_halfway_ends_with_the_identical_table(tmp_path):
    some = ["--sets", "crab", "--methods", "L,PEP,PPL", "--likelihoods", "probit"]
    arguments = ["reproduce", "table", *some, "--jobs", 2, "--out"]
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments), str(tmp_path / "killed")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stored = tmp_path / "killed" / "folds.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (stored.exists() and stored.read_text().count("\n") > 8):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = stored.read_text().count("\n")
    assert 8 < done < 30
    resumed = postlin(*arguments, tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr
    whole = postlin(*arguments, tmp_path / "whole")
    assert resumed.stdout == whole.stdout
    assert "crab" in whole.stdout
    assert "PEP" in whole.stdout


def test_reproduce_synthetic(tmp_path):
    out = postlin("reproduce", "synthetic", "--out", tmp_path)
    assert out.returncode == 0, out.stderr
    assert "(2.0427, 0.1770)" in out.stdout
    assert "-117.9" in out.stdout
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "synthetic.svg").read_text().startswith("<svg")


def test_verify_compares_a_saved_model_with_the_exact_posterior(table, tmp_path):
    from postlin import load

    model, out = tmp_path / "m.postlin", tmp_path / "exact.csv"
    postlin("fit", table, "--target", "species", "--model", model)
    told = postlin("verify", model, table, "--particles", 200, "--out", out)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("The log evidence, ")
    assert "The probabilities at 60 rows are within" in told.stdout
    assert "run 3 of 3: log evidence" in told.stderr
    frame = pd.read_csv(out)
    names = "plain, one", "Älpler"
    assert list(frame.columns) == [f"{what}({name})" for what in ("p", "sd", "fit") for name in names]
    rows = pd.read_csv(table)[["width", "height (mm)"]]
    for name, predicted in zip(names, load(model).predict_proba(rows).T, strict=True):
        np.testing.assert_allclose(frame[f"fit({name})"], predicted, atol=1e-9)
        assert np.abs(frame[f"p({name})"] - predicted).max() < 0.1


def test_evaluate_shows_the_gaps_to_the_exact_posterior_where_it_can(table, tmp_path):
    folder, about = tmp_path / "out", ("--target", "species", "--methods", "PPL,L", "--folds", 2)
    told = postlin("evaluate", table, *about, "--verify", "--out", folder)
    assert told.returncode == 0, told.stderr
    assert "|Δp|" in told.stdout
    pl, laplace = json.loads((folder / "results.json").read_text())
    assert abs(pl["evidence_gap"]) < 1.0
    assert 0.0 < pl["probability_gap"] < 0.05
    assert "evidence_gap" not in laplace
    assert "by Monte Carlo" in (folder / "report.html").read_text()


def test_neighbours_from_the_command_line(table, tmp_path):
    about = table, "--target", "species", "--n-neighbors", "12"
    model = tmp_path / "model.postlin"
    out = postlin("fit", *about, "--model", model)
    assert out.returncode == 0, out.stderr
    assert "leave-one-out" in out.stderr
    assert "warning" not in out.stderr
    out = postlin("predict", table, "--model", model)
    assert len(out.stdout.splitlines()) == 61
    out = postlin("evaluate", *about, "--folds", 2, "--out", tmp_path / "out")
    assert out.returncode == 0, out.stderr
    assert "leave-one-out" in (tmp_path / "out" / "report.html").read_text()


def test_ctrl_c_while_the_packages_load_is_one_sentence():
    code = """
import sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "postlin.workbench.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from postlin.workbench.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "postlin: interrupted; there is nothing to keep.\n"
