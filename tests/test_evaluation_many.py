"""Evaluation of more than two classes: folds, scores, the store, the command line and its report."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import (
    brier_score_loss,
    confusion_matrix,
    log_loss,
    precision_recall_fscore_support,
)
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from postlin import GPClassifier, datasets
from postlin.workbench.cli.app import app
from postlin.workbench.cli.inputs import Choice, built_in, choices
from postlin.workbench.cli.tables import read_data
from postlin.workbench.evaluation import scores
from postlin.workbench.evaluation.folds import Data, Store, Task, fingerprint, run, run_fold
from postlin.workbench.evaluation.methods import STRATEGIES
from postlin.workbench.evaluation.scores import Cell, class_scores, confusion, group
from postlin.workbench.report import sections
from postlin.workbench.report.page import Section


def postlin(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def frame():
    iris = load_iris(as_frame=True)
    few = iris.data.iloc[::4].copy()
    few.insert(0, "kind", iris.target_names[iris.target][::4])
    return few


@pytest.fixture(scope="module")
def table(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "iris.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def data(table):
    return read_data(str(table), "kind")


def task(**changes):
    fields = {
        "data": "iris",
        "method": "PPL",
        "likelihood": "probit",
        "protocol": "converged",
        "seed": 0,
        "fold": 0,
        "n_folds": 3,
        "small_variance": 0.01,
        "paper_folds": False,
        "multi_class": "one_vs_rest",
    }
    return Task(**(fields | changes))


# Scores


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, 80), rng.dirichlet(np.ones(4), 80)


def test_scores_are_the_textbooks(predictions):
    y, p = predictions
    assert scores.negative_log_density(y, p) == pytest.approx(log_loss(y, p))
    assert scores.brier(y, p) == pytest.approx(brier_score_loss(y, p, labels=range(4)))
    assert scores.error_rate(y, p) == np.mean(p.argmax(axis=1) != y)
    right, sure = scores.event(y, p)
    np.testing.assert_array_equal(right, p.argmax(axis=1) == y)
    np.testing.assert_array_equal(sure, p.max(axis=1))


def test_classes_are_scored_as_scikit_learn_does(predictions):
    y, p = predictions
    label = p.argmax(axis=1)
    np.testing.assert_array_equal(confusion(y, p), confusion_matrix(y, label))
    precision, recall, _, rows = precision_recall_fscore_support(y, label)
    for k, one in enumerate(class_scores(y, p)):
        assert one.rows == rows[k]
        assert (one.precision, one.recall) == pytest.approx((precision[k], recall[k]))
        assert one.nlpd == pytest.approx(-np.log(p[y == k, k]).mean())


def test_a_class_that_never_comes_and_is_never_predicted_has_no_scores():
    (_, _, third) = class_scores(np.array([0, 1]), np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1]]))
    assert third == (0, None, None, None)


# Folds and the store


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_fold_predicts_what_the_classifier_does(data, frame, strategy):
    one = task(multi_class=strategy, likelihood="softmax" if strategy == "joint" else "probit")
    found = run_fold(data, one)
    X, y = frame.drop(columns="kind").to_numpy(), frame["kind"].to_numpy()
    splits = StratifiedKFold(3, shuffle=True, random_state=0).split(X, data.codes)
    train, test = next(iter(splits))
    model = make_pipeline(StandardScaler(), GPClassifier(multi_class=strategy)).fit(X[train], y[train])
    np.testing.assert_allclose(found.p, model.predict_proba(X[test]), atol=1e-7)
    assert [data.classes[k] for k in found.y] == list(y[test])
    assert found.log_evidence == pytest.approx(model[-1].log_marginal_likelihood_value_)
    assert max(found.trace) == pytest.approx(found.log_evidence, abs=1e-4)
    assert found.converged


def test_laplace_is_joint_too(data):
    found = run_fold(data, task(method="L", likelihood="softmax", multi_class="joint"))
    np.testing.assert_allclose(np.sum(found.p, axis=1), 1)


def test_fingerprints_tell_treatments_and_labels_apart(data):
    keys = {fingerprint(data, task(multi_class=m)) for m in (None, *STRATEGIES)}
    assert len(keys) == 4
    other = Data("iris", data.X, np.roll(data.codes, 1), data.classes, data.feature_names)
    assert fingerprint(other, task()) not in keys


def test_results_of_many_classes_are_stored_and_read_as_they_were(tmp_path, data):
    tasks = [task(fold=k) for k in range(2)]
    seen = []
    first = run({"iris": data}, tasks[:1], Store(tmp_path / "f"))
    again = run({"iris": data}, tasks, Store(tmp_path / "f"), report=lambda done, *_: seen.append(done))
    assert seen == [1, 2]
    assert again[tasks[0]] == first[tasks[0]]
    assert list(group(again)) == [Cell("iris", "PPL", "probit", "one_vs_rest")]


def test_a_class_that_was_never_learned_is_refused_in_a_sentence():
    lonely = Data(
        "few", np.arange(7.0)[:, None], np.array([0, 0, 0, 1, 1, 1, 2]), ("a", "b", "c"), ("x",)
    )
    messages = []
    for fold in range(3):
        try:
            run_fold(lonely, task(fold=fold))
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) == 1
    assert re.search(
        r"fold \d of 3 leaves no row of class 'c' to learn from: leave that class out", messages[0]
    )


# What is asked for


def test_choices_for_two_classes_do_not_depend_on_the_treatment_of_many():
    for strategy in STRATEGIES:
        found = choices("PEP", None, strategy, 2)
        assert found == [Choice("PEP", "probit", None)]


def test_choices_for_many_classes():
    assert choices(None, None, "joint", 3) == [Choice("PL", "softmax", "joint")]
    assert choices(None, None, "one_vs_one,joint", 3) == [
        *(Choice(rule, "probit", "one_vs_one") for rule in ("PL", "EP", "CL")),
        Choice("PL", "softmax", "joint"),
    ]
    both = choices("PEP,PPL", "logit", "joint,one_vs_rest", 3)
    assert both == [
        Choice("PEP", "logit", "one_vs_rest"),
        Choice("PPL", "logit", "one_vs_rest"),
        Choice("PPL", "softmax", "joint"),
    ]
    assert len(choices(None, "probit,logit", "one_vs_one", 3)) == 6
    assert choices(None, None, "one_vs_rest", 2, "--device") == [Choice("PL", "probit", None)]
    assert choices("PCL", None, "one_vs_rest,joint", 2, "--inducing") == [Choice("PCL", "probit", None)]


# The command line


def test_evaluate_scores_what_a_loop_by_hand_does(table, data, tmp_path, monkeypatch):
    arguments = ("evaluate", table, "--target", "kind", "--methods", "PPL,PEP", "--folds", 3)
    arguments = (*arguments, "--multi-class", "one_vs_rest,joint", "--out", tmp_path)
    out = postlin(*arguments)
    assert out.exit_code == 0, out.stderr
    assert re.search(r"PPL \(joint\)", out.stdout)
    records = json.loads((tmp_path / "results.json").read_text())
    assert [(r["method"], r["likelihood"], r["multi_class"]) for r in records] == [
        ("PPL", "probit", "one_vs_rest"),
        ("PEP", "probit", "one_vs_rest"),
        ("PPL", "softmax", "joint"),
    ]
    errors, losses = [], []
    X = data.X.to_numpy()
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, data.codes):
        model = make_pipeline(StandardScaler(), GPClassifier()).fit(X[train], data.codes[train])
        p = model.predict_proba(X[test])
        errors.append(np.mean(p.argmax(axis=1) != data.codes[test]))
        losses.append(log_loss(data.codes[test], p, labels=[0, 1, 2]))
    assert records[0]["error"] == pytest.approx(np.mean(errors))
    assert records[0]["nlpd"] == pytest.approx(np.mean(losses), abs=1e-6)
    assert len(pd.read_csv(tmp_path / "results.csv")) == 3
    page = (tmp_path / "report.html").read_text()
    for words in ("versicolor", "PPL softmax, joint", "Recall is the share of a class"):
        assert words in page
    stored = (tmp_path / "folds.jsonl").read_text()
    monkeypatch.setattr("postlin.workbench.report.sections.evaluation_page", lambda *_, **__: "")
    monkeypatch.setattr("postlin.workbench.cli.experiments.explain", lambda *_: None)
    assert postlin(*arguments).exit_code == 0
    assert (tmp_path / "folds.jsonl").read_text() == stored  # nothing was computed again


def test_two_classes_do_not_see_the_treatment_of_many(frame, tmp_path, monkeypatch):
    monkeypatch.setattr("postlin.workbench.cli.experiments.explain", lambda *_: None)
    monkeypatch.setattr(sections, "origin_section", lambda *_: Section("Origin", [], []))
    two = frame[frame["kind"] != "setosa"]
    two.to_csv(tmp_path / "two.csv", index=False)
    arguments = ("evaluate", tmp_path / "two.csv", "--target", "kind", "--methods", "SCL", "--folds", 2)
    arguments = (*arguments, "--out", tmp_path / "out")
    assert postlin(*arguments).exit_code == 0
    stored = (tmp_path / "out" / "folds.jsonl").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    out = postlin(*arguments, "--multi-class", "joint")
    assert out.exit_code == 0, out.stderr
    assert (tmp_path / "out" / "folds.jsonl").read_text() == stored
    assert (tmp_path / "out" / "report.html").read_text() == page
    assert "multi" not in (tmp_path / "out" / "results.csv").read_text() + out.stdout


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fit_and_predict_have_a_column_for_every_class(table, frame, strategy, tmp_path):
    model = tmp_path / "m.postlin"
    out = postlin("fit", table, "--target", "kind", "--multi-class", strategy, "--model", model)
    assert out.exit_code == 0, out.stderr
    assert "log evidence" in out.stderr
    out = postlin("predict", table, "--model", model, "--out", tmp_path / "p.csv")
    assert out.exit_code == 0, out.stderr
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["label", "p(setosa)", "p(versicolor)", "p(virginica)"]
    np.testing.assert_allclose(found.iloc[:, 1:].sum(axis=1), 1, atol=2e-6)  # six digits
    assert (found["label"].to_numpy() == frame["kind"].to_numpy()).mean() > 0.9
    X, y = frame.drop(columns="kind"), frame["kind"].to_numpy()
    direct = make_pipeline(StandardScaler(), GPClassifier(multi_class=strategy)).fit(X, y)
    np.testing.assert_allclose(found.iloc[:, 1:], direct.predict_proba(X), atol=1e-6)


ROWS = "".join(f"{k % 7},{k % 3}\n" for k in range(30))
REFUSED = {
    "a class with a single row": (
        f"a,y\n{ROWS}9,7\n",
        [],
        "class '7' has a single row, which cannot be both learned from and predicted: leave it out",
    ),
    "as many classes as rows": ("a,y\n1,1\n2,2\n3,3\n4,4\n", [], "4 different values in 4 rows"),
    "measurements": (
        "a,y\n" + "".join(f"{k},{k % 9 + 0.5}\n" for k in range(30)) + "1,0.25\n",
        [],
        "10 different values in 31 rows",
    ),
    "one class": ("a,y\n1,3\n2,3\n", [], r"two classes or more, it has 1 \('3'\)"),
    "missing labels": (f"a,y\n{ROWS}1,\n", [], "has 1 missing values"),
    "more folds than rows": (
        f"a,y\n{ROWS}",
        ["--folds", "11"],
        "class '0' has 10 rows, fewer than the 11 folds, and none has more: use --folds 10",
    ),
    "EP jointly": (
        f"a,y\n{ROWS}",
        ["--multi-class", "joint", "--methods", "PPL,PEP,SPL"],
        "PEP and SPL cannot treat all classes jointly: with --multi-class joint use PL or L",
    ),
    "CL jointly": (
        f"a,y\n{ROWS}",
        ["--multi-class", "joint", "--methods", "PCL"],
        "PCL cannot treat all classes jointly: with --multi-class joint use PL or L",
    ),
    "nothing left jointly": (
        f"a,y\n{ROWS}",
        ["--multi-class", "one_vs_rest,joint", "--methods", "PEP"],
        "PEP cannot treat all classes jointly",
    ),
    "a likelihood for two": (
        f"a,y\n{ROWS}",
        ["--multi-class", "joint", "--likelihoods", "logit"],
        "--multi-class joint has a likelihood of its own, softmax: leave 'logit' out",
    ),
    "an unknown treatment": (
        f"a,y\n{ROWS}",
        ["--multi-class", "all"],
        "--multi-class must be some of one_vs_rest, one_vs_one, joint, got 'all'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_one_sentence_and_nothing_is_written(name, tmp_path):
    text, options, message = REFUSED[name]
    (tmp_path / "bad.csv").write_text(text)
    out = postlin("evaluate", tmp_path / "bad.csv", *options, "--out", tmp_path / "out")
    assert out.exit_code == 2
    assert re.match(f"postlin: .*{message}", out.stderr)
    assert len(out.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_fit_takes_one_treatment_and_methods_that_go_with_it(table):
    common = ("fit", table, "--target", "kind", "--multi-class")
    out = postlin(*common, "one_vs_rest,joint")
    assert (out.exit_code, "one --multi-class" in out.stderr) == (2, True)
    out = postlin(*common, "joint", "--method", "SEP")
    assert (out.exit_code, "SEP cannot treat all classes" in out.stderr) == (2, True)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([2, 10, 9] * 4, ("2", "9", "10")),
        ([1.0, 2.0, 3.0] * 4, ("1.0", "2.0", "3.0")),
        ([0.5, 1.5, 2.5] * 4, ("0.5", "1.5", "2.5")),
        (["b", "c", "a b"] * 4, ("a b", "b", "c")),
        ([True, False] * 6, ("False", "True")),
    ],
    ids=["integers", "floats", "levels", "strings", "truth"],
)
def test_labels_of_all_kinds(labels, classes, tmp_path):
    source = pd.DataFrame({"a": np.arange(12.0), "y": labels})
    source.to_csv(tmp_path / "t.csv", index=False)
    found = read_data(str(tmp_path / "t.csv"), "y")
    assert found.classes == classes
    assert [found.classes[k] for k in found.codes] == [str(label) for label in labels]


def test_rare_classes_are_said_and_evaluated(tmp_path):
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [12, 12, 2])
    source = pd.DataFrame({"a": codes + 0.3 * rng.normal(size=26), "kind": codes})
    source.to_csv(tmp_path / "rare.csv", index=False)
    out = postlin("evaluate", tmp_path / "rare.csv", "--methods", "L", "--folds", 4)
    assert out.exit_code == 0, out.stderr
    assert "class '2' has 2 rows, fewer than the 4 folds: some folds hold out none of it." in out.stderr


@pytest.mark.parametrize(("name", "classes"), [("glass_types", 6), ("thyroid_types", 3)])
def test_sets_of_many_classes_are_the_papers_with_all_their_labels(name, classes):
    assert name in datasets.MANY_CLASSES
    found, paper = built_in(name), built_in(name.removesuffix("_types"))
    assert len(found.classes) == classes
    np.testing.assert_array_equal(found.X, paper.X)
    assert name in postlin("datasets").stdout
    # two classes are a merging of the many
    pairs = set(zip(found.codes, paper.codes, strict=True))
    assert len(pairs) == classes
