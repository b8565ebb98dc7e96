"""Passes on a Dask cluster: the serial result, also where a worker dies."""

import os
import signal
import threading
import time
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("distributed")
import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster

from postlin.sparse.dask import DaskEngine, DaskSource
from postlin.sparse.engines import Threads
from postlin.sparse.sources import ArraySource
from postlin.sparse.survey import survey
from postlin.sparse.views import SourceRows, View


class Moments(NamedTuple):
    n: float
    second: np.ndarray


class Slow:
    """A share that takes its time and says where it is."""

    def __init__(self, folder=None):
        self.folder = folder

    def __call__(self, chunk):
        if self.folder:
            (self.folder / f"{os.getpid()}-{chunk.first}").touch()
            time.sleep(0.2)
        signed = chunk.y[:, None] * chunk.X  # summed row by row: the same bits wherever it lies
        return Moments(len(chunk.y), np.stack([(signed * x[:, None]).sum(axis=0) for x in chunk.X.T]))


@pytest.fixture(scope="module")
def client():
    quiet = {
        "distributed.logging.distributed": "critical",
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": "20s",
    }
    with (
        dask.config.set(quiet),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_000, 3))
    return X, np.where(X[:, 0] + rng.standard_normal(len(X)) > 0, "yes", "no")


def rows_of(source, engine):
    return SourceRows(source, engine, View(survey(source, engine, 1), np.array([-1.0, 1.0]), None))


def test_two_workers_give_the_serial_result(client, table):
    X, y = table
    serial = rows_of(ArraySource(X, y), Threads(1)).total(Slow())
    source = DaskSource.of(da.from_array(X, chunks=(3000, 2)), da.from_array(y, chunks=7000))
    rows = rows_of(source, DaskEngine(client))
    assert len(source.loads_anywhere()) == 12  # of 9,000 rows
    total = rows.total(Slow())
    assert total.n == serial.n
    np.testing.assert_allclose(total.second, serial.second, rtol=1e-10)
    assert np.array_equal(total.second, rows.total(Slow()).second)  # to the last bit


def test_a_worker_that_is_killed_during_a_pass_changes_nothing(client, table, tmp_path):
    X, y = table
    source = DaskSource.of(da.from_array(X, chunks=(10_000, 3)), y)
    rows = rows_of(source, DaskEngine(client))
    expected = rows.total(Slow())
    victim = next(iter(client.run(os.getpid).values()))

    def kill():
        while not any(tmp_path.glob(f"{victim}-*")):
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    total = rows.total(Slow(tmp_path))
    killer.join()
    assert np.array_equal(total.second, expected.second)
    assert victim not in client.run(os.getpid).values()


def test_data_frames_with_partitions_of_unknown_length(table):
    X, y = table
    frame = dd.from_pandas(pd.DataFrame(X, columns=["u", "v", "w"]).assign(kind=y), npartitions=30)
    frame = frame[frame.u > -1]
    source = DaskSource.of(frame[["u", "v", "w"]], frame.kind)
    rows = rows_of(source, DaskEngine())
    kept = X[:, 0] > -1
    sign = np.where(y[kept] == "yes", 1.0, -1.0)
    total = rows.total(Slow())
    assert total.n == kept.sum()
    np.testing.assert_allclose(total.second, X[kept].T @ (sign[:, None] * X[kept]), rtol=1e-9)
    assert survey(source, Threads(1), 0).names == ("u", "v", "w")
