"""The search for neighbours: against brute force, whatever the search, blocks, threads and parts."""

import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from postlin.linalg import arrays
from postlin.linalg.arrays import place_of
from postlin.streaming import neighbours, places, searches
from postlin.streaming.chunks import checked
from postlin.streaming.engines import Threads
from postlin.streaming.neighbours import Neighbours, Searching, low_recall, merge
from postlin.streaming.places import Places, turns
from postlin.streaming.sources import Source

RNG = np.random.default_rng(0)


def _truth(rows, queries, lengths, k, leave_out=None):
    """Row numbers and distances by a full sort, by distance and then by turn."""
    rows, queries = np.asarray(rows, float), np.asarray(queries, float)
    squares = np.zeros((len(queries), len(rows)))
    for j in range(rows.shape[1]):  # the order of the sum decides which distances are equal
        squares += (
            (rows[:, j] - queries[:, j][:, None]) / np.broadcast_to(lengths, rows.shape[1])[j]
        ) ** 2
    if leave_out is not None:
        squares[np.arange(len(queries)), leave_out] = np.inf
    turn = np.broadcast_to(turns(np.arange(len(rows))), squares.shape)
    order = np.lexsort((turn, squares), axis=1)[:, : min(k, len(rows) - (leave_out is not None))]
    return order, np.sqrt(np.take_along_axis(squares, order, 1))


def _check(found, truth):
    assert_array_equal(found.indices, truth[0])
    assert_array_equal(found.distances, truth[1])


def _rows(n, d, kind="normal"):
    rows = np.random.default_rng(n + d).normal(size=(n, d))
    return np.round(rows) if kind == "grid" else rows


@pytest.mark.parametrize("kind", ["normal", "grid"])
@pytest.mark.parametrize("d", [1, 3, 12])  # a tree, and brute force
def test_exact_search_finds_the_nearest_rows_and_equal_ones_in_turn(d, kind):
    rows, queries = _rows(600, d, kind), _rows(80, d, kind)
    lengths = np.geomspace(0.2, 5.0, d)
    index = Neighbours.of(rows, lengths)
    assert index.exact
    _check(index.query(queries, 20), _truth(rows, queries, lengths, 20))
    own = np.arange(600)
    _check(index.query(rows, 20, leave_out=own), _truth(rows, rows, lengths, 20, own))


@pytest.mark.parametrize("d", [2, 8])
def test_blocks_threads_and_candidates_change_nothing(d, monkeypatch):
    rows, queries = _rows(500, d, "grid"), _rows(70, d, "grid")
    expected = Neighbours.of(rows, np.ones(d), n_jobs=1).query(queries, 9)
    monkeypatch.setattr(searches, "_ON_HOST", 100)
    monkeypatch.setattr(places, "BLOCK", 64)
    monkeypatch.setattr(neighbours, "_SPARE", 1)
    for n_jobs in (1, 3):
        found = Neighbours.of(rows, np.ones(d), n_jobs=n_jobs).query(queries, 9)
        _check(found, (expected.indices, expected.distances))


@pytest.mark.parametrize("d", [2, 8])
def test_thousands_of_equal_rows_never_bring_a_row_itself(d):
    rows = np.zeros((3000, d))
    rows[::3] = _rows(1000, d)
    index = Neighbours.of(rows, np.ones(d))
    own = np.array([1, 2, 4, 2999, 0, 3])
    found = index.query(rows[own], 30, leave_out=own)
    _check(found, _truth(rows, rows[own], np.ones(d), 30, own))
    there = np.setdiff1d(np.flatnonzero((rows == 0).all(axis=1)), 2)
    assert_array_equal(found.indices[1, :3], there[np.argsort(turns(there))][:3])


def test_all_rows_at_one_place():
    index = Neighbours.of(np.full((50, 3), 7.0), np.ones(3))
    found = index.query(np.full((2, 3), 7.0), 4, leave_out=np.array([2, 40]))
    order = np.argsort(turns(np.arange(50)))
    assert_array_equal(found.indices, [order[order != out][:4] for out in (2, 40)])
    assert_array_equal(found.distances, 0)


@pytest.mark.parametrize("n", [64, 1000, 100_000])
def test_equal_rows_of_a_sorted_table_are_taken_from_everywhere(n):
    number = np.arange(n)
    assert len(np.unique(turns(number))) == n
    first = np.argsort(turns(number))[:32]
    for share in (0.25, 0.5, 0.75):  # of the labels of a table that is sorted by them
        assert abs((first < share * n).mean() - share) < 0.1
    for period in (2, 3, 7):
        assert np.ptp(np.bincount(first % period, minlength=period)) <= 0.5 * 32


def test_equal_keys_of_different_rows_are_noticed(monkeypatch):
    rows = np.array([[1.0, 0], [2, 0], [1, 0], [3, 0], [2, -0.0]])
    expected = Places.of(rows)
    assert_array_equal([sorted(expected.members[:2]), sorted(expected.members[2:4])], [[0, 2], [1, 4]])
    assert expected.members[4] == 3
    assert_array_equal(expected.starts, [0, 2, 4, 5])
    monkeypatch.setattr(places, "_keys", lambda rows: np.zeros(len(rows), np.uint64))
    assert_array_equal(Places.of(rows).members, expected.members)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_fewer_rows_than_neighbours(n):
    rows = _rows(n, 3)
    index = Neighbours.of(rows, np.ones(3))
    _check(index.query(rows, 7), _truth(rows, rows, np.ones(3), n))
    own = np.arange(n)
    found = index.query(rows, 7, leave_out=own)
    assert found.indices.shape == (n, n - 1)
    _check(found, _truth(rows, rows, np.ones(3), 7, own))


@pytest.mark.parametrize("length", [1e-5, 1e5])
def test_extreme_length_scales_and_constant_columns(length):
    rows = np.column_stack([_rows(400, 9), np.full((400, 3), 1e12)])
    lengths = np.array([length] * 5 + [1.0] * 7)
    index = Neighbours.of(rows, lengths)
    _check(index.query(rows[:50], 10), _truth(rows, rows[:50], lengths, 10))


def test_constant_columns_do_not_keep_a_tree_from_being_used():
    few = np.column_stack([_rows(100, 2), np.ones((100, 10))])
    assert isinstance(Neighbours.of(few, np.ones(12)).search, searches.Tree)
    assert isinstance(Neighbours.of(_rows(100, 12), np.ones(12)).search, searches.BruteForce)


@pytest.mark.parametrize("d", [3, 10])
def test_offsets_and_outliers_lose_no_digits_in_exact_search(d):
    rows = 1e8 + _rows(400, d)
    rows[17] = 1e30
    index = Neighbours.of(rows, np.ones(d))
    _check(index.query(rows[:60], 12), _truth(rows, rows[:60], np.ones(d), 12))


def test_other_length_scales_of_the_same_rows():
    rows = np.repeat(_rows(200, 4), 2, axis=0)
    lengths = np.array([5.0, 0.2, 1.0, 3.0])
    index = Neighbours.of(rows, np.ones(4)).rescaled(lengths)
    _check(index.query(rows[:40], 8), _truth(rows, rows[:40], lengths, 8))


def test_memory_maps_and_single_precision(tmp_path):
    rows = _rows(300, 9).astype(np.float32)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    index = Neighbours.of(np.load(path, mmap_mode="r"), np.ones(9))
    _check(index.query(rows[:30], 5), _truth(rows, rows[:30], np.ones(9), 5))


@pytest.mark.parametrize("kind", ["normal", "grid"])
@pytest.mark.parametrize("d", [1, 9])
def test_a_device_finds_the_same(put, d, kind, monkeypatch):
    rows, queries = _rows(150, d, kind), _rows(20, d, kind)
    monkeypatch.setattr(searches, "_ELSEWHERE", 1000)
    index = Neighbours.of(rows, np.full(d, 1.7), place=place_of(put(rows)))
    assert isinstance(index.search, searches.OnDevice)
    assert index.exact
    _check(index.query(queries, 6), _truth(rows, queries, np.full(d, 1.7), 6))
    own = np.arange(20)
    _check(index.query(rows[:20], 6, leave_out=own), _truth(rows, rows[:20], np.full(d, 1.7), 6, own))


def test_the_smallest_entries_of_rows(put):
    A = RNG.normal(size=(5, 9))
    for matrix in (A, put(A)):
        columns, largest = map(arrays.on_host, arrays.smallest(matrix, 4))
        assert_array_equal(np.sort(columns, axis=1), np.sort(np.argsort(A, axis=1)[:, :4], axis=1))
        assert_array_equal(largest, np.sort(A, axis=1)[:, 3])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 50))
def test_parts_are_merged_to_the_same_result(seed, sizes, k):
    rng = np.random.default_rng(seed)
    rows, queries = (rng.integers(-2, 3, size=(n, 2)) * 1.1 for n in (sum(sizes), 6))
    own = rng.integers(0, len(rows), 6)
    parts, first = [], 0
    for size in sizes:
        part = Neighbours.of(rows[first : first + size], np.array([0.3, 2.0]), first=first)
        parts.append(part.query(queries, k, leave_out=own))
        first += size
    whole = Neighbours.of(rows, np.array([0.3, 2.0])).query(queries, k, leave_out=own)
    turned = rng.permutation(len(parts))
    _check(merge([parts[i] for i in turned]), (whole.indices, whole.distances))
    _check(whole, _truth(rows, queries, np.array([0.3, 2.0]), k, own))
    with pytest.raises(ValueError, match="for 2 and for 3 neighbours cannot be merged"):
        merge([Neighbours.of(rows, np.ones(2)).query(queries, k) for k in (2, 3)])


class _Chunks(Source):
    def __init__(self, rows, cuts):
        self.chunks = [
            checked(part, np.zeros(len(part), int), None, first, i)
            for i, (first, part) in enumerate(zip([0, *cuts], np.split(rows, cuts), strict=True))
        ]

    def loads(self):
        return [lambda chunk=chunk: chunk for chunk in self.chunks]

    def loads_anywhere(self):
        return self.loads()


@pytest.mark.parametrize("engine", ["threads", "dask"])
def test_engines_search_any_source_in_one_pass(engine):
    rows, queries = _rows(300, 4, "grid"), _rows(10, 4, "grid")
    if engine == "dask":
        pytest.importorskip("dask")
        from postlin.streaming.dask import DaskEngine
    by = DaskEngine() if engine == "dask" else Threads(2)
    found = by.total(_Chunks(rows, [40, 41, 200]), Searching(queries, np.ones(4), 15))
    _check(found, _truth(rows, queries, np.ones(4), 15))


def _approximate(rows, lengths, **options):
    pytest.importorskip("faiss")
    return Neighbours.of(rows, lengths, exact=False, **options)


@pytest.mark.parametrize("d", [2, 10])
def test_approximate_search_finds_nearly_all(d):
    rows = _rows(4000, d)
    lengths = np.geomspace(0.2, 5.0, d)
    index = _approximate(rows, lengths, k=20, n_jobs=1)
    assert not index.exact
    truth = _truth(rows, rows[:300], lengths, 20, np.arange(300))
    found = index.query(rows[:300], 20, leave_out=np.arange(300))
    shared = np.mean([np.isin(a, b).mean() for a, b in zip(found.indices, truth[0], strict=True)])
    assert shared > 0.97
    assert abs(index.recall(300) - shared) < 0.02
    assert (np.diff(found.distances, axis=1) >= 0).all()
    far = np.linalg.norm((rows[found.indices] - rows[:300, None]) / lengths, axis=2)
    assert_allclose(found.distances, far)
    again = _approximate(rows, lengths, k=20, n_jobs=3)
    _check(again.query(rows[:300], 20, leave_out=np.arange(300)), (found.indices, found.distances))


def test_approximate_search_needs_more_probes_where_neighbours_lie_in_many_lists():
    rows = _rows(6000, 16)
    index = _approximate(rows, np.ones(16))
    assert index.search.probes > 8
    assert index.recall() > 0.97


def test_approximate_search_works_in_single_precision_and_loses_nothing_to_offsets():
    rows = _rows(3000, 5)
    rows[0] = 1e30
    moved = rows + 1e8
    moved[:, 3] *= 1e30  # beyond what single precision can square
    lengths = np.array([1.0, 1, 1, 1e30, 1])
    index = _approximate(moved, lengths, k=10)
    assert index.recall(k=10) > 0.97
    assert low_recall(index.recall()) is None
    found = index.query(moved[:1], 3, leave_out=np.array([0]))
    assert np.isfinite(found.distances).all()


def test_approximate_search_with_thousands_of_equal_rows_and_few_places():
    rows = np.repeat(_rows(40, 3), 100, axis=0)
    own = np.arange(0, 4000, 97)
    for k in (5, 250):
        found = _approximate(rows, np.ones(3), k=k).query(rows[own], k, leave_out=own)
        _check(found, _truth(rows, rows[own], np.ones(3), k, own))


@pytest.mark.parametrize("n", [1, 2, 9])
def test_approximate_search_among_few_rows(n):
    rows = _rows(n, 3)
    index = _approximate(rows, np.ones(3), k=20)
    _check(index.query(rows, 20), _truth(rows, rows, np.ones(3), 20))
    assert index.recall() == 1.0


def test_low_recall_is_told():
    assert low_recall(1.0) is None
    assert "finds only 62% of the nearest rows" in low_recall(0.62)
    clusters = _rows(3000, 4) + np.repeat([[0.0], [1e9]], 1500, axis=0)
    index = _approximate(clusters, np.ones(4), k=10)  # single precision cannot tell rows of one apart
    assert low_recall(index.recall(k=10)) is not None
    found = Neighbours.of(clusters, np.ones(4), exact=True).query(clusters[:20], 10)
    _check(found, _truth(clusters, clusters[:20], np.ones(4), 10))


def test_large_data_are_searched_by_faiss_or_an_advice_is_given(monkeypatch):
    rows = _rows(300, 8)
    monkeypatch.setattr(neighbours, "_FEW_ROWS", 200)
    monkeypatch.setattr(neighbours, "has_faiss", lambda: False)
    index = Neighbours.of(rows, np.ones(8))
    assert index.exact
    assert index.recall() == 1.0
    assert "300 rows takes about" in index.advice
    assert Neighbours.of(rows[:, :3], np.ones(3)).advice is None
    assert Neighbours.of(rows, np.ones(8), exact=True).advice is None
    monkeypatch.undo()
    monkeypatch.setattr(neighbours, "_FEW_ROWS", 200)
    pytest.importorskip("faiss")
    assert not Neighbours.of(rows, np.ones(8)).exact
    assert Neighbours.of(rows, np.ones(8)).advice is None


def test_faiss_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    searches.faiss.cache_clear()
    with pytest.raises(ImportError, match=r"needs faiss.*pip install faiss-cpu"):
        Neighbours.of(_rows(20, 2), np.ones(2), exact=False)


def test_an_index_travels(tmp_path):
    rows = _rows(200, 3)
    for index in (Neighbours.of(rows, np.ones(3)), _approximate(rows, np.ones(3), k=5)):
        found, again = (i.query(rows[:9], 5) for i in (index, pickle.loads(pickle.dumps(index))))
        _check(again, (found.indices, found.distances))


def test_bad_input_is_refused_in_a_sentence():
    rows = _rows(20, 2)
    index = Neighbours.of(rows, np.ones(2))
    bad = rows.copy()
    bad[13, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 113 holds NaN \(feature 1\)"):
        Neighbours.of(bad, np.ones(2), first=100)
    with pytest.raises(ValueError, match="row 13 holds NaN"):
        index.query(bad, 3)
    bad[13, 1] = -np.inf
    with pytest.raises(ValueError, match="row 13 holds infinity"):
        index.query(bad, 3)
    bad[13, 1] = 1e200
    with pytest.raises(ValueError, match=r"feature 1 of row 13 is 1e[+]200, more than 1e[+]150 length"):
        Neighbours.of(bad, np.ones(2))
    with pytest.raises(ValueError, match=r"feature 1 of row 13 is 1e[+]200"):
        index.query(bad, 3)
    for lengths in (np.ones(3), np.zeros(2), np.array([1.0, np.nan])):
        with pytest.raises(ValueError, match="must be one or 2 positive numbers"):
            Neighbours.of(rows, lengths)
    with pytest.raises(ValueError, match=r"got shape \(0, 2\)"):
        Neighbours.of(rows[:0], np.ones(2))
    with pytest.raises(ValueError, match="must have 2 features"):
        index.query(np.ones((3, 4)), 3)
    with pytest.raises(ValueError, match="k must be a positive integer, got 0"):
        index.query(rows, 0)
    with pytest.raises(ValueError, match="leave_out must hold 20 numbers"):
        index.query(rows, 3, leave_out=np.arange(3))
    assert index.query(rows[:0], 3).indices.shape[0] == 0
