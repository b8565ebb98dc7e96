"""Mutated files: each is refused in a sentence of ours, or gives a result that is whole."""

import io
import json
import resource
import time
import tracemalloc
import warnings
import zipfile

import mutate
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import postlin
from postlin import CheckpointError, FileWarning, GPClassifier, ModelFileError
from postlin._files import sealed, unsealed
from postlin.estimator import files
from postlin.learning.journal_file import SUMS
from postlin.workbench.cli.inputs import BadInputError
from postlin.workbench.cli.tables import read_data
from postlin.workbench.evaluation.folds import FoldResult, Store, Task, prepared

KERNEL = 4.0 * RBF(1.0) + WhiteKernel(0.1, "fixed")
#: How many mutations there are of each kind of file: in every run of the tests, and in the slow one.
FEW, MANY = 25, 300
#: The largest growth of the memory of the process over all mutations of a kind, in MiB.
GROWTH = 300
numbers = pytest.mark.parametrize("n", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    noisy = X + rng.normal(size=(40, 2))
    return X, np.where(noisy[:, 0] < 0, "a", np.where(noisy[:, 1] < 0.3, "b", "c"))


@pytest.fixture(scope="module")
def models(rows, tmp_path_factory):
    """Files of models of every kind."""
    X, y = rows
    two, weight = y == "a", np.linspace(0.0, 2.0, 40)
    fixed = {"kernel": KERNEL, "optimizer": None}
    made = {
        "weights": GPClassifier(**fixed).fit(X, two, sample_weight=weight),
        "pipeline": make_pipeline(StandardScaler(), GPClassifier(KERNEL)).fit(
            pd.DataFrame(X, columns=["u", "v"]), two
        ),
        "table": postlin.table_classifier(
            {"u": "number", "v": "category"}, kernel=KERNEL, optimizer=None
        ).fit(pd.DataFrame(X.round(), columns=["u", "v"]), two),
        "one_vs_one": GPClassifier(**fixed, multi_class="one_vs_one").fit(X, y),
        "joint": GPClassifier(**fixed, multi_class="joint").fit(X, y),
        "sparse": GPClassifier(**fixed, inducing=5, random_state=0).fit(X, y),
    }
    path = tmp_path_factory.mktemp("models") / "m"
    contents = {}
    for name, model in made.items():
        postlin.save(model, path)
        contents[name] = path.read_bytes()
    return contents


@pytest.fixture
def bounded():
    """Check that the memory of the process does not grow much, and that nothing takes long."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    yield
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < GROWTH * 2**10
    assert time.monotonic() - began < 300


def check_sentence(error, *kinds):
    """Check that an error is of one of these kinds, and one sentence."""
    text = str(error)
    assert type(error) in kinds
    assert len(text.splitlines()) == 1
    assert 20 < len(text) < 1000


def are_probabilities(p):
    return np.isfinite(p).all() and (p >= 0).all() and np.allclose(p.sum(axis=1), 1.0, atol=1e-6)


def predicted(path, X):
    """The predictions of a file; None if it is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # the file says so
            model = postlin.load(path)
    except ModelFileError as error:
        check_sentence(error, ModelFileError)
        return None
    if hasattr(model, "feature_names_in_"):
        X = pd.DataFrame(X, columns=list(model.feature_names_in_))
    p = model.predict_proba(X)
    assert are_probabilities(p)
    assert len(model.predict(X)) == len(X)
    return p


@numbers
@pytest.mark.parametrize("name", ["weights", "pipeline", "table", "one_vs_one", "joint", "sparse"])
@pytest.mark.usefixtures("bounded")
def test_model_files(models, rows, tmp_path, name, n):
    X, content, path = rows[0], models[name], tmp_path / "m"
    path.write_bytes(content)
    expected = predicted(path, X)
    assert expected is not None
    payload = content[content.index(b"PK") :]
    header = json.loads(content[len(files._MAGIC) :].split(b"\n")[0])
    rng = np.random.default_rng(len(name) + n)
    refused = 0
    for k in range(n):
        if k % 4 == 0:
            path.write_bytes(mutate.mutate_bytes(content, rng))
            p = predicted(path, X)
            assert p is None or np.array_equal(p, expected)
        else:  # with a checksum that is right
            forged = mutate.mutate_archive(payload, rng)
            path.write_bytes(files._MAGIC + files._header(forged, header["features"]) + forged)
            p = predicted(path, X)
        refused += p is None
    assert refused > n / 3


def forged(tmp_path, members, compression=zipfile.ZIP_STORED):
    payload = mutate.zipped(members, compression)
    (tmp_path / "m").write_bytes(files._MAGIC + files._header(payload, None) + payload)
    return tmp_path / "m"


def bombs(content):
    """Small files that would fill the memory, or take forever."""
    members = mutate.members_of(content[content.index(b"PK") :])
    schema = json.loads(members["schema.json"])
    array = next(name for name in members if name.endswith(".npy"))
    node = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy"}
    kind = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    many = [node | {"file": array, "__id__": 10**9 + k} for k in range(2000)]
    tower = kind | {"content": [], "__id__": 1}
    for level in range(2, 40):
        tower = kind | {"content": [tower, {"__id__": level - 1}], "__id__": level}
    zeros = mutate.array_bytes(np.zeros(10**6))
    sparse = mutate.zipped({"data.npy": mutate.array_bytes(np.zeros(10**7))}, zipfile.ZIP_DEFLATED)
    matrix = node | {"__loader__": "SparseMatrixNode", "type": "scipy", "file": "s", "__id__": 7}
    promised = zeros.replace(b"(1000000,)", b"(10000000000000,)"[:10])
    return {
        "compressed": (members | {"x": bytes(10**8)}, zipfile.ZIP_DEFLATED),
        "repeated": (members | {"schema.json": json.dumps(schema | {"more": many})}, 0),
        "a tower": (members | {"schema.json": json.dumps(schema | {"more": tower})}, 0),
        "promised": (members | {array: promised}, 0),
        "sparse": (members | {"s": sparse, "schema.json": json.dumps(schema | {"more": matrix})}, 0),
    }


@pytest.mark.parametrize("name", ["compressed", "repeated", "a tower", "promised", "sparse"])
def test_bombs_are_refused_before_they_burst(models, tmp_path, name):
    path = forged(tmp_path, *bombs(models["weights"])[name])
    size = path.stat().st_size
    assert size < 2**23
    tracemalloc.start()
    began = time.monotonic()
    with pytest.raises(ModelFileError, match="cannot be read"):
        postlin.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24 + 4 * size
    assert time.monotonic() - began < 5


def resealed(content, rng):
    """Lines of which one holds another record, with a checksum that is right."""
    lines = content.splitlines(keepends=True)
    k = int(rng.integers(1, len(lines)))
    lines[k] = sealed(mutate.mutate_json(unsealed(lines[k]), rng))
    return b"".join(lines)


@numbers
@pytest.mark.usefixtures("bounded")
def test_checkpoints(rows, tmp_path, n):
    X, y = rows[0], rows[1] == "a"
    path = tmp_path / "fit"

    def fitted():
        options = {"inducing": 4, "random_state": 0, "tol": 1e-4, "checkpoint": path}
        return GPClassifier(KERNEL, **options).fit(X, y).predict_proba(X)

    expected = fitted()
    content = path.read_bytes()
    rng = np.random.default_rng(n)
    changes = [mutate.mutate_bytes, mutate.mutate_lines, resealed]
    for k in range(n):
        path.write_bytes(changes[k % 3](content, rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FileWarning)
                if k % 3 == 2:  # whoever forges a record may change the result
                    warnings.simplefilter("ignore", postlin.ConvergenceWarning)
                p = fitted()
        except CheckpointError as error:
            check_sentence(error, CheckpointError)
            continue
        assert are_probabilities(p)
        if k % 3 < 2:
            np.testing.assert_allclose(p, expected, atol=1e-3)


def test_every_sum_of_a_pass_is_checked():
    assert {part for total in SUMS.values() for part in total._fields} == {
        *("precision", "pull", "unsolved", "value", "by_precision", "by_pull", "improper"),
        *("by_basis", "by_theta", "by_points", "by_parameters"),
    }


@numbers
@pytest.mark.usefixtures("bounded")
def test_folds(tmp_path, n):
    path, rng = tmp_path / "folds.jsonl", np.random.default_rng(n)
    results = {}
    store = Store(path)
    for k in range(6):
        p = rng.random(5).round(6)
        p = p.tolist() if k % 2 else np.stack([p, 1 - p], axis=1).tolist()
        results[f"{k}" * 64] = FoldResult([0, 1, 0, 1, 1], p, -1.5 * k, 0.1, True, [0.5], [-2.0, -1.5])
    for key, result in results.items():
        store.add(key, Task("data", "L", "probit"), result)
    content = path.read_bytes()
    changes = [mutate.mutate_bytes, mutate.mutate_lines, resealed]
    for k in range(n):
        path.write_bytes(changes[k % 3](content, rng))
        again = Store(path)
        for key, result in results.items():
            if k % 3 < 2:
                assert again.get(key) in (result, None)
            elif (found := again.get(key)) is not None:
                assert np.isfinite(np.array(found.p)).all()
        assert len(again.problems) <= 1


def table(rows):
    return pd.DataFrame(rows[0], columns=["a", "b"]).assign(y=rows[1])


@numbers
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.usefixtures("bounded")
def test_tables(rows, tmp_path, suffix, n):
    path, buffer = tmp_path / f"t.{suffix}", io.BytesIO()
    frame = table(rows)
    frame.to_csv(buffer, index=False) if suffix == "csv" else frame.to_parquet(buffer)
    rng = np.random.default_rng(n)
    read = 0
    for k in range(n):
        change = mutate.mutate_lines if suffix == "csv" and k % 2 else mutate.mutate_bytes
        path.write_bytes(change(buffer.getvalue(), rng))
        try:
            data = read_data(str(path), None)
        except BadInputError as error:
            check_sentence(error, BadInputError)
            continue
        read += 1
        X = prepared(data, np.arange(len(data.codes)))
        assert np.isfinite(X).all()
        assert len(X) == len(data.codes)
    assert read or suffix == "parquet"


@numbers
@pytest.mark.usefixtures("bounded")
def test_parquet_sources(rows, tmp_path, n):
    path, buffer = tmp_path / "t.parquet", io.BytesIO()
    table(rows).to_parquet(buffer)
    rng = np.random.default_rng(n)
    for _ in range(n):
        path.write_bytes(mutate.mutate_bytes(buffer.getvalue(), rng))
        try:
            source = postlin.parquet(path, target="y")
            model = GPClassifier(KERNEL, optimizer=None, inducing=3, random_state=0).fit(source)
        except (ValueError, TypeError) as error:
            check_sentence(error, ValueError, TypeError)
            continue
        names = list(model.feature_names_in_)
        X = pd.DataFrame(np.zeros((5, len(names))), columns=names)
        assert are_probabilities(model.predict_proba(X))
