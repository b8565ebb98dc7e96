"""Progress: what a run tells, what is estimated from it, and lines in good time."""

import io
import logging
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from postlin import GPClassifier, load
from postlin.learning import parts
from postlin.learning import progress as progress_module
from postlin.learning.progress import (
    Costs,
    Heartbeat,
    Progress,
    Sought,
    costs,
    factorisation_seconds,
    in_words,
    watched,
    watching,
)
from postlin.workbench.cli import large, outputs
from postlin.workbench.cli import progress as shown_progress
from postlin.workbench.cli.inputs import BadInputError
from postlin.workbench.cli.large import Forecast, Large
from postlin.workbench.cli.progress import described
from postlin.workbench.evaluation import monitor
from postlin.workbench.evaluation.folds import Data, EvaluationInterruptedError, Store, Task, run
from postlin.workbench.evaluation.monitor import Board


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    return X, np.digitize(X[:, 0] + 0.3 * rng.normal(size=90), [-0.4, 0.4])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (99, "99 s"),
        (130, "2 min"),
        (7000, "1 h 57 min"),
        (7200, "2 h"),
        (70_000, "19 h"),
        (300_000, "3 days 11 h"),
        (3e6, "35 days"),
    ],
)
def test_durations_are_said_in_two_units_at_most(seconds, words):
    assert in_words(seconds) == words


def test_a_search_is_estimated_before_and_after_its_evaluations():
    clock = Clock()
    progress = Progress(clock)
    search = progress.search(Costs(12, 80.0, 40.0))
    assert progress.status().left == pytest.approx(80 + 11 * 40)
    clock.now += 60
    assert progress.status().left == pytest.approx(20 + 11 * 40)
    clock.now += 100  # twice as long as was expected, so that all others are
    assert progress.status().left == pytest.approx(11 * 80)
    search.evaluated(-500.0)
    assert progress.status().left == pytest.approx(11 * 80)
    for _ in range(4):  # they are faster in truth
        clock.now += 10
        search.evaluated(-400.0)
    clock.now += 4
    status = progress.status()
    assert status.left == pytest.approx(7 * 10 - 4)
    assert str(status) == (
        "evaluation 6 of about 12, log evidence -400.00, 3 min so far, about 66 s left"
    )
    for _ in range(9):
        clock.now += 10
        search.evaluated(-399.0)
    assert progress.status().text == "evaluation 15, log evidence -399.00"
    assert progress.status().left > 0


def test_a_small_search_that_comes_first_does_not_hide_what_follows():
    clock = Clock()
    progress = Progress(clock)
    progress.say("", 600.0)
    small = progress.search(Costs(4, 5.0, 5.0))
    for _ in range(4):
        clock.now += 5
        small.evaluated(-1.0)
    assert progress.status().left == pytest.approx(580.0)
    progress.search(Costs(6, 40.0, 30.0))
    assert progress.status().left == pytest.approx(580.0)  # it is short, and another will follow
    main = progress.search(Costs(6, 100.0, 60.0))
    assert progress.status().left == pytest.approx(400.0)  # what it takes is known better now
    clock.now += 50
    main.evaluated(-1.0)
    assert progress.status().left == pytest.approx(5 * 30.0)


def test_before_anything_is_told_the_run_takes_what_was_expected():
    clock = Clock()
    progress = Progress(clock, expected=100.0)
    progress.problems(3)
    progress.searched("preparing the rows")
    clock.now += 30
    assert progress.status() == ("problem 1 of 3, preparing the rows", 30.0, 70.0)
    clock.now += 170
    assert progress.status().left == pytest.approx(40.0)
    progress.say("first in 8 groups of rows")
    progress.search(Costs(1, 10.0, 10.0))
    assert (
        progress.status().text == "problem 1 of 3, first in 8 groups of rows, evaluation 1 of about 1"
    )


def test_what_is_said_replaces_what_followed_an_earlier_search():
    progress = Progress(Clock())
    progress.search(Costs(4, 5.0, 5.0))
    progress.searched("inference at the best hyperparameters")
    assert progress.status().text == "inference at the best hyperparameters"
    progress.say("leave-one-out score -0.2 after 4 of 10 rounds")
    assert progress.status().text == "leave-one-out score -0.2 after 4 of 10 rounds"


def test_problems_to_come_take_as_long_as_those_that_have_ended():
    clock = Clock()
    progress = Progress(clock)
    progress.problems(4)
    for name in ("a", "b"):
        progress.problem(name)
        search = progress.search(Costs(3, 10.0, 10.0))
        for _ in range(3):
            clock.now += 10
            search.evaluated(-1.0)
        progress.finished()
    progress.problem("c")
    progress.search(Costs(3, 10.0, 10.0))
    assert progress.status().left == pytest.approx(30 + 30)
    assert progress.status().text == "problem 3 of 4 (c), evaluation 1 of about 3"


def test_problems_side_by_side_are_estimated_too():
    clock = Clock()
    progress = Progress(clock)
    progress.problems(6, at_once=2, each=30.0)
    assert progress.status().left == pytest.approx(6 * 15)
    clock.now += 20
    progress.finished()
    assert progress.status() == ("1 of 6 problems solved", 20.0, pytest.approx(5 * 20))


def test_a_heart_beats_while_a_factorisation_of_a_large_matrix_runs():
    beats, n = [], 1500
    began = time.perf_counter()
    with Heartbeat(lambda: beats.append(time.perf_counter()), every=0.005):
        factorisation_seconds(n)
        spent = time.perf_counter() - began
    assert not any(t.name == "postlin-progress" for t in threading.enumerate())
    longest = np.diff([began, *beats, began + spent]).max()
    assert longest < 0.5 * spent


def test_evaluations_are_told_to_those_who_watch(table):
    X, y = table
    progress, seen = Progress(), []
    with watching(progress):
        assert watched() is progress
        GPClassifier(callback=lambda e: seen.append(str(progress.status().text))).fit(X, y)
    assert not watched().is_shown
    assert seen[0].startswith("problem 1 of 3 (0 against the rest), evaluation 1 of about 12")
    assert "problem 3 of 3 (2 against the rest), evaluation 4" in " ".join(seen)
    assert progress.status().left == 0.0


@pytest.mark.parametrize("how", [{"inducing": 8}, {"n_jobs": 2}, {"multi_class": "joint"}])
def test_every_kind_of_fit_tells_its_progress(table, how, monkeypatch):
    X, y = table
    progress = Progress()
    with watching(progress):
        GPClassifier(optimizer=None, **how).fit(X, y)
    assert progress.status().left is not None


def test_searches_in_groups_of_rows_are_called_so(monkeypatch):
    monkeypatch.setattr(parts, "LARGE", 80)
    monkeypatch.setattr(parts, "_LEAST", 20)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 1))
    progress, seen, told = Progress(), [], Sought.evaluated

    def evaluated(self, log_evidence):
        told(self, log_evidence)
        seen.append(progress.status().text.partition(",")[0])

    monkeypatch.setattr(Sought, "evaluated", evaluated)
    with watching(progress):
        GPClassifier().fit(X, np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=90) > 0)
    assert list(dict.fromkeys(seen)) == ["first in 4 groups of rows", "in all rows"]


def test_verbose_shows_progress_every_few_seconds(table, monkeypatch, caplog):
    class Fast(Heartbeat):
        def __init__(self, beat):
            super().__init__(beat, every=0.01)

    monkeypatch.setattr(progress_module, "Heartbeat", Fast)
    with caplog.at_level(logging.INFO, logger="postlin"):
        GPClassifier(verbose=1).fit(*table)
    lines = [line for line in caplog.messages if "so far" in line]
    assert any("problem 2 of 3 (1 against the rest), evaluation" in line for line in lines)
    assert all("left" in line for line in lines if "evaluation" in line)


def test_costs_grow_with_the_cube_of_the_rows():
    small, large = (costs(n, (8.0, 4.0), 2).seconds for n in (3000, 12_000))
    assert 64 / 3 < large / small < 64 * 3
    assert costs(200, (8.0, 4.0), 0).evaluations == 1


def tasks(n_folds=2, **how):
    return [Task("d", "PL", "probit", fold=k, n_folds=n_folds, **how) for k in range(n_folds)]


def data(n=40, classes=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    codes = np.argsort(np.argsort(X[:, 0] + 0.5 * rng.normal(size=n))) * classes // n
    names = tuple("abcd"[:classes])
    return {"d": Data("d", X, codes, names, ("u", "v"))}


def test_a_board_learns_from_folds_that_ended_and_from_those_that_run(tmp_path):
    clock = Clock()
    first, second, third, fourth = folds = tasks(4)
    board = Board(folds, lambda task: 100.0, lambda task: f"fold {task.fold + 1}", 2, clock)
    try:
        assert board.forecast == 200.0
        assert board.status() == ("0 of 4 folds", 0.0, 200.0)
        board.ended(first, 50.0)
        clock.now += 50
        assert board.status().left == pytest.approx(3 * 50 / 2)
        write = board.desk(second).path.write_text
        write('["evaluation 3 of about 12", 30.0, 90.0]')
        status = board.status()
        assert status.text == "1 of 4 folds; fold 2, evaluation 3 of about 12"
        assert status.left == pytest.approx((90 + 2 * (50 + 120) / 2) / 2)
        for fold in (second, third, fourth):
            board.ended(fold, 50.0)
        assert board.status().left == 0.0
    finally:
        board.close()


def test_short_folds_hardly_change_what_is_expected_of_long_ones():
    baseline, *models = [Task("d", "majority"), *tasks(2)]
    board = Board([baseline, *models], lambda task: 1.0 if task == baseline else 1000.0, described)
    try:
        board.ended(baseline, 0.01)
        assert board.status().left == pytest.approx(2000.0, rel=0.01)
        board.ended(models[0], 500.0)
        assert board.status().left == pytest.approx(500.0)
    finally:
        board.close()


@pytest.mark.parametrize("jobs", [1, 2])
def test_folds_report_from_their_processes(jobs, monkeypatch):
    seen, boards = [], []

    def made(waiting):
        boards.append(Board(waiting, lambda task: 1.0, described, jobs))
        return boards[0]

    source = data(n=300, classes=3)
    chosen = tasks(4, multi_class="one_vs_rest")
    with Heartbeat(lambda: seen.append(boards and boards[0].status().text), every=0.01):
        monkeypatch.setattr(monitor, "_EVERY", 0.02)
        run(source, chosen, Store(None), jobs=jobs, board=made)
    if jobs == 1:  # other processes report every second, which is longer than they take
        assert any("problem 2 of 3" in text for text in seen if text)
    assert boards[0].status().text == "4 of 4 folds"


def test_baselines_come_first_so_that_an_interrupted_evaluation_has_something_to_keep():
    source, ended = data(), []
    models = tasks(2)
    chosen = [*models, Task("d", "majority", n_folds=2)]
    found = run(source, chosen, Store(None), report=lambda done, total, task: ended.append(task))
    assert ended[:2] == [None, chosen[-1]]
    assert list(found) == chosen


def test_an_evaluation_that_is_interrupted_says_which_folds_are_known():
    source = data()

    def stop(done, total, task):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(EvaluationInterruptedError) as stopped:
        run(source, tasks(3), Store(None), report=stop)
    assert list(stopped.value.results) == tasks(3)[:1]


def test_forecasts_follow_the_number_of_problems_and_the_options():
    binary, many = (Forecast(data(900, classes), 0.1) for classes in (2, 3))
    (task, *_) = tasks(10)
    assert binary.rows(task) == pytest.approx(810)
    one = binary(task)
    assert many(replace(task, multi_class="one_vs_rest")) == pytest.approx(3 * one)
    assert many(replace(task, multi_class="one_vs_one")) < 3 * one
    assert many(replace(task, multi_class="joint")) > 8 * one
    assert many.by(replace(task, multi_class="joint"), inducing=50) > 0
    near = replace(task, n_neighbors="auto")
    assert Forecast(data(90), 0.1)(near) == pytest.approx(binary(near) / 10)
    large = Forecast(data(20_000), 0.1)
    assert large.by(task, n_neighbors="auto") < large.by(task, inducing=500) < large(task)


def test_many_rows_bring_a_forecast_and_what_would_be_faster():
    source, exact = data(5001), Large()
    said = large.prospect(source["d"], tasks(10), exact, 1, Forecast(source, 0.1))
    assert said.startswith("10 fits on 4,501 rows by exact inference will take about ")
    for option in ("--n-neighbors auto (about", "--inducing 500 (about", "--device cuda"):
        assert option in said
    assert large.prospect(data()["d"], tasks(2), exact, 1, Forecast(data(), 0.1)) is None
    near = Large(n_neighbors=64)
    said = large.prospect(source["d"], tasks(10, n_neighbors=64), near, 2, Forecast(source, 0.1))
    assert "by --n-neighbors 64 will take about" in said
    assert "Faster" not in said
    assert said.endswith(" with 2 jobs.")


def test_processes_that_need_more_than_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr(large, "available_memory", lambda: 1.5 * 4 * 8 * 450.0**2)
    source = data(500)["d"]
    large.check_room(source, tasks(10), 1)
    large.check_room(source, tasks(10, inducing=9), 2)
    with pytest.raises(BadInputError, match=r"needs about .* with 2 jobs, .* use --jobs 1, --n-neigh"):
        large.check_room(source, tasks(10), 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("1", None, None), "--n-neighbors must be 'auto' or from 2 to 40"),
        ((None, 41, None), "--inducing must be from 1 to 40, the number of rows, got 41."),
        ((None, 8, "cuda"), "runs on the CPU: leave --device out"),
        ((None, None, "tpu"), "tpu"),
    ],
)
def test_options_for_large_tables_are_checked(options, said, monkeypatch):
    if options[2] == "cuda":
        monkeypatch.setattr(large, "place_named", lambda name: None)
    with pytest.raises((BadInputError, ValueError), match=said):
        large.large(*options, 40)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_command_line_shows_lines_or_one_that_lives(terminal, monkeypatch, capsys):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=60)
    monkeypatch.setattr(outputs, "notes", console)
    for name in ("EVERY", "_LIVE"):
        monkeypatch.setattr(shown_progress, name, 0.01)
    with shown_progress.fitting("fitting [4] rows") as progress:
        progress.search(Costs(12, 80.0, 40.0))
        time.sleep(0.15)
    written = console.file.getvalue()
    words = " ".join(re.sub(r"\x1b\[[\d;?]*[A-Za-z]|[━╸╺]", "", written).split())
    assert "fitting [4] rows: evaluation 1 of about 12, 0 s so far, about 9 min left" in words
    assert ("\x1b[2K" in written) is terminal  # which removes a line to write it anew
    assert terminal or words.count("so far") > 1


def test_ctrl_c_saves_the_best_so_far_and_says_how_to_go_on(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    table = tmp_path / "table.csv"
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.assign(y=np.where(X[:, 0] * X[:, 1] + rng.normal(size=1200) > 0, "p", "q")).to_csv(table)
    program = (
        "import signal, os, postlin.workbench.cli.app as app\n"
        "from postlin.learning.progress import Sought\n"
        "told, numbers = Sought.evaluated, iter(range(99))\n"
        "def stopped(self, log_evidence):\n"
        "    told(self, log_evidence)\n"
        "    next(numbers) == 1 and os.kill(os.getpid(), signal.SIGINT)\n"
        "Sought.evaluated = stopped\n"
        "app.app()"
    )
    command = [sys.executable, "-c", program, "fit", str(table)]
    out = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert out.returncode == 130, out.stderr
    assert "saved model.postlin" in out.stderr
    assert "the same command with --start-from model.postlin goes on from there" in out.stderr
    from postlin.workbench.cli.app import app

    more = CliRunner().invoke(
        app,
        [
            "fit",
            str(table),
            "--model",
            str(tmp_path / "b"),
            "--start-from",
            str(tmp_path / "model.postlin"),
        ],
    )
    assert more.exit_code == 0, more.output
    one, other = (load(tmp_path / name)[-1] for name in ("model.postlin", "b"))
    assert other.log_marginal_likelihood_value_ > one.log_marginal_likelihood_value_


def test_what_a_killed_evaluation_has_left_is_removed(tmp_path):
    new = lambda: Board([], lambda task: 1.0, str, folder=tmp_path / "out")  # noqa: E731
    killed = new()
    killed._folder._finalizer.detach()  # it is not removed when the object is
    (left,) = (tmp_path / "out").iterdir()
    (left / "0").write_text("[]")
    board = new()
    assert not left.exists()
    board.close()
    assert not list((tmp_path / "out").iterdir())
