"""Progress: what a run tells, what is estimated from it, and lines in good time."""

import logging
import threading
import time

import numpy as np
import pytest

from postlin import GPClassifier
from postlin._progress import Costs, Heartbeat, Progress, in_words, watched, watching
from postlin.estimator import reporting
from postlin.learning.forecast import costs, factorisation_seconds


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
    progress.search(Costs(12, 80.0, 40.0))
    assert progress.status().left == pytest.approx(80 + 11 * 40)
    clock.now += 60
    assert progress.status().left == pytest.approx(20 + 11 * 40)
    clock.now += 100  # twice as long as was expected, so that all others are
    assert progress.status().left == pytest.approx(11 * 80)
    progress.evaluated(-500.0)
    assert progress.status().left == pytest.approx(11 * 80)
    for _ in range(4):  # they are faster in truth
        clock.now += 10
        progress.evaluated(-400.0)
    clock.now += 4
    status = progress.status()
    assert status.left == pytest.approx(7 * 10 - 4)
    assert str(status) == (
        "evaluation 6 of about 12, log evidence -400.00, 3 min so far, about 66 s left"
    )
    for _ in range(9):
        clock.now += 10
        progress.evaluated(-399.0)
    assert progress.status().text == "evaluation 15, log evidence -399.00"
    assert progress.status().left > 0


def test_problems_to_come_take_as_long_as_those_that_have_ended():
    clock = Clock()
    progress = Progress(clock)
    progress.problems(4)
    for name in ("a", "b"):
        progress.problem(name)
        progress.search(Costs(3, 10.0, 10.0))
        for _ in range(3):
            clock.now += 10
            progress.evaluated(-1.0)
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
    A = np.eye(n) + 1e-3
    began = time.perf_counter()
    with Heartbeat(lambda: beats.append(time.perf_counter()), every=0.005):
        factorisation_seconds(n)
        spent = time.perf_counter() - began
    assert A.shape == (n, n) and not any(t.name == "postlin-progress" for t in threading.enumerate())
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


def test_verbose_shows_progress_every_few_seconds(table, monkeypatch, caplog):
    class Fast(Heartbeat):
        def __init__(self, beat):
            super().__init__(beat, every=0.01)

    monkeypatch.setattr(reporting, "Heartbeat", Fast)
    with caplog.at_level(logging.INFO, logger="postlin"):
        GPClassifier(verbose=1).fit(*table)
    lines = [line for line in caplog.messages if "so far" in line]
    assert any("problem 2 of 3 (1 against the rest), evaluation" in line for line in lines)
    assert all("left" in line for line in lines if "evaluation" in line)


def test_costs_grow_with_the_cube_of_the_rows():
    small, large = (costs(n, (8.0, 4.0), 2).seconds for n in (3000, 12_000))
    assert 64 / 3 < large / small < 64 * 3
    assert costs(200, (8.0, 4.0), 0).evaluations == 1
