"""Rows that are read in passes: sources, survey, samples, sums and inducing points."""

import logging
import pickle
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import postlin
from postlin.estimator.parameters import check_inducing
from postlin.inference.sparse.posterior import inducing_points
from postlin.streaming.engines import Threads, added, pairwise_sum
from postlin.streaming.sources import ArraySource, MappedSlice
from postlin.streaming.survey import survey
from postlin.streaming.views import ArrayRows, SourceRows, View


class Moments(NamedTuple):
    n: float
    first: np.ndarray
    second: np.ndarray


def moments(chunk):
    """A share that uses all of a chunk."""
    w = chunk.y if chunk.weight is None else chunk.y * chunk.weight
    signed = w[:, None] * chunk.X  # summed row by row: the same bits wherever it lies in memory
    second = np.stack([(signed * x[:, None]).sum(axis=0) for x in chunk.X.T])
    return Moments(len(chunk.y), signed.sum(axis=0), second)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 3))
    y = np.array(["a", "b", "c"])[rng.integers(3, size=len(X))]
    return X, y


def look(source, threads=1):
    return survey(source, Threads(threads), seed=1)


def rows_of(source, sign, factor=None, threads=1):
    return SourceRows(source, Threads(threads), View(look(source), np.asarray(sign, float), factor))


def cut(X, y, sizes, weight=None):
    """A function that opens chunks of these sizes, the last with all that is left."""
    ends = np.minimum(np.cumsum(sizes), len(X))

    def opened():
        for first, last in zip([0, *ends], [*ends, len(X)], strict=True):
            parts = (X[first:last], y[first:last])
            yield parts if weight is None else (*parts, weight[first:last])

    return opened


# sums


@given(st.integers(0, 40))
@settings(max_examples=20, deadline=None)
def test_pairwise_sum_is_the_sum_with_nothing_left_out(n):
    values = np.random.default_rng(n).standard_normal((n, 2))
    shares = [Moments(1.0, v, np.outer(v, v)) for v in values]
    total = pairwise_sum(iter(shares))
    if n == 0:
        assert total is None
    else:
        assert total.n == n
        np.testing.assert_allclose(total.second, values.T @ values, atol=1e-12)


def test_pairwise_sum_is_by_a_balanced_tree():
    assert pairwise_sum("abcdefg") == "abcdefg"  # in order

    class Depth:
        def __init__(self, depth=0):
            self.depth = depth

        def __add__(self, other):
            return Depth(1 + max(self.depth, other.depth))

    assert pairwise_sum(Depth() for _ in range(1000)).depth == 10


def test_shares_are_added_part_by_part_and_none_is_nothing():
    one = (1.0, Moments(1, np.ones(2), np.eye(2)))
    total = added(added(None, one), one)
    assert total[0] == 2.0
    assert total[1].n == 2
    assert (total[1].second == 2 * np.eye(2)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_totals_do_not_depend_on_threads(table, dtype):
    X, y = table
    X = (10 * X).astype(dtype)
    source = ArraySource(X, y)
    one, three = (rows_of(source, [1, -1, -1], threads=n).total(moments) for n in (1, 3))
    for a, b in zip(one, three, strict=True):
        assert np.array_equal(a, b)  # to the last bit
    sign = np.where(y == "a", 1.0, -1.0)
    np.testing.assert_allclose(one.first, sign @ X.astype(float))


def test_an_error_in_a_thread_comes_out(table):
    def share(chunk):
        if chunk.first > 0:
            raise RuntimeError("out of luck")
        return moments(chunk)

    with pytest.raises(RuntimeError, match="out of luck"):
        rows_of(ArraySource(*table), [1, -1, 0], threads=2).total(share)


# two classes of many


def test_pairs_weights_and_class_weights(table):
    X, y = table
    weight = np.random.default_rng(1).integers(0, 4, size=len(X)).astype(np.float32)
    rows = rows_of(ArraySource(X, y, weight), [1, 0, -1], factor=np.array([2.0, 7.0, 1.0]))
    used = (weight > 0) & (y != "b")
    assert rows.n == used.sum()
    total = rows.total(moments)
    assert total.n == used.sum()
    w = weight * np.select([y == "a", y == "c"], [2.0, -1.0], 0.0)
    np.testing.assert_allclose(total.second, X.T @ (w[:, None] * X), rtol=1e-10)


def test_labels_that_weigh_nothing_are_no_class(table):
    X, y = table
    found = look(ArraySource(X, y, (y != "c").astype(float)))
    assert list(found.classes) == ["a", "b"]
    assert rows_of(ArraySource(X, y, (y != "c").astype(float)), [-1, 1]).n == (y != "c").sum()


# samples


@pytest.mark.parametrize("k", [7, 5000, 40_000])
def test_a_sample_is_the_same_however_rows_are_cut(table, k):
    X, y = table
    s = np.where(y == "a", 1.0, -1.0)
    one = ArrayRows(X, s).sample(k, seed=3)
    many = rows_of(postlin.stream(cut(X, y, [1, 1, 8000, 3000, 100])), [1, -1, -1]).sample(k, seed=3)
    assert len(one.X) == min(k, len(X))
    assert np.array_equal(one.X, many.X)
    assert np.array_equal(one.y, many.y)
    assert not np.array_equal(one.X[:5], ArrayRows(X, s).sample(k, seed=4).X[:5]) or k > len(X)


def test_samples_are_uniform():
    X = np.arange(2000.0)[:, None]
    hits = np.zeros(2000)
    for seed in range(200):
        hits[ArrayRows(X, np.ones(2000)).sample(500, seed).X[:, 0].astype(int)] += 1
    assert abs(hits.reshape(20, 100).mean(axis=1) / 50 - 1).max() < 0.1
    assert abs(hits.var() / (200 * 0.25 * 0.75) - 1) < 0.2


# survey


def test_the_survey_knows_the_data(table):
    X, y = table
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    opened = [(frame[:10], y[:10]), (frame[10:10], y[10:10]), (frame[10:], y[10:])]
    found = look(postlin.stream(lambda: opened))
    assert (found.n, found.n_features, found.names) == (30_000, 3, ("u", "v", "w"))
    labels, counts = np.unique(y, return_counts=True)
    assert np.array_equal(found.classes, labels)
    assert np.array_equal(found.counts, counts)
    assert found.classes.dtype == y.dtype
    assert len(found.sample) == 20_000
    assert (found.sample_weight == 1.0).all()


def test_integer_labels_stay_integers():
    found = look(ArraySource(np.ones((4, 1)), np.array([3, 1, 1, 3], dtype=np.int32)))
    assert found.classes.dtype == np.int32
    assert found.classes.tolist() == [1, 3]


def test_a_label_that_appears_late_is_simply_known(table):
    X, y = table
    y = np.where(np.arange(len(y)) == 29_999, "z", y)
    assert list(look(postlin.stream(cut(X, y, [9000] * 3))).classes) == ["a", "b", "c", "z"]


# streams that are not what they should be


def bad_stream(change, sizes=(9000, 100, 9000)):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20_000, 2)), rng.integers(2, size=20_000).astype(object)
    return postlin.stream(
        lambda: change(*[list(part) for part in zip(*cut(X, y, sizes)(), strict=True)])
    )


def with_nan(Xs, ys):
    Xs[2] = Xs[2].copy()
    Xs[2][17, 1] = np.nan
    return zip(Xs, ys, strict=True)


def with_infinity(Xs, ys):
    Xs[1] = Xs[1].copy()
    Xs[1][0, 0] = -np.inf
    return zip(Xs, ys, strict=True)


def with_a_wide_chunk(Xs, ys):
    Xs[3] = np.hstack([Xs[3], Xs[3]])
    return zip(Xs, ys, strict=True)


def with_a_short_y(Xs, ys):
    ys[1] = ys[1][:-1]
    return zip(Xs, ys, strict=True)


def with_strings(Xs, ys):
    Xs[1] = Xs[1].astype(object)
    Xs[1][3, 0] = "three"
    return zip(Xs, ys, strict=True)


def with_no_label(Xs, ys):
    ys[1][5] = None
    return zip(Xs, ys, strict=True)


def with_numbers(Xs, ys):
    return ((X, X[:, 0]) for X in Xs)


def with_weights(Xs, ys):
    return ((X, y, np.where(np.arange(len(y)) == 50, -1.0, 1.0)) for X, y in zip(Xs, ys, strict=True))


def with_a_new_name(Xs, ys):
    frames = [pd.DataFrame(X, columns=["u", "v"]) for X in Xs]
    frames[2].columns = ["u", "x"]
    return zip(frames, ys, strict=True)


def with_mixed_labels(Xs, ys):
    ys[2] = np.array(["one"] * len(ys[2]), dtype=object)
    return zip(Xs, ys, strict=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_nan, r"row 9117 of X holds NaN \(chunk 2, feature 1\)"),
        (with_infinity, r"row 9000 of X holds infinity \(chunk 1, feature 0\)"),
        (with_a_wide_chunk, r"chunk 3 of X has 4 features, and those before it have 2"),
        (with_a_short_y, r"chunk 1 has 100 rows of X and labels of shape \(99,\)"),
        (with_strings, r"chunk 1 of X holds values that are not numbers"),
        (with_no_label, r"row 9005 has no label \(chunk 1\)"),
        (with_numbers, r"Unknown label type: continuous"),
        (with_weights, r"that of row 50 is -1 \(chunk 0\)"),
        (with_a_new_name, r"chunk 2 of X has other feature names than those before it: u, x, not u, v"),
        (with_mixed_labels, r"labels of different types"),
        (lambda Xs, ys: [], r"the stream is empty"),
        (lambda Xs, ys: Xs, r"chunk 0 of the stream must be \(X, y\) or \(X, y, weight\)"),
        (lambda Xs, ys: 3, r"must return an iterable of chunks, got int"),
        (lambda Xs, ys: [(Xs[0][:, 0], ys[0])], r"chunk 0 of X must be an array"),
        (lambda Xs, ys: [(Xs[0], ys[0], 0 * Xs[0][:, 0])], r"zero everywhere"),
    ],
)
def test_bad_streams_get_one_clear_sentence(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        look(bad_stream(change))


def test_a_stream_that_can_be_read_only_once(table):
    X, y = table
    chunks = cut(X, y, [9000])()
    with pytest.raises(TypeError, match=r"a function that opens the chunks anew"):
        postlin.stream(chunks)
    source = postlin.stream(lambda: chunks)
    rows = rows_of(source, [1, -1, -1])
    with pytest.raises(ValueError, match=r"gave 30,000 rows when it was first read and none now"):
        rows.total(moments)


def test_a_stream_that_changes(table):
    X, y = table
    state = {"n": 30_000, "y": y}
    source = postlin.stream(lambda: cut(X[: state["n"]], state["y"][: state["n"]], [9000])())
    rows = rows_of(source, [1, -1, -1])
    state["n"] = 29_000
    with pytest.raises(ValueError, match=r"30,000 rows when it was first read and 29,000 now"):
        rows.total(moments)
    state.update(n=30_000, y=np.where(np.arange(len(y)) == 9001, "new", y))
    with pytest.raises(ValueError, match=r"row 9001 has the label new \(chunk 1\), which is none of"):
        rows.total(moments)


def test_chunks_that_are_put_together_keep_their_numbers_and_kinds_of_labels():
    X, y = np.zeros((10, 2)), np.array(["a", "b"] * 5)
    empty = X[:0], y[:0]
    late = postlin.stream(
        lambda: [(X, y), empty, (X, y), (X, np.roll(["c"] + ["a"] * 9, 3))], classes=y
    )
    with pytest.raises(ValueError, match=r"row 23 has the label c \(chunk 3\), which is none of"):
        look(late)
    with pytest.raises(TypeError, match="labels of different types"):
        look(postlin.stream(lambda: [(X, y), (X, np.arange(10) % 2)]))


def test_labels_outside_given_classes(table):
    with pytest.raises(ValueError, match=r"has the label c \(chunk 0\), which is none of the classes"):
        look(postlin.stream(cut(*table, [9000]), classes=["a", "b"]))


# memory maps and Parquet


def test_a_memory_map_is_sliced_and_not_copied(tmp_path, table):
    X, y = table
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    source = ArraySource(mapped, y)
    for load, away in zip(source.loads(), source.loads_anywhere(), strict=True):
        assert np.shares_memory(load.args[0], mapped)
        assert np.array_equal(load().X, away().X)
    other = mapped[5:1000:3, 1:]
    assert np.array_equal(np.asarray(MappedSlice.of(other)), other)
    assert ArraySource(X, y).loads_anywhere() is None


@pytest.fixture
def files(tmp_path, table):
    X, y = table
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(
        kind=y, times=1.0 + (y == "a"), u2=X[:, 0] > 0
    )
    for k, first in enumerate(range(0, 30_000, 12_000)):
        part = pa.Table.from_pandas(frame[first : first + 12_000], preserve_index=False)
        pq.write_table(part, tmp_path / f"part{k}.parquet", row_group_size=5000)
    return tmp_path


def test_parquet_files_are_the_arrays_they_hold(files, table):
    X, y = table
    source = postlin.parquet(files, target="kind", features=["u", "v", "w"], weight="times")
    direct = ArraySource(X, y, 1.0 + (y == "a"))
    one, other = (rows_of(s, [1, -1, -1], threads=2).total(moments) for s in (source, direct))
    np.testing.assert_allclose(one.second, other.second, rtol=1e-12)
    assert look(source).names == ("u", "v", "w")
    assert [load().first for load in source.loads_anywhere()] == [0, 10_000, 12_000, 22_000, 24_000]
    everything = look(postlin.parquet([files / "part1.parquet"], target="kind"))
    assert everything.names == ("u", "v", "w", "times", "u2")
    assert everything.n == 12_000


def test_parquet_files_keep_their_types_and_order_and_are_loaded_anywhere(files):
    inner = files / "a.b"
    inner.mkdir()
    (inner / "notes.txt").write_text("no rows")
    for name, numbers in (("2", [1, 2, 3]), ("1", [0.5, 1.5])):
        pq.write_table(
            pa.table({"kind": ["a", "b", "a"][: len(numbers)], "x.y": numbers}),
            inner / f"{name}.parquet",
        )
    pq.write_table(pa.table({"kind": ["a"], "x.y": [4.0]}).slice(1), inner / "0.parquet")
    source = postlin.parquet([inner, inner / "2.parquet"], target="kind")
    loads = source.loads_anywhere()
    sent = [load() for load in pickle.loads(pickle.dumps(loads))]
    assert [part.X[:, 0].tolist() for part in sent] == [[0.5, 1.5], [1, 2, 3], [1, 2, 3]]
    assert [(part.first, part.number, part.names) for part in sent] == [
        (0, 0, ("x.y",)),
        (2, 1, ("x.y",)),
        (5, 2, ("x.y",)),
    ]
    pq.write_table(pa.table({"kind": ["a"]}), inner / "3.parquet")
    with pytest.raises(ValueError, match=r"3\.parquet' has no column 'x\.y'"):
        postlin.parquet(inner, target="kind")


def test_parquet_files_that_are_not_what_they_should_be(files, monkeypatch):
    with pytest.raises(ValueError, match=r"has no column 'label'"):
        postlin.parquet(files, target="label")
    with pytest.raises(ValueError, match="no Parquet files"):
        postlin.parquet([], target="kind")
    with pytest.raises(ValueError, match=r"test_rows\.py' is not a Parquet file, or it is damaged"):
        postlin.parquet(__file__, target="kind")
    with pytest.raises(FileNotFoundError):
        postlin.parquet(files / "nothing.parquet", target="kind")
    with pytest.raises(ValueError, match=r"column 'kind' of .* holds values that are not numbers"):
        look(postlin.parquet(files, target="u2"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install pyarrow"):
        postlin.parquet(files, target="kind")


def test_importing_postlin_needs_neither_pyarrow_nor_dask():
    code = (
        "import sys; sys.modules |= dict.fromkeys(['pyarrow', 'dask', 'distributed']); import postlin"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_asking_for_dask_does_not_import_it():
    code = (
        "import sys; from postlin.streaming.dask import is_dask; assert not is_dask([[1.0]]); "
        "assert not {'dask', 'distributed', 'pyarrow.dataset'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_passes_are_logged(table, caplog):
    rows = rows_of(ArraySource(*table), [1, -1, -1])
    with caplog.at_level(logging.DEBUG, "postlin"):
        rows.sample(5, 0)
    assert re.search(r"pass over 30,000 rows in \d+\.\d\d s: a sample", caplog.text)


# inducing points


def test_k_means_points_are_distinct_and_inside_the_data(table):
    X, _ = table
    Z = inducing_points(50, X[:5000], 30_000, seed=0)
    assert Z.shape == (50, 3)
    assert len(np.unique(Z, axis=0)) == 50
    assert (X.min(axis=0) < Z.min(axis=0)).all()
    assert (Z.max(axis=0) < X.max(axis=0)).all()
    assert np.array_equal(Z, inducing_points(50, X[:5000], 30_000, seed=0))
    spread = ((X[:, None] - Z) ** 2).sum(axis=2).min(axis=1).mean()
    random = ((X[:, None] - X[:50]) ** 2).sum(axis=2).min(axis=1).mean()
    assert spread < 0.8 * random


def test_repeated_rows_make_no_repeated_points():
    X = np.repeat(np.arange(6.0)[:, None], 50, axis=0)
    assert np.array_equal(inducing_points(6, X, 300, seed=0), np.arange(6.0)[:, None])
    assert len(np.unique(inducing_points(5, X, 300, seed=0))) == 5
    with pytest.raises(ValueError, match="more points than X has distinct rows, 6: use fewer"):
        inducing_points(7, X, 300, seed=0)


@pytest.mark.parametrize(
    ("inducing", "message"),
    [
        (11, "more points than there are rows, 10"),
        (np.ones((2, 3)), "inducing has 3 features and X has 2"),
        ([[0.0, 1.0], [np.inf, 1.0]], "its row 1 holds NaN or infinity"),
        ([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]], "its row 2 repeats row 0"),
        (np.zeros((11, 2)), "holds 11 points and X 10 rows"),
        ([["a", "b"]], "must hold numbers"),
    ],
)
def test_inducing_points_that_cannot_be_used(inducing, message):
    X = np.random.default_rng(0).standard_normal((10, 2))
    with pytest.raises(ValueError, match=message):
        inducing_points(inducing, X, 10, seed=0)


@pytest.mark.parametrize("inducing", [0, -3, True, 2.5, "many", [1.0, 2.0]])
def test_inducing_must_be_a_number_or_an_array(inducing):
    with pytest.raises(ValueError, match="inducing must be None, a positive number"):
        check_inducing(inducing)
