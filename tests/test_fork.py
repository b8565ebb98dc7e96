"""Forks while another thread fits: the child fits too, and does not wait for a thread that it lacks."""

import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from postlin import GPClassifier
from postlin.linalg import threads

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def forked(work, seconds=20.0):
    """The exit code of a child that works; None if it did not end in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about threads
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def test_blas_has_no_more_threads_than_rows_for_them():
    with threadpool_limits(6, user_api="blas"):
        before = threads.threads()
        for n, most in ((100, 1), (501, 3), (1000, 4), (4000, before)):
            with threads.blas_threads(n):
                assert threads.threads() == min(most, before)
        assert threads.threads() == before


def test_a_child_fits_while_a_thread_of_its_parent_does():
    X = np.random.default_rng(0).normal(size=(120, 3))
    y = X[:, 0] > 0
    ended = threading.Event()

    def fits():
        while not ended.is_set():
            GPClassifier(optimizer=None).fit(X, y)

    thread = threading.Thread(target=fits)
    thread.start()
    try:
        codes = [
            forked(lambda: GPClassifier(optimizer=None).fit(X, y).predict_proba(X)) for _ in range(12)
        ]
    finally:
        ended.set()
        thread.join()
    assert codes == [0] * 12


def test_a_child_has_a_lock_and_users_of_its_own():
    inside, leave = threading.Event(), threading.Event()

    def use():
        with threads.blas_threads(1), threads._lock:
            inside.set()
            leave.wait()

    def child():
        assert threads._users == 1  # that of the thread which forked, below
        with threads.blas_threads(1):
            assert threads._users == 2
        assert threads._users == 1

    with threads.blas_threads(1):
        thread = threading.Thread(target=use)
        thread.start()
        inside.wait()
        code = forked(child, 5.0)
        leave.set()
        thread.join()
    assert code == 0
    assert threads._users == 0
    assert threads._before == []
