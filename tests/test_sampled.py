"""Hyperparameters that are learned from samples, against those that all rows give."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss

import postlin
from postlin import GPClassifier
from postlin.learning import sampled
from postlin.streaming import views
from postlin.streaming.views import ArrayRows

KERNEL = ConstantKernel(4.0) * RBF(1.0) + WhiteKernel(0.1, "fixed")
OPTIONS = {"kernel": KERNEL, "inducing": 12, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2400, 2))
    f = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * rng.standard_normal(len(X))
    y = np.where(f > 0, "yes", "no")
    return (X[:1400], y[:1400]), (X[1400:], y[1400:])


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Samples of few rows."""
    sizes = {"FIRST": 200, "FEW": 300, "MANY": 700, "HELD": 140, "_RARE": 20}
    for name, size in sizes.items():
        monkeypatch.setattr(sampled, name, size)


@pytest.fixture
def read(monkeypatch):
    """The number of passes over all rows."""
    passes, total = [], views.SourceRows.total

    def counted(self, share):
        passes.append(type(share).__name__)
        return total(self, share)

    monkeypatch.setattr(views.SourceRows, "total", counted)
    return passes


def test_only_inference_reads_all_rows(data, read, caplog):
    (X, y), (new, labels) = data
    seen = []
    with caplog.at_level("INFO", "postlin"):
        model = GPClassifier(**OPTIONS, callback=seen.append).fit(X, y)
    assert "searching on 200 of 1400 rows" in caplog.text
    assert "continuing on 300 rows" in caplog.text
    assert "continuing on 700 rows" in caplog.text
    assert "log-loss of 140 rows held back" in caplog.text
    assert "inference from all 1400 rows" in caplog.text
    assert set(read) <= {"Draw", "Sweep", "Cautious", "EvidencePass"}
    assert len(read) < 25
    assert model.converged_
    # the path is that of the samples
    assert [e.number for e in seen] == list(range(1, len(seen) + 1))
    assert [e.log_evidence for e in seen] == [value for _, value in model.evidence_path_]
    assert np.diff([e.seconds for e in seen]).min() >= 0
    read.clear()
    whole = GPClassifier(**OPTIONS, coarse_rows=None).fit(X, y)
    assert len(read) > 40
    # the posterior is that of all rows at almost the same hyperparameters
    again = GPClassifier(**OPTIONS | {"kernel": model.kernel_}, optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(new), again.predict_proba(new), atol=1e-5)
    assert model.log_marginal_likelihood_value_ > whole.log_marginal_likelihood_value_ - 2.0
    one, other = (log_loss(labels, m.predict_proba(new)) for m in (model, whole))
    assert one < other + 2e-3


def test_samples_have_the_weight_of_all_rows(data):
    (X, y), _ = data
    weight = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y))
    rows = ArrayRows(X, np.where(y == "yes", 1.0, -1.0), weight)
    some = rows.sample(350, 0).standing_for(rows.n)
    assert some.times == 4.0
    assert some.weight.sum() == pytest.approx(weight.sum(), rel=0.05)
    np.testing.assert_allclose(some.weight, 4.0 * rows.sample(350, 0).weight)


def test_parts_of_a_sample_have_no_row_in_common(data):
    (X, y), _ = data
    X = X.copy()
    X[:, 0] = np.arange(len(X))
    model = GPClassifier(**OPTIONS, optimizer=None).fit(X, y).base_estimator_.model
    stages, held = sampled.Sample.of(model, seed=1)
    assert [part.n for part in (*stages, held)] == [200, 300, 700, 140]
    assert [part.stands_for for part in stages] == [1400, 1400, 1400]
    named = [set(part.X[:, 0]) for part in (*stages, held)]
    assert named[0] < named[1] < named[2]
    assert not named[2] & named[3]


def test_few_rows_and_rare_classes_are_searched_as_a_whole(data, read, caplog):
    (X, y), _ = data
    first = GPClassifier(**OPTIONS).fit(X[:200], y[:200])
    same = GPClassifier(**OPTIONS, coarse_rows=None).fit(X[:200], y[:200])
    np.testing.assert_array_equal(first.predict_proba(X), same.predict_proba(X))
    rare = np.where(np.arange(len(y)) % 40 == 0, y, "no")
    with caplog.at_level("INFO", "postlin"):
        GPClassifier(**OPTIONS).fit(X, rare)
    assert "a class is too rare" in caplog.text


def test_too_few_rows_for_a_second_search(data, caplog):
    (X, y), _ = data
    with caplog.at_level("INFO", "postlin"):
        model = GPClassifier(**OPTIONS).fit(X[:420], y[:420])
    assert "continuing on 300 rows" in caplog.text
    assert "continuing on 378 rows" not in caplog.text
    assert model.converged_


def test_learned_points_and_another_optimiser(data, read):
    (X, y), (new, labels) = data
    options = {"inducing": 4, "learn_inducing": True, "optimizer": "fmin_l_bfgs_b"}
    model = GPClassifier(**OPTIONS | options).fit(X[:500], y[:500])
    assert "GradientPass" not in read
    assert model.converged_
    assert log_loss(labels, model.predict_proba(new)) < 0.6


def test_streams_and_many_classes(data):
    (X, y), (new, _) = data
    codes = np.where(X[:, 0] > 1, 2, (y == "yes").astype(int))
    options = OPTIONS | {"shared_kernel": True}
    model = GPClassifier(**options).fit(X, codes)
    halves = [(X[:700], codes[:700]), (X[700:], codes[700:])]
    again = GPClassifier(**options).fit(postlin.stream(lambda: halves))
    np.testing.assert_allclose(model.predict_proba(new), again.predict_proba(new), atol=1e-4)


def test_a_checkpoint_repeats_all_searches(data, tmp_path, read):
    (X, y), (new, _) = data
    plain = GPClassifier(**OPTIONS).fit(X, y)
    model = GPClassifier(**OPTIONS, checkpoint=tmp_path / "fit").fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(new), plain.predict_proba(new))
    read.clear()
    again = GPClassifier(**OPTIONS, checkpoint=tmp_path / "fit").fit(X, y)
    assert set(read) <= {"Draw"}
    np.testing.assert_array_equal(again.predict_proba(new), plain.predict_proba(new))
    np.testing.assert_array_equal(
        [value for _, value in again.evidence_path_], [value for _, value in plain.evidence_path_]
    )


@pytest.mark.parametrize("when", ["LogLossPass", "GradientPass"])
def test_an_interrupt_keeps_the_best(data, monkeypatch, when):
    (X, y), (new, labels) = data
    total, seen = ArrayRows.total, []

    def interrupted(self, share):
        seen.extend([share] if type(share).__name__ == when else [])
        if len(seen) == 2:
            seen.append(None)
            raise KeyboardInterrupt
        return total(self, share)

    monkeypatch.setattr(ArrayRows, "total", interrupted)
    with pytest.warns(postlin.ConvergenceWarning, match="interrupted"):
        model = GPClassifier(**OPTIONS, keep_on_interrupt=True).fit(X, y)
    assert log_loss(labels, model.predict_proba(new)) < 0.5
    seen.clear()
    with pytest.raises(KeyboardInterrupt):
        GPClassifier(**OPTIONS).fit(X, y)


def test_the_choice_is_checked(data):
    with pytest.raises(ValueError, match="coarse_rows must be 'auto', a positive integer or None"):
        GPClassifier(**OPTIONS, coarse_rows="all").fit(*data[0])
