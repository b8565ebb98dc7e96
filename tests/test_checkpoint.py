"""Checkpoints: fits that are killed, interrupted or out of disk space, and files that are damaged."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from test_sparse_classifier import FIXED, KERNEL, table

import postlin
from postlin import CheckpointError, GPClassifier
from postlin.learning import checkpoint as checkpoints
from postlin.streaming import views


@pytest.fixture(scope="module")
def data():
    return table()


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from test_checkpoint import *
checkpoints.EVERY = 0.0
passes = []
total = views.SourceRows.total
def counted(self, share):
    passes.append(share)
    if len(passes) == {last}:
        os.kill(os.getpid(), signal.SIGKILL)
    return total(self, share)
views.SourceRows.total = counted
X, y = table({n}, {classes})
GPClassifier(KERNEL, inducing=8, checkpoint={path!r}).fit(X, y)
"""


@pytest.mark.parametrize(
    ("classes", "last"),
    [(("no", "yes"), 45), pytest.param(("a", "b", "c"), 150, marks=pytest.mark.slow)],
)
def test_a_fit_that_was_killed_goes_on_and_ends_the_same(tmp_path, monkeypatch, classes, last):
    path = tmp_path / "fit.npz"
    here = {"folder": str(Path(__file__).parent), "path": str(path)}
    code = KILLED.format(**here, last=last, n=200, classes=classes)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert path.exists()
    X, y = table(200, classes)
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    passes = []
    total = views.SourceRows.total
    monkeypatch.setattr(views.SourceRows, "total", lambda s, f: (passes.append(f), total(s, f))[1])
    seen = []
    model = GPClassifier(KERNEL, inducing=8, checkpoint=path, callback=seen.append).fit(X, y)
    went_on = len(passes)
    passes.clear()
    # random_state was None: the points are those of the fit that was killed
    Z = model._estimators[0].inducing_points_
    whole = GPClassifier(KERNEL, inducing=Z).fit(X, y)
    assert went_on == pytest.approx(len(passes) - last + 1, abs=2)
    np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=1e-8)
    passes.clear()
    again = GPClassifier(KERNEL, inducing=8, checkpoint=path).fit(X, y)
    assert not passes  # a finished one makes it instant
    assert os.listdir(tmp_path) == ["fit.npz"]  # no temporary file of the process that was killed
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_checkpoint_knows_how_classes_were_taken_apart(data, tmp_path):
    X, _ = data
    y = np.arange(len(X)) % 3
    model = GPClassifier(**FIXED, inducing=8, random_state=0, checkpoint=tmp_path / "fit.npz").fit(X, y)
    for other in ({"multi_class": "one_vs_one"}, {"shared_kernel": True}):
        with pytest.raises(CheckpointError, match="is the checkpoint of another fit"):
            clone(model).set_params(**other).fit(X, y)


def test_checkpoints_of_other_fits_and_files_that_are_none_are_left_alone(data, tmp_path):
    X, y = data
    path = tmp_path / "fit.npz"
    model = GPClassifier(**FIXED, inducing=8, random_state=0, checkpoint=path).fit(X, y)
    content = path.read_bytes()
    others = [
        (clone(model).set_params(inducing=9), X, y),
        (clone(model).set_params(kernel=ConstantKernel(4.0000001) * RBF(1.0)), X, y),
        (clone(model).set_params(likelihood="logit"), X, y),
        (clone(model), np.where(np.arange(600)[:, None] == 3, 0.0, X), y),
        (clone(model), X, np.where(np.arange(600) == 3, "yes", "no")),
        (clone(model), X[:-1], y[:-1]),
        (clone(model), X, np.roll(y, 1)),  # as many of each class
        (clone(model).set_params(random_state=1), X, y),
        (clone(model), X, y, np.where(np.arange(600) == 3, 2.0, 1.0)),
    ]
    for other, *rows in others:
        with pytest.raises(CheckpointError, match="is the checkpoint of another fit"):
            other.fit(*rows)
        assert path.read_bytes() == content
    for other in (content[:50], b"", b"rows", b"PK" + content, _flipped(content, 20)):
        path.write_bytes(other)
        with pytest.raises(
            CheckpointError, match="is no checkpoint, one of an early version, or damaged"
        ):
            clone(model).fit(X, y)
        assert path.read_bytes() == other


def test_damaged_lines_of_a_checkpoint_are_named_and_computed_again(tmp_path, monkeypatch):
    path = tmp_path / "fit"
    X, y = table(200)
    options = {"inducing": 8, "random_state": 0, "checkpoint": path}
    model = GPClassifier(KERNEL, **options).fit(X, y)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    passes = []
    total = views.SourceRows.total
    monkeypatch.setattr(views.SourceRows, "total", lambda s, f: (passes.append(f), total(s, f))[1])
    GPClassifier(KERNEL, **options | {"checkpoint": None}).fit(X, y)
    whole = len(passes)
    assert len(lines) > 6
    for number in (1, 3, len(lines) - 1):
        passes.clear()
        damaged = [*lines[:number], _flipped(lines[number]), *lines[number + 1 :]]
        path.write_bytes(b"".join(damaged))
        with pytest.warns(postlin.FileWarning, match=f"is damaged in line {number + 1}: what it held"):
            again = GPClassifier(KERNEL, **options).fit(X, y)
        np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-5)
        assert 0 < len(passes) <= (whole if number == 1 else whole // 4)
        passes.clear()
        GPClassifier(KERNEL, **options).fit(X, y)
        assert not passes  # the file is whole again
    path.write_bytes(content[:-100])
    with pytest.warns(postlin.FileWarning, match=f"damaged in line {len(lines)}"):
        GPClassifier(KERNEL, **options).fit(X, y)


def bad_paths(folder):
    """Paths to which nothing can be written, even by root, and a word of the reason."""
    (folder / "file").write_text("")
    os.mkfifo(folder / "pipe")
    return {
        folder / "nowhere" / "fit": "No such file",
        folder / "file" / "fit": "Not a directory",
        folder: "it is a folder",
        folder / "pipe": "no ordinary file",
        Path("/dev/full"): "no ordinary file",
        Path("/proc/fit"): "No such file",
        folder / ("n" * 300): "File name too long",
        f"{folder}/a\0b": "null character",
    }


def test_a_path_that_cannot_be_written_to_is_known_before_any_work(data, tmp_path):
    def never():
        raise AssertionError

    for path, reason in bad_paths(tmp_path).items():
        with pytest.raises(CheckpointError, match=f"cannot be written: .*{reason}"):
            GPClassifier(inducing=5, checkpoint=path).fit(postlin.stream(never))
    assert Path("/dev/full").is_char_device()


def test_a_full_disk_is_known_before_any_work_and_loses_no_fit(tmp_path, monkeypatch):
    X, y = table(100)
    options = {"kernel": KERNEL, "inducing": 8, "random_state": 0}
    expected = GPClassifier(**options).fit(X, y).predict_proba(X)
    model = GPClassifier(**options, checkpoint=tmp_path / "fit")
    synced, sync = [], os.fsync

    def full(file):
        synced.append(file)
        if len(synced) > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return sync(file)

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    room = 0
    with pytest.raises(CheckpointError, match=r"cannot be written: No space left on device\. Make"):
        model.fit(X, y)
    room = 3
    with pytest.warns(postlin.FileWarning, match="No space left on device") as said:
        model.fit(X, y)
    assert len(said) == 1
    assert len(synced) > 10  # it may be written again when there is room
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    assert os.listdir(tmp_path) == ["fit"]


def test_an_interrupt_during_a_gradient_leaves_no_inference_without_one(tmp_path, monkeypatch):
    X, y = table(200)
    options = {"kernel": KERNEL, "inducing": 8, "random_state": 0}
    whole = GPClassifier(**options).fit(X, y)
    total, gradients = views.SourceRows.total, []

    def interrupted(self, share):
        gradients.extend([share] if type(share).__name__ == "GradientPass" else [])
        if len(gradients) == 3:
            gradients.append(None)
            raise KeyboardInterrupt
        return total(self, share)

    path = tmp_path / "fit"
    with monkeypatch.context() as patch:
        patch.setattr(views.SourceRows, "total", interrupted)
        with pytest.warns(postlin.ConvergenceWarning, match="interrupted"):
            GPClassifier(**options, checkpoint=path, keep_on_interrupt=True).fit(X, y)
    resumed = GPClassifier(**options, checkpoint=path).fit(X, y)
    assert len(resumed.evidence_path_) == len(whole.evidence_path_)
    np.testing.assert_allclose(resumed.kernel_.theta, whole.kernel_.theta, rtol=1e-4)


def test_a_coarse_search_is_in_the_checkpoint_too(data, tmp_path):
    path = tmp_path / "fit.npz"
    model = GPClassifier(KERNEL, inducing=8, coarse_rows=150, random_state=0, checkpoint=path).fit(
        *data
    )
    assert np.array_equal(clone(model).fit(*data).predict_proba(data[0]), model.predict_proba(data[0]))


def _flipped(content, where=None):
    where = len(content) // 2 if where is None else where
    return content[:where] + bytes([content[where] ^ 1]) + content[where + 1 :]


@pytest.mark.parametrize("likelihood", ["probit", "noisy_threshold"])
def test_a_finished_fit_is_read_again_with_its_result(data, tmp_path, likelihood):
    X, y = data
    model = GPClassifier(
        KERNEL, likelihood=likelihood, inducing=8, checkpoint=tmp_path / "fit", random_state=0
    )
    first = model.fit(X, y).predict_proba(X)
    assert np.ptp(first[:, 1]) > 0.5
    np.testing.assert_allclose(clone(model).fit(X, y).predict_proba(X), first, rtol=1e-9)
