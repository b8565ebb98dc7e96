"""Folds, scores, the store, the comparison with the paper."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import postlin
from postlin._files import write_atomically
from postlin.tables.columns import Columns
from postlin.tables.preparation import Preparation
from postlin.workbench.cli.inputs import built_in
from postlin.workbench.evaluation import scores
from postlin.workbench.evaluation.folds import (
    Data,
    FoldResult,
    Store,
    Task,
    fingerprint,
    paper_folds,
    run,
    run_fold,
)
from postlin.workbench.evaluation.methods import (
    ALL_METHODS,
    BASELINES,
    LIKELIHOODS,
    METHODS,
    make_classifier,
    possible,
)
from postlin.workbench.evaluation.scores import Cell, group, summarise
from postlin.workbench.paper import PAPER, SETS, compare


def task(**changes):
    fields = {
        "data": "crab",
        "method": "PPL",
        "likelihood": "probit",
        "protocol": "converged",
        "seed": 0,
        "fold": 0,
        "n_folds": 10,
        "small_variance": 0.01,
        "paper_folds": True,
    }
    return Task(**(fields | changes))


RESULT = FoldResult([0, 1, 1], [0.1, 0.9, 0.3], -5.0, 0.1, True, [1.0, 2.0], [-9.0, -5.0])


def test_folds_are_the_papers():
    folds = paper_folds(214, 10, seed=3)
    assert [len(f) for f in folds] == [21] * 9 + [25]
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(214))
    assert not np.array_equal(folds[0], paper_folds(214, 10, seed=4)[0])


def test_scores_are_the_textbooks():
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, 50), rng.uniform(size=50)
    assert scores.negative_log_density(y, p) == pytest.approx(log_loss(y, p))
    assert scores.brier(y, p) == pytest.approx(brier_score_loss(y, p))
    assert scores.error_rate(y, p) == np.mean((p > 0.5) != y)


def test_calibration_error_tells_calibrated_from_not():
    rng = np.random.default_rng(1)
    p = rng.uniform(size=20_000)
    honest = (rng.uniform(size=p.size) < p).astype(float)
    assert scores.calibration_error(honest, p) < 0.02
    assert scores.calibration_error(honest, np.clip(2 * p - 0.5, 0, 1)) > 0.1
    score = scores.calibration_score(honest[:500], p[:500])
    assert 0 < score.error < 0.05


def test_one_value_has_no_standard_error():
    assert scores.over_folds([0.3]).error is None


@pytest.mark.parametrize(
    ("method", "protocol"),
    [*((m, "converged") for m in ALL_METHODS), *((m, "paper") for m in METHODS)],
)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_every_method_runs_under_its_protocols(method, likelihood, protocol):
    if not possible(method, likelihood):
        return
    small = built_in("crab")
    rows = np.arange(0, 200, 5)
    small = Data("crab", small.X[rows], small.codes[rows], small.classes, small.feature_names)
    result = run_fold(small, task(method=method, likelihood=likelihood, protocol=protocol, n_folds=4))
    assert len(result.y) == len(result.p) == 10
    assert np.isfinite(result.p).all()
    assert np.isfinite(result.log_evidence)
    assert len(result.trace) > 2


@pytest.mark.parametrize("classes", [2, 3])
def test_baselines_are_scikit_learns_on_the_same_folds(classes, tmp_path):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(90, 2)), np.arange(90) % classes
    X[:, 0] += codes
    data = Data("d", X, codes, tuple("abc"[:classes]), ("x", "y"), Preparation(Columns(("x", "y"))))
    models = {
        "majority": DummyClassifier(strategy="prior"),
        "logistic": LogisticRegression(max_iter=1000),
        "boosting": HistGradientBoostingClassifier(random_state=0),
    }
    assert set(models) == set(BASELINES)
    store = Store(tmp_path / "f")
    for name, model in models.items():
        tasks = [Task("d", name, n_folds=3, fold=k) for k in range(3)]
        found = run({"d": data}, tasks, store)
        splits = StratifiedKFold(3, shuffle=True, random_state=0).split(X, codes)
        for (train, test), result in zip(splits, found.values(), strict=True):
            p = (
                make_pipeline(StandardScaler(), model)
                .fit(X[train], codes[train])
                .predict_proba(X[test])
            )
            np.testing.assert_allclose(result.p, p[:, 1] if classes == 2 else p)
            assert (result.log_evidence, result.converged, result.trace) == (None, None, [])
        assert run({"d": data}, tasks, Store(tmp_path / "f")) == found
        summary = summarise(found)
        assert (summary.log_evidence, summary.converged) == (None, None)


def test_stored_baselines_depend_on_the_version_of_scikit_learn(monkeypatch):
    data, about = built_in("crab"), Task("crab", "logistic")
    ours, baseline = fingerprint(data, task()), fingerprint(data, about)
    monkeypatch.setattr("sklearn.__version__", "0.0")
    assert fingerprint(data, task()) == ours
    assert fingerprint(data, about) != baseline


def test_stored_folds_of_another_form_are_not_used(monkeypatch):
    before = fingerprint(built_in("crab"), task())
    monkeypatch.setattr("postlin.workbench.evaluation.folds._FORMAT", 99)
    assert fingerprint(built_in("crab"), task()) != before


def test_a_fold_that_fails_does_not_stop_the_others(monkeypatch, tmp_path):
    def fail(data, about):
        if about.fold == 1 or about.method == "SPL":
            raise ValueError("no  luck\nhere")
        return RESULT

    monkeypatch.setattr("postlin.workbench.evaluation.folds.run_fold", fail)
    data, store, seen = {"crab": built_in("crab")}, Store(tmp_path / "f"), []
    tasks = [task(fold=k) for k in range(3)]
    found = run(data, tasks, store, report=lambda done, *_: seen.append(done))
    assert found == {tasks[0]: RESULT, tasks[2]: RESULT}
    assert store.failures == {tasks[1]: "no luck here"}
    assert seen == [0, 1, 2, 3]
    assert (tmp_path / "f").read_text().count("\n") == 2  # failures are tried again
    with pytest.raises(ValueError, match="no luck here"):
        run(data, [task(method="SPL", fold=k) for k in range(3)], Store(None))


def test_every_rule_and_schedule_has_its_methods():
    for method in ALL_METHODS:
        model = make_classifier(method, "probit")
        assert model.inference.name == {"L": "laplace"}.get(method, method[-2:].lower())
        assert model.schedule.name == ("sequential" if method.startswith("S") else "parallel")


def test_the_papers_protocol_is_what_it_says():
    model = make_classifier("PEP", "logit", "paper", small_variance=0.5)
    assert model.likelihood.order == 10
    assert model.schedule.iterations == 10
    assert model.inference.negative_sites == "small_variance"
    assert model.inference.small_variance == 0.5
    assert model.optimizer == "bfgs_finite_differences"
    assert make_classifier("SPL", "probit", "paper").inference.evidence_order == 10
    assert make_classifier("L", "probit", "paper").schedule.iterations is None


def test_store_survives_being_killed_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "folds.jsonl"
    Store(path).add("one", task(), RESULT)
    with path.open("a") as file:
        file.write('{"fingerprint": "two", "resu')
    again = Store(path)
    assert again.get("one") == RESULT
    assert again.get("two") is None
    again.add("two", task(fold=1), RESULT)
    third = Store(path)
    assert third.get("one") == third.get("two") == RESULT


def test_fingerprints_change_with_all_that_matters(monkeypatch):
    data = built_in("crab")
    base = fingerprint(data, task())
    assert fingerprint(data, task()) == base
    changed = {
        "seed": 1,
        "fold": 3,
        "method": "SPL",
        "protocol": "paper",
        "small_variance": 0.1,
    }
    assert all(fingerprint(data, task(**{k: v})) != base for k, v in changed.items())
    other = Data("crab", data.X + 1e-9, data.codes, data.classes, data.feature_names)
    assert fingerprint(other, task()) != base
    monkeypatch.setattr(postlin, "__version__", "0.0.0")
    assert fingerprint(data, task()) != base


def test_runs_resume_and_do_not_depend_on_the_number_of_processes(tmp_path):
    data = {"crab": built_in("crab")}
    tasks = [task(fold=k) for k in range(3)]
    seen = []
    one = run(data, tasks[:2], Store(tmp_path / "f"), report=lambda done, *_: seen.append(done))
    assert seen == [0, 1, 2]
    calls = []
    again = run(data, tasks, Store(tmp_path / "f"), report=lambda done, *_: calls.append(done))
    assert calls == [2, 3]
    assert {t: again[t] for t in tasks[:2]} == one
    parallel = run(data, tasks, Store(None), jobs=2)
    for t in tasks:
        assert parallel[t].p == again[t].p


def test_summary_over_folds_and_over_seeds():
    wrong = FoldResult([0, 1, 1, 1], [0.9, 0.1, 0.3, 0.8], -6.0, 0.2, False, [1.0, 2.0], [])
    folds = {task(fold=0): RESULT, task(fold=1): wrong}
    summary = summarise(folds)
    assert summary.error.mean == pytest.approx((1 / 3 + 3 / 4) / 2)
    assert summary.converged == 1
    assert summary.folds == 2
    seeds = folds | {task(seed=1, fold=0): RESULT, task(seed=1, fold=1): RESULT}
    both = summarise(seeds)
    assert both.error.mean == pytest.approx((summary.error.mean + 1 / 3) / 2)
    assert both.error.error == pytest.approx(abs(summary.error.mean - 1 / 3) / 2)
    assert list(group(seeds)) == [Cell("crab", "PPL", "probit")]


def test_gaps_to_the_exact_posterior_are_summarised_where_all_folds_have_them(tmp_path):
    gaps = [replace(RESULT, evidence_gap=gap, probability_gap=0.01) for gap in (-0.1, -0.3)]
    folds = {task(fold=k, verify=True): result for k, result in enumerate(gaps)}
    summary = summarise(folds)
    assert summary.evidence_gap == scores.Score(pytest.approx(-0.2), pytest.approx(0.1))
    assert summary.probability_gap.mean == pytest.approx(0.01)
    assert summarise(folds | {task(fold=2): RESULT}).evidence_gap is None
    assert task().as_dict() == task(verify=None).as_dict() != task(verify=True).as_dict()
    store = Store(tmp_path / "f")
    for (about, result), key in zip(folds.items(), "ab", strict=True):
        store.add(key, about, result)
    again = Store(tmp_path / "f")
    assert [again.get("a"), again.get("b")] == gaps


def test_the_papers_averages_are_weighted_by_points():
    weights = np.array(list(SETS.values())) / sum(SETS.values())
    for row in PAPER.values():
        assert weights @ row[:-1] == pytest.approx(row[-1], abs=1.1e-3)


def test_comparison_counts_percentage_points():
    summaries = {
        Cell(name, "PPL", "probit"): summarise(
            {task(data=name): RESULT, task(data=name, fold=1): RESULT}
        )
        for name in SETS
    }
    row = compare(summaries)["probit", "PPL"]
    assert row[1].difference == pytest.approx(1 / 3 - 0.035)
    assert row[1].in_percentage_points == pytest.approx(100 / 3 - 3.5)
    assert row[-1].ours.mean == pytest.approx(1 / 3)


def test_synthetic_example_shows_what_the_supplement_describes():
    from postlin.workbench.paper import example

    found = example(points=201)
    np.testing.assert_allclose(found.mean, [2.0427, 0.1770], atol=5e-5)
    assert "-117.9" in found.ep["order 1, 2"]
    assert "-117.9" in found.ep["parallel"]
    assert "converges" in found.ep["order 2, 1"]
    i, j = np.unravel_index(found.density.argmax(), found.density.shape)
    top = np.array([found.axis1[i], found.axis2[j]])
    inside = (top - found.mean) @ np.linalg.solve(found.covariance, top - found.mean)
    assert inside < 9  # the highest mode lies within the 3σ ellipse
    assert np.abs(found.path[6] - found.mean).max() < 0.1  # "in 6 iterations … quite close"


def test_timings_name_the_papers_methods():
    from postlin.workbench.paper import timings

    found = timings("converged", repeats=1)
    assert [t.method for t in found] == ["L", "PEP", "SEP", "PPL", "SPL"]
    assert all(t.seconds > 0 for t in found)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "f"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_stored_lines_say_what_they_are(tmp_path):
    Store(tmp_path / "f").add("key", task(), RESULT)
    record = json.loads((tmp_path / "f").read_text())
    assert record["task"]["method"] == "PPL"
