"""The report of an evaluation: what its first screen says, whatever the methods, classes and names."""

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import t as student
from test_report import CHROMIUM, HOSTILE, Tags, in_a_browser

from postlin.tables.columns import Columns
from postlin.tables.preparation import Preparation
from postlin.workbench.cli import outputs
from postlin.workbench.evaluation.comparison import conclude, interval_over_folds
from postlin.workbench.evaluation.explanation import Dependence, Explanation, explain
from postlin.workbench.evaluation.folds import Data, FoldResult, Task, held_out
from postlin.workbench.evaluation.methods import BASELINES
from postlin.workbench.evaluation.scores import Cell, group, summarise
from postlin.workbench.report import words
from postlin.workbench.report.predictions import curves_of, drawn_class
from postlin.workbench.report.sections import Origin, evaluation_page

FOLDS = 5
ORIGIN = Origin("postlin evaluate mine.csv --out 'a b'", "2026-01-02 03:04+00:00")
GAUSSIAN = [(rule, "probit") for rule in ("PL", "EP", "CL")]


def data_of(classes=("cat", "dog"), rows=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    score = np.column_stack([X[:, 0] * k for k in range(len(classes))])
    codes = np.argmax(score + 0.8 * rng.normal(size=score.shape), axis=1)
    names = "width", "height", "weight"
    return Data("pets", X, codes, tuple(classes), names, Preparation(Columns(names)))


def results_of(data, methods, *, folds=FOLDS, quality=None):
    """Made-up results; the ``quality`` of a method is how much its probabilities know."""
    results, n = {}, len(data.classes)
    for k, (method, likelihood) in enumerate(methods):
        knows = (quality or {}).get(method, 2.0)
        # Methods differ a little, so that not all of them are drawn as one.
        rng = np.random.default_rng(k + 1)
        for fold in range(folds):
            strategy = "one_vs_rest" if likelihood and n > 2 else None
            task = Task("pets", method, likelihood, fold=fold, n_folds=folds, multi_class=strategy)
            y = data.codes[held_out(data, task)]
            score = knows * np.eye(n)[y] + rng.normal(size=(len(y), n)) * 0.7 * (knows > 0)
            p = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
            learned = (-50.0, True, [0.0], [-60.0, -50.0]) if likelihood else (None, None, [], [])
            evidence, converged, theta, trace = learned
            p = p[:, 1] if n == 2 else p
            results[task] = FoldResult(y.tolist(), p.tolist(), evidence, 0.1, converged, theta, trace)
    return results


EVERY = [*GAUSSIAN, *((name, "") for name in BASELINES)]
QUALITY = {"PL": 3.0, "EP": 2.5, "CL": 2.4, "logistic": 1.5, "boosting": 1.0, "majority": 0.0}


def page_of(data, results, explanation=None, failures=()):
    summaries = {cell: summarise(part) for cell, part in group(results).items()}
    conclusion = conclude(data, results)
    return evaluation_page(
        data, summaries, results, conclusion, explanation, ORIGIN, [*failures]
    ), conclusion


def text_of(page):
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", page.split("</head>")[1])))


def explanation_of(data):
    values = np.array([0.4, 0.1, 0.0])
    return Explanation([*data.feature_names], values, values / 4, 150, [], None)


def first_screen(page):
    """The text above the second section."""
    return text_of("</head>" + page.split("</head>")[1].split('id="section-2"')[0])


def test_the_first_screen_answers_an_outsiders_questions():
    data = data_of()
    page, conclusion = page_of(data, results_of(data, EVERY, quality=QUALITY))
    screen = first_screen(page)
    found = conclusion.predictions[conclusion.best]
    assert "Which method best tells ‘cat’ and ‘dog’ apart? 6 methods, 150 rows, 3 features" in screen
    assert "Which method? PL A Gaussian process by posterior linearisation" in screen
    assert f"{found.wrong} of 150 rows; 95 % interval" in screen
    assert f"Log-loss {conclusion.log_loss[conclusion.best].mean:.3f} (95 % interval" in screen
    assert "Against what? Better than 3 of 3 baselines With 95 % confidence better than" in screen
    worst = found.mistakes()[0]
    assert f"row {worst.row + 1} (‘{data.classes[worst.label]}’ given probability" in screen
    assert re.search(r"\d of ‘(cat|dog)’ taken for ‘(cat|dog)’", screen)
    for name in ("logistic regression", "gradient boosting", "class frequencies"):
        assert re.search(rf"{name} \d\.\d+ ± \d\.\d+ \+\d\.\d+ \[", screen)


def test_the_page_says_how_it_was_computed():
    data = data_of()
    text = text_of(page_of(data, results_of(data, EVERY))[0])
    for words_ in (ORIGIN.command, ORIGIN.date, "scikit-learn", "SHA-256", "width, height, weight"):
        assert words_ in text
    other = Data("pets", data.X + 1e-9, data.codes, data.classes, data.feature_names)
    digest = re.compile("SHA-256 [0-9a-f]{16}")
    again = text_of(page_of(other, results_of(data, EVERY))[0])
    assert digest.search(text)[0] != digest.search(again)[0]


def test_classes_are_called_by_their_names():
    data = data_of()
    text = text_of(page_of(data, results_of(data, EVERY), explanation_of(data))[0])
    assert not re.search("share of (ones|zeros)|class [01]", text)
    assert "share of rows of ‘cat’" in text or "share of rows of ‘dog’" in text


def test_all_figures_of_two_classes_are_about_the_rarer_one():
    assert [drawn_class(np.array(codes)) for codes in ([0, 0, 1], [0, 1, 1], [0, 1])] == [1, 0, 1]
    data = data_of()
    data = replace(data, codes=(data.X[:, 0] > -0.7).astype(int))  # few cats
    p = np.stack([np.linspace(0.2, 0.8, 5)] * 2)
    found = explanation_of(data)._replace(dependence=[Dependence("width", [*range(5)], True, p)])
    text = text_of(page_of(data, results_of(data, [("PL", "probit")]), found)[0])
    for phrase in ("share of rows of {} against", "share of {} found", "mean probability of {} if"):
        assert phrase.format("‘cat’") in text


def test_classes_with_names_that_begin_alike_are_told_apart():
    data = data_of(tuple(f"a name that goes on for rather long, kind {k}" for k in "abc"))
    page, _ = page_of(data, results_of(data, EVERY), explanation_of(data))
    assert "tells ‘a name tha…a’, ‘a name tha…b’ and ‘a name tha…c’ apart" in first_screen(page)


def test_remarks_about_the_table_are_there_once():
    data = replace(data_of(), remarks=("pets.csv: columns separated by semicolons",))
    assert page_of(data, results_of(data, EVERY))[0].count("separated by semicolons") == 1


def test_three_classes_and_hostile_names():
    names = (HOSTILE, "</td><td>", "$x_y$ " * 20)
    data = data_of(names)
    page, _ = page_of(data, results_of(data, EVERY), explanation_of(data), [f"PL failed: {HOSTILE}"])
    tags = Tags(page)
    assert not tags.of("script")
    rows = re.findall("<tr>.*?</tr>", page)
    assert len({row.count("<th") + row.count("<td") for row in rows if "weight" not in row}) < 7
    assert "PL failed" in first_screen(page)
    assert "share of rows predicted correctly" in page


def test_twenty_methods_have_a_table_but_not_twenty_curves():
    data = data_of()
    methods = [
        (f"{schedule}{rule}", likelihood)
        for schedule in ("", "P", "S")
        for rule in ("PL", "EP", "CL")
        for likelihood in ("probit", "logit")
    ]
    methods += [("logistic", ""), ("majority", "")]
    page, conclusion = page_of(data, results_of(data, methods))
    assert len(conclusion.ranking) == 20
    assert first_screen(page).count(" ± ") == 21  # one in the caption
    assert len(curves_of(conclusion)) <= 6
    assert "logistic regression" in curves_of(conclusion)
    assert re.search(r"No clear difference from .* and \d+ more", first_screen(page))


def test_methods_with_the_same_predictions_are_drawn_once():
    data = data_of()
    results = results_of(data, [("PL", "probit"), ("logistic", "")])
    results |= {
        Task("pets", "SPL", "probit", fold=task.fold, n_folds=FOLDS): result
        for task, result in results.items()
        if task.method == "PL"
    }
    page, conclusion = page_of(data, results)
    assert list(curves_of(conclusion)) == ["PL, SPL", "logistic regression"]
    assert "PL and SPL give the same probabilities to within 0.02, and" in text_of(page)


def test_a_method_with_a_failed_fold_is_not_the_best():
    data = data_of()
    results = results_of(data, EVERY, quality=QUALITY | {"PL": 9.0})
    del results[next(task for task in results if task.method == "PL")]
    page, conclusion = page_of(data, results, failures=["PL probit failed in fold 1 of pets"])
    assert conclusion.best.method == "EP"
    assert conclusion.ranking[-1].method == "PL"
    assert conclusion.excess[conclusion.ranking[-1]].high < 0  # on the folds that both have
    assert "Worse than PL on the folds that did not fail there" in first_screen(page)
    assert "than PL (by" not in page
    assert "PL probit failed in fold 1" in first_screen(page)


def test_where_a_baseline_is_best_the_report_says_so():
    data = data_of()
    page, _ = page_of(data, results_of(data, EVERY, quality={"logistic": 5.0}))
    assert "Which method? logistic regression" in first_screen(page)
    assert "A baseline is the best" in first_screen(page)
    page, _ = page_of(data, results_of(data, GAUSSIAN))
    assert "No baseline was asked for: add majority, logistic, boosting to --methods" in text_of(page)


def test_without_mistakes_nothing_goes_wrong():
    data = data_of()
    page, _ = page_of(data, results_of(data, EVERY, quality={"PL": 99.0}))
    assert "What goes wrong? Nothing" in first_screen(page)
    assert "0.0 % wrong" in first_screen(page)


def test_differences_are_paired_over_folds():
    data = data_of()
    results = results_of(data, EVERY, quality=QUALITY)
    conclusion = conclude(data, results)
    best, other = conclusion.ranking[:2]
    losses = {
        cell: [-np.log(np.where(r.y, r.p, 1 - np.array(r.p))).mean() for r in folds.values()]
        for cell, folds in group(results).items()
    }
    differences = np.subtract(losses[other], losses[best])
    found = conclusion.excess[other]
    assert found.mean == pytest.approx(differences.mean())
    # K folds of n/K rows: a test share of 1/K, so the variance is s² (1/K + (1/K) / (1 − 1/K)).
    share = 1 / FOLDS
    error = differences.std(ddof=1) * np.sqrt(share + share / (1 - share))
    assert found.high - found.mean == pytest.approx(student.ppf(0.975, FOLDS - 1) * error)
    assert interval_over_folds([0.3]) == (0.3, 0.3, 0.3)


def test_mistakes_are_rows_of_the_data():
    data = data_of()
    results = results_of(data, [("PL", "probit")])
    (found,) = conclude(data, results).predictions.values()
    np.testing.assert_array_equal(found.rows, np.arange(150))
    np.testing.assert_array_equal(found.y, data.codes)
    mistakes = found.mistakes()
    assert len(mistakes) == found.wrong == round(found.error.mean * 150)
    assert all(data.codes[m.row] == m.label != m.predicted for m in mistakes)
    assert [m.of_label for m in mistakes] == sorted(m.of_label for m in mistakes)


def test_the_table_in_the_terminal_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setattr(outputs, "console", Console(width=80))
    data = data_of(("a rather long name of a class", "b"))
    results = results_of(data, [*EVERY, ("SPL", "noisy_threshold")])
    summaries = {cell: summarise(part) for cell, part in group(results).items()}
    table = words.score_rows(conclude(data, results), summaries)
    outputs.print_table("pets", *table, text_columns=1)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(any(line.lstrip().startswith(row[0]) for line in lines) for row in table[1]) == 7


def test_names_leave_out_what_all_methods_share():
    cells = [Cell("d", "PL", "probit"), Cell("d", "EP", "probit"), Cell("d", "logistic", "")]
    assert [*words.names_of(cells).values()] == ["PL", "EP", "logistic regression"]
    cells.append(Cell("d", "EP", "logit", "one_vs_rest"))
    assert [*words.names_of(cells).values()][1] == "EP probit"
    assert [*words.names_of(cells).values()][3] == "EP logit (one vs rest)"


@pytest.mark.parametrize("method", [("PL", "probit"), ("logistic", "")])
@pytest.mark.parametrize("scaling", ["standardise", "whiten", "none"])
def test_the_feature_that_decides_is_the_most_important_one(method, scaling):
    data = data_of(rows=80)
    data = replace(data, preparation=replace(data.preparation, scaling=scaling))
    done = FoldResult([], [], None, 0.1, None, [], [])
    tasks = [Task("pets", *method, fold=k, n_folds=3, multi_class=None) for k in range(3)]
    found = explain(data, dict.fromkeys(tasks, done))
    assert found.features[0] == "width"
    assert found.importance[0] > 0.05
    assert abs(found.importance[1:]).max() < found.importance[0] / 3
    width = found.dependence[0]
    assert np.ptp(width.probability[1]) > 0.4
    np.testing.assert_allclose(width.probability.sum(axis=0), 1)
    assert found.rows == 80
    assert found.plane is None


def test_two_features_have_a_decision_map():
    data = data_of(rows=60)
    names = data.feature_names[:2]
    two = Preparation(Columns(names))
    data = replace(data, X=data.X[:, :2], feature_names=names, preparation=two)
    slow = FoldResult([], [], None, 1e3, None, [], [])
    tasks = [Task("pets", "logistic", n_folds=3, fold=k) for k in range(3)]
    found = explain(data, dict.fromkeys(tasks, slow))
    assert found.rows == 20  # one fold is enough where folds take long
    p = found.plane.probability
    assert p.shape == (60, 60, 2)
    assert np.ptp(p[30, :, 1]) > 3 * np.ptp(p[:, 30, 1])  # the first feature is across


@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")
@pytest.mark.parametrize("classes", [("cat", "dog"), ("cat", "dog", "a long name of an animal")])
def test_a_browser_shows_the_report_without_scrolling_sideways(classes, tmp_path):
    data = data_of(classes)
    methods = [*EVERY, *((name, "noisy_threshold") for name in ("SPL", "SEP", "SCL"))]
    page, _ = page_of(data, results_of(data, methods, quality=QUALITY), explanation_of(data))
    in_a_browser(page, tmp_path / "report.html")
