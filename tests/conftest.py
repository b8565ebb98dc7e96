"""Shared fixtures: the paper's data sets and its covariance function."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from postlin.datasets import load, whiten
from postlin.linalg import block_tiles, tiles


class Data:
    """A whitened data set with labels ±1, or some of its rows."""

    def __init__(self, name, rows=None, seed=0):
        bunch = load(name)
        X, y = whiten(bunch.X), np.where(bunch.y == np.unique(bunch.y)[1], 1.0, -1.0)
        if rows is not None:
            chosen = np.random.default_rng(seed).permutation(len(y))[:rows]
            X, y = X[chosen], y[chosen]
        self.X, self.y = X, y

    def covariance(self, variance, length_scale, noise=0.1):
        squared = cdist(self.X, self.X, "sqeuclidean")
        K = variance * np.exp(-0.5 * squared / length_scale**2)
        return K + noise * np.eye(len(K))


@pytest.fixture(scope="session")
def data():
    """``data(name, rows)``: cached."""
    cache = {}

    def get(name, rows=None):
        if (name, rows) not in cache:
            cache[name, rows] = Data(name, rows)
        return cache[name, rows]

    return get


def _torch(array):
    return pytest.importorskip("torch").asarray(array)


def _strict(array):
    # a device that lets in neither NumPy's arrays nor those of its own library on another one
    strict = pytest.importorskip("array_api_strict")
    return strict.asarray(array, device=strict.Device("device1"))


@pytest.fixture(params=[_torch, _strict], ids=["torch", "strict"])
def put(request, monkeypatch):
    """What puts an array elsewhere than in NumPy's memory; blocks so small that every loop runs."""
    monkeypatch.setattr(tiles, "_BLOCK", 16)
    monkeypatch.setattr(tiles, "_PANEL", 800)
    monkeypatch.setattr(block_tiles, "_ENTRIES", 900)
    return request.param


def pytest_terminal_summary(terminalreporter):
    """Print the table of the campaign, whichever processes its chunks ran in."""
    reports = (report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind))
    parts = [
        value for report in reports for name, value in report.user_properties if name == "campaign"
    ]
    if parts:
        import campaign

        terminalreporter.section("campaign")
        terminalreporter.write_line(campaign.joined(parts))
