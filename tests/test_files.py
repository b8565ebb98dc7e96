"""Model files: whole or refused, and never executed."""

import io
import json
import os
import pickle
import zipfile

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import postlin
from postlin import EP, ConvergenceWarning, GPClassifier, ModelFileError
from postlin._files import sealed
from postlin.estimator import files
from postlin.likelihoods import REGISTRY as LIKELIHOODS
from postlin.likelihoods import NoisyThreshold
from postlin.rules import REGISTRY as RULES
from postlin.schedules import REGISTRY as SCHEDULES
from postlin.schedules import Sequential

KERNEL = 10.0 * RBF(1.0) + WhiteKernel(0.1)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    codes = np.where(X[:, 0] < 0, 0, np.where(X[:, 1] < 0.3, 1, 2))
    return X, np.array(["apple", "bean", "cress"])[codes]


@pytest.fixture(scope="module")
def model(rows):
    return GPClassifier(KERNEL, optimizer=None).fit(*rows)


@pytest.fixture(scope="module")
def content(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "model"
    postlin.save(model, path)
    return path.read_bytes()


def back(model, path):
    postlin.save(model, path)
    return postlin.load(path)


@pytest.mark.parametrize(
    "options",
    [
        *({"likelihood": name} for name in LIKELIHOODS),
        *({"inference": name, "likelihood": "logit"} for name in RULES),
        *({"schedule": name} for name in SCHEDULES),
        {"inference": EP("clamp"), "schedule": Sequential(iterations=3)},
        {"likelihood": NoisyThreshold(0.1, (0.01, 0.4)), "fold_noise": True},
        {"multi_class": "one_vs_one"},
        {"class_weight": {"apple": 2.0, "bean": 1.0, "cress": 0.5}},
        {"kernel": Matern(1.0, nu=1.5) * RationalQuadratic() + DotProduct() + WhiteKernel()},
        {
            "kernel": Exponentiation(ExpSineSquared(20.0, 50.0), 2)
            + PairwiseKernel(metric="rbf")
            + WhiteKernel()
        },
        {"random_state": np.random.RandomState(3)},
    ],
    ids=lambda options: "-".join(options),
)
@pytest.mark.filterwarnings("ignore::postlin.NegativeSiteWarning")
def test_what_is_loaded_is_what_was_saved(rows, options, tmp_path):
    X, _ = rows
    model = GPClassifier(**{"kernel": KERNEL, "optimizer": None, **options}).fit(*rows)
    again = back(model, tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.summary() == model.summary()
    given, kept = (m.set_params(random_state=None).get_params(deep=False) for m in (model, again))
    assert repr(kept) == repr(given)
    assert again.log_marginal_likelihood_value_ == model.log_marginal_likelihood_value_


def test_every_type_that_can_be_learned_with_is_on_the_list():
    for registry in (LIKELIHOODS, RULES, SCHEDULES):
        for kind in registry.values():
            assert f"{kind.__module__}.{kind.__qualname__}" in files.TRUSTED


def test_a_pipeline_with_names(rows, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame(rows[0], columns=["a", "b"]), rows[1]
    model = make_pipeline(StandardScaler(), GPClassifier(KERNEL, optimizer=None)).fit(X, y)
    again = back(model, tmp_path / "m")
    assert list(again.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("dump", [pickle, joblib], ids=["pickle", "joblib"])
def test_plain_pickles_work_as_for_any_estimator(model, rows, dump, tmp_path):
    X, _ = rows
    with (tmp_path / "m").open("wb") as file:
        dump.dump(model, file)
    with (tmp_path / "m").open("rb") as file:
        again = dump.load(file)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def zipped(members):
    """The bytes of an archive with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def members_of(payload):
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def mutated(content, rng):
    """A bit flipped, an end cut off, bytes put in or taken out, two members exchanged."""
    kind = rng.integers(5)
    where = int(rng.integers(len(content)))
    if kind == 0:
        flipped = bytes([content[where] ^ 1 << int(rng.integers(8))])
        return content[:where] + flipped + content[where + 1 :]
    if kind == 1:
        return content[:where]
    if kind == 2:
        return content[:where] + rng.bytes(int(rng.integers(1, 9))) + content[where:]
    if kind == 3:
        return content[:where] + content[where + int(rng.integers(1, 9)) :]
    start = content.index(b"PK")
    members = members_of(content[start:])
    one, other = rng.choice(sorted(members), size=2, replace=False)
    members[one], members[other] = members[other], members[one]
    return content[:start] + zipped(members)


def refusal(path):
    """What load has to say against a file."""
    try:
        postlin.load(path)
    except ModelFileError as error:
        return str(error)
    return None


def test_a_thousand_mutations_are_refused_or_change_nothing(model, content, rows, tmp_path):
    X, _ = rows
    expected = model.predict_proba(X)
    rng = np.random.default_rng(1)
    path = tmp_path / "m"
    refused = 0
    for _ in range(1000):
        path.write_bytes(mutated(content, rng))
        message = refusal(path)
        if message is None:
            np.testing.assert_array_equal(postlin.load(path).predict_proba(X), expected)
        else:
            refused += 1
            assert str(path) in message
            assert len(message.splitlines()) == 1
    assert refused > 900


def forged(payload):
    """A file with a checksum that is right, as somebody would make it who means harm."""
    return files._MAGIC + files._header(payload, None) + payload


class Harm:
    """Runs a command when it is brought back to life, by pickle's rules."""

    def __reduce__(self):
        return os.system, ("touch harm-was-done",)


def test_a_forged_file_runs_nothing(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    start = content.index(b"PK")
    members = members_of(content[start:])

    def described(**changes):
        schema = json.loads(members["schema.json"]) | changes
        return zipped(members | {"schema.json": json.dumps(schema).encode()})

    evil = {
        "an estimator of others": skops.io.dumps(LogisticRegression()),
        "a function": skops.io.dumps([os.system]),
        "an object": skops.io.dumps({"a": Harm()}),
        "a pickle": pickle.dumps(Harm()),
        "nothing": b"",
        "an empty archive": zipped({}),
        "no description": zipped({"schema.json": b"{"}),
        "another class": described(__class__="Popen", __module__="subprocess"),
        "another loader": described(__loader__="MethodNode"),
    }
    for name, payload in evil.items():
        (tmp_path / "m").write_bytes(forged(payload))
        with pytest.raises(ModelFileError):
            postlin.load(tmp_path / "m")
        assert os.listdir(tmp_path) == ["m"], name


def test_mutations_with_a_right_checksum_are_survived(content, model, rows, tmp_path):
    """The checksum guards against accidents; against intent there is the list of types."""
    start = content.index(b"PK")
    members = members_of(content[start:])
    schema = members["schema.json"]
    rng = np.random.default_rng(2)
    refused = 0
    for _ in range(150):
        where = int(rng.integers(len(schema)))
        changed = schema[:where] + rng.bytes(1) + schema[where + 1 :]
        (tmp_path / "m").write_bytes(forged(zipped(members | {"schema.json": changed})))
        refused += refusal(tmp_path / "m") is not None  # anything else it raises is a failure
        assert os.listdir(tmp_path) == ["m"]
    assert refused > 50


def test_another_format_is_named(content, tmp_path, monkeypatch):
    now = files._FORMAT
    monkeypatch.setattr(files, "_FORMAT", now + 1)
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(
        ModelFileError,
        match=rf"written by postlin \S+ in format {now}, and postlin \S+ reads format {now + 1}",
    ):
        postlin.load(tmp_path / "m")


class OwnKernel(RBF):
    """A kernel that is not scikit-learn's."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: GPClassifier(), "not fitted"),
        (lambda X, y: LogisticRegression().fit(X, y), "not a LogisticRegression"),
        (lambda X, y: GPClassifier(OwnKernel(), optimizer=None).fit(X, y), "OwnKernel"),
        (lambda X, y: GPClassifier(KERNEL, optimizer=None, callback=print).fit(X, y), "print"),
    ],
    ids=["unfitted", "foreign", "kernel", "function"],
)
def test_what_cannot_be_saved_is_not(rows, make, message, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"precious")
    with pytest.raises(ModelFileError, match=message):
        postlin.save(make(*rows), path)
    assert path.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["m"]


def test_a_write_that_fails_leaves_the_old_file(model, content, tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(content)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space left")))
    with pytest.raises(OSError, match="no space"):
        postlin.save(model, path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["m"]


def test_a_checkpoint_of_another_layout_names_both_versions(tmp_path):
    about = {"format": 99, "postlin": "9.9", "fingerprint": "of another fit"}
    (tmp_path / "c").write_bytes(sealed(about))
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = GPClassifier(inducing=3, checkpoint=tmp_path / "c")
    message = (
        r"is a checkpoint of postlin 9\.9 in format 99, and postlin \S+ reads format \d+: remove it"
    )
    with pytest.raises(postlin.CheckpointError, match=message):
        model.fit(X, X[:, 0] > 0)


def test_names_in_a_foreign_file_cannot_write_lines_or_colours(content, tmp_path):
    members = members_of(content[content.index(b"PK") :])
    schema = json.loads(members["schema.json"]) | {"__class__": "A\n\x1b[31m" + "x" * 10**5}
    payload = zipped(members | {"schema.json": json.dumps(schema).encode()})
    (tmp_path / "m").write_bytes(forged(payload))
    message = refusal(tmp_path / "m")
    assert message.isprintable()
    assert len(message) < 500


def test_a_kernel_that_counts_no_features(tmp_path):
    # scikit-learn counts no features for a constant kernel, which takes any objects
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    with pytest.warns(ConvergenceWarning, match="cannot tell the rows apart"):
        model = GPClassifier(ConstantKernel(2.0)).fit(X, y)
    postlin.save(model, tmp_path / "model")
    np.testing.assert_array_equal(
        postlin.load(tmp_path / "model").predict_proba(X), model.predict_proba(X)
    )
