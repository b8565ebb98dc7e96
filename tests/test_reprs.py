"""What a reader meets at a prompt: results say in a line, or a short table, what they are."""

import numpy as np
import pytest

import postlin

X = np.random.default_rng(0).normal(size=(30, 2))
Y = X[:, 0] > 0


@pytest.fixture(scope="module")
def result():
    K = np.exp(-0.5 * (X[:, :1] - X[:, 0]) ** 2) + 0.1 * np.eye(30)
    return postlin.infer(K, np.where(Y, 1.0, -1.0))


def test_an_approximation_is_a_line(result):
    line = repr(result)
    assert "\n" not in line
    assert "converged" in line
    assert f"{result.log_evidence:.6g}" in line
    assert f"{result.n_factorisations} factorisations" in line


@pytest.mark.parametrize(
    "options", [{"inducing": 5}, {"multi_class": "joint"}], ids=["sparse", "joint"]
)
def test_so_are_those_of_other_kinds(options):
    y = np.arange(30) % 3 if "multi_class" in options else Y
    found = postlin.GPClassifier(optimizer=None, **options).fit(X, y).approximation_
    assert isinstance(found, postlin.Approximation)
    assert "converged" in repr(found)
    assert "\n" not in repr(found)


def test_sites_are_a_line_with_their_ranges(result):
    line = repr(result.sites)
    assert line.startswith("<Sites of 30 points: tau ")
    assert f"{result.sites.tau.max():.3g}" in line
    assert len(line) < 100


def test_a_history_is_a_short_table(result):
    first, head, *rows = repr(result.history).splitlines()
    assert first == f"<History of {result.n_iter} iterations>"
    assert head.split() == ["iteration", "residual"]
    assert len(rows) == result.n_iter
    assert float(rows[-1].split()[1]) == pytest.approx(result.residual, rel=0.01)


def test_labels_as_strings_are_told_what_to_do():
    with pytest.raises(ValueError, match=r"map the labels to -1 and \+1, or use GPClassifier"):
        postlin.infer(np.eye(2), ["a", "b"])
