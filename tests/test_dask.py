"""Passes on a Dask cluster: the serial result, also where a worker dies."""

import logging
import os
import pickle
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
from distributed import Client, LocalCluster, wait
from joblib import parallel_config
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import cross_val_score

import postlin
from postlin import GPClassifier
from postlin.learning import local_evidence, local_search, local_training
from postlin.streaming.dask import DaskEngine, DaskSource, active_client
from postlin.streaming.dask_surroundings import DaskNeighbours
from postlin.streaming.engines import Threads
from postlin.streaming.neighbours import Neighbours
from postlin.streaming.sources import ArraySource
from postlin.streaming.survey import survey
from postlin.streaming.views import SourceRows, View


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
        # A cluster gives a worker up for good that is restarting so long after it was killed: a worker
        # that tests kill again then would never come back, and the tests would wait for ever.
        "distributed.deploy.lost-worker-timeout": "1h",
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
    X = rng.standard_normal((40_000, 3))
    return X, np.where(X[:, 0] + rng.standard_normal(len(X)) > 0, "yes", "no")


def rows_of(source, engine):
    return SourceRows(source, engine, View(survey(source, engine, 1), np.array([-1.0, 1.0]), None))


def test_two_workers_give_the_serial_result(client, table):
    X, y = table
    serial = rows_of(ArraySource(X, y), Threads(1)).total(Slow())
    source = DaskSource.of(da.from_array(X, chunks=(3000, 2)), da.from_array(y, chunks=7000))
    rows = rows_of(source, DaskEngine(client))
    assert len(source.loads_anywhere()) == 5  # of 9,000 rows
    total = rows.total(Slow())
    assert total.n == serial.n
    np.testing.assert_allclose(total.second, serial.second, rtol=1e-10)
    assert np.array_equal(total.second, rows.total(Slow()).second)  # to the last bit


def test_a_worker_that_is_killed_during_a_pass_changes_nothing(client, table, tmp_path):
    X, y = table
    source = DaskSource.of(da.from_array(X, chunks=(8_000, 3)), y)
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


def _nearest(X, queries, k, own):
    squares = ((queries[:, None] - X) ** 2).sum(axis=2)
    squares[np.arange(len(queries)), own] = np.inf
    return np.argsort(squares, axis=1, kind="stable")[:, :k]


def test_neighbours_on_the_cluster_are_those_here_though_a_worker_dies(client, table):
    X, y = table[0][:27_000], table[1][:27_000]
    here = Neighbours.of(X, np.ones(3))
    source = DaskSource.of(da.from_array(X, chunks=(9_000, 3)), da.from_array(y, chunks=9_000))
    there = DaskNeighbours.of(source, np.ones(3), client)
    assert len(there.parts) == 3
    own = np.arange(500, 510)
    wait(there.parts[0])
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)  # with what it holds
    found, expected = (index.query(X[own], 20, leave_out=own) for index in (there, here))
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.distances, expected.distances)
    assert np.array_equal(found.indices, _nearest(X, X[own], 20, own))


def test_neighbourhoods_bring_rows_and_labels(table):
    X, y = table[0][:20_000], table[1][:20_000]
    source = DaskSource.of(da.from_array(X, chunks=(8_000, 3)), da.from_array(y, chunks=8_000))
    lengths = np.array([0.2, 1.0, 5.0])
    own = np.array([3, 9_000, 19_999])
    with dask.config.set(scheduler="synchronous"):
        there = DaskNeighbours.of(source, np.ones(3)).rescaled(lengths)
        found, rows, labels, weights = there.result(there.neighbourhoods(X[own], 7, own))
    assert np.array_equal(found.indices, _nearest(X / lengths, X[own] / lengths, 7, own))
    assert np.array_equal(rows, X[found.indices])
    assert np.array_equal(labels, y[found.indices])
    assert (weights == 1).all()


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


MODEL = GPClassifier(4.0 * RBF(1.5) + WhiteKernel(0.1, "fixed"), inducing=12, random_state=0)


def test_a_fit_on_the_cluster_is_the_fit_here_though_a_worker_dies(client, table, caplog):
    X, y = table[0][:20_000], table[1][:20_000]
    model = clone(MODEL).set_params(optimizer=None)
    here = clone(model).fit(X, y)
    victim = next(iter(client.run(os.getpid).values()))

    class Killer(logging.Handler):
        """In the middle of a pass, after two of them."""

        passes = 0

        def emit(self, record):
            self.passes += 1
            if self.passes == 2:
                threading.Timer(0.05, os.kill, (victim, signal.SIGKILL)).start()

    logger, killer = logging.getLogger("postlin"), Killer()
    caplog.set_level(logging.DEBUG, "postlin")
    logger.addHandler(killer)
    try:
        there = clone(model).fit(da.from_array(X, chunks=(5000, 3)), da.from_array(y, chunks=5000))
    finally:
        logger.removeHandler(killer)
    assert killer.passes > 3
    np.testing.assert_allclose(there.predict_proba(X[:50]), here.predict_proba(X[:50]), rtol=1e-9)
    np.testing.assert_allclose(
        there.log_marginal_likelihood_value_, here.log_marginal_likelihood_value_, rtol=1e-10
    )
    gradients = [m.log_marginal_likelihood(eval_gradient=True)[1] for m in (here, there)]
    np.testing.assert_allclose(*gradients, rtol=1e-5)
    lazy = there.predict_proba(da.from_array(X, chunks=(7000, 2)))
    assert lazy.shape == (20_000, 2)
    assert lazy.chunks[0] == (7000, 7000, 6000)
    np.testing.assert_allclose(lazy[:50].compute(), here.predict_proba(X[:50]), rtol=1e-8)
    labels = there.predict(da.from_array(X, chunks=(7000, 3)))
    assert (labels.compute() == here.predict(X)).all()


def test_files_are_loaded_on_the_cluster_and_arrays_stay_here(client, table, tmp_path):
    X, y = table[0][:20_000], table[1][:20_000]
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(kind=y)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=5000)
    model = clone(MODEL).set_params(optimizer=None)
    expected = clone(model).fit(X, y).predict_proba(X[:50])
    assert active_client() is None
    with parallel_config("dask"):
        assert active_client() is client
        for rows in ((X, y), (mapped, y), (postlin.parquet(tmp_path, target="kind"),)):
            found = clone(model).fit(*rows)
            elsewhere = isinstance(found.base_estimator_.model.rows.engine, DaskEngine)
            assert elsewhere == (rows[0] is not X)
            new = frame[["u", "v", "w"]][:50] if len(rows) == 1 else X[:50]
            np.testing.assert_allclose(found.predict_proba(new), expected, rtol=1e-8)


def test_cross_validation_on_the_cluster(client, table):
    X, y = table[0][:600], table[1][:600]
    model = clone(MODEL).set_params(optimizer=None)
    with parallel_config("dask"):
        scores = cross_val_score(model, X, y, cv=3)
    np.testing.assert_allclose(scores, cross_val_score(model, X, y, cv=3))


def test_data_frames_are_predicted_lazily(table):
    X, y = table[0][:500], table[1][:500]
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    model = clone(MODEL).set_params(optimizer=None).fit(frame, y)
    lazy = model.predict_proba(dd.from_pandas(frame, npartitions=3))
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_allclose(lazy.compute(), model.predict_proba(frame))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(99), "y must be a Dask collection that is cut as X is"),
        (da.zeros(99), "X has 100 rows and y has 99"),
        (dd.from_pandas(pd.Series(np.zeros(100)), npartitions=3), "X has 2 partitions and y has 3"),
    ],
)
def test_labels_that_do_not_fit(y, message):
    with pytest.raises(ValueError, match=message):
        DaskSource.of(da.ones((100, 2), chunks=(50, 2)), y)
    with pytest.raises(ValueError, match="exact inference needs all rows in memory"):
        GPClassifier().fit(da.ones((100, 2)), y)


def test_what_is_wrong_in_a_partition_is_said_with_its_row():
    X = np.ones((20_000, 2))
    X[15_007, 1] = np.nan
    for rows, chunk in ((9000, 1), (1000, 15)):  # small ones are put together
        source = DaskSource.of(da.from_array(X, chunks=(rows, 2)), np.zeros(20_000))
        with (
            dask.config.set(scheduler="synchronous"),
            pytest.raises(ValueError, match=rf"row 15007 of X holds NaN \(chunk {chunk},"),
        ):
            survey(source, DaskEngine(), 0)


def test_models_that_are_not_fitted_say_so_at_once():
    for ask in (GPClassifier().predict, GPClassifier().predict_proba):
        with pytest.raises(NotFittedError):
            ask(da.ones((100, 2)))


@pytest.mark.slow
def test_folds_run_on_the_cluster(client, tmp_path):
    from typer.testing import CliRunner

    from postlin.workbench.cli.app import app

    command = ["evaluate", "crab", "--methods", "PPL", "--folds", "2"]
    address = client.scheduler_info()["address"]
    there = CliRunner().invoke(app, [*command, "--dask", address, "--out", str(tmp_path / "there")])
    assert there.exit_code == 0, there.output
    here = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "here")])
    assert here.exit_code == 0, here.output
    one, other = (pd.read_csv(tmp_path / p / "results.csv") for p in ("here", "there"))
    scores = [name for name in one if "error" in name or "nlpd" in name]
    assert scores
    np.testing.assert_allclose(one[scores], other[scores], rtol=1e-6)


LOCAL = GPClassifier(
    4.0 * RBF([1.5, 1.5, 1.5]) + WhiteKernel(0.1, (1e-3, 1.0)), n_neighbors=12, random_state=0
)


def _near(X, y):
    return da.from_array(X, chunks=(2000, 3)), da.from_array(y, chunks=2000)


@pytest.fixture
def short(monkeypatch):
    """Learning of few steps."""
    monkeypatch.setattr(local_search, "STEPS", 2)
    monkeypatch.setattr(local_search, "HELD", 300)
    monkeypatch.setattr(local_training, "_ROUNDS", 2)
    monkeypatch.setattr(local_evidence, "_ROWS", 100)
    monkeypatch.setattr(local_evidence, "_SPARSE_ROWS", 300)


class KillAfter(logging.Handler):
    """Kills a worker a moment after so many lines of progress."""

    def __init__(self, client, lines):
        super().__init__()
        self.left, self.victim = lines, next(iter(client.run(os.getpid).values()))

    def emit(self, record):
        self.left -= 1
        if self.left == 0:
            threading.Timer(0.05, os.kill, (self.victim, signal.SIGKILL)).start()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("inducing", [None, 15])
def test_neighbours_are_learned_and_predicted_on_the_cluster_though_workers_die(
    client, table, caplog, inducing
):
    X, y, new = table[0][:8000], table[1][:8000], table[0][-5000:]
    model = clone(LOCAL).set_params(inducing=inducing)
    here = clone(model).fit(X, y)
    logger, killer = logging.getLogger("postlin"), KillAfter(client, 3)
    caplog.set_level(logging.INFO, "postlin")
    logger.addHandler(killer)
    try:
        there = clone(model).fit(*_near(X, y))
    finally:
        logger.removeHandler(killer)
    assert killer.left < 0
    assert killer.victim not in client.run(os.getpid).values()
    np.testing.assert_allclose(there.kernel_.theta, here.kernel_.theta, rtol=0, atol=1e-10)
    expected = here.predict_proba(new)
    victim = next(iter(client.run(os.getpid).values()))
    threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()
    np.testing.assert_allclose(there.predict_proba(new), expected, rtol=0, atol=1e-10)
    lazy = there.predict_proba(da.from_array(new, chunks=(1500, 2)))
    assert lazy.chunks == ((1500, 1500, 1500, 500), (2,))
    victim = next(iter(client.run(os.getpid).values()))
    threading.Timer(0.2, os.kill, (victim, signal.SIGKILL)).start()
    np.testing.assert_allclose(lazy.compute(), expected, rtol=0, atol=1e-10)
    labels = there.predict(da.from_array(new[:2000], chunks=(1500, 3))).compute()
    assert (labels == here.predict(new[:2000])).all()
    frame = dd.from_pandas(pd.DataFrame(new[:300]), npartitions=2)  # whose lengths are not known
    np.testing.assert_allclose(there.predict_proba(frame).compute(), expected[:300], atol=1e-10)


def test_the_rows_of_a_copied_model_stay_on_the_cluster(table):
    X, y = table[0][:500], table[1][:500]
    with dask.config.set(scheduler="synchronous"):
        model = clone(LOCAL).set_params(optimizer=None).fit(*_near(X, y))
        p = model.predict_proba(X[:9])
    copy = pickle.loads(pickle.dumps(model))
    with pytest.raises(AttributeError, match="rows of this model are on a Dask cluster"):
        copy.predict_proba(X[:9])
    assert p.shape == (9, 2)
